"""Split documents into sentences: at line ends, and inside lines by a rule that does not depend on the language.

A sentence ends with an end mark (. ! ?), closing quotes or brackets, and white space, if the next character is not
a small letter; or with a full-width end mark, which needs no space. A full stop after a single letter or digit, or
after two digits ("J. Smith", "U.S. Army", "am 3. Mai"), or after a short word and before a digit ("No. 5", "Abs.
2"), does not end a sentence. Other abbreviations do. Such errors matter little, because sentences only decide
where examples may be split.
"""

import re

_CLOSERS = r"[\"'”’»)\]」』）】]*"
_MARKS = "[.!?…。！？｡]"
# It begins with one set of characters, which `re` can search for; two alternatives would take three times as long.
# Only the first mark of a row may begin a match: from each mark of "......" it would read the rest of the row.
_END = re.compile(rf"{_MARKS}(?<!{_MARKS}{_MARKS}){_MARKS}*(?:{_CLOSERS}\s+|(?<=[。！？｡]){_CLOSERS})(?=\S)")
_OPENERS = "\"'“‘«„([¿¡「『"


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a document in order, stripped and never empty."""
    sentences: list[str] = []
    for line in text.split("\n"):
        start = 0
        for match in _END.finditer(line):
            if _ends_sentence(line, match.start(), match.end()):
                sentences.append(line[start : match.end()])
                start = match.end()
        sentences.append(line[start:] if start else line)
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _ends_sentence(line: str, mark: int, after: int) -> bool:
    if line[mark] != ".":
        return line[mark] in "。！？｡" or not line[after].islower()
    position = after
    while line[position] in _OPENERS and position + 1 < len(line):
        position += 1
    if line[position].islower():
        return False
    before = line[max(0, mark - 5) : mark]
    if not before[-1:].isalnum():
        return True
    if line[position].isdigit() and not before.isalnum():
        return False
    lone = len(before) < 2 or not before[-2].isalnum()
    return not lone and not (before[-2:].isdigit() and not before[-3:-2].isalnum())

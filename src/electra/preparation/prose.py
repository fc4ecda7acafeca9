"""Extract English prose from documentation: find the docstrings of a source file, remove markup, keep sentences.

It reads reStructuredText (Sphinx, numpydoc), Google-style sections, Markdown and plain text. The rules are simple:
everything that is not clearly a sentence is dropped, because a model learns from this text.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

# --- docstrings ------------------------------------------------------------------------------------------

_TRIPLE_QUOTE = re.compile(r"""(["'])\1\1""")  # five times as fast as an alternation of the two
_SHORT_STRING = re.compile(r"""\"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")


def find_docstrings(source: str) -> Iterator[str]:
    """Yield the triple-quoted strings that begin a line, in order: docstrings, and arguments of `add_docstring`.

    It is lexical, not syntactic: much faster than `ast.parse`, and it reads files for any version of Python.
    """
    position = 0
    while opening := _TRIPLE_QUOTE.search(source, position):
        quote, start, inside = opening[0], opening.start(), opening.end()
        before = source[max(position, source.rfind("\n", 0, start) + 1) : start]
        if any(mark in _SHORT_STRING.sub("", before) for mark in "#'\""):  # inside a comment or another string
            position = source.find("\n", start)
            if position < 0:
                return
            continue
        end = source.find(quote, inside)
        while end > 0 and (end - len(source[inside:end].rstrip("\\")) - inside) % 2:  # an escaped quote
            end = source.find(quote, end + 1)
        if end < 0:
            return
        position = end + len(quote)
        prefix = before.strip().lower()
        if prefix == "r":
            yield source[inside:end]
        elif not prefix:
            yield source[inside:end].replace("\\\n", "").replace("\\n", "\n").replace("\\\\", "\\")


# --- blocks ----------------------------------------------------------------------------------------------

_UNDERLINE = re.compile(r"""\s*([=\-~^"'`*+#:.<>_])\1{2,}\s*$""")
_DIRECTIVE = re.compile(r"\s*\.\.(?:\s+([\w:-]+?)\s*::\s*(.*)|\s.*|$)")
_ADMONITIONS = {"note", "warning", "tip", "important", "caution", "hint", "attention", "danger", "seealso"}
_VERSIONS = {"versionadded", "versionchanged", "deprecated"}
_FENCE = re.compile(r"\s*(```|~~~)")
_PROMPT = re.compile(r"\s*(>>>|\$ |% )")
_NOT_TEXT = re.compile(
    rf"{_UNDERLINE.pattern}|\s*(?:\||\+[-=+]{{2,}}|[=-]{{2,}}(?:\s+[=-]{{2,}})+\s*$|#{{1,6}}\s)"
)
"""An underline, a row of a table, a Markdown header."""
_QUOTE = re.compile(r"^\s*>\s(\[!\w+\])?")
_FIELD = re.compile(r"\s*[:@](\w+)(?:\s+[^:]*)?:\s*(.*)$")
_NUMPY_PARAMETER = re.compile(r"""\s*[\w*`.,\\{}\[\]'" -]*?\s+:(\s+.*)?$""")
_BULLET = re.compile(r"\s*(?:[-*+\u2022]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+(?=\S)")
_NAME = r"[`'\"*]{0,2}[\w./~-]+[`'\"*]{0,2}"
_LABEL = re.compile(
    rf"\s*{_NAME}(?:\s*,\s*{_NAME})*\s*(?:\(.*\)|\[.*\])?(?:\s*:|\s+--?-?)(?=\s|$)\s*|\s*`[^`]+`\s*(?:\(.*\))?\s*:\s*"
)
_DROPPED_SECTIONS = {"references", "see also", "literature", "authors", "author", "contents", "usage", "methods"}


class _Lines:
    """Reads a docstring line by line and remembers what earlier lines mean for the next one."""

    def __init__(self) -> None:
        self.block: list[str] = []
        self.indent = 0
        """Indent of the previous line."""
        self.literal: int | None = None
        """Lines with a deeper indent belong to a literal block or to a directive without prose."""
        self.label: int | None = None
        """Indent of the list of parameters that is being read."""
        self.fenced = self.doctest = self.dropped = False

    def ends_block(self, line: str, following: str) -> bool:
        """Whether `line` is structure without prose; it ends the paragraph before it."""
        stripped, indent = line.strip(), _indent(line)
        if _FENCE.match(line):
            self.fenced = not self.fenced
            return True
        if not stripped:
            self.doctest = False
        if self.fenced or not stripped:
            return True
        if self.literal is not None:
            if indent > self.literal:
                return True
            self.literal = None
        if _UNDERLINE.match(following) and len(stripped) < 80 and stripped[0].isalnum():
            self.dropped = stripped.lower().rstrip(":") in _DROPPED_SECTIONS
            return True
        if self.dropped or self.doctest:
            return True
        if not stripped[0].isalnum():
            self.doctest = _PROMPT.match(line) is not None
            if self.doctest or _NOT_TEXT.match(line):
                return True
        # A type or a name above its indented description.
        return (
            not self.block and _indent(following) > indent and len(stripped.split()) < 5 and stripped[-1].isalnum()
        )

    def start(self, line: str) -> str | None:
        """Return the prose of a line that starts a separate paragraph (list item, field, directive); None:
        others."""
        indent = _indent(line)
        first = line[indent]
        if first == "." and (directive := _DIRECTIVE.match(line)):
            name, argument = (directive[1] or "").lower(), directive[2] or ""
            if name in _ADMONITIONS:
                return argument
            if name in _VERSIONS:
                return argument.partition(" ")[2]
            self.literal = indent
            return ""
        if first in ":@" and (field := _FIELD.match(line)):
            return "" if field[1] in {"type", "rtype", "vartype"} else field[2]
        if " :" in line and not line.endswith("::") and _NUMPY_PARAMETER.match(line):
            return ""
        if bullet := _BULLET.match(line):
            return _LABEL.sub("", line[bullet.end() :], count=1)
        may_be_label = not self.block or indent < self.indent or indent == self.label
        if may_be_label and (":" in line or " -" in line) and (label := _LABEL.match(line)):
            self.label = indent
            return line[label.end() :]
        return line if indent < self.indent else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def split_paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a text, each as one line, without code, tables, headers and lists of references."""
    lines = inspect.cleandoc(text).split("\n")
    state = _Lines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        line = _QUOTE.sub("", line).rstrip() if ">" in line else line.rstrip()
        prose: str | None = ""
        if not state.ends_block(line, following):
            prose = state.start(line)
            state.indent = _indent(line)
            if line.endswith("::"):
                state.literal = state.indent
        if prose is None:
            prose = line
        elif state.block:
            yield " ".join(state.block)
            state.block.clear()
        if prose.strip():
            state.block.append(prose.strip())
    if state.block:
        yield " ".join(state.block)


# --- inline markup ---------------------------------------------------------------------------------------

_LOST = "\0"
"""Replaces a formula or a reference; no sentence with it is kept."""
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014\u00a0", "''\"\"-- ")
_INLINE: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (mark, re.compile(pattern), replacement)
    for mark, pattern, replacement in (
        (":math:", r":math:`[^`]*`", _LOST),
        ("$", r"\$[^$\n]{1,200}\$", _LOST),
        ("\\", r"\\\(.*?\\\)", _LOST),
        ("]_", r"\b(?:in|of|by|from|see|with|to|and|at|on|See|reference)[,:]? \[[^\]]*\]_", _LOST),
        ("]_", r"\s?\[[#\w.+]+\]_", ""),  # footnotes
        ("![", r"!\[[^\]]*\](\([^)]*\)|\[[^\]]*\])", " "),  # images
        ("](", r"(?<![\w)\]])\[([^\]\[]*)\]\([^)]*\)", r"\1"),  # Markdown links
        ("][", r"(?<![\w)\]])\[([^\]\[]*)\]\[[\w.-]*\]", r"\1"),
        ("`", r"(?::[\w.+:-]+:)?`{1,2}([^`<]*?)\s*<[^`>]*>`{1,2}_{0,2}", r"\1"),  # `text <target>`_
        ("`", r"(?::[\w.+:-]+:)?`{1,3}[~!]?(?:\.(?=[A-Z]|\w+\.\w))?([^`]*)`{1,3}_{0,2}", r"\1"),  # roles, code
        ("`", r"`", ""),
        ("**", r"\*\*(\S(?:[^*]*\S)?)\*\*", r"\1"),
        ("*", r"(?<![\w*])\*(\S(?:[^*]*\S)?)\*(?![\w*])", r"\1"),
        ("[", r"(?<![^\s(])\[~?([\w.]+)\]", r"\1"),  # [`Class`] of Markdown
        ("<", r"<(?:https?|ftp|mailto):?[^>]*>|</?[a-zA-Z][^<>]{0,80}>|<!--.*?-->", " "),
        ("://", r"\b(?:https?|ftp)://[^\s)>\]]+", ""),
        ("|", r"\|(\w[\w ]*)\|_{0,2}", r"\1"),  # substitutions
        ("\\", r"\\ ?(?=s\b)|\\ ", ""),  # `.Path`\s
        ("\\", r"\\([*_`|<>\\])", r"\1"),
        (" ", r"\s+", " "),
        ("(", r"\(\s*\)", ""),
        (" ", r" ([,.;:!?)])(?=\s|$)", r"\1"),
        ("::", r"::$", ":"),
    )
)


def remove_markup(text: str) -> str:
    """Return `text` without inline markup."""
    text = text.translate(_QUOTES)
    for mark, pattern, replacement in _INLINE:
        if mark in text:
            text = pattern.sub(replacement, text)
    return text.strip()


# --- sentences -------------------------------------------------------------------------------------------

_BOUNDARY = re.compile(
    r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<! vs\.)(?<!etc\.)(?<! cf\.)(?<!\bal\.)[\"')\]]*\s+(?=[\"'(]?[A-Z])"
)
_PLAIN_WORD = re.compile(
    r"""(?<!\S)["'(\[]*(?:[A-Z]?[a-z]+|[A-Z]{1,5}s?)(?:['/-](?:[A-Z]?[a-z]+))*["')\],.;:!?]*(?!\S)"""
)
_SYMBOL = re.compile(r"[=<>{}|\\^~$@%*_#\[\]]|->|\.\.\.")
_FUNCTION_WORDS = """
a an the of to in on for from with by as at is are was were be been has have had do does not no if when
then than that this these those it its they them which who whose what where how and or but so because
while will would can could should must may might shall into onto over under between after before during
each every all any some such only also there here we you your our their other same both either neither one
two more most use used using
"""
_IS_FUNCTION_WORD = frozenset(_FUNCTION_WORDS.split()).__contains__
_NOT_LETTERS = re.compile(r"[^a-z]+")
_SHORTEST_SENTENCE = 5
_LONGEST_SENTENCE = 120


def is_prose(sentence: str) -> bool:
    """Whether `sentence` looks like English: enough plain words, some function words, few symbols."""
    count = len(sentence.split())
    if not _SHORTEST_SENTENCE <= count <= _LONGEST_SENTENCE or not sentence.isascii() or _LOST in sentence:
        return False
    if len(_SYMBOL.findall(sentence)) > count // 10:
        return False
    ordinary = len(_PLAIN_WORD.findall(sentence))
    function = sum(map(_IS_FUNCTION_WORD, sentence.lower().split()))
    if not (sentence[0].isupper() or sentence[0] in "\"'("):
        # A piece of a sentence, such as the description of a parameter: kept if it is long and all words.
        return count >= 8 and ordinary >= 0.9 * count and function >= 0.25 * count
    return ordinary >= 0.72 * count and function >= 0.14 * count


def prose_sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a paragraph that are prose, without markup, in order."""
    for sentence in _BOUNDARY.split(remove_markup(paragraph)):
        if is_prose(sentence):
            yield sentence.strip()


def keep_letters(text: str) -> str:
    """Return the letters of a text: the same for texts that differ only in numbers, case and punctuation."""
    return _NOT_LETTERS.sub("", text.lower())

"""Tagged sentences in files, a word a line: columns (CoNLL, token-per-line TSV) and CoNLL-U, read and written."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from electra.errors import DataError
from electra.readers.files import check_is_text, read_lines

BLANKS = re.compile(" +")
"""Only these part columns beside tabs: a word may be a no-break space."""
TAG = re.compile("[!-`{-~]+")
"""What tags mostly look like, and words rarely: ASCII without small letters (B-NP, NN$)."""
DOCUMENT_START = "-DOCSTART-"
CONLLU_FIELDS = 10
TEXT = re.compile(r"#\s*text\s*=\s*(.*)")
"""The comment of CoNLL-U that has the sentence as it was written."""
EXCERPT = 60  # characters of a bad line in its message


@dataclass(frozen=True)
class Columns:
    """Where a line has what, counted from 0; negative numbers count from its end.

    A line with a tab is parted at tabs, any other one at blanks. A blank line ends a sentence.

    Attributes:
        tags: None where the file has none.
        conllu: whether the file is CoNLL-U: ten fields, comments, and lines that are no words of their own.
    """

    words: int = 0
    tags: int | None = -1
    conllu: bool = False


UPOS = Columns(words=1, tags=3, conllu=True)
XPOS = Columns(words=1, tags=4, conllu=True)
FEATS = Columns(words=1, tags=5, conllu=True)


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, their tags where the file has them, and the line where they begin, from 1.

    Attributes:
        text: the sentence as it was written, where the file says so, as CoNLL-U does.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    source: str = field(compare=False)
    line: int = field(compare=False)
    text: str | None = field(default=None, compare=False)


def read(path: Path, columns: Columns) -> list[Sentence]:
    """The sentences of a file, which may be compressed (.gz, .zst).

    Raises:
        DataError: when the file cannot be read or is no text, when it has no sentence, or when a line has other
            columns than the first one, an empty word or an empty tag.
    """
    sentences: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    first = 0
    text: str | None = None

    def finish() -> None:
        if words:
            answers = tuple(tags) if columns.tags is not None else None
            sentences.append(Sentence(tuple(words), answers, str(path), first, text))
            words.clear()
            tags.clear()

    for number, line, fields in _lines(path, columns):
        if fields is not None:
            first = first if words else number
            words.append(fields[columns.words])
            if columns.tags is not None:
                tags.append(fields[columns.tags])
        elif not line or not columns.conllu:
            finish()
            text = None
        elif found := TEXT.match(line):
            text = found.group(1)
    finish()
    if not sentences:
        raise DataError(
            f"{path}: there is no sentence in it; a line a word is expected, and a blank line after each"
        )
    return sentences


def check_is_columns(path: Path, columns: Columns, labels: Collection[str]) -> None:
    """Refuse lines parted by blanks that may as well be whole sentences, all of equally many words.

    They are columns where a sentence has several lines, and either the last column holds labels only, or all but
    the words' look like tags. Lines with tabs, and those of one word, are never refused.

    Args:
        labels: tags that may stand in the last column.

    Raises:
        DataError: they may be sentences; or the file cannot be read (`read`).
    """
    longest = words = count = 0
    labelled = tags = True
    for _, line, fields in _lines(path, columns):
        if fields is None:
            words = 0
            continue
        count = len(fields)
        if "\t" in line or count == 1:
            return
        words += 1
        longest = max(longest, words)
        others = [field for place, field in enumerate(fields) if place != columns.words % count]
        labelled = labelled and fields[-1] in labels
        tags = tags and all(map(TAG.fullmatch, others))
    if count and (longest < 2 or not (labelled or tags)):
        raise DataError(
            f"{path}: each line has {count} words with blanks between, which may be columns or a whole sentence; "
            f"if they are columns, say which is the word's: --text-column {columns.words}"
        )


def write(source: Path, target: Path, columns: Columns, predicted: Sequence[Sequence[str]]) -> None:
    """Copies a file that `read` understands, with a predicted tag for each of its words.

    CoNLL-U gets the field that `columns.tags` names replaced; other files get one more column at the end of each
    line, so that conlleval finds the file's own tag and the predicted one where it looks for them.

    Raises:
        DataError: as `read` does, when there is not one tag for each word, and when the target cannot be written.
    """
    tags = [tag for sentence in predicted for tag in sentence]
    copied: list[str] = []
    used = 0
    for _, line, fields in _lines(source, columns):
        if fields is not None:
            tag = tags[used] if used < len(tags) else ""
            used += 1
        elif line.startswith(DOCUMENT_START) and not columns.conllu:
            tag = "O"  # conlleval refuses a line with fewer columns than the others
        else:
            copied.append(line)
            continue
        if columns.conllu and fields is not None:
            assert columns.tags is not None
            fields[columns.tags] = tag
            copied.append("\t".join(fields))
        else:
            copied.append(f"{line.rstrip(' ')}{_separator(line)}{tag}")
    if used != len(tags):
        raise DataError(
            f"{source}: it has {used:,} words, but there are {len(tags):,} tags; predict its tags anew"
        )
    try:
        target.write_text("\n".join(copied) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror or error})") from error


def _lines(path: Path, columns: Columns) -> Iterator[tuple[int, str, list[str] | None]]:
    """Number, text and fields of each line; no fields where the line is no word."""
    check_is_text(path)
    count = CONLLU_FIELDS if columns.conllu else 0
    for number, raw in read_lines(path):
        if raw is None:
            raise DataError(f"{path}:{number}: the line is longer than a word can be; is the file a word a line?")
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}:{number}: broken UTF-8 ({error.reason} at byte {error.start}); convert it: iconv -t UTF-8"
            ) from error
        if not line.strip(" \t"):  # in files with tabs a blank line may have them too
            yield number, "", None
            continue
        if line.startswith("#" if columns.conllu else DOCUMENT_START):
            yield number, line, None
            continue
        fields = (
            [field.strip(" ") for field in line.split("\t")] if "\t" in line else BLANKS.split(line.strip(" "))
        )
        count = count or len(fields)
        _check(fields, count, columns, f"{path}:{number}", line)
        # "3-4" is a token of several words, which follow; "5.1" is a word that nobody wrote.
        yield number, line, None if columns.conllu and not fields[0].isdecimal() else fields


def _check(fields: list[str], count: int, columns: Columns, place: str, line: str) -> None:
    found = f"{len(fields)} column{'s' * (len(fields) != 1)} in {line[:EXCERPT]!r}"
    if len(fields) != count:
        expected = "CoNLL-U has 10, parted by tabs" if columns.conllu else f"the lines before have {count}"
        raise DataError(f"{place}: {found}, but {expected}; mend the line (a blank line ends a sentence)")
    chosen = {"words": columns.words} | ({} if columns.tags is None else {"tags": columns.tags})
    for what, column in chosen.items():
        if not -count <= column < count:
            raise DataError(f"{place}: {found}, so there is no column {column} with {what}; name another (from 0)")
        if not fields[column]:
            raise DataError(f"{place}: column {column} with {what} is empty in {line[:EXCERPT]!r}; fill it")
    if columns.tags is not None and columns.tags % count == columns.words % count:
        raise DataError(f"{place}: {found}, so words and tags are the same one; name the column of the tags")


def _separator(line: str) -> str:
    return "\t" if "\t" in line else " "

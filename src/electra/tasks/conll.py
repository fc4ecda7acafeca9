"""Tagged sentences in files with one word per line: columns (CoNLL, token-per-line TSV) and CoNLL-U."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from electra import durable
from electra.errors import DataError
from electra.readers.lines import check_is_text, read_lines

SPACES = re.compile(" +")
"""Separates columns, besides tabs. Other white space does not: a word can be a no-break space."""
TAG = re.compile("[!-`{-~]+")
"""What most tags and few words look like: ASCII without lower-case letters (B-NP, NN$)."""
DOCUMENT_START = "-DOCSTART-"
CONLLU_FIELDS = 10
EMPTY_FIELD = "_"
"""The value of an empty field in CoNLL-U."""
TEXT = re.compile(r"#\s*text\s*=\s*(.*)")
"""The CoNLL-U comment with the original text of the sentence."""
MAX_EXCERPT = 60  # characters of a bad line in its message


@dataclass(frozen=True)
class Columns:
    """The columns of words and tags. They count from 0; negative numbers count from the end of the line.

    A line with a tab is split at tabs, any other line at spaces. An empty line ends a sentence.

    Attributes:
        tags: None: the file has no tags.
        conllu: the file is CoNLL-U, with ten fields, comments, and lines that are not words.
    """

    words: int = 0
    tags: int | None = -1
    conllu: bool = False


UPOS = Columns(words=1, tags=3, conllu=True)
XPOS = Columns(words=1, tags=4, conllu=True)
FEATS = Columns(words=1, tags=5, conllu=True)
HEAD = Columns(words=1, tags=6, conllu=True)
DEPREL = Columns(words=1, tags=7, conllu=True)


@dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence, their tags (None: unknown), and the line where it starts, from 1.

    Attributes:
        text: the original text, if the file has it, as CoNLL-U does.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    source: str = field(compare=False)
    line: int = field(compare=False)
    text: str | None = field(default=None, compare=False)


def read(path: Path, columns: Columns) -> list[Sentence]:
    """Read the sentences of a file, which may be compressed (.gz, .zst).

    Raises:
        DataError: the file cannot be read, is not text or has no sentence; or a line has another number of columns
            than the first one, or an empty word or tag.
    """
    sentences: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    first = 0
    text: str | None = None

    def finish_sentence() -> None:
        if words:
            sentence_tags = tuple(tags) if columns.tags is not None else None
            sentences.append(Sentence(tuple(words), sentence_tags, str(path), first, text))
            words.clear()
            tags.clear()

    for number, line, fields in _read_fields(path, columns):
        if fields is not None:
            first = first if words else number
            words.append(fields[columns.words])
            if columns.tags is not None:
                tags.append(fields[columns.tags])
        elif not line or not columns.conllu:
            finish_sentence()
            text = None
        elif comment := TEXT.match(line):
            text = comment.group(1)
    finish_sentence()
    if not sentences:
        raise DataError(
            f"{path}: the file has no sentence; it should have one word per line, and an empty line after each "
            "sentence"
        )
    return sentences


def read_test(path: Path, columns: Columns) -> list[Sentence]:
    """Read the sentences of a test file, whose lines may be words alone, without tags.

    Raises:
        DataError: as `read`.
    """
    fields = (
        fields for _, _, fields in _read_fields(path, Columns(0, None, columns.conllu)) if fields is not None
    )
    has_tags = len(next(fields, ())) > 1
    return read(path, columns if has_tags else replace(columns, words=0, tags=None))


def check_is_columns(path: Path, columns: Columns, labels: Collection[str]) -> None:
    """Refuse a file whose lines may be whole sentences that all have the same number of words.

    The lines are columns if a sentence has several lines and either the last column has labels only, or all
    columns but that of the words look like tags. Lines with tabs, and lines of one word, are never refused.

    Args:
        labels: tags that may be in the last column.

    Raises:
        DataError: the lines may be sentences; or the file cannot be read (`read`).
    """
    longest = words = count = 0
    ends_in_labels = has_tags = True
    for _, line, fields in _read_fields(path, columns):
        if fields is None:
            words = 0
            continue
        count = len(fields)
        if "\t" in line or count == 1:
            return
        words += 1
        longest = max(longest, words)
        others = [field for column, field in enumerate(fields) if column != columns.words % count]
        ends_in_labels = ends_in_labels and fields[-1] in labels
        has_tags = has_tags and all(map(TAG.fullmatch, others))
    if count and (longest < 2 or not (ends_in_labels or has_tags)):
        raise DataError(
            f"{path}: each line has {count} words separated by spaces, so it can be columns or a whole sentence; "
            f"if these are columns, name that of the words: --text-column {columns.words}"
        )


def write(source: Path, target: Path, columns: Columns, predicted: Sequence[Sequence[str]]) -> None:
    """Write a copy of a file that `read` can read, with a predicted tag for each of its words.

    In CoNLL-U, the field `columns.tags` is replaced. In other files, each line gets one more column at its end, so
    that conlleval finds the file's own tag and the predicted one where it expects them. An existing file is
    replaced as a whole or not at all, so the target can be the source.

    Raises:
        DataError: the source cannot be read, the number of tags is not the number of words, or the target cannot
            be written.
    """
    tags = [tag for sentence in predicted for tag in sentence]
    copied: list[str] = []
    used = 0
    for _, line, fields in _read_fields(source, columns):
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
            separator = "\t" if "\t" in line else " "
            copied.append(f"{line.rstrip(' ')}{separator}{tag}")
    if used != len(tags):
        raise DataError(f"{source}: it has {used:,} words, but there are {len(tags):,} tags; predict them again")
    text = "\n".join(copied) + "\n"
    try:
        if target.exists() and not target.is_file():  # such as /dev/stdout, which a rename would replace
            target.write_text(text, encoding="utf-8")
        else:
            durable.write_text(target, text)
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror or error})") from error


def _read_fields(path: Path, columns: Columns) -> Iterator[tuple[int, str, list[str] | None]]:
    """Yield the number, the text and the fields of each line; no fields if the line is not a word."""
    check_is_text(path)
    count = CONLLU_FIELDS if columns.conllu else 0
    for number, raw in read_lines(path):
        if raw is None:
            raise DataError(f"{path}:{number}: the line is too long for a word; does each line have one word?")
        line = decode_line(raw, f"{path}:{number}")
        if not line.strip(" \t"):  # in files with tabs, an empty line may have tabs too
            yield number, "", None
            continue
        if line.startswith("#" if columns.conllu else DOCUMENT_START):
            yield number, line, None
            continue
        if "\t" in line:
            fields = [field.strip(" ") for field in line.split("\t")]
        else:
            fields = SPACES.split(line.strip(" "))
        count = count or len(fields)
        _check_fields(fields, count, columns, f"{path}:{number}", line)
        # "3-4" is a token of several words, which follow; "5.1" is a word that is not in the text.
        yield number, line, None if columns.conllu and not fields[0].isdecimal() else fields


def decode_line(raw: bytes, place: str) -> str:
    """Decode a line of a file.

    Raises:
        DataError: the line is not UTF-8.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{place}: invalid UTF-8 ({error.reason} at byte {error.start}); convert it: iconv -t UTF-8"
        ) from error


def _check_fields(fields: list[str], count: int, columns: Columns, place: str, line: str) -> None:
    described = f"{len(fields)} column{'s' * (len(fields) != 1)} in {line[:MAX_EXCERPT]!r}"
    if len(fields) != count:
        expected = "CoNLL-U has 10, separated by tabs" if columns.conllu else f"the lines before have {count}"
        raise DataError(f"{place}: {described}, but {expected}; fix the line (an empty line ends a sentence)")
    used = {"words": columns.words} | ({} if columns.tags is None else {"tags": columns.tags})
    for content, column in used.items():
        if not -count <= column < count:
            raise DataError(
                f"{place}: {described}, so there is no column {column} with {content}; name another (from 0)"
            )
        if not fields[column]:
            raise DataError(
                f"{place}: column {column} with {content} is empty in {line[:MAX_EXCERPT]!r}; fill it in"
            )
    if columns.tags is not None and columns.tags % count == columns.words % count:
        raise DataError(
            f"{place}: {described}, so words and tags are the same column; name the column of the tags"
        )

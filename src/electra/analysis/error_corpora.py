"""Sentences of learners in which it is known which words are wrong.

Two kinds of data: files of error detection, a word a line with its tag (MultiGED), and folders with sentences and
what several people made of each (JFLEG), of which the wrong words are found by alignment.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain
from pathlib import Path

import numpy as np

from electra.errors import DataError
from electra.readers.files import check_is_text
from electra.tasks import conll
from electra.tasks.conll import Columns
from electra.tasks.tagging_datasets import CORRECT_TAGS

WANTED = (
    "wanted is a word a line: the word, a tab, c or i (or -, and anything else for an error), and a blank line "
    "after each sentence"
)
LISTED = 5  # tags, or files, named in a message


@dataclass(frozen=True)
class MarkedSentence:
    """Words, which of them are wrong, and what the sentence was rewritten to, where that is known."""

    words: tuple[str, ...]
    wrong: tuple[bool, ...]
    rewrites: tuple[tuple[str, ...], ...] = ()

    @property
    def share(self) -> float:
        """Of the words that are wrong."""
        return sum(self.wrong) / len(self.words)


def read(path: Path, *, references: int = 2) -> list[MarkedSentence]:
    """The sentences of a file of error detection, or of a folder with NAME.src and NAME.ref0, NAME.ref1, ...

    Args:
        references: of a folder, how many of the rewrites have to change a word for it to be wrong.

    Raises:
        DataError: there is no such data, it is in another format, or no word is wrong, or every one.
    """
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    if path.is_file() and re.fullmatch(r"\.(src|ref[0-9])", path.suffix):
        raise DataError(f"{path}: it is one file of sentences and their rewrites; give the folder: {path.parent}")
    found = _rewritten(path, references) if path.is_dir() else _tagged(path)
    wrong = list(chain.from_iterable(one.wrong for one in found))
    if not any(wrong):
        raise DataError(f"{path}: none of its {len(wrong):,} words is wrong, so there is nothing to find")
    if all(wrong):
        raise DataError(f"{path}: every one of its {len(wrong):,} words is wrong, so nothing can be told apart")
    return found


def _tagged(path: Path) -> list[MarkedSentence]:
    try:
        sentences = conll.read(path, Columns(words=0, tags=1))
    except DataError as error:
        says = str(error).removesuffix("; name another (from 0)")  # which columns are read is fixed here
        raise DataError(f"{says}\n  {WANTED}") from error
    seen = Counter(tag for sentence in sentences for tag in sentence.tags or ())
    if not any(tag in seen for tag in CORRECT_TAGS):
        listed = ", ".join(f"{tag!r} ({count:,} times)" for tag, count in seen.most_common(LISTED))
        raise DataError(
            f"{path}:{sentences[0].line}: no word has a tag for correct words ({', '.join(CORRECT_TAGS)}); the "
            f"second column holds {listed}\n  {WANTED}"
        )
    return [
        MarkedSentence(one.words, tuple(tag not in CORRECT_TAGS for tag in one.tags or ())) for one in sentences
    ]


def _rewritten(folder: Path, references: int) -> list[MarkedSentence]:
    source, files = _files(folder)
    if references > len(files):
        raise DataError(
            f"{folder}: there are {len(files)} rewrites of each sentence, but {references} are to agree"
        )
    lines = {file: _lines(file) for file in (source, *files)}
    if odd := [file for file in files if len(lines[file]) != len(lines[source])]:
        raise DataError(
            f"{odd[0]}: {len(lines[odd[0]]):,} lines, but {source.name} has {len(lines[source]):,}; each line is "
            "a rewrite of the same line there"
        )
    found = []
    for number, (words, *rewrites) in enumerate(zip(*lines.values(), strict=True), start=1):
        if not words:
            raise DataError(
                f"{source}:{number}: the line is blank; put the sentence there, or take it out everywhere"
            )
        there = [rewrite for rewrite in rewrites if rewrite]  # a blank line: nobody rewrote this one
        counts_W = (
            np.sum([changed(words, rewrite) for rewrite in there], axis=0) if there else np.zeros(len(words))
        )
        wrong = tuple((counts_W >= references).tolist())
        found.append(MarkedSentence(words, wrong, tuple(there)))
    return found


def _files(folder: Path) -> tuple[Path, list[Path]]:
    """The sentences and their rewrites."""
    files = sorted(folder.glob("*.ref[0-9]"))
    wanted = "wanted is NAME.src beside NAME.ref0, NAME.ref1, ..., as in JFLEG"
    if not files:
        if inside := sorted({file.parent.name for file in folder.glob("*/*.ref[0-9]")}):
            raise DataError(f"{folder}: give one of its parts: {', '.join(str(folder / name) for name in inside)}")
        names = sorted(file.name for file in folder.iterdir())
        tables = [name for name in names if name.endswith(".tsv")]
        hint = f"; give one of its files: {', '.join(str(folder / name) for name in tables)}" if tables else ""
        listed = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
        raise DataError(f"{folder}: there are no rewrites in it, only {listed or 'nothing'}; {wanted}{hint}")
    names = sorted({file.stem for file in files})
    if len(names) > 1:
        raise DataError(f"{folder}: it holds rewrites of {' and of '.join(names)}; give each a folder of its own")
    source = folder / f"{names[0]}.src"
    if not source.is_file():
        raise DataError(f"{folder}: {source.name} is missing, whose rewrites {files[0].name} holds; {wanted}")
    return source, files


def _lines(path: Path) -> list[tuple[str, ...]]:
    """The words of each line."""
    check_is_text(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{line}: broken UTF-8 ({error.reason}); convert it: iconv -t UTF-8") from error
    return [tuple(line.split()) for line in text.removesuffix("\n").split("\n")]


def changed(words: Sequence[str], rewrite: Sequence[str]) -> list[bool]:
    """Which words a rewrite changes: those that it replaces or leaves out, and the one before which it puts
    something (at the end: the last one), as error detection marks missing words (Rei and Yannakoudakis 2016)."""
    found = [False] * len(words)
    for kind, start, end, *_ in SequenceMatcher(None, words, rewrite, autojunk=False).get_opcodes():
        if kind == "insert":
            start = min(start, len(words) - 1)
            end = start + 1
        if kind != "equal":
            found[start:end] = [True] * (end - start)
    return found


def name_of(path: Path) -> str:
    """What reports call the data: a folder's name alone (test) would not say which."""
    whole = path.resolve()
    return f"{whole.parent.name}/{whole.name}" if whole.is_dir() else whole.name


def parted(count: int, share: float, *, seed: int) -> tuple[list[int], list[int]]:
    """Numbers below `count` in two parts, by lot; the first has this share of them. Both are in order."""
    shuffled = np.random.default_rng(seed).permutation(count)
    first = round(share * count)
    return sorted(shuffled[:first].tolist()), sorted(shuffled[first:].tolist())

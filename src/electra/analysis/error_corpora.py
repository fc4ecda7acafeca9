"""Corpora of learner errors: sentences in which it is known which words are wrong.

There are two kinds: files for error detection with a word and its tag per line (MultiGED), and folders with
sentences and several rewrites of each (JFLEG), in which the wrong words are found by alignment.
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
from electra.readers.lines import check_is_text
from electra.tasks import conll
from electra.tasks.conll import Columns
from electra.tasks.tagging_datasets import CORRECT_TAGS

EXPECTED_FORMAT = (
    "expected a word per line: the word, a tab, c or i (or - for a correct word and anything else for an error), "
    "and a blank line after each sentence"
)
MAX_LISTED = 5  # tags, or files, that a message names


@dataclass(frozen=True)
class LabeledSentence:
    """The words of a sentence, which of them are wrong, and rewrites of the sentence if there are any."""

    words: tuple[str, ...]
    wrong: tuple[bool, ...]
    rewrites: tuple[tuple[str, ...], ...] = ()

    @property
    def error_rate(self) -> float:
        """The fraction of the words that are wrong."""
        return sum(self.wrong) / len(self.words)


def read_error_corpus(path: Path, *, references: int = 2) -> list[LabeledSentence]:
    """Read a file for error detection, or a folder with NAME.src and NAME.ref0, NAME.ref1, ...

    Args:
        references: the number of rewrites in a folder that must change a word for it to count as wrong.

    Raises:
        DataError: the data does not exist, has another format, or its words are all right or all wrong.
    """
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    if path.is_file() and re.fullmatch(r"\.(src|ref[0-9])", path.suffix):
        raise DataError(
            f"{path}: this is one file of a folder with sentences and rewrites; give the folder: {path.parent}"
        )
    sentences = _read_rewrites(path, references) if path.is_dir() else _read_tagged(path)
    wrong = list(chain.from_iterable(sentence.wrong for sentence in sentences))
    if not any(wrong):
        raise DataError(f"{path}: none of its {len(wrong):,} words is wrong, so there is nothing to find")
    if all(wrong):
        raise DataError(f"{path}: all of its {len(wrong):,} words are wrong, so there is nothing to distinguish")
    return sentences


def _read_tagged(path: Path) -> list[LabeledSentence]:
    try:
        sentences = conll.read(path, Columns(words=0, tags=1))
    except DataError as error:
        message = str(error).removesuffix("; name another (from 0)")  # the columns are fixed here
        raise DataError(f"{message}\n  {EXPECTED_FORMAT}") from error
    counts = Counter(tag for sentence in sentences for tag in sentence.tags or ())
    if not any(tag in counts for tag in CORRECT_TAGS):
        listed = ", ".join(f"{tag!r} ({count:,} times)" for tag, count in counts.most_common(MAX_LISTED))
        raise DataError(
            f"{path}:{sentences[0].line}: no word has a tag for correct words ({', '.join(CORRECT_TAGS)}); the "
            f"second column holds {listed}\n  {EXPECTED_FORMAT}"
        )
    return [
        LabeledSentence(sentence.words, tuple(tag not in CORRECT_TAGS for tag in sentence.tags or ()))
        for sentence in sentences
    ]


def _read_rewrites(folder: Path, references: int) -> list[LabeledSentence]:
    source, files = _find_files(folder)
    if references > len(files):
        raise DataError(
            f"{folder}: each sentence has {len(files)} rewrites, but --references asks for {references} that agree"
        )
    lines = {file: _read_lines(file) for file in (source, *files)}
    if mismatched := [file for file in files if len(lines[file]) != len(lines[source])]:
        raise DataError(
            f"{mismatched[0]}: {len(lines[mismatched[0]]):,} lines, but {source.name} has "
            f"{len(lines[source]):,}; each line must be a rewrite of the same line there"
        )
    sentences = []
    for number, (words, *rewrites) in enumerate(zip(*lines.values(), strict=True), start=1):
        if not words:
            raise DataError(
                f"{source}:{number}: the line is blank; add the sentence, or remove this line from all files"
            )
        rewrites = [rewrite for rewrite in rewrites if rewrite]  # a blank line: nobody rewrote this sentence
        counts_W = np.zeros(len(words))
        for rewrite in rewrites:
            counts_W += changed_words(words, rewrite)
        wrong = tuple((counts_W >= references).tolist())
        sentences.append(LabeledSentence(words, wrong, tuple(rewrites)))
    return sentences


def _find_files(folder: Path) -> tuple[Path, list[Path]]:
    """The file of sentences and the files of rewrites."""
    files = sorted(folder.glob("*.ref[0-9]"))
    expected = "expected NAME.src and NAME.ref0, NAME.ref1, ..., as in JFLEG"
    if not files:
        if inside := sorted({file.parent.name for file in folder.glob("*/*.ref[0-9]")}):
            raise DataError(f"{folder}: give one of its parts: {', '.join(str(folder / name) for name in inside)}")
        names = sorted(file.name for file in folder.iterdir())
        tables = [name for name in names if name.endswith(".tsv")]
        hint = f"; give one of its files: {', '.join(str(folder / name) for name in tables)}" if tables else ""
        listed = ", ".join(names[:MAX_LISTED]) + (", ..." if len(names) > MAX_LISTED else "")
        raise DataError(f"{folder}: the folder has no rewrites, only {listed or 'nothing'}; {expected}{hint}")
    names = sorted({file.stem for file in files})
    if len(names) > 1:
        raise DataError(
            f"{folder}: the folder has rewrites of {' and of '.join(names)}; give each a separate folder"
        )
    source = folder / f"{names[0]}.src"
    if not source.is_file():
        raise DataError(f"{folder}: {source.name}, which {files[0].name} rewrites, is missing; {expected}")
    return source, files


def _read_lines(path: Path) -> list[tuple[str, ...]]:
    """The words of each line."""
    check_is_text(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{line}: invalid UTF-8 ({error.reason}); convert it: iconv -t UTF-8") from error
    return [tuple(line.split()) for line in text.removesuffix("\n").split("\n")]


def changed_words(words: Sequence[str], rewrite: Sequence[str]) -> list[bool]:
    """Which words a rewrite changes.

    These are the words that it replaces or deletes, and the word before which it inserts something (at the end:
    the last word), as error detection marks missing words (Rei and Yannakoudakis 2016).
    """
    changed = [False] * len(words)
    for kind, start, end, *_ in SequenceMatcher(None, words, rewrite, autojunk=False).get_opcodes():
        if kind == "insert":
            start = min(start, len(words) - 1)
            end = start + 1
        if kind != "equal":
            changed[start:end] = [True] * (end - start)
    return changed


def corpus_name(path: Path) -> str:
    """The name of a corpus in reports: the last two folders of a path, since "test" alone would not be clear."""
    absolute = path.resolve()
    return f"{absolute.parent.name}/{absolute.name}" if absolute.is_dir() else absolute.name


def split_indices(count: int, fraction: float, *, seed: int) -> tuple[list[int], list[int]]:
    """Split the numbers below `count` at random; the first part has this fraction of them. Both are sorted."""
    shuffled = np.random.default_rng(seed).permutation(count)
    first = round(fraction * count)
    return sorted(shuffled[:first].tolist()), sorted(shuffled[first:].tolist())

"""Sentences of words with what people said of them: parts of speech and how deep each word stands in its tree.

Read from CoNLL-U (a treebank of Universal Dependencies), or from plain text, which has words and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import pre_tokenizers

from electra.errors import DataError
from electra.readers.files import check_is_text, read_lines
from electra.tasks import conll
from electra.tasks.conll import UPOS, Columns, Sentence

HEADS = Columns(words=1, tags=6, conllu=True)
NOTHING = "_"
"""What stands in a field of CoNLL-U that nobody filled."""
LEAST = 20
"""Sentences below which nothing can be held out to measure on."""


@dataclass(frozen=True)
class Annotated:
    """A sentence.

    Attributes:
        tags: of each word; "_" where it has none. None: the whole sentence has none.
        depths: of each word, its steps up to the root of its tree. None: there is no tree.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    depths: tuple[int, ...] | None = None


def read(path: Path) -> list[Annotated]:
    """The sentences of a text: CoNLL-U where its name ends in .conllu (.conllu.gz, .conllu.zst), else plain text,
    a sentence a line.

    Raises:
        DataError: the file cannot be read, is not in its format (with the line), or has too few sentences.
    """
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    sentences = _treebank(path) if name.endswith(".conllu") else _plain(path)
    check_count(len(sentences), path)
    return sentences


def read_tagged(path: Path) -> list[Annotated]:
    """The sentences of columns (CoNLL): a word a line, its tag in the last column.

    Raises:
        DataError: as `read`.
    """
    sentences = [Annotated(one.words, one.tags) for one in conll.read(path, Columns())]
    check_count(len(sentences), path)
    return sentences


def check_count(count: int, path: Path) -> None:
    """Refuse what is too little to measure on."""
    if count < LEAST:
        raise DataError(
            f"{path}: {count} sentence{'s' * (count != 1)}, but {LEAST} are needed, of which a part is held out; "
            "give a longer text (a blank line ends a sentence of CoNLL-U or columns, a line one of plain text)"
        )


def drawn(sentences: Sequence[Annotated], *, words: int, seed: int) -> list[Annotated]:
    """Sentences by lot until they have so many words, in the order of the file; `LEAST` at least."""
    order = np.random.default_rng(seed).permutation(len(sentences))
    lengths = np.array([len(sentences[number].words) for number in order])
    count = max(LEAST, int((lengths.cumsum() <= words).sum()))
    return [sentences[number] for number in sorted(order[:count].tolist())]


def _treebank(path: Path) -> list[Annotated]:
    found = []
    for tagged, headed in zip(conll.read(path, UPOS), conll.read(path, HEADS), strict=True):
        assert tagged.tags is not None
        known = any(tag != NOTHING for tag in tagged.tags)
        found.append(Annotated(tagged.words, tagged.tags if known else None, _depths(headed)))
    return found


def _depths(sentence: Sentence) -> tuple[int, ...] | None:
    """Of each word its steps to the root, whose head is 0; None where a head is missing."""
    assert sentence.tags is not None
    if NOTHING in sentence.tags:
        return None
    place = f"{sentence.source}:{sentence.line}: in the sentence that begins here"
    heads, count = [], len(sentence.words)
    for word, head in zip(sentence.words, sentence.tags, strict=True):
        if not head.isdecimal() or int(head) > count:
            raise DataError(
                f"{place}, the head of {word!r} is {head!r}; expected is a number from 0 to {count}, or _ for none"
            )
        heads.append(int(head))
    depths = []
    for number in range(count):
        steps, at = 0, heads[number]
        while at and steps <= count:
            steps, at = steps + 1, heads[at - 1]
        if steps > count:
            raise DataError(
                f"{place}, the heads above {sentence.words[number]!r} go in a circle; each has to lead to one of 0"
            )
        depths.append(steps)
    return tuple(depths)


def _plain(path: Path) -> list[Annotated]:
    check_is_text(path)
    split = pre_tokenizers.BertPreTokenizer()
    found = []
    for number, raw in read_lines(path):
        if raw is None:
            raise DataError(f"{path}:{number}: the line is too long; a sentence a line is expected")
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}:{number}: broken UTF-8 ({error.reason} at byte {error.start}); convert it: iconv -t UTF-8"
            ) from error
        if line.count("\t") == conll.CONLLU_FIELDS - 1:
            raise DataError(
                f"{path}:{number}: ten fields parted by tabs, as in CoNLL-U, but plain text was expected; "
                "let the file's name end in .conllu"
            )
        if words := tuple(word for word, _ in split.pre_tokenize_str(line)):
            found.append(Annotated(words))
    return found

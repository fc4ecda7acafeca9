"""Sentences of words with annotations: parts of speech, and the depth of each word in its dependency tree.

They are read from CoNLL-U (a treebank of Universal Dependencies), or from plain text, which has no annotations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import pre_tokenizers

from electra.errors import DataError
from electra.readers.lines import check_is_text, read_lines
from electra.tasks import conll
from electra.tasks.conll import EMPTY_FIELD, UPOS, Columns, Sentence

HEADS = Columns(words=1, tags=6, conllu=True)

MIN_SENTENCES = 20
"""With fewer sentences no part can be held out to measure on."""


@dataclass(frozen=True)
class AnnotatedSentence:
    """A sentence and its annotations.

    Attributes:
        tags: the tag of each word; "_" for a word without one. None: no word of the sentence has a tag.
        depths: the number of steps from each word up to the root of its tree. None: the sentence has no tree.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    depths: tuple[int, ...] | None = None


def read_sentences(path: Path) -> list[AnnotatedSentence]:
    """Read CoNLL-U if the file's name ends in .conllu (.conllu.gz, .conllu.zst), else plain text with a sentence
    per line.

    Raises:
        DataError: the file cannot be read, is not in its format (with the line), or has too few sentences.
    """
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    sentences = _read_treebank(path) if name.endswith(".conllu") else _read_plain_text(path)
    check_sentence_count(len(sentences), path)
    return sentences


def read_tagged_columns(path: Path) -> list[AnnotatedSentence]:
    """Read a file of columns (CoNLL): a word per line, with its tag in the last column.

    Raises:
        DataError: the file cannot be read, is not in this format (with the line), or has too few sentences.
    """
    sentences = [AnnotatedSentence(sentence.words, sentence.tags) for sentence in conll.read(path, Columns())]
    check_sentence_count(len(sentences), path)
    return sentences


def check_sentence_count(count: int, path: Path) -> None:
    """Raise a DataError if there are too few sentences to measure on."""
    if count < MIN_SENTENCES:
        raise DataError(
            f"{path}: {count} sentence{'s' * (count != 1)}, but at least {MIN_SENTENCES} are needed, because some "
            "are held out; give a longer text (in CoNLL-U and columns a blank line ends a sentence, in plain text "
            "every line is one)"
        )


def sample_sentences(sentences: Sequence[AnnotatedSentence], *, words: int, seed: int) -> list[AnnotatedSentence]:
    """Sample sentences at random with at most `words` words in total, but at least `MIN_SENTENCES` sentences.

    The sample keeps the order of the file.
    """
    order = np.random.default_rng(seed).permutation(len(sentences))
    lengths = np.array([len(sentences[number].words) for number in order])
    count = max(MIN_SENTENCES, int((lengths.cumsum() <= words).sum()))
    return [sentences[number] for number in sorted(order[:count].tolist())]


def _read_treebank(path: Path) -> list[AnnotatedSentence]:
    sentences = []
    for tagged, headed in zip(conll.read(path, UPOS), conll.read(path, HEADS), strict=True):
        assert tagged.tags is not None
        has_tags = any(tag != EMPTY_FIELD for tag in tagged.tags)
        sentences.append(AnnotatedSentence(tagged.words, tagged.tags if has_tags else None, _depths(headed)))
    return sentences


def _depths(sentence: Sentence) -> tuple[int, ...] | None:
    """The number of steps from each word to the root, whose head is 0; None if a head is missing."""
    assert sentence.tags is not None
    if EMPTY_FIELD in sentence.tags:
        return None
    location = f"{sentence.source}:{sentence.line}: in the sentence that starts here"
    heads, count = [], len(sentence.words)
    for word, head in zip(sentence.words, sentence.tags, strict=True):
        if not head.isdecimal() or int(head) > count:
            raise DataError(
                f"{location}, the head of {word!r} is {head!r}; expected a number from 0 to {count}, or _ for none"
            )
        heads.append(int(head))
    depths = []
    for number in range(count):
        steps, above = 0, heads[number]
        while above and steps <= count:
            steps, above = steps + 1, heads[above - 1]
        if steps > count:
            raise DataError(
                f"{location}, the heads above {sentence.words[number]!r} form a cycle; every word must lead to a "
                "word whose head is 0"
            )
        depths.append(steps)
    return tuple(depths)


def _read_plain_text(path: Path) -> list[AnnotatedSentence]:
    check_is_text(path)
    split = pre_tokenizers.BertPreTokenizer()
    sentences = []
    for number, raw in read_lines(path):
        if raw is None:
            raise DataError(f"{path}:{number}: the line is too long; expected one sentence per line")
        line = conll.decode_line(raw, f"{path}:{number}")
        if line.count("\t") == conll.CONLLU_FIELDS - 1:
            raise DataError(
                f"{path}:{number}: the line has ten tab-separated fields, as in CoNLL-U, but plain text was "
                "expected; rename the file so that its name ends in .conllu"
            )
        if words := tuple(word for word, _ in split.pre_tokenize_str(line)):
            sentences.append(AnnotatedSentence(words))
    return sentences

"""Tag the vocabulary of prepared data: from treebanks, or with a fine-tuned tagger that reads the data."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from electra.data.shards import TokenData
from electra.data.tags import TaggedSentence, TagTable
from electra.data.tokenizer import load_tokenizer
from electra.errors import ConfigError
from electra.serving.predictor import Predictor
from electra.tasks import conll

logger = logging.getLogger(__name__)

SENTENCES_AT_ONCE = 512
"""Number of sentences that a tagger gets at once."""


def tag_vocabulary(
    data: TokenData, *, treebanks: Sequence[Path] = (), tagger: str | None = None, sentences: int = 5000,
    device: str = "auto",
) -> TagTable:  # fmt: skip
    """Return the most frequent tag of each token of the vocabulary.

    Args:
        treebanks: files in CoNLL-U; the tags are in their fourth column.
        tagger: a model that was fine-tuned for tagging, if there is no treebank.
        sentences: number of sentences of the data that the tagger reads.
        device: the device of the tagger (`resolve_device`).

    Raises:
        ConfigError: the model does not tag words.
        DataError: there is no tagged word, or a file cannot be read.
    """
    tagged = _read_treebanks(treebanks) if tagger is None else _tag_sentences(data, tagger, sentences, device)
    return TagTable.count(tagged, load_tokenizer(data.tokenizer_path))


def _read_treebanks(paths: Sequence[Path]) -> Iterator[TaggedSentence]:
    for path in paths:
        for sentence in conll.read(path, conll.UPOS):
            assert sentence.tags is not None
            yield sentence.words, sentence.tags


def _tag_sentences(data: TokenData, tagger: str, count: int, device: str) -> Iterator[TaggedSentence]:
    """Yield sentences of the data with the tags that a tagger predicts."""
    predictor = Predictor(tagger, device=device)
    if not predictor.problem.reads_words:
        raise ConfigError(f"--tagger: {tagger} does {predictor.problem.kind}; give a model that tags words")
    sentences = _read_words(data, count)
    for first in range(0, len(sentences), SENTENCES_AT_ONCE):
        logger.info("tagged %s sentences", f"{first:,}", extra={"progress": (first, len(sentences))})
        batch = sentences[first : first + SENTENCES_AT_ONCE]
        for sentence, prediction in zip(batch, predictor(batch), strict=True):
            yield sentence, prediction["tags"]


def _read_words(data: TokenData, count: int) -> list[list[str]]:
    """Return the words of sentences, the same number from each shard."""
    tokenizer, sentences = load_tokenizer(data.tokenizer_path), []
    per_shard = -(-count // max(1, len(data.train.shards)))
    for shard in data.train.shards:
        ends = shard.sentence_ends[:per_shard]
        starts = np.concatenate([[0], ends[:-1]])
        ids = [shard.tokens[start:end].tolist() for start, end in zip(starts, ends, strict=True)]
        sentences += [_split_words(tokenizer, text) for text in tokenizer.decode_batch(ids)]
    return [words for words in sentences[:count] if words]


def _split_words(tokenizer: Tokenizer, text: str) -> list[str]:
    """Split a text into words and punctuation, as in a treebank."""
    parts = tokenizer.pre_tokenizer.pre_tokenize_str(text) if tokenizer.pre_tokenizer else [(text, (0, len(text)))]
    return [word for _, (start, end) in parts for word in text[start:end].split()]

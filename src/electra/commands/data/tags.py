"""`electra data tags`: a part of speech for each token of prepared data, for fakes of the same kind."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from rich.console import Group, RenderableType
from rich.table import Table
from tokenizers import Tokenizer

from electra.data.shards import TokenData
from electra.data.tags import Sentence, TagTable
from electra.data.tokenizer import load_tokenizer
from electra.errors import ConfigError
from electra.tasks import conll

logger = logging.getLogger(__name__)

AT_ONCE = 512
"""Sentences that a tagger is given at a time."""
SHOWN = 20


@dataclass(frozen=True)
class TagsConfig:
    """Where tags come from: files of tagged text, or a tagger that reads the data itself."""

    data: tyro.conf.Positional[Path]
    """The folder that `electra prepare` made; tags.json is written into it."""
    conllu: tuple[Path, ...] = ()
    """Treebanks in CoNLL-U, whose fourth column is taken."""
    tagger: str | None = None
    """A folder that `electra finetune --task upos` (or any other tagging) wrote."""
    sentences: int = 5000
    """Sentences of the data that the tagger reads."""


@dataclass(frozen=True)
class TagsResult:
    """The table, and how much of the text it covers."""

    path: Path
    table: TagTable
    counts: np.ndarray

    @property
    def covered(self) -> float:
        """Share of the tokens of the text whose tag is known."""
        return float(self.counts[self.table.tags_V > 0].sum() / max(1, self.counts.sum()))

    def __rich__(self) -> RenderableType:
        table = Table("tag", "tokens of the vocabulary", "share of the text", title_justify="left")
        total = max(1, self.counts.sum())
        shares = np.bincount(self.table.tags_V, weights=self.counts, minlength=len(self.table.names)) / total
        sizes = np.bincount(self.table.tags_V, minlength=len(self.table.names))
        for number in np.argsort(-shares)[:SHOWN]:
            table.add_row(self.table.names[number], f"{sizes[number]:,}", f"{shares[number]:.1%}")
        return Group(table, f"{self.path}: a tag is known for {self.covered:.1%} of the text")


def run(config: TagsConfig) -> TagsResult:
    """Give each token of the vocabulary the commonest tag of the words that it stands in.

    Training draws fakes of the same part of speech with --objective.fakes same-tag.

    Examples:
        electra data tags DATA --conllu en_ewt-ud-train.conllu
        electra data tags DATA --tagger OUT-UPOS
    """
    if bool(config.conllu) == (config.tagger is not None):
        raise ConfigError("give --conllu FILE, or --tagger OUT")
    data = TokenData.open(config.data, verify=False)
    sentences = (
        _of_files(config.conllu) if config.tagger is None else _tagged(data, config.tagger, config.sentences)
    )
    table = TagTable.counted(sentences, load_tokenizer(data.tokenizer_path))
    counts = data.unigram_counts.astype(np.float64).copy()
    counts[list(data.special.ids)] = 0
    return TagsResult(table.write(config.data), table, counts)


def _of_files(paths: tuple[Path, ...]) -> Iterator[Sentence]:
    for path in paths:
        for sentence in conll.read(path, conll.UPOS):
            assert sentence.tags is not None
            yield sentence.words, sentence.tags


def _tagged(data: TokenData, tagger: str, count: int) -> Iterator[Sentence]:
    """Sentences of the data, with a tagger's tags."""
    from electra.serving.predictor import Predictor

    predictor = Predictor(tagger)
    if not predictor.problem.reads_words:
        raise ConfigError(f"--tagger: {tagger} does {predictor.problem.kind}; give a model that tags words")
    words = _words(data, count)
    for first in range(0, len(words), AT_ONCE):
        logger.info("tagged %s sentences", f"{first:,}", extra={"progress": (first, len(words))})
        group = words[first : first + AT_ONCE]
        for sentence, prediction in zip(group, predictor(group), strict=True):
            yield sentence, prediction["tags"]


def _words(data: TokenData, count: int) -> list[list[str]]:
    """The words of sentences, as many of each shard."""
    tokenizer, found = load_tokenizer(data.tokenizer_path), []
    each = -(-count // max(1, len(data.train.shards)))
    for shard in data.train.shards:
        ends = shard.sentence_ends[:each]
        starts = np.concatenate([[0], ends[:-1]])
        ids = [shard.tokens[start:end].tolist() for start, end in zip(starts, ends, strict=True)]
        found += [_split(tokenizer, text) for text in tokenizer.decode_batch(ids)]
    return [words for words in found[:count] if words]


def _split(tokenizer: Tokenizer, text: str) -> list[str]:
    """Words and punctuation apart, as a treebank has them."""
    parts = tokenizer.pre_tokenizer.pre_tokenize_str(text) if tokenizer.pre_tokenizer else [(text, (0, len(text)))]
    return [word for _, (start, end) in parts for word in text[start:end].split()]

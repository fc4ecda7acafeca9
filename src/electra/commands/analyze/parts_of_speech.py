"""`electra analyze parts-of-speech`: which words look replaced to a discriminator, and whether they are harder."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro
from numpy.typing import NDArray

from electra.analysis.frequency import FrequencyBands, padded
from electra.analysis.group_bootstrap import Resamples
from electra.analysis.tagged_tokens import (
    PIECES,
    TaggedTokens,
    position_names,
    position_of,
    rarest_piece,
    tagged_tokens,
)
from electra.data import tokenizer as tokenizers
from electra.data.shards import TokenData
from electra.errors import CheckpointError, ConfigError, DataError
from electra.reports.analysis import AnalysisReport, names_of, prepare_out, reported
from electra.tasks import conll

if TYPE_CHECKING:
    from electra.analysis.corrupted import CorruptedTokens
    from electra.analysis.parts_of_speech import Grouping
    from electra.serving.masked_token_predictor import MaskedTokenPredictor
    from electra.serving.scorer import Scorer

logger = logging.getLogger(__name__)

SETTINGS = ("threshold", "draws", "share", "temperature", "resamples", "seed")
OFTEN, SUSPECTS = 10, 12
"""How often a token must stand in the text to be named as a suspect, and how many are."""


@dataclass(frozen=True)
class AnalyzePartsOfSpeechConfig:
    """The command line of `electra analyze parts-of-speech`."""

    model: tyro.conf.Positional[str]
    """A run, export folder, Hugging Face folder or id of a discriminator."""
    data: Path
    """A treebank in CoNLL-U, whose fourth field (UPOS) is taken."""
    generator: str | None = None
    """The generator that makes the fakes; left out: the one beside the discriminator, RUN/export/generator."""
    frequencies: Path | None = None
    """Prepared data, whose training text says how common tokens are; left out: the treebank itself."""
    threshold: float = 0.5
    """The probability above which the discriminator is said to take a token for replaced."""
    draws: int = 3
    """How often the text is corrupted, each time with another seed; all are measured together."""
    share: float = 0.15
    """Of each sentence's tokens that the generator fills, one at least."""
    temperature: float = 1.0
    """That the generator's logits are divided by when it draws."""
    sentences: int = 0
    """At most so many, from all over the file; 0: all."""
    resamples: int = 500
    """Of the sentences, for the intervals."""
    seed: int = 0
    """Of the first draw, and of the resamples."""
    out: Path | None = None
    """A folder for parts-of-speech.json, .png and .svg; those that are there are replaced."""

    def problems(self) -> Iterator[str]:
        for name, least in (("draws", 1), ("sentences", 0), ("resamples", 1), ("seed", 0)):
            if getattr(self, name) < least:
                yield f"--{name}: must be at least {least}, got {getattr(self, name)}"
        for name in ("threshold", "share"):
            if not 0 < getattr(self, name) < 1:
                yield f"--{name}: must lie between 0 and 1, got {getattr(self, name):g}"
        if not 0.01 <= self.temperature <= 100:
            yield f"--temperature: must lie between 0.01 and 100, got {self.temperature:g}"


def run(config: AnalyzePartsOfSpeechConfig) -> AnalysisReport:
    """Say which words look replaced to a discriminator: by part of speech, frequency, position and piece of word.

    On the text as it is, and on the generator's fakes; beside how likely the generator held original and fake, so
    that a bias against a group and the difficulty of its fakes are told apart.

    Examples:
        electra analyze parts-of-speech RUN --data en_ewt-ud-dev.conllu --frequencies DATA --out words
        electra analyze parts-of-speech DISCRIMINATOR --generator GENERATOR --data dev.conllu --threshold 0.3
    """
    from electra.analysis.parts_of_speech import Grouping, Observed, adjusted, groups

    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    prepare_out(config.out)
    sentences = conll.read(config.data, conll.UPOS)
    if config.sentences:
        chosen = np.linspace(0, len(sentences) - 1, min(config.sentences, len(sentences))).round().astype(int)
        sentences = [sentences[i] for i in chosen.tolist()]
    scorer, generator = _networks(config)
    tokens = tagged_tokens(sentences, scorer.tokenizer)
    groupings = _groupings(config, scorer, tokens)
    draws = list(_draws(config, scorer, generator, tokens))
    observed = Observed.of(draws)
    resamples = Resamples(len(tokens.ids), count=config.resamples, seed=config.seed)
    logit = math.log(config.threshold / (1 - config.threshold))
    every = Grouping("all tokens", ("all",), np.zeros(len(observed.sentence_N), np.int64))
    figures = {}
    for number, one in enumerate([every, *groupings]):
        logger.info("Figures", extra={"progress": (number, len(groupings) + 1)})
        figures[one.name] = list(groups(observed, one, resamples=resamples, logit=logit))
    # The commonest piece of a word says nearly what the token does: one of the two frequencies is enough there.
    independent = [one for one in groupings if one.name != WORD_FREQUENCY]
    facts = {
        "model": names_of([config.model])[0],
        "objective": scorer.objective,
        "data": config.data.name,
        "frequencies": None if config.frequencies is None else config.frequencies.resolve().name,
        "sentences": len(tokens.ids),
        "rebuilt": tokens.rebuilt,
        "in_windows": {names_of([config.model])[0]: scorer.batcher.count_windowed(map(len, tokens.ids))},
        "words": tokens.words,
        **{key: getattr(config, key) for key in SETTINGS},
        "groups": figures,
        "effects": adjusted(observed, independent, logit=logit),
        "suspects": _suspects(scorer, tokens, draws[0], logit),
    }
    return reported("parts-of-speech", facts, config.out)


TAG, TOKEN_FREQUENCY, WORD_FREQUENCY = "tag", "frequency of the token", "frequency of the word"
POSITION, PIECE = "position", "piece"


def _networks(config: AnalyzePartsOfSpeechConfig) -> tuple[Scorer, MaskedTokenPredictor]:
    """The discriminator and the generator, of one vocabulary."""
    from electra.export.loading import generator_beside
    from electra.serving.masked_token_predictor import MaskedTokenPredictor
    from electra.serving.scorer import Scorer

    scorer = Scorer(config.model)
    name = config.generator or generator_beside(config.model)
    if name is None:
        raise CheckpointError(
            f"{config.model} has no generator beside it; say which makes the fakes: --generator MODEL, a masked "
            "language model of the same vocabulary"
        )
    generator = MaskedTokenPredictor(generator_beside(name) or name)
    if scorer.tokenizer.get_vocab() != generator.tokenizer.get_vocab():
        raise DataError(
            f"{config.model} and {name} have different vocabularies; give a generator of the discriminator's"
        )
    return scorer, generator


def _groupings(config: AnalyzePartsOfSpeechConfig, scorer: Scorer, tokens: TaggedTokens) -> list[Grouping]:
    from electra.analysis.parts_of_speech import Grouping

    id_N = np.concatenate([np.array(one, np.int64) for one in tokens.ids])
    bands = FrequencyBands.of(_counts(config, scorer, id_N))
    rarest_N = rarest_piece(tokens, bands.rank_V)
    return [
        Grouping(TAG, tokens.tags, tokens.tag_N),
        Grouping(TOKEN_FREQUENCY, bands.names, bands.band_V[id_N]),
        Grouping(WORD_FREQUENCY, bands.names, bands.band_V[rarest_N]),
        Grouping(POSITION, position_names(), position_of(tokens.place_N)),
        Grouping(PIECE, PIECES, tokens.piece_N),
    ]


def _counts(config: AnalyzePartsOfSpeechConfig, scorer: Scorer, id_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each token stands in the text of training, or in the treebank."""
    size = tokenizers.vocabulary_size(scorer.tokenizer)
    if config.frequencies is None:
        return np.bincount(id_N, minlength=size)
    data = TokenData.open(config.frequencies, verify=False)
    if tokenizers.load(data.tokenizer_path).get_vocab() != scorer.tokenizer.get_vocab():
        raise DataError(
            f"{config.frequencies} was prepared with another vocabulary than that of {config.model}; give data "
            "that were prepared with --tokenizer and that model's folder, or leave --frequencies out"
        )
    return padded(data.unigram_counts, size)


def _draws(
    config: AnalyzePartsOfSpeechConfig, scorer: Scorer, generator: MaskedTokenPredictor, tokens: TaggedTokens
) -> Iterator[CorruptedTokens]:
    from electra.analysis.corrupted import corrupted

    for number in range(config.draws):
        logger.info("Replacing and reading", extra={"progress": (number, config.draws)})
        yield corrupted(
            scorer, generator, tokens.ids, share=config.share, temperature=config.temperature,
            seed=config.seed + number,
        )  # fmt: skip


def _suspects(scorer: Scorer, tokens: TaggedTokens, first: CorruptedTokens, logit: float) -> list[dict[str, Any]]:
    """The tokens of some tag that are most often taken for replaced in the text as it is."""
    pairs, pair_N = np.unique(np.stack([first.original_N, tokens.tag_N], 1), axis=0, return_inverse=True)
    counts = np.bincount(pair_N.ravel())
    rates = np.bincount(pair_N.ravel(), weights=first.clean_logits_N > logit) / counts
    order = np.lexsort((-counts, -np.where(counts >= OFTEN, rates, -1)))[:SUSPECTS]
    return [
        {
            "token": scorer.tokenizer.id_to_token(int(pairs[i, 0])),
            "tag": tokens.tags[pairs[i, 1]],
            "tokens": int(counts[i]),
            "rate": float(rates[i]),
        }
        for i in order.tolist()
        if counts[i] >= OFTEN and rates[i] > 0
    ]

"""`electra analyze parts-of-speech`: which words look replaced to a discriminator."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from electra.config import NonNegativeInt, OpenFraction, PositiveInt, Range

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from electra.analysis.tagged_tokens import TaggedTokens
    from electra.reports.analysis import AnalysisReport
    from electra.serving.scorer import Scorer

logger = logging.getLogger(__name__)

SETTINGS = ("threshold", "draws", "share", "temperature", "resamples", "seed")


@dataclass(frozen=True)
class AnalyzePartsOfSpeechConfig:
    """The command line of `electra analyze parts-of-speech`."""

    model: tyro.conf.Positional[str]
    """A discriminator: a run, an export folder, a Hugging Face folder or id."""
    data: Path
    """A treebank in CoNLL-U; the tags are in its fourth field (UPOS)."""
    generator: str | None = None
    """Generator of the fakes. Default: the one next to the discriminator, RUN/export/generator."""
    frequencies: Path | None = None
    """Prepared data in whose training text the frequencies of tokens are counted. Default: counted in the
    treebank."""
    threshold: OpenFraction = 0.5
    """Probability of being replaced above which a token is suspected."""
    draws: PositiveInt = 3
    """Number of corrupted copies of the text, each with another seed; all are measured together."""
    share: OpenFraction = 0.15
    """Fraction of each sentence's tokens that the generator replaces (at least one token)."""
    temperature: Annotated[float, Range(ge=0.01, le=100)] = 1.0
    """Sampling temperature of the generator."""
    sentences: NonNegativeInt = 0
    """Maximum number of sentences, spread evenly over the file; 0: all."""
    resamples: PositiveInt = 500
    """Number of bootstrap resamples of the sentences, for the intervals."""
    seed: NonNegativeInt = 0
    """Random seed of the first corrupted copy, and of the resamples."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    out: Path | None = None
    """Folder for parts-of-speech.json, .png and .svg; existing ones are replaced. Default: no files."""


def run(config: AnalyzePartsOfSpeechConfig) -> AnalysisReport:
    """Measure which words look replaced to a discriminator: by part of speech, frequency, position and word piece.

    The original text and the generator's fakes are measured, together with the generator's probabilities of
    original and fake tokens. They show whether the discriminator is biased against a group, or whether the fakes
    of that group are hard to detect.

    Examples:
        electra analyze parts-of-speech RUN --data en_ewt-ud-dev.conllu --frequencies DATA --out words
        electra analyze parts-of-speech DISCRIMINATOR --generator GENERATOR --data dev.conllu --threshold 0.3
    """
    import numpy as np

    from electra.analysis import parts_of_speech
    from electra.analysis.corruption import corrupt_texts
    from electra.analysis.group_bootstrap import GroupBootstrap
    from electra.analysis.load_models import load_generator
    from electra.analysis.tagged_tokens import tokenize_tagged
    from electra.export.display_name import display_name
    from electra.reports.analysis import make_output_folder, save_report
    from electra.serving.scorer import Scorer
    from electra.tasks import conll

    make_output_folder(config.out)
    sentences = conll.read(config.data, conll.UPOS)
    if config.sentences:
        indices = np.linspace(0, len(sentences) - 1, min(config.sentences, len(sentences))).round().astype(int)
        sentences = [sentences[i] for i in indices.tolist()]
    scorer, name = Scorer(config.model, device=config.device), display_name(config.model)
    generator = load_generator(config.model, config.generator, scorer)
    tokens = tokenize_tagged(sentences, scorer.tokenizer)
    groupings = parts_of_speech.group_tokens(tokens, _count_tokens(config, scorer, tokens))
    draws = []
    sampling = {"share": config.share, "temperature": config.temperature}
    for number in range(config.draws):
        logger.info("Replacing and reading", extra={"progress": (number, config.draws)})
        draws.append(corrupt_texts(scorer, generator, tokens.ids, **sampling, seed=config.seed + number))
    observations = parts_of_speech.Observations.from_draws(draws)
    bootstrap = GroupBootstrap(len(tokens.ids), count=config.resamples, seed=config.seed)
    logit = math.log(config.threshold / (1 - config.threshold))
    # The frequencies of token and word nearly agree, so only one of them is in the regression.
    independent = [grouping for grouping in groupings if grouping.name != parts_of_speech.WORD_FREQUENCY]
    results = {
        "model": name,
        "objective": scorer.objective,
        "data": config.data.name,
        "frequencies": None if config.frequencies is None else config.frequencies.resolve().name,
        "sentences": len(tokens.ids),
        "rebuilt": tokens.rebuilt,
        "in_windows": {name: scorer.batcher.count_windowed(map(len, tokens.ids))},
        "words": tokens.words,
        **{key: getattr(config, key) for key in SETTINGS},
        "groups": parts_of_speech.evaluate_groupings(observations, groupings, bootstrap=bootstrap, logit=logit),
        "effects": parts_of_speech.fit_error_effects(observations, independent, logit=logit),
        "suspects": parts_of_speech.most_suspected_tokens(scorer.tokenizer, tokens, draws[0], logit=logit),
    }
    return save_report("parts-of-speech", results, config.out)


def _count_tokens(config: AnalyzePartsOfSpeechConfig, scorer: Scorer, tokens: TaggedTokens) -> NDArray[np.int64]:
    """How often each token occurs in the training text, or in the treebank."""
    import numpy as np

    from electra.analysis.corruption import flatten
    from electra.analysis.frequency import pad_counts
    from electra.analysis.load_models import check_vocabulary
    from electra.data import tokenizer as tokenizers
    from electra.data.shards import TokenData

    size = tokenizers.vocabulary_size(scorer.tokenizer)
    if config.frequencies is None:
        return np.bincount(flatten(tokens.ids), minlength=size)
    data = TokenData.open(config.frequencies, verify=False)
    check_vocabulary(scorer.tokenizer, config.model, data)
    return pad_counts(data.unigram_counts, size)

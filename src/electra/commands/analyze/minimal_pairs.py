"""`electra analyze minimal-pairs`: which of two sentences looks likelier, the right or the wrong one?"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro

from electra.errors import ConfigError
from electra.reports.analysis import AnalysisReport, names_of, prepare_out, reported

if TYPE_CHECKING:
    from electra.analysis.minimal_pairs import Judged, Pair
    from electra.serving.likelihood import LikelihoodScorer

logger = logging.getLogger(__name__)

AT_ONCE = 4096
"""Pairs whose scores are computed at a time."""


@dataclass(frozen=True)
class AnalyzeMinimalPairsConfig:
    """The command line of `electra analyze minimal-pairs`."""

    models: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="MODEL...", help_behavior_hint="(required)"),
    ]
    """Runs, export folders, Hugging Face folders or ids: discriminators, masked or causal language models."""
    data: tuple[Path, ...]
    """A folder of .jsonl files as BLiMP has them, or files (.jsonl, .csv, .tsv, .parquet) with a column of right
    and one of wrong sentences."""
    good_column: str | None = None
    """The column of the right sentences; found by itself where it is sentence_good, good, grammatical or
    acceptable."""
    bad_column: str | None = None
    """The column of the wrong sentences."""
    pairs: int | None = None
    """The first so many of each file; left out: all."""
    resamples: int = 1000
    """How often the pairs are drawn anew for the intervals."""
    seed: int = 0
    """Of the drawing."""
    out: Path | None = None
    """A folder for minimal-pairs.json, .png and .svg; those that are there are replaced."""

    def problems(self) -> Iterator[str]:
        if not self.models:
            yield "MODEL: name at least one model"
        for name, least in (("pairs", 1), ("resamples", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                yield f"--{name}: must be at least {least}, got {value}"


def run(config: AnalyzeMinimalPairsConfig) -> AnalysisReport:
    """Ask models which of two sentences is likelier, the right or the wrong one. Nothing is trained.

    Each model is asked in every way that its head allows; all of them are shown, and none is chosen by what it
    gives here.

    Examples:
        electra analyze minimal-pairs RUN RUN/export/generator --data BLIMP --out found
        electra analyze minimal-pairs RUN --data pairs.tsv --good-column correct --bad-column wrong
    """
    from electra.analysis.minimal_pairs import measured, pairs_of
    from electra.serving.likelihood import SCORES, load_likelihood_scorer

    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    prepare_out(config.out)
    pairs = pairs_of(config.data, pairs=config.pairs, columns=(config.good_column, config.bad_column))
    # All models are loaded before the first one is used, so that a mistake is found early.
    models = [load_likelihood_scorer(model) for model in config.models]
    judged, in_windows = [], {}
    for name, model in zip(names_of(config.models), models, strict=True):
        found, in_windows[name] = _judged(name, model, pairs)
        judged += found
    facts = measured(pairs, judged, resamples=config.resamples, seed=config.seed)
    facts["in_windows"] = in_windows
    facts["meanings"] = {name: SCORES[name] for name in SCORES if any(one.score == name for one in judged)}
    return reported("minimal-pairs", facts, config.out)


def _judged(name: str, model: LikelihoodScorer, pairs: list[Pair]) -> tuple[list[Judged], int]:
    """What each score of a model makes of the pairs; and how many sentences it read in windows."""
    from electra.analysis.minimal_pairs import Judged, right, texts_of

    parts = []
    for first in range(0, len(pairs), AT_ONCE):
        logger.info("Scoring with %s", name, extra={"progress": (first, len(pairs))})
        parts.append(model(list(texts_of(pairs[first : first + AT_ONCE]))))
    logger.info("Scored with %s", name, extra={"progress": (len(pairs), len(pairs))})
    longer_P = np.concatenate([part.tokens for part in parts]).reshape(-1, 2) @ [1, -1]
    judged = [
        Judged(name, score, right(np.concatenate([part.scores[score] for part in parts])), longer_P)
        for score in model.names
    ]
    return judged, sum(part.windowed for part in parts)

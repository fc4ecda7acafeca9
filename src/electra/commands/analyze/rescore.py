"""`electra analyze rescore`: a speech recogniser's n-best lists, with a model's word in the choice."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro

from electra.analysis.n_best import NORMALISATION, UNKNOWN, Scale, read_lists
from electra.analysis.rescoring import Lists, Scored, measured
from electra.errors import ConfigError, require
from electra.reports.analysis import AnalysisReport, names_of, prepare_out, reported

if TYPE_CHECKING:
    from electra.serving.likelihood import LikelihoodScorer

logger = logging.getLogger(__name__)

AT_ONCE = 4096
"""Hypotheses whose likelihoods are computed at a time."""


@dataclass(frozen=True)
class AnalyzeRescoreConfig:
    """The command line of `electra analyze rescore`."""

    models: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="MODEL...", help_behavior_hint="(required)"),
    ]
    """Runs, export folders, Hugging Face folders or ids: discriminators, masked or causal language models."""
    data: Path
    """N-best lists: a table (.csv, .tsv, .jsonl, .parquet) with a row for each hypothesis, of transcription (or
    id), hypothesis and score; or .jsonl with a list each, of reference and hypotheses: text and score."""
    references: Path | None = None
    """A table with what was said: transcription, and id or hypothesis (the recogniser's first best). The lists'
    transcription is then taken for the first best."""
    scale: Scale = "auto"
    """Whether scores are probabilities or logarithms (higher: better); auto: probabilities, where all lie from 0
    to 1."""
    folds: int = 5
    """Parts of the utterances: each is judged by the weights that the others gave."""
    resamples: int = 1000
    """How often the utterances are drawn anew for the intervals."""
    seed: int = 0
    """Of the folds and of the drawing."""
    out: Path | None = None
    """A folder for rescore.json, rescore.png and rescore.svg; those that are there are replaced."""

    def problems(self) -> Iterator[str]:
        if not self.models:
            yield "MODEL: name at least one model"
        for name, least in (("folds", 2), ("resamples", 1), ("seed", 0)):
            if getattr(self, name) < least:
                yield f"--{name}: must be at least {least}, got {getattr(self, name)}"


def run(config: AnalyzeRescoreConfig) -> AnalysisReport:
    """Choose among a recogniser's hypotheses by its score and a model's together, and count the word errors.

    How much the model counts, and a penalty for each word, are fitted on some utterances and judged on others.
    Each model is asked in every way that its head allows; all of them are shown.

    Examples:
        electra analyze rescore RUN RUN/export/generator --data nbest.csv --out found
        electra analyze rescore RUN --data alternatives.csv --references first-bests.csv --folds 10
    """
    require("electra analyze rescore", "speech", "jiwer")
    from electra.serving.likelihood import SCORES, load_likelihood_scorer

    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    prepare_out(config.out)
    read = read_lists(config.data, references=config.references, scale=config.scale)
    lists = Lists.of(read.utterances, folds=config.folds, seed=config.seed)
    # All models are loaded before the first one is used, so that a mistake is found early.
    models = [load_likelihood_scorer(model) for model in config.models]
    texts = [text for one in read.utterances for text in one.texts]
    scored, in_windows = [], {}
    for name, model in zip(names_of(config.models), models, strict=True):
        found, in_windows[name] = _scored(name, model, texts, lists)
        scored += found
    facts = measured(lists, scored, resamples=config.resamples, seed=config.seed)
    facts |= {
        "left_out": read.left_out, "scale": read.scale, "first_best_added": read.first_best_added,
        "empty_hypotheses": read.empty, "normalisation": NORMALISATION, "in_windows": in_windows,
        "meanings": {name: SCORES[name] for name in SCORES if any(one.score == name for one in scored)},
    }  # fmt: skip
    return reported("rescore", facts, config.out)


def _scored(name: str, model: LikelihoodScorer, texts: list[str], lists: Lists) -> tuple[list[Scored], int]:
    """The likelihoods of all hypotheses by each score of a model; and how many it read in windows."""
    parts = []
    for first in range(0, len(texts), AT_ONCE):
        logger.info("Scoring with %s", name, extra={"progress": (first, len(texts))})
        parts.append(model(texts[first : first + AT_ONCE], unknown=UNKNOWN))
    logger.info("Scored with %s", name, extra={"progress": (len(texts), len(texts))})
    scored = [
        Scored(name, score, lists.likelihoods(np.concatenate([part.scores[score] for part in parts])))
        for score in model.names
    ]
    return scored, sum(part.windowed for part in parts)

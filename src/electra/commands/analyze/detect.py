"""`electra analyze detect`: whether a model finds the words that learners got wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from electra.analysis.bootstrap import drawn
from electra.errors import ConfigError, DataError
from electra.reports.analysis import AnalysisReport, names_of, prepare_out, reported

if TYPE_CHECKING:
    from electra.analysis.detect import Part

logger = logging.getLogger(__name__)

FEWEST = 10
"""Sentences of a part below which a bootstrap says nothing."""


@dataclass(frozen=True)
class AnalyzeDetectConfig:
    """The command line of `electra analyze detect`."""

    models: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="MODEL...", help_behavior_hint="(required)"),
    ]
    """Discriminators (runs, exports, Hugging Face folders or ids), or taggers of wrong words (electra finetune
    --task ged)."""
    data: Path
    """A file with a word and its tag a line (c or -: right), or a folder with NAME.src and its rewrites NAME.ref0,
    NAME.ref1, ... (JFLEG)."""
    tune: Path | None = None
    """Other data of either kind, on which thresholds are chosen; left out: a part of DATA, which is not scored."""
    tune_share: float = 0.5
    """The share of DATA's sentences, drawn by lot, on which thresholds are chosen."""
    references: int = 2
    """Of rewritten sentences: so many of the rewrites must change a word for it to be wrong."""
    resamples: int = 1000
    """How often the scored sentences are drawn anew, for intervals."""
    seed: int = 0
    """Of all that is drawn."""
    out: Path | None = None
    """A folder for detect.json, detect.png and detect.svg; those that are there are replaced."""

    def problems(self) -> Iterator[str]:
        if not self.models:
            yield "MODEL: name at least one model"
        for name, least in (("references", 1), ("resamples", 1), ("seed", 0)):
            if getattr(self, name) < least:
                yield f"--{name}: must be at least {least}, got {getattr(self, name)}"
        if not 0 < self.tune_share < 1:
            yield f"--tune-share: must lie between 0 and 1, got {self.tune_share}"
        if self.tune is not None and self.tune.resolve() == self.data.resolve():
            yield "--tune: must be other data than --data; left out, a part of DATA is used"


def run(config: AnalyzeDetectConfig) -> AnalysisReport:
    """Find learners' wrong words by how replaced they look, without training; or with a tagger, trained for it.

    The threshold with the best F0.5 is chosen on sentences that are not scored, and beside the models stand two
    baselines: every word, and rare words. Sentences are read each by itself.

    Examples:
        electra analyze detect RUN --data ged/en_realec_dev.tsv --out detect
        electra analyze detect RUN TAGGER --data jfleg/test --tune jfleg/dev
    """
    from electra.analysis import error_corpora
    from electra.analysis.detect import Detector, detected, differences, every_word, judged, rare_words

    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    prepare_out(config.out)
    tune, scored = _parts(config)
    detectors = [Detector.of(*pair) for pair in zip(config.models, names_of(config.models), strict=True)]
    found = []
    for number, detector in enumerate(detectors):
        logger.info("Reading with %s", detector.name, extra={"progress": (number, len(detectors))})
        found.append(detected(detector, tune, scored))
    found += [rare_words(tune, scored), every_word(tune, scored)]
    counts_RS = drawn(len(scored.sentences), resamples=config.resamples, seed=config.seed)
    points, values = [], []
    for number, scores in enumerate(found):
        logger.info("Judging %s", scores.name, extra={"progress": (number, len(found))})
        facts, by_resample = judged(scores, tune, scored, counts_RS)
        points.append(facts)
        values.append((scores.name, by_resample))
    facts = {
        "data": error_corpora.name_of(config.data), "tune": config.tune and error_corpora.name_of(config.tune),
        "tune_share": None if config.tune else config.tune_share,
        "references": config.references if config.data.is_dir() else None,
        "parts": {"tune": tune.facts(), "scored": scored.facts()},
        "buckets": _buckets(scored), "resamples": config.resamples, "models": points,
        "differences": differences(values, points),
    }  # fmt: skip
    return reported("detect", facts, config.out)


def _parts(config: AnalyzeDetectConfig) -> tuple[Part, Part]:
    """What thresholds are chosen on, and what is scored.

    Raises:
        DataError: one has too few sentences, or only words of one kind.
    """
    from electra.analysis import error_corpora
    from electra.analysis.detect import Part

    sentences = error_corpora.read(config.data, references=config.references)
    if config.tune is not None:
        parts = Part(error_corpora.read(config.tune, references=config.references)), Part(sentences)
    else:
        chosen, others = error_corpora.parted(len(sentences), config.tune_share, seed=config.seed)
        parts = Part([sentences[i] for i in chosen]), Part([sentences[i] for i in others])
    for part, path, what in zip(
        parts, (config.tune or config.data, config.data), ("chooses the threshold", "is scored"), strict=True
    ):
        wrong_W = part.wrong_W
        if len(part.sentences) < FEWEST:
            raise DataError(
                f"{path}: {len(part.sentences)} of its sentences are the part that {what}, but {FEWEST} are "
                "needed; give more, another --tune-share, or --tune with other data"
            )
        if wrong_W.all() or not wrong_W.any():
            raise DataError(
                f"{path}: the part that {what} has {'only' if wrong_W.any() else 'no'} wrong words; give more "
                "sentences, or another --seed"
            )
    return parts


def _buckets(scored: Part) -> list[dict[str, Any]]:
    """Which sentences each has."""
    from electra.analysis.detect import BUCKETS, Part

    bucket_S = scored.bucket_S
    found = []
    for number, name in enumerate(BUCKETS):
        inside = [one for one, bucket in zip(scored.sentences, bucket_S, strict=True) if bucket == number]
        found.append({"bucket": name, **Part(inside).facts()})
    return found

"""`electra analyze detect`: find wrong words in the sentences of language learners."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from electra.commands.analyze.options import Models, missing_models
from electra.config import NonNegativeInt, OpenFraction, PositiveInt

if TYPE_CHECKING:
    from electra.reports.analysis import AnalysisReport

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnalyzeDetectConfig:
    """The command line of `electra analyze detect`."""

    models: Models
    """Discriminators or masked language models (runs, exports, Hugging Face folders or ids), or taggers of wrong
    words (electra finetune --task ged)."""
    data: Path
    """A file with a word and its tag per line (c or -: correct), or a folder with NAME.src and its rewrites
    NAME.ref0, NAME.ref1, ... (JFLEG)."""
    tune: Path | None = None
    """Separate data of either kind for choosing thresholds. Default: a part of DATA, which is then not scored."""
    tune_share: OpenFraction = 0.5
    """Fraction of DATA's sentences (a random sample) for choosing thresholds."""
    references: PositiveInt = 2
    """Number of rewrites that must change a word for it to count as wrong."""
    resamples: PositiveInt = 1000
    """Number of bootstrap resamples of the scored sentences, for the intervals."""
    seed: NonNegativeInt = 0
    """Random seed."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    out: Path | None = None
    """Folder for detect.json, detect.png and detect.svg; existing ones are replaced. Default: no files."""

    def problems(self) -> Iterator[str]:
        yield from missing_models(self.models)
        if self.tune is not None and self.tune.resolve() == self.data.resolve():
            yield "--tune: must be other data than --data; without it, a part of DATA is used"


def run(config: AnalyzeDetectConfig) -> AnalysisReport:
    """Find wrong words in learners' sentences by their probability of being replaced, or with a trained tagger.

    A discriminator needs no training for this, nor does a masked language model, which ranks words by their
    surprisal: minus the log-probability of a word where it is masked. Each threshold is the one with the best
    F0.5 on other sentences than those that are scored. Two baselines are shown as well: every word, and rare
    words. Each sentence is read by itself.

    Examples:
        electra analyze detect RUN --data ged/en_realec_dev.tsv --out detect
        electra analyze detect RUN TAGGER --data jfleg/test --tune jfleg/dev
    """
    from electra.analysis import detect
    from electra.analysis.bootstrap import resample_counts
    from electra.analysis.detectors import Detector
    from electra.analysis.error_corpora import corpus_name
    from electra.export.display_name import display_names
    from electra.reports.analysis import make_output_folder, save_report

    make_output_folder(config.out)
    tune, scored = detect.read_tune_and_scored(
        config.data, config.tune, tune_share=config.tune_share, references=config.references, seed=config.seed
    )
    detectors = [
        Detector.load(model, name, device=config.device)
        for model, name in zip(config.models, display_names(config.models), strict=True)
    ]
    scores = []
    for number, detector in enumerate(detectors):
        logger.info("Reading with %s", detector.name, extra={"progress": (number, len(detectors))})
        scores.append(detect.score_words(detector, tune, scored))
    scores += [detect.rare_words_baseline(tune, scored), detect.every_word_baseline(tune, scored)]
    counts_RS = resample_counts(len(scored.sentences), resamples=config.resamples, seed=config.seed)
    models, resampled = [], []
    for number, score in enumerate(scores):
        logger.info("Evaluating %s", score.name, extra={"progress": (number, len(scores))})
        model, values = detect.evaluate_scores(score, tune, scored, counts_RS)
        models.append(model)
        resampled.append(values)
    results = {
        "data": corpus_name(config.data), "tune": config.tune and corpus_name(config.tune),
        "tune_share": None if config.tune else config.tune_share,
        "references": config.references if config.data.is_dir() else None,
        "parts": {"tune": tune.counts(), "scored": scored.counts()},
        "buckets": scored.bucket_counts(), "resamples": config.resamples, "models": models,
        "differences": detect.compare_to_first(resampled, models),
    }  # fmt: skip
    return save_report("detect", results, config.out)

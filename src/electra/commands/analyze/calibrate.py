"""`electra analyze calibrate`: check and correct the calibration of replaced-token probabilities."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from electra.config import NonNegativeInt, OpenFraction, PositiveInt, Range
from electra.export.included_models import find_included

if TYPE_CHECKING:
    from electra.reports.analysis import AnalysisReport

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnalyzeCalibrateConfig:
    """The command line of `electra analyze calibrate`."""

    model: tyro.conf.Positional[str]
    """A discriminator: a run, an export, a Hugging Face folder or id, or the included model wiki-tiny."""
    data: Path
    """A folder of prepared data (electra prepare); tokens of its held-out documents are replaced."""
    errors: Path | None = None
    """Real errors: a file with a word and its tag per line, or a folder of sentences and rewrites, as for electra
    analyze detect. Default: no evaluation on real errors."""
    generator: str | None = None
    """A masked language model that replaces tokens. Default: the generator next to the discriminator."""
    share: OpenFraction = 0.15
    """Fraction of tokens at whose positions the generator samples."""
    prior: OpenFraction | None = None
    """Expected fraction of wrong words in real text. Default: only estimated priors are evaluated."""
    correction: Literal["none", "temperature", "platt", "isotonic"] | None = None
    """Correction to store and to evaluate on real errors. Default: the best by cross-validation."""
    store: bool = False
    """Store the correction in the model's folder, replacing an earlier one, for electra score --calibrated."""
    store_errors: bool = False
    """Store the correction that was fitted to real errors instead; needs --errors."""
    documents: Annotated[int, Range(ge=20)] = 200
    """Maximum number of held-out documents (a random sample)."""
    length: Annotated[int, Range(ge=16)] = 512
    """Maximum number of tokens of each document, from its beginning."""
    bins: Annotated[int, Range(ge=2)] = 15
    """Number of bins in reliability diagrams and calibration errors."""
    references: PositiveInt = 2
    """Number of rewrites that must change a word for it to count as wrong."""
    resamples: PositiveInt = 1000
    """Number of bootstrap resamples of documents, and of sentences, for the intervals."""
    seed: NonNegativeInt = 0
    """Random seed."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    out: Path | None = None
    """Folder for calibrate.json, calibrate.png and calibrate.svg; existing ones are replaced. Default: no
    files."""

    def problems(self) -> Iterator[str]:
        if (self.store or self.store_errors) and not Path(self.model).is_dir():
            how = "download the model, or export the run"
            if included := find_included(self.model):
                how = f"copy {included} and give the copy"
            yield f"--store: {self.model} is not a folder to write to; {how}"
        if self.store and self.store_errors:
            yield "--store and --store-errors: a model has only one correction; leave one of them out"
        if self.store_errors and self.errors is None:
            yield "--store-errors: needs real errors to fit to: --errors FILE"
        if self.store and self.correction == "none":
            yield "--store: there is nothing to store with --correction none"


def run(config: AnalyzeCalibrateConfig) -> AnalysisReport:
    """Compare the probabilities of replaced tokens with observed frequencies, and correct them.

    Corrections are fitted on one half of the documents and evaluated on the other half. With --errors they are
    also evaluated on learners' wrong words, with and without a shift to the lower error rate of real text.

    Examples:
        electra analyze calibrate RUN --data DATA --errors ged/en_realec_dev.tsv --out calibrate
        electra analyze calibrate RUN --data DATA --store
    """
    from electra.analysis import calibrate
    from electra.analysis.error_corpora import corpus_name
    from electra.analysis.load_models import load_generator
    from electra.export.display_name import display_name
    from electra.reports.analysis import make_output_folder, save_report
    from electra.serving.scorer import Scorer

    make_output_folder(config.out)
    halves = None
    if config.errors is not None:
        halves = calibrate.read_error_halves(config.errors, references=config.references, seed=config.seed)
    scorer, name = Scorer(config.model, device=config.device), display_name(config.model)
    if config.store or config.store_errors:
        calibrate.check_accepts_correction(config.model)
    data = calibrate.open_prepared_data(config.data, scorer, config.model)
    generator = load_generator(config.model, config.generator, scorer)
    fit, test, counts = calibrate.corrupt_documents(
        scorer, generator, data,
        documents=config.documents, length=config.length, share=config.share, seed=config.seed,
    )  # fmt: skip
    logger.info("Fitting corrections")
    bootstrap: dict[str, Any] = {"bins": config.bins, "resamples": config.resamples, "seed": config.seed}
    evaluator = calibrate.CalibrationEvaluator.create(test, **bootstrap)
    replaced, corrections, selected = calibrate.evaluate_on_replaced_tokens(
        fit, evaluator, correction=config.correction, seed=config.seed
    )
    results: dict[str, Any] = {
        "model": name, "data": data.fingerprint, **counts, "wanted_share": config.share,
        "bins": config.bins, "resamples": config.resamples, "replaced": replaced, "errors": None, "stored": None,
        "not_stored": None,
    }  # fmt: skip
    to_store = corrections[selected] if config.store else None
    if config.errors is not None and halves is not None:
        logger.info("Reading %s", config.errors.name)
        fit, test, windowed = calibrate.score_error_halves(scorer, halves)
        evaluator = calibrate.CalibrationEvaluator.create(test, **bootstrap)
        evaluated = [corrections[kind] for kind in dict.fromkeys(("none", selected))]
        errors, line = calibrate.evaluate_on_errors(fit, evaluator, evaluated, prior=config.prior)
        results["errors"] = {
            "data": corpus_name(config.errors), "sentences": len(halves[1]), "fitted_sentences": len(halves[0]),
            "in_windows": {name: windowed}, **errors,
        }  # fmt: skip
        if config.store_errors:
            to_store = line
    if to_store is not None:
        results["not_stored"] = calibrate.store_correction(to_store, config.model)
        source = ", fitted to real errors," if config.store_errors else ""
        results["stored"] = None if results["not_stored"] else f"{to_store.kind}{source}"
    return save_report("calibrate", results, config.out)

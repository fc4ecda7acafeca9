"""`electra analyze calibrate`: whether a discriminator's probabilities are right, and what mends them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tyro

from electra.analysis.held_out_rows import held_out_rows
from electra.commands.analyze.context import check_vocabulary
from electra.commands.analyze.detect import FEWEST
from electra.data.shards import TokenData
from electra.errors import CheckpointError, ConfigError, DataError
from electra.reports.analysis import AnalysisReport, names_of, prepare_out, reported

if TYPE_CHECKING:
    from electra.analysis.calibration import Outcomes
    from electra.analysis.error_corpora import MarkedSentence
    from electra.serving.calibration import Calibration, CalibrationKind
    from electra.serving.masked_token_predictor import MaskedTokenPredictor
    from electra.serving.scorer import Scorer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnalyzeCalibrateConfig:
    """The command line of `electra analyze calibrate`."""

    model: tyro.conf.Positional[str]
    """A discriminator: a run, an export, or a Hugging Face folder or id."""
    data: Path
    """The folder that `electra prepare` made, in whose held-out documents tokens are replaced."""
    errors: Path | None = None
    """Real errors: a file with a word and its tag a line, or a folder of sentences and their rewrites, as for
    electra analyze detect."""
    generator: str | None = None
    """A masked language model that replaces the tokens; left out: the one beside the discriminator."""
    share: float = 0.15
    """The share of tokens in whose places the generator draws."""
    prior: float | None = None
    """The share of wrong words that is expected in real text."""
    correction: Literal["none", "temperature", "platt", "isotonic"] | None = None
    """The one that is stored and judged on real errors; left out: the best by cross-validation."""
    store: bool = False
    """Put the correction beside the model, in place of an earlier one, for electra score --calibrated."""
    store_errors: bool = False
    """Put the line that was fitted to real errors there instead."""
    documents: int = 200
    """At most so many held-out documents, drawn by lot."""
    length: int = 512
    """Tokens of each document at most, from its beginning."""
    bins: int = 15
    """Of reliability diagrams and calibration errors."""
    references: int = 2
    """Of rewritten sentences: so many of the rewrites must change a word for it to be wrong."""
    resamples: int = 1000
    """How often documents, and sentences, are drawn anew, for intervals."""
    seed: int = 0
    """Of all that is drawn."""
    out: Path | None = None
    """A folder for calibrate.json, calibrate.png and calibrate.svg; those that are there are replaced."""

    def problems(self) -> Iterator[str]:
        least = {"documents": 2 * FEWEST, "length": 16, "bins": 2, "references": 1, "resamples": 1, "seed": 0}
        for name, number in least.items():
            if getattr(self, name) < number:
                yield f"--{name}: must be at least {number}, got {getattr(self, name)}"
        for name in ("share", "prior"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                yield f"--{name}: must lie between 0 and 1, got {value}"
        if (self.store or self.store_errors) and not Path(self.model).is_dir():
            yield f"--store: needs a folder to write to, and {self.model} is none; download it, or export the run"
        if self.store and self.store_errors:
            yield "--store and --store-errors: a model has one correction; leave one of them out"
        if self.store_errors and self.errors is None:
            yield "--store-errors: needs real errors to be fitted to: --errors FILE"
        if self.store and self.correction == "none":
            yield "--store: there is nothing to store with --correction none"


def run(config: AnalyzeCalibrateConfig) -> AnalysisReport:
    """Compare probabilities of having been replaced with how often it was so, and correct them.

    Corrections are fitted on one half of the documents and judged on the other; with --errors also on learners'
    wrong words, with and without a shift to the smaller share of errors in real text.

    Examples:
        electra analyze calibrate RUN --data DATA --errors ged/en_realec_dev.tsv --out calibrate
        electra analyze calibrate RUN --data DATA --store
    """
    from electra.analysis import error_corpora
    from electra.analysis.calibrate import Judge, on_replaced

    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    prepare_out(config.out)
    sentences = None if config.errors is None else _sentences(config, config.errors)
    scorer, generator, data = _opened(config)
    fit, judged, counted = _halves(config, scorer, generator, data)
    judge = Judge.of(judged, bins=config.bins, resamples=config.resamples, seed=config.seed)
    logger.info("Fitting corrections")
    replaced, corrections, chosen = on_replaced(fit, judge, correction=config.correction, seed=config.seed)
    facts: dict[str, Any] = {
        "model": names_of([config.model])[0], "data": data.fingerprint, **counted, "wanted_share": config.share,
        "bins": config.bins, "resamples": config.resamples, "replaced": replaced, "errors": None, "stored": None,
        "not_stored": None,
    }  # fmt: skip
    wanted = corrections[chosen] if config.store else None
    if sentences is not None:
        assert config.errors is not None
        logger.info("Reading %s", config.errors.name)
        found, line = _on_errors(config, scorer, sentences, corrections, chosen)
        facts["errors"] = {"data": error_corpora.name_of(config.errors), **found}
        if config.store_errors:
            wanted = line
    if wanted is not None:
        # Not an error: what was measured is worth as much without it.
        facts["not_stored"] = _not_stored(wanted, config.model)
        if facts["not_stored"] is None:
            facts["stored"] = f"{wanted.kind}, fitted to real errors," if config.store_errors else wanted.kind
    return reported("calibrate", facts, config.out)


def _sentences(config: AnalyzeCalibrateConfig, path: Path) -> tuple[list[MarkedSentence], list[MarkedSentence]]:
    """Both halves of the sentences with real errors.

    Raises:
        DataError: there are too few, or only words of one kind.
    """
    from electra.analysis import error_corpora

    sentences = error_corpora.read(path, references=config.references)
    if len(sentences) < 2 * FEWEST:
        raise DataError(f"{path}: {len(sentences)} sentences are too few for two halves of {FEWEST}; give more")
    halves = error_corpora.parted(len(sentences), 0.5, seed=config.seed)
    first, second = ([sentences[number] for number in half] for half in halves)
    for half in (first, second):
        wrong = {wrong for one in half for wrong in one.wrong}
        if len(wrong) < 2:
            raise DataError(
                f"{path}: one half of its sentences has {'only' if True in wrong else 'no'} wrong words; give "
                "more sentences, or another --seed"
            )
    return first, second


def _opened(config: AnalyzeCalibrateConfig) -> tuple[Scorer, MaskedTokenPredictor, TokenData]:
    """The two networks and the data.

    Raises:
        CheckpointError, DataError: they do not suit.
    """
    from electra.export.loading import find, generator_beside
    from electra.export.onnx.graph import is_onnx
    from electra.serving.masked_token_predictor import MaskedTokenPredictor
    from electra.serving.scorer import Scorer

    scorer = Scorer(config.model)
    if scorer.objective == "electric":
        raise CheckpointError(
            f"{config.model} was trained by objective.kind electric: its logits are energies, no log-odds of "
            "having been replaced, so there is nothing to calibrate; give a run of objective.kind replaced-token"
        )
    if (config.store or config.store_errors) and is_onnx(find(config.model)):
        raise CheckpointError(
            f"{config.model} is an ONNX folder, which takes no correction; give the model it was made of"
        )
    data = TokenData.open(config.data, verify=False)
    check_vocabulary(scorer.tokenizer, config.model, data)
    name = config.generator or generator_beside(config.model)
    if name is None:
        raise CheckpointError(
            f"{config.model} has no generator beside it that could replace tokens; name one: --generator MODEL "
            "(such as RUN/export/generator, or another masked language model with this vocabulary)"
        )
    return scorer, MaskedTokenPredictor(name), data


def _halves(
    config: AnalyzeCalibrateConfig, scorer: Scorer, generator: MaskedTokenPredictor, data: TokenData
) -> tuple[Outcomes, Outcomes, dict[str, Any]]:
    """Tokens of both halves of the documents, some of them replaced.

    Raises:
        DataError: there are too few documents.
    """
    from electra.analysis import error_corpora
    from electra.analysis.calibration import Outcomes
    from electra.analysis.corrupted import corrupted

    row = min(scorer.batcher.max_tokens, generator.batcher.max_tokens)
    rows = held_out_rows(data.heldout, documents=config.documents, length=config.length, row=row, seed=config.seed)
    documents = rows.documents[-1] + 1
    if documents < 2 * FEWEST:
        raise DataError(
            f"{config.data}: {documents} held-out documents are too few for two halves of {FEWEST}; prepare the "
            "data with a larger --heldout"
        )
    logger.info("Replacing tokens of %s documents", documents)
    found = corrupted(scorer, generator, rows.ids, share=config.share, seed=config.seed)
    items = Outcomes(found.logits_N.astype(np.float64), found.replaced_N, np.array(rows.documents)[found.text_N])
    fit, judged = (items.of(half) for half in error_corpora.parted(documents, 0.5, seed=config.seed))
    for half in (fit, judged):
        if not 0 < half.prior < 1:
            raise DataError(f"{config.data}: no token of a half was replaced by another; give more --documents")
    counts = {"documents": documents, "rows": len(rows.ids), "row": row, "tokens": len(found.logits_N)}
    return fit, judged, counts


def _on_errors(
    config: AnalyzeCalibrateConfig,
    scorer: Scorer,
    sentences: tuple[list[MarkedSentence], list[MarkedSentence]],
    corrections: dict[CalibrationKind, Calibration],
    chosen: CalibrationKind,
) -> tuple[dict[str, Any], Calibration]:
    from electra.analysis.calibrate import Judge, on_errors, words_of
    from electra.analysis.detect import token_scores

    halves = [token_scores(scorer, [one.words for one in half]) for half in sentences]
    fit, judged = (words_of(half, tokens) for half, tokens in zip(sentences, halves, strict=True))
    judge = Judge.of(judged, bins=config.bins, resamples=config.resamples, seed=config.seed)
    wanted = [corrections[kind] for kind in dict.fromkeys(("none", chosen))]
    facts, line = on_errors(fit, judge, wanted, prior=config.prior)
    long = scorer.batcher.count_windowed(one.read for half in halves for one in half)
    counted = {
        "sentences": len(sentences[1]), "fitted_sentences": len(sentences[0]),
        "in_windows": {names_of([config.model])[0]: long},
    }  # fmt: skip
    return counted | facts, line


def _not_stored(calibration: Calibration, model: str) -> str | None:
    """Put a correction beside its model; or why it is not there."""
    from electra.export.loading import find
    from electra.serving.calibration import CALIBRATION_FILE

    if calibration.kind != "isotonic" and calibration.slope <= 0:  # it would turn the order of probabilities round
        reason = (
            "what looks replaced to the model is so less often than the rest (a slope of "
            f"{calibration.slope:.3g}); train it longer"
        )
    else:
        try:
            logger.info("wrote %s", calibration.save(model))
        except OSError as error:
            reason = f"the model's folder takes none ({error.strerror})"
        else:
            return None
    return f"{reason}; the one from before stays" if (find(model) / CALIBRATION_FILE).is_file() else reason

"""What `electra analyze calibrate` computes: raw and corrected probabilities of a discriminator, evaluated on
replaced tokens and on real errors of learners.

Shapes: G groups (documents, sentences), R resamples, W words.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from electra.analysis import error_corpora
from electra.analysis.bootstrap import MIN_GROUPS, Floats, resample_counts, value_with_interval
from electra.analysis.calibration import (
    CORRECTIONS,
    METRICS,
    GroupSums,
    LabeledScores,
    cross_validate,
    estimate_prior,
    fit_calibration,
)
from electra.analysis.corruption import corrupt_texts
from electra.analysis.detect import POOLINGS, pool_token_scores
from electra.analysis.detectors import TokenScores, token_scores
from electra.analysis.error_corpora import LabeledSentence
from electra.analysis.held_out_text import sample_document_rows
from electra.analysis.load_models import check_vocabulary
from electra.data.shards import TokenData
from electra.errors import CheckpointError, DataError
from electra.export.included_models import is_included
from electra.export.loading import find_model
from electra.export.onnx.graph import is_onnx
from electra.objectives.config import DEFAULT_OBJECTIVE, scores_of
from electra.serving.calibration import CALIBRATION_FILE, Calibration, CalibrationKind
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.scorer import Scorer

logger = logging.getLogger(__name__)

Results = dict[str, Any]
Halves = tuple[list[LabeledSentence], list[LabeledSentence]]

COMPARED = ("expected_calibration_error", "brier", "negative_log_likelihood")


@dataclass(frozen=True)
class CalibrationEvaluator:
    """Evaluates corrections on the same items and on the same resamples of their groups.

    Attributes:
        items: with raw log-odds.
    """

    items: LabeledScores
    bins: int
    counts_RG: Floats

    @classmethod
    def create(cls, items: LabeledScores, *, bins: int, resamples: int, seed: int) -> "CalibrationEvaluator":
        groups = len(np.unique(items.group_N))
        return cls(items, bins, resample_counts(groups, resamples=resamples, seed=seed))

    def sums(self, calibration: Calibration) -> GroupSums:
        """The sums of corrected log-odds."""
        corrected_N = calibration(self.items.log_odds_N)
        items = LabeledScores(corrected_N, self.items.positive_N, self.items.group_N)
        return GroupSums.from_items(items, bins=self.bins)

    def evaluate(self, calibration: Calibration, *, baseline: Calibration | None = None) -> Results:
        """The metrics of a correction with intervals, its curves, and its differences to another correction."""
        sums = self.sums(calibration)
        values, values_R = sums.metrics(), sums.metrics(self.counts_RG)
        results: Results = {name: value_with_interval(values[name][0], values_R[name]) for name in METRICS}
        results |= sums.curves()
        if baseline is not None:
            other = self.sums(baseline)
            others, others_R = other.metrics(), other.metrics(self.counts_RG)
            results["difference"] = {
                name: value_with_interval(values[name][0] - others[name][0], values_R[name] - others_R[name])
                for name in COMPARED
            }
        return results


def describe_correction(calibration: Calibration) -> Results:
    """The kind and the parameters of a correction, for JSON."""
    results: Results = {"correction": calibration.kind}
    if calibration.kind == "temperature" and calibration.slope:
        results["temperature"] = 1 / calibration.slope
    if calibration.kind in ("temperature", "platt"):
        results |= {"slope": calibration.slope, "intercept": calibration.intercept}
    if calibration.kind == "isotonic":
        results["knots"] = len(calibration.knots)
    return results


def open_prepared_data(path: Path, scorer: Scorer, model: str) -> TokenData:
    """Open prepared data to calibrate a discriminator on.

    Raises:
        CheckpointError: the discriminator's logits are no log-odds.
        DataError: the data has another vocabulary.
    """
    if scores_of(scorer.objective) == "energy":
        raise CheckpointError(
            f"{model} was trained with objective.kind {scorer.objective}: its logits are energies, not "
            "log-odds of being replaced, so they cannot be calibrated; give a run with objective.kind "
            f"{DEFAULT_OBJECTIVE}"
        )
    data = TokenData.open(path, verify=False)
    check_vocabulary(scorer.tokenizer, model, data)
    return data


def corrupt_documents(
    scorer: Scorer,
    generator: MaskedTokenPredictor,
    data: TokenData,
    *,
    documents: int,
    length: int,
    share: float,
    seed: int,
) -> tuple[LabeledScores, LabeledScores, dict[str, Any]]:
    """Score the tokens of held-out documents, some of which are replaced, and split the documents in two halves.

    Args:
        documents: the maximum number of documents.
        length: the maximum number of tokens of each.
        share: the fraction of tokens at whose positions the generator samples.

    Returns:
        The half to fit on, the half to evaluate on, and counts for calibrate.json.

    Raises:
        DataError: there are too few documents.
    """
    row = min(scorer.batcher.trained_tokens, generator.batcher.trained_tokens)
    rows = sample_document_rows(data.heldout, documents=documents, length=length, row=row, seed=seed)
    sampled = rows.documents[-1] + 1
    if sampled < 2 * MIN_GROUPS:
        raise DataError(
            f"{data.folder}: {sampled} held-out documents are too few for two halves of {MIN_GROUPS}; prepare the "
            "data with a larger --heldout"
        )
    logger.info("Replacing tokens of %s documents", sampled)
    tokens = corrupt_texts(scorer, generator, rows.ids, share=share, seed=seed)
    items = LabeledScores(
        tokens.logits_N.astype(np.float64), tokens.replaced_N, np.array(rows.documents)[tokens.text_N]
    )
    fit, test = (items.of_groups(half) for half in error_corpora.split_indices(sampled, 0.5, seed=seed))
    if not all(0 < half.prior < 1 for half in (fit, test)):
        raise DataError(f"{data.folder}: in one half no token was replaced by another one; give more --documents")
    counts = {"documents": sampled, "rows": len(rows.ids), "row": row, "tokens": len(tokens.logits_N)}
    return fit, test, counts


def evaluate_on_replaced_tokens(
    fit: LabeledScores, evaluator: CalibrationEvaluator, *, correction: CalibrationKind | None, seed: int
) -> tuple[Results, dict[CalibrationKind, Calibration], CalibrationKind]:
    """Fit every correction on one half of the documents and evaluate it on the other half.

    Args:
        correction: the one to select; None: the best by cross-validation within the first half.

    Returns:
        Results for calibrate.json, the corrections, and the kind of the selected one.
    """
    corrections = {kind: fit_calibration(kind, fit) for kind in CORRECTIONS}
    losses = {kind: cross_validate(kind, fit, seed=seed) for kind in CORRECTIONS}
    best: CalibrationKind = min(CORRECTIONS[1:], key=lambda kind: losses[kind])
    selected: CalibrationKind = correction or best
    rows = []
    for kind, calibration in corrections.items():
        baseline = corrections["none"] if kind != "none" else None
        rows.append(
            describe_correction(calibration)
            | {"cross_validated": losses[kind], "chosen": kind == selected}
            | evaluator.evaluate(calibration, baseline=baseline)
        )
    return {"share": evaluator.items.prior, "fitted_share": fit.prior, "rows": rows}, corrections, selected


def read_error_halves(path: Path, *, references: int, seed: int) -> Halves:
    """Read sentences with real errors and split them in two halves at random.

    Raises:
        DataError: there are too few sentences, or the words of a half are all right or all wrong.
    """
    sentences = error_corpora.read_error_corpus(path, references=references)
    if len(sentences) < 2 * MIN_GROUPS:
        raise DataError(
            f"{path}: {len(sentences)} sentences are too few for two halves of {MIN_GROUPS}; give more sentences"
        )
    halves = error_corpora.split_indices(len(sentences), 0.5, seed=seed)
    first, second = ([sentences[number] for number in half] for half in halves)
    for half in (first, second):
        labels = {wrong for sentence in half for wrong in sentence.wrong}
        if len(labels) < 2:
            raise DataError(
                f"{path}: one half of its sentences has {'only' if True in labels else 'no'} wrong words; give "
                "more sentences, or another --seed"
            )
    return first, second


def word_scores(sentences: Sequence[LabeledSentence], tokens: Sequence[TokenScores]) -> LabeledScores:
    """The maximum of the log-odds of each word's tokens; words without a token are left out."""
    log_odds_W = np.concatenate([
        pool_token_scores(scores, len(sentence.words), POOLINGS["max"])
        for sentence, scores in zip(sentences, tokens, strict=True)
    ])  # fmt: skip
    wrong_W = np.concatenate([np.array(sentence.wrong, bool) for sentence in sentences])
    sentence_W = np.repeat(np.arange(len(sentences)), [len(sentence.words) for sentence in sentences])
    scored_W = np.isfinite(log_odds_W)
    return LabeledScores(log_odds_W[scored_W], wrong_W[scored_W], sentence_W[scored_W])


def score_error_halves(scorer: Scorer, halves: Halves) -> tuple[LabeledScores, LabeledScores, int]:
    """Score the words of both halves.

    Returns:
        The half to fit on, the half to evaluate on, and the number of sentences that were read in windows.
    """
    tokens = [token_scores(scorer, [sentence.words for sentence in half]) for half in halves]
    fit, test = (word_scores(half, scores) for half, scores in zip(halves, tokens, strict=True))
    return fit, test, scorer.batcher.count_windowed(scores.tokens_read for half in tokens for scores in half)


def evaluate_on_errors(
    fit: LabeledScores,
    evaluator: CalibrationEvaluator,
    corrections: Sequence[Calibration],
    *,
    prior: float | None,
) -> tuple[Results, Calibration]:
    """Evaluate corrections that were fitted on replaced tokens on wrong words: as they are, and for other priors.

    The priors are: estimated on the other half without its labels; given; and the true error rate of that half,
    which shows the largest possible gain. The last row is a line fitted to that half with its labels.

    Args:
        corrections: the first one is the baseline of the others.

    Returns:
        Results for calibrate.json, and that line.
    """
    rows = []
    for calibration in corrections:
        baseline = None if calibration is corrections[0] else corrections[0]
        rows.append(_error_row(evaluator, calibration, "as trained", baseline))
        estimated = estimate_prior(calibration(fit.log_odds_N), calibration.prior)
        priors = {"estimated": estimated, "given": prior, "true": fit.prior}
        rows += [
            _error_row(evaluator, calibration.with_target_prior(value), name, calibration)
            for name, value in priors.items()
            if value is not None
        ]
    line = fit_calibration("platt", fit)
    rows.append(_error_row(evaluator, line, "fitted to real errors", corrections[0]))
    return {"share": evaluator.items.prior, "words": len(evaluator.items.positive_N), "rows": rows}, line


def _error_row(
    evaluator: CalibrationEvaluator, calibration: Calibration, prior: str, baseline: Calibration | None
) -> Results:
    expected = calibration.prior if calibration.target_prior is None else calibration.target_prior
    return (
        describe_correction(calibration)
        | {"prior": prior, "expected": expected}
        | evaluator.evaluate(calibration, baseline=baseline)
    )


def check_accepts_correction(model: str) -> None:
    """Raise a CheckpointError if no correction can be stored with a model."""
    if is_onnx(find_model(model)):
        raise CheckpointError(
            f"{model} is an ONNX folder, which cannot hold a correction; give the model that it was made from"
        )
    if is_included(find_model(model)):
        raise CheckpointError(
            f"{model} is part of electra, so no correction can be stored with it; copy its folder "
            f"({find_model(model)}) and give the copy"
        )


def store_correction(calibration: Calibration, model: str) -> str | None:
    """Store a correction in its model's folder.

    Returns:
        None, or the reason why it was not stored. That is no error, because the measurements are valid without it.
    """
    if calibration.kind != "isotonic" and calibration.slope <= 0:  # it would reverse the order of probabilities
        reason = (
            "tokens that look replaced to the model are replaced less often than the others (a slope of "
            f"{calibration.slope:.3g}); train it longer"
        )
    else:
        try:
            logger.info("wrote %s", calibration.save(model))
        except OSError as error:
            reason = f"the model's folder cannot be written to ({error.strerror})"
        else:
            return None
    return (
        f"{reason}; the earlier correction stays" if (find_model(model) / CALIBRATION_FILE).is_file() else reason
    )

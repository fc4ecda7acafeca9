"""A discriminator's probabilities, raw and corrected, judged on replaced tokens and on learners' real errors.

Shapes: G groups (documents, sentences), R resamples, W words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from electra.analysis.bootstrap import Floats, drawn, with_interval
from electra.analysis.calibration import (
    CORRECTIONS,
    FIGURES,
    Outcomes,
    Sums,
    cross_validated,
    estimated_prior,
    fitted,
)
from electra.analysis.detect import POOLINGS, TokenScores, pooled
from electra.analysis.error_corpora import MarkedSentence
from electra.serving.calibration import Calibration, CalibrationKind

Facts = dict[str, Any]
COMPARED = ("expected_calibration_error", "brier", "negative_log_likelihood")


@dataclass(frozen=True)
class Judge:
    """Measures corrections on the same items, in the same resamples of their groups.

    Attributes:
        items: with raw log-odds.
    """

    items: Outcomes
    bins: int
    counts_RG: Floats

    @classmethod
    def of(cls, items: Outcomes, *, bins: int, resamples: int, seed: int) -> "Judge":
        groups = len(np.unique(items.group_N))
        return cls(items, bins, drawn(groups, resamples=resamples, seed=seed))

    def sums(self, calibration: Calibration) -> Sums:
        """Those of corrected log-odds."""
        items = Outcomes(calibration(self.items.log_odds_N), self.items.positive_N, self.items.group_N)
        return Sums.of(items, bins=self.bins)

    def facts(self, calibration: Calibration, *, than: Calibration | None = None) -> Facts:
        """The figures of a correction with intervals, its curves, and how it differs from another one."""
        sums = self.sums(calibration)
        values, values_R = sums.figures(), sums.figures(self.counts_RG)
        found: Facts = {name: with_interval(values[name][0], values_R[name]) for name in FIGURES}
        found |= sums.curves()
        if than is not None:
            other = self.sums(than)
            others, others_R = other.figures(), other.figures(self.counts_RG)
            found["difference"] = {
                name: with_interval(values[name][0] - others[name][0], values_R[name] - others_R[name])
                for name in COMPARED
            }
        return found


def parameters(calibration: Calibration) -> Facts:
    """What a correction is, for JSON."""
    found: Facts = {"correction": calibration.kind}
    if calibration.kind == "temperature" and calibration.slope:
        found["temperature"] = 1 / calibration.slope
    if calibration.kind in ("temperature", "platt"):
        found |= {"slope": calibration.slope, "intercept": calibration.intercept}
    if calibration.kind == "isotonic":
        found["knots"] = len(calibration.knots)
    return found


def on_replaced(
    fit: Outcomes, judge: Judge, *, correction: CalibrationKind | None, seed: int
) -> tuple[Facts, dict[CalibrationKind, Calibration], CalibrationKind]:
    """Each correction as fitted on one half of the documents and judged on the other.

    Args:
        correction: the one that is chosen; None: that which cross-validation within the first half prefers.

    Returns:
        What calibrate.json says, the corrections, and which of them is chosen.
    """
    corrections = {kind: fitted(kind, fit) for kind in CORRECTIONS}
    validated = {kind: cross_validated(kind, fit, seed=seed) for kind in CORRECTIONS}
    best: CalibrationKind = min(CORRECTIONS[1:], key=lambda kind: validated[kind])
    chosen: CalibrationKind = correction or best
    rows = []
    for kind, calibration in corrections.items():
        than = corrections["none"] if kind != "none" else None
        rows.append(
            parameters(calibration)
            | {"cross_validated": validated[kind], "chosen": kind == chosen}
            | judge.facts(calibration, than=than)
        )
    return {"share": judge.items.prior, "fitted_share": fit.prior, "rows": rows}, corrections, chosen


def words_of(sentences: Sequence[MarkedSentence], tokens: Sequence[TokenScores]) -> Outcomes:
    """Words, with the maximum of their tokens' log-odds; those without a token are left out."""
    log_odds = [pooled(of, len(one.words), POOLINGS["max"]) for one, of in zip(sentences, tokens, strict=True)]
    log_odds_W = np.concatenate(log_odds)
    wrong_W = np.concatenate([np.array(one.wrong, bool) for one in sentences])
    sentence_W = np.repeat(np.arange(len(sentences)), [len(one.words) for one in sentences])
    seen_W = np.isfinite(log_odds_W)
    return Outcomes(log_odds_W[seen_W], wrong_W[seen_W], sentence_W[seen_W])


def on_errors(
    fit: Outcomes, judge: Judge, corrections: Sequence[Calibration], *, prior: float | None
) -> tuple[Facts, Calibration]:
    """Corrections that were fitted on replaced tokens, judged on wrong words: as they are, and for other priors.

    The priors: estimated from the other half without its labels; given; and the true share of that half, which
    says how much is to be gained. Last comes a line that was fitted to that half with its labels.

    Returns:
        What calibrate.json says, and that line.
    """
    rows = []
    for calibration in corrections:
        raw = None if calibration is corrections[0] else corrections[0]
        rows.append(_row(judge, calibration, "as trained", raw))
        estimated = estimated_prior(calibration(fit.log_odds_N), calibration.prior)
        priors = {"estimated": estimated, "given": prior, "true": fit.prior}
        rows += [
            _row(judge, calibration.with_target_prior(value), how, calibration)
            for how, value in priors.items()
            if value is not None
        ]
    line = fitted("platt", fit)
    rows.append(_row(judge, line, "fitted to real errors", corrections[0]))
    return {"share": judge.items.prior, "words": len(judge.items.positive_N), "rows": rows}, line


def _row(judge: Judge, calibration: Calibration, how: str, than: Calibration | None) -> Facts:
    expected = calibration.prior if calibration.target_prior is None else calibration.target_prior
    return parameters(calibration) | {"prior": how, "expected": expected} | judge.facts(calibration, than=than)

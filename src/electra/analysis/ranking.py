"""Ranking metrics for many weightings of the same items, as a bootstrap needs them.

Shapes: N items, T thresholds (distinct scores), R weightings.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

BETA_SQUARED = 0.5**2
"""Of the F0.5 score, in which recall counts half as much as precision."""


@dataclass(frozen=True)
class ThresholdMetrics:
    """Metrics of flagging all items whose score reaches a threshold; nan for a ratio with denominator 0.

    Attributes:
        flagged: the fraction of the items that are flagged.
    """

    flagged: float
    precision: float
    recall: float
    f_half: float


class Ranking:
    """Items sorted by score, once. scikit-learn computes the same metrics, but would sort for every weighting.

    Args:
        scores_N: higher means more likely positive.
        positive_N: the labels.
    """

    def __init__(self, scores_N: Floats, positive_N: Flags) -> None:
        self.order = np.argsort(-scores_N, kind="stable")
        self.scores = scores_N[self.order]
        self.positive = positive_N[self.order]
        self.ends = np.append(np.flatnonzero(np.diff(self.scores)), len(scores_N) - 1)

    def _counts(self, weights_N: Floats | None) -> tuple[Floats, Floats]:
        """The number of flagged items (T,) at each threshold, and of true positives among them."""
        weights_N = np.ones(len(self.order)) if weights_N is None else weights_N[self.order]
        return weights_N.cumsum()[self.ends], (weights_N * self.positive).cumsum()[self.ends]

    def areas(self, weights_N: Floats | None = None) -> tuple[float, float]:
        """Average precision (the sum of precision * increase of recall), and the area under the ROC curve.

        Both are nan if the weights leave only one class.
        """
        flagged_T, true_T = self._counts(weights_N)
        positive, total = true_T[-1], flagged_T[-1]
        if not 0 < positive < total:
            return float("nan"), float("nan")
        steps_T = np.diff(true_T, prepend=0.0)
        average_precision = float((steps_T * true_T / np.maximum(flagged_T, 1e-12)).sum() / positive)
        false_T = flagged_T - true_T
        previous_T = np.concatenate([[0.0], true_T[:-1]])
        area = float((np.diff(false_T, prepend=0.0) * (true_T + previous_T) / 2).sum())
        return average_precision, area / (positive * (total - positive))

    def metrics_at(self, threshold: float, weights_N: Floats | None = None) -> ThresholdMetrics:
        """The metrics of flagging the items whose scores are at least the threshold."""
        weights_N = np.ones(len(self.order)) if weights_N is None else weights_N[self.order]
        end = np.searchsorted(-self.scores, -threshold, side="right")
        flagged, total = float(weights_N[:end].sum()), float(weights_N.sum())
        true, positive = float(weights_N[:end] @ self.positive[:end]), float(weights_N @ self.positive)
        return ThresholdMetrics(
            _ratio(flagged, total), _ratio(true, flagged), _ratio(true, positive),
            _ratio((1 + BETA_SQUARED) * true, flagged + BETA_SQUARED * positive),
        )  # fmt: skip

    def best_threshold(self) -> float:
        """The threshold with the best F0.5; the highest of several."""
        flagged_T, true_T = self._counts(None)
        f_half_T = (1 + BETA_SQUARED) * true_T / (flagged_T + BETA_SQUARED * true_T[-1])
        return float(self.scores[self.ends[int(f_half_T.argmax())]])

    def precision_recall_curve(self, points: int) -> list[tuple[float, float]]:
        """Recall and precision at about `points` thresholds, evenly spaced by recall."""
        flagged_T, true_T = self._counts(None)
        recall_T, precision_T = true_T / true_T[-1], true_T / flagged_T
        selected = np.unique(
            np.searchsorted(recall_T, np.linspace(recall_T[0], 1, points)).clip(max=len(recall_T) - 1)
        )
        return list(
            zip(recall_T[selected].round(4).tolist(), precision_T[selected].round(4).tolist(), strict=True)
        )


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else float("nan")

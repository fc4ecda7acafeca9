"""How well scores tell two kinds apart, for many weightings of the same items: those of a bootstrap.

Shapes: N items, T thresholds (different scores), R weightings.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

BETA_SQUARED = 0.5**2
"""Of F0.5, for which recall counts half as much as precision."""


@dataclass(frozen=True)
class Flagging:
    """What comes of flagging all items from a score on; nan where there is nothing to divide by.

    Attributes:
        flagged: the share of the items that are flagged.
    """

    flagged: float
    precision: float
    recall: float
    f_half: float


class Ranking:
    """Items in the order of their scores, sorted once; scikit-learn, which gives the same, would sort each time.

    Args:
        scores_N: the higher, the more likely positive.
        positive_N: which items are to be found.
    """

    def __init__(self, scores_N: Floats, positive_N: Flags) -> None:
        self.order = np.argsort(-scores_N, kind="stable")
        self.scores = scores_N[self.order]
        self.positive = positive_N[self.order]
        self.ends = np.append(np.flatnonzero(np.diff(self.scores)), len(scores_N) - 1)

    def _counts(self, weights_N: Floats | None) -> tuple[Floats, Floats]:
        """Flagged items (T,), and the positive ones among them, from each score on."""
        weights_N = np.ones(len(self.order)) if weights_N is None else weights_N[self.order]
        return weights_N.cumsum()[self.ends], (weights_N * self.positive).cumsum()[self.ends]

    def areas(self, weights_N: Floats | None = None) -> tuple[float, float]:
        """Average precision, sum of P (R - R before), and the area under the ROC curve; nan where the weights
        leave only one kind."""
        flagged_T, found_T = self._counts(weights_N)
        positive, total = found_T[-1], flagged_T[-1]
        if not 0 < positive < total:
            return float("nan"), float("nan")
        steps_T = np.diff(found_T, prepend=0.0)
        average = float((steps_T * found_T / np.maximum(flagged_T, 1e-12)).sum() / positive)
        false_T = flagged_T - found_T
        below_T = np.concatenate([[0.0], found_T[:-1]])
        area = float((np.diff(false_T, prepend=0.0) * (found_T + below_T) / 2).sum())
        return average, area / (positive * (total - positive))

    def flagging(self, threshold: float, weights_N: Floats | None = None) -> Flagging:
        """That of the items whose scores are not below a threshold."""
        weights_N = np.ones(len(self.order)) if weights_N is None else weights_N[self.order]
        end = np.searchsorted(-self.scores, -threshold, side="right")
        flagged, total = float(weights_N[:end].sum()), float(weights_N.sum())
        found, positive = float(weights_N[:end] @ self.positive[:end]), float(weights_N @ self.positive)
        return Flagging(
            _share(flagged, total), _share(found, flagged), _share(found, positive),
            _share((1 + BETA_SQUARED) * found, flagged + BETA_SQUARED * positive),
        )  # fmt: skip

    def best_threshold(self) -> float:
        """The score from which on flagging has the best F0.5; of several the highest."""
        flagged_T, found_T = self._counts(None)
        f_half_T = (1 + BETA_SQUARED) * found_T / (flagged_T + BETA_SQUARED * found_T[-1])
        return float(self.scores[self.ends[int(f_half_T.argmax())]])

    def curve(self, points: int) -> list[tuple[float, float]]:
        """Recall and precision at about so many thresholds, evenly over recall."""
        flagged_T, found_T = self._counts(None)
        recall_T, precision_T = found_T / found_T[-1], found_T / flagged_T
        chosen = np.unique(
            np.searchsorted(recall_T, np.linspace(recall_T[0], 1, points)).clip(max=len(recall_T) - 1)
        )
        return list(zip(recall_T[chosen].round(4).tolist(), precision_T[chosen].round(4).tolist(), strict=True))


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")

"""Word error rates of n-best lists that are rescored with a model.

The selected hypothesis has the largest

    recognizer's log score + weight * likelihood - length penalty * words

Weight and penalty are the point of a grid with the fewest errors, over utterances other than those that are
evaluated: the utterances are split into folds, and each fold is evaluated with a fit on the others
(cross-fitting).

Shapes: U utterances, H hypotheses (short lists are padded), R resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import Floats, percentile_interval, resample_counts
from electra.analysis.n_best import Utterance, normalize_words
from electra.errors import ConfigError, require

STRENGTHS = (0.0, *(2.0 ** (half / 2) for half in range(-12, 9)))
"""The grid of weights, as the spread of weighted likelihoods within a list over that of the recognizer's
scores."""
PENALTIES = tuple(sorted((step / 4 for step in range(-8, 9)), key=abs))
"""The grid of length penalties, in units of the recognizer's spread; of equally good ones the smallest is
taken."""

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class HypothesisTable:
    """N-best lists as a table with a row per list.

    Attributes:
        mask_UH: False at padding.
        scores_UH: the recognizer's scores; -inf at padding.
        errors_UH: substitutions, deletions and insertions of each hypothesis.
        words_UH: the number of words of each hypothesis as a model reads it, separated by spaces.
        reference_words_U: the number of words of the reference.
        fold_U: the fold of each utterance; those with the same reference are in one fold.
    """

    mask_UH: Flags
    scores_UH: Floats
    errors_UH: Floats
    words_UH: Floats
    reference_words_U: Floats
    fold_U: Numbers

    @classmethod
    def from_utterances(cls, utterances: Sequence[Utterance], *, folds: int, seed: int) -> "HypothesisTable":
        """Build the table.

        Raises:
            ConfigError: jiwer is not installed, or there are fewer distinct references than folds.
        """
        words = [[normalize_words(text) for text in utterance.texts] for utterance in utterances]
        references = [
            utterance.reference for utterance, texts in zip(utterances, words, strict=True) for _ in texts
        ]
        errors = word_errors(references, [hypothesis for texts in words for hypothesis in texts])
        lengths = np.array([len(utterance.texts) for utterance in utterances])
        mask_UH = np.arange(lengths.max()) < lengths[:, None]
        return cls(
            mask_UH,
            _fill(mask_UH, [score for utterance in utterances for score in utterance.scores], -np.inf),
            _fill(mask_UH, errors, 0.0),
            _fill(mask_UH, [len(text.split()) for utterance in utterances for text in utterance.texts], 0.0),
            np.array([len(utterance.reference) for utterance in utterances], float),
            _assign_folds([" ".join(utterance.reference) for utterance in utterances], folds, seed),
        )

    def likelihoods(self, values: Floats) -> Floats:
        """The likelihoods of all hypotheses, given list after list, as a table (U, H).

        A hypothesis without words gets the lowest likelihood of its list, because a model cannot score it.
        """
        table_UH = _fill(self.mask_UH, values, 0.0)
        with_words_UH = self.mask_UH & (self.words_UH > 0)
        lowest_U1 = np.where(with_words_UH, table_UH, np.inf).min(1, keepdims=True)
        lowest_U1 = np.where(np.isfinite(lowest_U1), lowest_U1, 0.0)
        return np.where(with_words_UH | ~self.mask_UH, table_UH, lowest_U1)


def _fill(mask_UH: Flags, values: Sequence[float] | Floats, padding: float) -> Floats:
    table_UH = np.full(mask_UH.shape, padding)
    table_UH[mask_UH] = values
    return table_UH


def _assign_folds(references: Sequence[str], folds: int, seed: int) -> Numbers:
    """The fold of each utterance: the distinct references are shuffled and assigned in turn."""
    distinct = sorted(set(references))
    if len(distinct) < folds:
        raise ConfigError(
            f"--folds: {folds} folds are too many for {len(distinct)} distinct references; give fewer folds"
        )
    order = np.random.default_rng(seed).permutation(len(distinct))
    fold = {distinct[index]: number % folds for number, index in enumerate(order)}
    return np.array([fold[reference] for reference in references], np.int64)


def word_errors(references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]]) -> list[int]:
    """Count the substitutions, deletions and insertions of each hypothesis, with jiwer.

    Raises:
        MissingExtraError: jiwer is not installed.
    """
    require("counting word errors", "speech", "jiwer")
    import jiwer

    output = jiwer.process_words(
        [" ".join(words) for words in references], [" ".join(words) for words in hypotheses]
    )
    return [
        sum(
            max(part.ref_end_idx - part.ref_start_idx, part.hyp_end_idx - part.hyp_start_idx)
            for part in alignment
            if part.type != "equal"
        )
        for alignment in output.alignments
    ]


@dataclass(frozen=True)
class InterpolationWeights:
    """A weight and a length penalty, and the weight in units of the recognizer's spread (`STRENGTHS`)."""

    weight: float
    length_penalty: float
    strength: float


def fit_weights(table: HypothesisTable, likelihoods_UH: Floats | None, train_U: Flags) -> InterpolationWeights:
    """Find the point of the grid with the fewest errors over some utterances; of equals the one nearest to 0.

    Args:
        likelihoods_UH: None: the recognizer's score and the length penalty alone.
        train_U: the utterances.
    """
    spread = _spread(table.scores_UH[train_U], table.mask_UH[train_U]) or 1.0
    unit, strengths = 0.0, (0.0,)
    if likelihoods_UH is not None and (other := _spread(likelihoods_UH[train_U], table.mask_UH[train_U])):
        unit, strengths = spread / other, STRENGTHS
    best, fewest = InterpolationWeights(0.0, 0.0, 0.0), np.inf
    for strength in strengths:
        for step in PENALTIES:
            weights = InterpolationWeights(strength * unit, step * spread, strength)
            errors = _selected_errors(table, select_hypotheses(table, likelihoods_UH, weights))[train_U].sum()
            if errors < fewest:
                best, fewest = weights, errors
    return best


def select_hypotheses(
    table: HypothesisTable, likelihoods_UH: Floats | None, weights: InterpolationWeights
) -> Numbers:
    """The index of the best hypothesis of each list (U,); of equals the first."""
    totals_UH = table.scores_UH - weights.length_penalty * table.words_UH
    if likelihoods_UH is not None and weights.weight:
        totals_UH = totals_UH + weights.weight * likelihoods_UH
    best_U: Numbers = totals_UH.argmax(1)
    return best_U


def _selected_errors(table: HypothesisTable, selected_U: Numbers) -> Floats:
    errors_U: Floats = table.errors_UH[np.arange(len(selected_U)), selected_U]
    return errors_U


def _spread(values_UH: Floats, mask_UH: Flags) -> float:
    """The root of the mean squared deviation from the list's mean."""
    counts_U1 = mask_UH.sum(1, keepdims=True)
    masked_UH = np.where(mask_UH, values_UH, 0.0)
    deviations_UH = np.where(mask_UH, masked_UH - masked_UH.sum(1, keepdims=True) / counts_U1, 0.0)
    return float(np.sqrt((deviations_UH**2).sum() / counts_U1.sum()))


def cross_fit(table: HypothesisTable, likelihoods_UH: Floats | None) -> tuple[Floats, list[InterpolationWeights]]:
    """The errors of each utterance (U,) with the weights fitted on the other folds, and the weights for each
    fold."""
    errors_U, weights = np.zeros(len(table.fold_U)), []
    for fold in range(int(table.fold_U.max()) + 1):
        test_U = table.fold_U == fold
        weights.append(fit_weights(table, likelihoods_UH, ~test_U))
        selected_U = select_hypotheses(table, likelihoods_UH, weights[-1])
        errors_U[test_U] = _selected_errors(table, selected_U)[test_U]
    return errors_U, weights


@dataclass(frozen=True, eq=False)
class ModelScores:
    """The likelihoods (U, H) of the hypotheses by one score of one model."""

    model: str
    score: str
    likelihoods_UH: Floats


def evaluate_rescoring(
    table: HypothesisTable, scores: Sequence[ModelScores], *, resamples: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Compute error rates of the first best, of the oracle, and after rescoring, and their paired differences.

    A rate is the number of errors over the number of words of the references. Resamples draw utterances; the
    fitted weights stay.
    """
    utterances = len(table.fold_U)
    counts_RU = resample_counts(utterances, resamples=resamples, seed=seed)
    words_R = counts_RU @ table.reference_words_U

    def rate(errors_U: Floats) -> dict[str, Any]:
        value = float(errors_U.sum() / table.reference_words_U.sum())
        return {"value": value, "interval": list(percentile_interval(counts_RU @ errors_U / words_R))}

    first_best_U = table.errors_UH[:, 0]
    length_alone_U, length_weights = cross_fit(table, None)

    def rescored(
        likelihoods_UH: Floats | None, errors_U: Floats, weights: list[InterpolationWeights]
    ) -> dict[str, Any]:
        return {
            "rescored": rate(errors_U),
            "to_first_best": rate(errors_U - first_best_U), "to_length_alone": rate(errors_U - length_alone_U),
            "better": int((errors_U < first_best_U).sum()), "worse": int((errors_U > first_best_U).sum()),
            "weights": [fold.weight for fold in weights],
            "length_penalties": [fold.length_penalty for fold in weights],
            "strengths": [fold.strength for fold in weights],
            "curve": [] if likelihoods_UH is None else _strength_curve(table, likelihoods_UH),
        }  # fmt: skip

    models = []
    for score in scores:
        best_U = np.where(table.mask_UH, score.likelihoods_UH, -np.inf).argmax(1)
        alone = {"model": score.model, "score": score.score, "alone": rate(_selected_errors(table, best_U))}
        models.append(alone | rescored(score.likelihoods_UH, *cross_fit(table, score.likelihoods_UH)))
    random_U = table.errors_UH.sum(1) / table.mask_UH.sum(1)
    oracle_U = np.where(table.mask_UH, table.errors_UH, np.inf).min(1)
    return {
        "utterances": utterances, "hypotheses": int(table.mask_UH.sum()),
        "reference_words": int(table.reference_words_U.sum()), "folds": int(table.fold_U.max()) + 1,
        "resamples": resamples, "seed": seed,
        "first_best": rate(first_best_U), "random": rate(random_U), "oracle": rate(oracle_U),
        "length_alone": rescored(None, length_alone_U, length_weights), "models": models,
    }  # fmt: skip


def _strength_curve(table: HypothesisTable, likelihoods_UH: Floats) -> list[dict[str, float]]:
    """The error rate over all utterances for each weight of the grid, without a length penalty."""
    unit = _spread(table.scores_UH, table.mask_UH) / (_spread(likelihoods_UH, table.mask_UH) or 1.0)
    curve = []
    for strength in STRENGTHS:
        weights = InterpolationWeights(strength * unit, 0.0, strength)
        errors_U = _selected_errors(table, select_hypotheses(table, likelihoods_UH, weights))
        curve.append({"strength": strength, "rate": float(errors_U.sum() / table.reference_words_U.sum())})
    return curve

"""Word error rates of n-best lists when a model has its word in the choice.

The chosen hypothesis has the largest

    recogniser's log score + weight * likelihood - length penalty * words

Weight and penalty are those with the fewest errors on a grid, over utterances that are not judged by them: the
utterances are dealt into folds, and each fold is judged by what the others gave (cross-fitting).

Shapes: U utterances, H hypotheses (short lists are padded), R resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import Floats, drawn, interval
from electra.analysis.n_best import Utterance, words_of
from electra.errors import ConfigError, require

STRENGTHS = (0.0, *(2.0 ** (half / 2) for half in range(-12, 9)))
"""The grid of weights, in units in which a likelihood spreads as far within a list as the recogniser's score."""
PENALTIES = tuple(sorted((step / 4 for step in range(-8, 9)), key=abs))
"""The grid of length penalties, in units of that spread; of equally good ones the smallest is taken."""

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Lists:
    """N-best lists as tables.

    Attributes:
        there_UH: False at padding.
        scores_UH: the recogniser's; -inf at padding.
        errors_UH: substitutions, deletions and insertions of each hypothesis.
        words_UH: words of each hypothesis as a model reads it, between blanks.
        reference_words_U: words that were said.
        fold_U: by which each utterance is judged; those with the same reference are in one.
    """

    there_UH: Flags
    scores_UH: Floats
    errors_UH: Floats
    words_UH: Floats
    reference_words_U: Floats
    fold_U: Numbers

    @classmethod
    def of(cls, utterances: Sequence[Utterance], *, folds: int, seed: int) -> "Lists":
        """Those of utterances.

        Raises:
            ConfigError: jiwer is not installed, or there are fewer different references than folds.
        """
        words = [[words_of(text) for text in one.texts] for one in utterances]
        flat = [(one.reference, found) for one, texts in zip(utterances, words, strict=True) for found in texts]
        errors = word_errors([one for one, _ in flat], [found for _, found in flat])
        lengths = np.array([len(one.texts) for one in utterances])
        there_UH = np.arange(lengths.max()) < lengths[:, None]
        return cls(
            there_UH,
            _table(there_UH, [score for one in utterances for score in one.scores], -np.inf),
            _table(there_UH, errors, 0.0),
            _table(there_UH, [len(text.split()) for one in utterances for text in one.texts], 0.0),
            np.array([len(one.reference) for one in utterances], float),
            _folds([" ".join(one.reference) for one in utterances], folds, seed),
        )

    def likelihoods(self, values: Floats) -> Floats:
        """Those of all hypotheses, one list behind the other, as a table (U, H).

        A hypothesis without words is as likely as the least likely one of its list: nothing to read says nothing.
        """
        found_UH = _table(self.there_UH, values, 0.0)
        said_UH = self.there_UH & (self.words_UH > 0)
        least_U1 = np.where(said_UH, found_UH, np.inf).min(1, keepdims=True)
        return np.where(said_UH | ~self.there_UH, found_UH, np.where(np.isfinite(least_U1), least_U1, 0.0))


def _table(there_UH: Flags, values: Sequence[float] | Floats, padding: float) -> Floats:
    found_UH = np.full(there_UH.shape, padding)
    found_UH[there_UH] = values
    return found_UH


def _folds(references: Sequence[str], folds: int, seed: int) -> Numbers:
    """A fold of each utterance: the different references are shuffled and dealt."""
    different = sorted(set(references))
    if len(different) < folds:
        raise ConfigError(f"--folds: {folds} folds of {len(different)} different references; give fewer folds")
    order = np.random.default_rng(seed).permutation(len(different))
    fold = {different[place]: number % folds for number, place in enumerate(order)}
    return np.array([fold[reference] for reference in references], np.int64)


def word_errors(references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]]) -> list[int]:
    """Substitutions, deletions and insertions of each hypothesis, by jiwer.

    Raises:
        MissingExtraError: jiwer is not installed.
    """
    require("counting word errors", "speech", "jiwer")
    import jiwer

    found = jiwer.process_words([" ".join(one) for one in references], [" ".join(one) for one in hypotheses])
    return [
        sum(
            max(part.ref_end_idx - part.ref_start_idx, part.hyp_end_idx - part.hyp_start_idx)
            for part in alignment
            if part.type != "equal"
        )
        for alignment in found.alignments
    ]


@dataclass(frozen=True)
class Fitted:
    """A weight and a length penalty, and what they are in units of the recogniser's spread (`STRENGTHS`)."""

    weight: float
    length_penalty: float
    strength: float


def fitted(lists: Lists, likelihoods_UH: Floats | None, there_U: Flags) -> Fitted:
    """The point of the grid with the fewest errors over some utterances; of equals the one nearest to 0.

    Args:
        likelihoods_UH: None: the recogniser's score and the length penalty alone.
        there_U: the utterances.
    """
    spread = _spread(lists.scores_UH[there_U], lists.there_UH[there_U]) or 1.0
    unit, strengths = 0.0, (0.0,)
    if likelihoods_UH is not None and (other := _spread(likelihoods_UH[there_U], lists.there_UH[there_U])):
        unit, strengths = spread / other, STRENGTHS
    best, fewest = Fitted(0.0, 0.0, 0.0), np.inf
    for strength in strengths:
        for step in PENALTIES:
            point = Fitted(strength * unit, step * spread, strength)
            errors = _errors(lists, chosen(lists, likelihoods_UH, point))[there_U].sum()
            if errors < fewest:
                best, fewest = point, errors
    return best


def chosen(lists: Lists, likelihoods_UH: Floats | None, point: Fitted) -> Numbers:
    """The place of the best hypothesis of each list (U,); of equals the first."""
    totals_UH = lists.scores_UH - point.length_penalty * lists.words_UH
    if likelihoods_UH is not None and point.weight:
        totals_UH = totals_UH + point.weight * likelihoods_UH
    found: Numbers = totals_UH.argmax(1)
    return found


def _errors(lists: Lists, chosen_U: Numbers) -> Floats:
    found: Floats = lists.errors_UH[np.arange(len(chosen_U)), chosen_U]
    return found


def _spread(values_UH: Floats, there_UH: Flags) -> float:
    """The root of the mean squared distance from the list's own mean."""
    counts_U1 = there_UH.sum(1, keepdims=True)
    held_UH = np.where(there_UH, values_UH, 0.0)
    apart_UH = np.where(there_UH, held_UH - held_UH.sum(1, keepdims=True) / counts_U1, 0.0)
    return float(np.sqrt((apart_UH**2).sum() / counts_U1.sum()))


def cross_fitted(lists: Lists, likelihoods_UH: Floats | None) -> tuple[Floats, list[Fitted]]:
    """The errors of each utterance (U,), judged by what was fitted on the other folds, and that of each fold."""
    errors_U, points = np.zeros(len(lists.fold_U)), []
    for fold in range(int(lists.fold_U.max()) + 1):
        judged_U = lists.fold_U == fold
        points.append(fitted(lists, likelihoods_UH, ~judged_U))
        errors_U[judged_U] = _errors(lists, chosen(lists, likelihoods_UH, points[-1]))[judged_U]
    return errors_U, points


@dataclass(frozen=True, eq=False)
class Scored:
    """The likelihoods (U, H) of the hypotheses by one score of one model."""

    model: str
    score: str
    likelihoods_UH: Floats


def measured(lists: Lists, scored: Sequence[Scored], *, resamples: int = 1000, seed: int = 0) -> dict[str, Any]:
    """Error rates of the first best, of the best there is, and rescored; and their differences, paired.

    A rate is all errors over all words that were said. Each resample draws the utterances anew; what was fitted
    stays.
    """
    utterances = len(lists.fold_U)
    counts_RU = drawn(utterances, resamples=resamples, seed=seed)
    words_R = counts_RU @ lists.reference_words_U

    def rate(errors_U: Floats) -> dict[str, Any]:
        value = float(errors_U.sum() / lists.reference_words_U.sum())
        return {"value": value, "interval": list(interval(counts_RU @ errors_U / words_R))}

    first_U = lists.errors_UH[:, 0]
    length_U, length_points = cross_fitted(lists, None)

    def rescored(likelihoods_UH: Floats | None, errors_U: Floats, points: list[Fitted]) -> dict[str, Any]:
        strengths = (0.0,) if likelihoods_UH is None else STRENGTHS
        return {
            "rescored": rate(errors_U),
            "to_first_best": rate(errors_U - first_U), "to_length_alone": rate(errors_U - length_U),
            "better": int((errors_U < first_U).sum()), "worse": int((errors_U > first_U).sum()),
            "weights": [one.weight for one in points],
            "length_penalties": [one.length_penalty for one in points],
            "strengths": [one.strength for one in points],
            "curve": [] if likelihoods_UH is None else _curve(lists, likelihoods_UH, strengths),
        }  # fmt: skip

    models = []
    for one in scored:
        alone_U = _errors(lists, np.where(lists.there_UH, one.likelihoods_UH, -np.inf).argmax(1))
        found = rescored(one.likelihoods_UH, *cross_fitted(lists, one.likelihoods_UH))
        models.append({"model": one.model, "score": one.score, "alone": rate(alone_U)} | found)
    random_U = lists.errors_UH.sum(1) / lists.there_UH.sum(1)
    oracle_U = np.where(lists.there_UH, lists.errors_UH, np.inf).min(1)
    return {
        "utterances": utterances, "hypotheses": int(lists.there_UH.sum()),
        "reference_words": int(lists.reference_words_U.sum()), "folds": int(lists.fold_U.max()) + 1,
        "resamples": resamples, "seed": seed,
        "first_best": rate(first_U), "random": rate(random_U), "oracle": rate(oracle_U),
        "length_alone": rescored(None, length_U, length_points), "models": models,
    }  # fmt: skip


def _curve(lists: Lists, likelihoods_UH: Floats, strengths: Sequence[float]) -> list[dict[str, float]]:
    """The error rate of all utterances by how much the model counts, without a length penalty."""
    unit = _spread(lists.scores_UH, lists.there_UH) / (_spread(likelihoods_UH, lists.there_UH) or 1.0)
    found = []
    for strength in strengths:
        errors_U = _errors(lists, chosen(lists, likelihoods_UH, Fitted(strength * unit, 0.0, strength)))
        found.append({"strength": strength, "rate": float(errors_U.sum() / lists.reference_words_U.sum())})
    return found

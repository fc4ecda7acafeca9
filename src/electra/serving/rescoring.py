"""N-best rescoring: the hypotheses of a speech recognizer, ranked with the likelihoods of a model."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RescoredHypothesis:
    """A hypothesis and its total score.

    Attributes:
        index: its position in the given list, from 0.
        total: recognizer score + weight * likelihood - length_penalty * number of words.
    """

    text: str
    index: int
    total: float


def rescore(
    hypotheses: Sequence[str],
    recognizer_scores: Sequence[float],
    likelihoods: Sequence[float],
    *,
    weight: float,
    length_penalty: float = 0.0,
) -> list[RescoredHypothesis]:
    """Rank hypotheses by their total score, best first. Hypotheses with equal totals keep their order.

    Args:
        recognizer_scores: log-probabilities, or any scores that are higher for better hypotheses and can be added.
        likelihoods: one of the scores of `electra.serving.likelihood`.
        weight: the weight of the likelihood.
        length_penalty: the penalty for each word (text between blanks). Fit both on other utterances, as `electra
            analyze rescore` does.

    Raises:
        ValueError: the lists have different lengths.
    """
    rescored = [
        RescoredHypothesis(text, index, score + weight * likelihood - length_penalty * len(text.split()))
        for index, (text, score, likelihood) in enumerate(
            zip(hypotheses, recognizer_scores, likelihoods, strict=True)
        )
    ]
    return sorted(rescored, key=lambda hypothesis: -hypothesis.total)

"""The hypotheses of a speech recogniser in a new order, with a model's word in it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RescoredHypothesis:
    """A hypothesis and what it comes to.

    Attributes:
        place: in the list as it was given, from 0.
        total: the recogniser's score + weight * likelihood - length penalty * words.
    """

    text: str
    place: int
    total: float


def rescore(
    hypotheses: Sequence[str],
    recogniser_scores: Sequence[float],
    likelihoods: Sequence[float],
    *,
    weight: float,
    length_penalty: float = 0.0,
) -> list[RescoredHypothesis]:
    """The hypotheses, the best one first; of equal ones that which was before.

    Args:
        recogniser_scores: log-probabilities, or whatever is higher for a better one and adds up.
        likelihoods: by one of the scores of `electra.serving.likelihood`.
        weight: of the likelihood, and
        length_penalty: for each word (what stands between blanks); both fitted on other utterances, as
            `electra analyze rescore` does.

    Raises:
        ValueError: there are not as many numbers as hypotheses.
    """
    found = [
        RescoredHypothesis(text, place, score + weight * likelihood - length_penalty * len(text.split()))
        for place, (text, score, likelihood) in enumerate(
            zip(hypotheses, recogniser_scores, likelihoods, strict=True)
        )
    ]
    return sorted(found, key=lambda one: -one.total)

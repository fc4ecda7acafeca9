"""From a message to the facts of its answer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.errors import DataError
from electra.serving.fill_mask import MaskPrediction, MaskQuery
from electra.serving.http.hosted_model import HostedModel
from electra.serving.http.limits import APIError
from electra.serving.http.schemas import (
    EmbedResponse,
    ModelRequest,
    PredictRequest,
    PredictResponse,
    ProposalsRequest,
    ProposalsResponse,
    RescoreResponse,
    RescoreResult,
    ScoredTokens,
    ScoreResponse,
    TextsRequest,
    TokenProposals,
)
from electra.serving.http.worker import Worker
from electra.serving.scorer import ScoredText

DIGITS = 6


class Handlers:
    """The answers of a server with these models, one method an endpoint."""

    def __init__(self, models: Sequence[HostedModel], worker: Worker) -> None:
        self.models, self.worker = models, worker

    async def score(self, asked: TextsRequest) -> ScoreResponse:
        """How replaced each token looks: of each text its tokens, the characters of each, and the probabilities.

        Offsets count characters (code points) of the text. A model trained by Electric gives log-probabilities of
        its tokens and the text's pseudo-log-likelihood.
        """
        served = self._able(asked, "score")
        scored = await self._texts(asked, "score", asked.texts)
        assert served.scorer is not None
        of_one = _likelihoods if served.scorer.objective == "electric" else _probabilities
        return {
            "model": served.name, "objective": served.scorer.objective, "results": [of_one(one) for one in scored]
        }  # fmt: skip

    async def rescore(self, asked: TextsRequest) -> RescoreResponse:
        """Which of some texts, such as a recogniser's hypotheses, reads most like untouched text.

        A text's score is the mean over its tokens of the log-probability of being original; with Electric, of the
        token given all others. `sum` is the sum of the same. `order` has the texts' numbers, the best first; a
        text without tokens has no score and comes last.
        """
        served = self._able(asked, "rescore")
        scored: list[ScoredText] = await self._texts(asked, "score", asked.texts)
        assert served.scorer is not None
        sums = [_sum_of_logs(one, served.scorer.objective) for one in scored]
        means = [total / len(one.tokens) if one.tokens else None for total, one in zip(sums, scored, strict=True)]
        order = sorted(range(len(means)), key=lambda number: (means[number] is None, -(means[number] or 0.0)))
        results: list[RescoreResult] = [
            {
                "score": None if mean is None else _figure(mean),
                "sum": _figure(total),
                "tokens": len(one.tokens),
            }
            for mean, total, one in zip(means, sums, scored, strict=True)
        ]
        return {"model": served.name, "best": order[0], "order": order, "results": results}

    async def embed(self, asked: TextsRequest) -> EmbedResponse:
        """One embedding a text: the mean of its states."""
        served = self._able(asked, "embed")
        rows = await self._texts(asked, "embed", asked.texts)
        embeddings = round_values(np.stack(rows))
        return {"model": served.name, "dimension": len(embeddings[0]), "embeddings": embeddings}

    async def predict(self, asked: PredictRequest) -> PredictResponse:
        """Labels, values, tags or answers of a model that was fine-tuned."""
        served = self._able(asked, "predict")
        assert served.predictor is not None
        try:
            served.predictor.check(asked.texts)
        except DataError as error:
            raise APIError(422, str(error)) from None
        predictions = await self._texts(asked, "predict", asked.texts)
        answers = [{name: value for name, value in one.items() if name != "id"} for one in predictions]
        return {"model": served.name, "task": served.predictor.problem.kind, "predictions": answers}

    async def proposals(self, asked: ProposalsRequest) -> ProposalsResponse:
        """What the generator would put in place of a token, each token masked alone."""
        served = self._able(asked, "proposals")
        assert served.proposer is not None
        encoding = served.proposer.tokenizer.encode(asked.text, add_special_tokens=False)
        if (last := max(asked.tokens)) >= len(encoding.ids):
            raise APIError(422, f"tokens: there is no token {last}; the text has {len(encoding.ids)}, from 0")
        places = [MaskQuery(encoding.ids, number, asked.count) for number in asked.tokens]
        size = min(len(asked.text), 4 * served.proposer.predictor.batcher.max_tokens)
        proposed: list[MaskPrediction] = await self.worker.ask(
            f"proposals {asked.model}", places, [size] * len(places)
        )
        found: list[TokenProposals] = [
            {
                "token": number,
                "probability": round(one.probability, DIGITS),
                "proposals": [{"token": token, "probability": round(p, DIGITS)} for token, p in one.proposals],
            }
            for number, one in zip(asked.tokens, proposed, strict=True)
        ]
        return {"model": served.name, "generator": served.generator or served.name, "places": found}

    def _able(self, asked: ModelRequest, work: str) -> HostedModel:
        """The model that is asked for, if it can do this."""
        if asked.model > len(self.models):
            raise APIError(404, f"there is no model {asked.model}; this server has one")
        served = self.models[asked.model - 1]
        if work in served.refusals:
            raise APIError(409, served.refusals[work])
        return served

    async def _texts(self, asked: ModelRequest, work: str, texts: Sequence[str | list[str]]) -> list[Any]:
        sizes = [len(text if isinstance(text, str) else " ".join(text)) for text in texts]
        if (size := max(sizes)) > (most := self.worker.limits.characters):
            place = f"texts[{sizes.index(size)}]"
            raise APIError(
                422, f"{place}: the parts of a text may have {most:,} characters together, not {size:,}"
            )
        return await self.worker.ask(f"{work} {asked.model}", texts, sizes)


def round_values(values: NDArray[Any]) -> list[Any]:
    """Numbers as they go out: rounded, and none of them -0.0."""
    rounded: list[Any] = (values.astype(np.float64).round(DIGITS) + 0.0).tolist()
    return rounded


def _figure(value: float) -> float:
    return round(value, DIGITS) + 0.0


def _probabilities(scored: ScoredText) -> ScoredTokens:
    probabilities = round_values(scored.probabilities)
    return {"tokens": scored.tokens, "offsets": scored.offsets, "probabilities": probabilities}


def _likelihoods(scored: ScoredText) -> ScoredTokens:
    return {
        "tokens": scored.tokens,
        "offsets": scored.offsets,
        "log_probabilities": round_values(scored.log_probabilities),
        "pseudo_log_likelihood": _figure(scored.pseudo_log_likelihood),
    }


def _sum_of_logs(scored: ScoredText, objective: str) -> float:
    if objective == "electric":
        return scored.pseudo_log_likelihood
    return float(-np.logaddexp(0, scored.logits.astype(np.float64)).sum())

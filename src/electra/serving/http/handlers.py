"""The endpoints of the API: each takes a request and returns the JSON object of its response."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from electra.errors import ConfigError, DataError
from electra.objectives.config import scores_of
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
    ScoreResponse,
    TextsRequest,
    TokenProposals,
)
from electra.serving.http.worker import Worker
from electra.serving.scorer import DIGITS, ScoredText, round_values
from electra.tasks.texts import check_top, highest_scores

TEXT_NUMBER = re.compile(r"^text (\d+)(?:: part (\d+))?")
"""How errors of a prediction name a text or a part of one, counted from 1."""


class Handlers:
    """The endpoints of a server with these models, one method each."""

    def __init__(self, models: Sequence[HostedModel], worker: Worker) -> None:
        self.models, self.worker = models, worker

    async def score(self, request: TextsRequest) -> ScoreResponse:
        """How likely each token of a text is to have been replaced.

        For each text: its tokens, the offsets of each token, the probabilities, whether a token continues the word
        of the token before it, and whether it is unknown: not in the vocabulary, so that its values mean nothing.
        Offsets count characters (Unicode code points). An Electric model gives
        log-probabilities of the tokens and the pseudo-log-likelihood of the text.
        """
        model = self._model_for(request, "score")
        scored: list[ScoredText] = await self._run_texts(request, "score", request.texts)
        assert model.scorer is not None
        electric = scores_of(model.scorer.objective) == "energy"
        fields = ScoredText.likelihood_fields if electric else ScoredText.probability_fields
        results: list[Any] = [fields(one) for one in scored]
        return {"model": model.name, "objective": model.scorer.objective, "results": results}

    async def rescore(self, request: TextsRequest) -> RescoreResponse:
        """Rank texts, such as the hypotheses of a speech recognizer, by how original they look.

        The score of a text is the mean log-probability of its tokens to be original; for an Electric model, the
        mean log-probability of each token given all others. `sum` is the sum of the same values. `order`
        contains the indices of the texts, best first. A text without tokens has no score and is last.
        """
        model = self._model_for(request, "rescore")
        scored: list[ScoredText] = await self._run_texts(request, "score", request.texts)
        assert model.scorer is not None
        sums = [_sum_of_log_probabilities(one, model.scorer.objective) for one in scored]
        means = [total / len(one.tokens) if one.tokens else None for total, one in zip(sums, scored, strict=True)]
        order = sorted(range(len(means)), key=lambda number: (means[number] is None, -(means[number] or 0.0)))
        results: list[RescoreResult] = [
            {"score": None if mean is None else _rounded(mean), "sum": _rounded(total), "tokens": len(one.tokens)}
            for mean, total, one in zip(means, sums, scored, strict=True)
        ]
        return {"model": model.name, "best": order[0], "order": order, "results": results}

    async def embed(self, request: TextsRequest) -> EmbedResponse:
        """One embedding per text: the mean of the hidden states of its tokens."""
        model = self._model_for(request, "embed")
        embeddings = round_values(np.stack(await self._run_texts(request, "embed", request.texts)))
        return {"model": model.name, "dimension": len(embeddings[0]), "embeddings": embeddings}

    async def predict(self, request: PredictRequest) -> PredictResponse:
        """Labels, values, tags or answers of a fine-tuned model."""
        model = self._model_for(request, "predict")
        assert model.predictor is not None
        try:
            check_top(model.predictor.problem, request.top, "top")
            model.predictor.check(request.texts)
        except (ConfigError, DataError) as error:
            raise APIError(422, _for_clients(str(error))) from None
        predictions = await self._run_texts(request, "predict", request.texts)
        answers = [{name: value for name, value in one.items() if name != "id"} for one in predictions]
        for answer in answers:
            if isinstance(answer.get("scores"), dict):
                answer["scores"] = highest_scores(answer["scores"], request.top)
        return {"model": model.name, "task": model.predictor.problem.kind, "predictions": answers}

    async def proposals(self, request: ProposalsRequest) -> ProposalsResponse:
        """What the generator would put in place of a token. Each token is masked alone."""
        model = self._model_for(request, "proposals")
        assert model.fill_mask is not None
        ids = model.fill_mask.tokenizer.encode(request.text, add_special_tokens=False).ids
        if (last := max(request.tokens)) >= len(ids):
            raise APIError(
                422, f"tokens: there is no token {last}; the text has {len(ids)} tokens, counted from 0"
            )
        queries = [MaskQuery(ids, position, request.count) for position in request.tokens]
        size = min(len(request.text), 4 * model.fill_mask.predictor.batcher.max_tokens)
        predictions: list[MaskPrediction] = await self.worker.submit(
            f"proposals {request.model}", queries, [size] * len(queries)
        )
        places: list[TokenProposals] = [
            {
                "token": position,
                "probability": round(one.probability, DIGITS),
                "proposals": [{"token": token, "probability": round(p, DIGITS)} for token, p in one.proposals],
            }
            for position, one in zip(request.tokens, predictions, strict=True)
        ]
        return {"model": model.name, "generator": model.generator or model.name, "places": places}

    def _model_for(self, request: ModelRequest, operation: str) -> HostedModel:
        """The model of a request, if it supports the operation."""
        if request.model > len(self.models):
            count = "one model" if len(self.models) == 1 else f"{len(self.models)} models"
            raise APIError(404, f"there is no model {request.model}; this server has {count}")
        model = self.models[request.model - 1]
        if operation in model.unsupported:
            raise APIError(409, model.unsupported[operation])
        return model

    async def _run_texts(
        self, request: ModelRequest, operation: str, texts: Sequence[str | list[str]]
    ) -> list[Any]:
        sizes = [len(text if isinstance(text, str) else " ".join(text)) for text in texts]
        if (size := max(sizes)) > (limit := self.worker.limits.characters):
            where = f"texts[{sizes.index(size)}]"
            raise APIError(
                422, f"{where}: the parts of a text have {size:,} characters together, at most {limit:,}"
            )
        return await self.worker.submit(f"{operation} {request.model}", texts, sizes)


def _for_clients(message: str) -> str:
    """An error of a prediction with the names that a request has: `texts[1][0]`, not text 2, part 1."""

    def path(found: re.Match[str]) -> str:
        return "texts" + "".join(f"[{int(number) - 1}]" for number in found.groups() if number)

    return TEXT_NUMBER.sub(path, message)


def _rounded(value: float) -> float:
    return round(value, DIGITS) + 0.0  # never -0.0


def _sum_of_log_probabilities(scored: ScoredText, objective: str) -> float:
    if scores_of(objective) == "energy":
        return scored.pseudo_log_likelihood
    return float(-np.logaddexp(0, scored.logits.astype(np.float64)).sum())

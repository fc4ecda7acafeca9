"""The HTTP API and the page of one server."""

import base64
import contextlib
import hashlib
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, get_type_hints

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

import electra
from electra.serving.http.handlers import Handlers
from electra.serving.http.hosted_model import Facts, HostedModel
from electra.serving.http.limits import APIError, Limits
from electra.serving.http.metrics import Metrics
from electra.serving.http.middleware import AuthAndLimitsMiddleware, json_bytes
from electra.serving.http.schemas import (
    Message,
    PredictRequest,
    ProposalsRequest,
    TextsRequest,
    parse_request,
    with_limits,
)
from electra.serving.http.worker import Operation, Worker

JSON = "application/json"
REFUSALS = {
    401: "no token, or a wrong one",
    404: "there is no such model",
    408: "the request came in too slowly",
    409: "the model cannot do this",
    413: "the request is too large",
    415: "the body is not called application/json",
    422: "the body is no JSON, or not what is asked for",
    429: "too many requests wait already",
    431: "the request's head is too large",
    500: "the model failed",
    503: "the server is stopping, or the model had no time",
    504: "the model did not finish in time",
}
ENDPOINTS = ("/score", "/rescore", "/predict", "/embed", "/proposals")
LOOKED_AT = ("/", "/models", "/health", "/ready", "/metrics", "/openapi.json")


class ModelServer:
    """A FastAPI application (`app`) and the thread behind it (`worker`).

    Args:
        models: one or two.
        token: that clients must give; None: none.
        wait: seconds that an idle model waits for further requests.
    """

    def __init__(
        self,
        models: Sequence[HostedModel],
        *,
        limits: Limits | None = None,
        token: str | None = None,
        wait: float = 0.002,
    ) -> None:
        self.limits = limits or Limits()
        self.models, self.token, self.metrics = models, token, Metrics()
        works: dict[str, Operation] = {
            f"{name} {number}": work
            for number, served in enumerate(models, start=1)
            for name, work in served.works().items()
        }
        self.worker = Worker(works, limits=self.limits, wait=wait, metrics=self.metrics)
        self.metrics.ready.set_function(lambda: not self.worker.draining)
        self.app = FastAPI(
            title="electra", version=electra.__version__, docs_url=None, redoc_url=None, lifespan=self._lifespan
        )  # docs_url would fetch its page from another host
        self.app.add_middleware(
            AuthAndLimitsMiddleware,
            limits=self.limits,
            token=token,
            metrics=self.metrics,
            endpoints=[*ENDPOINTS, *LOOKED_AT],
        )
        self.app.add_exception_handler(APIError, _refused)
        self.app.add_exception_handler(HTTPException, _not_found)
        answers = Handlers(models, self.worker)
        self._post("/score", TextsRequest, answers.score)
        self._post("/rescore", TextsRequest, answers.rescore)
        self._post("/predict", PredictRequest, answers.predict)
        self._post("/embed", TextsRequest, answers.embed)
        self._post("/proposals", ProposalsRequest, answers.proposals)
        self._look_at()

    def drain(self) -> None:
        """Take no more requests; those that were taken are answered.

        A signal calls this, maybe in the middle of anything: what takes a lock has no place here.
        """
        self.worker.draining = True

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        for served in self.models:
            served.warm()
        self.worker.start()
        yield
        self.worker.stop()

    def _post(
        self, path: str, kind: type[Message], answer: Callable[[Message], Awaitable[Mapping[str, Any]]]
    ) -> None:
        """An endpoint whose body is parsed once, by pydantic, and whose answer is written once."""
        message = with_limits(kind, self.limits)

        async def endpoint(request: Request) -> Response:
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
                raise APIError(415, f"give the body as JSON, with the header Content-Type: {JSON}")
            facts = await answer(parse_request(message, await request.body()))
            return Response(json_bytes(facts), media_type=JSON)

        summary, _, more = (inspect.getdoc(answer) or path).partition("\n")
        body = {"required": True, "content": {JSON: {"schema": message.model_json_schema()}}}
        self.app.post(
            path, summary=summary, description=re.sub(r"\s+", " ", more).strip(), responses=_responses(),
            response_model=get_type_hints(answer)["return"], openapi_extra={"requestBody": body},
            operation_id=path[1:],
        )(endpoint)  # fmt: skip

    def _look_at(self) -> None:
        html, policy = page()

        @self.app.get("/", include_in_schema=False)
        async def the_page() -> Response:
            return Response(html, media_type="text/html", headers={"Content-Security-Policy": policy})

        @self.app.get("/models", summary="The models, what each can do, and the limits")
        async def models() -> Facts:
            limits = {name: getattr(self.limits, name) for name in ("characters", "texts", "body")}
            known = [served.facts() for served in self.models]
            return {"electra": electra.__version__, "models": known, "limits": limits}

        @self.app.get(
            "/health", summary="Whether the process lives", responses={503: {"description": "it does not"}}
        )
        async def health() -> Response:
            return _state("ok", 200) if self.worker.alive else _state("the model's thread has died", 503)

        @self.app.get("/ready", summary="Whether requests are taken", responses={503: {"description": "not now"}})
        async def ready() -> Response:
            return _state("stopping", 503) if self.worker.draining else _state("ready", 200)

        @self.app.get("/metrics", summary="Figures for Prometheus", response_class=PlainTextResponse)
        async def metrics() -> Response:
            return Response(self.metrics.page(), media_type="text/plain; version=0.0.4")


def page() -> tuple[bytes, str]:
    """The page, and the policy under which a browser runs its one style and its one script, and nothing else."""
    html = files("electra.serving.http").joinpath("page.html").read_text(encoding="utf-8")
    allowed = []
    for tag in ("style", "script"):
        inside = html.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        allowed.append(f"{tag}-src 'sha256-{digest}'")
    others = "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return html.encode(), f"default-src 'none'; {'; '.join(allowed)}; {others}"


def _responses() -> dict[int | str, dict[str, Any]]:
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    content = {JSON: {"schema": error}}
    return {status: {"description": says, "content": content} for status, says in REFUSALS.items()}


def _state(says: str, status: int) -> Response:
    return Response(json_bytes({"status": says}), status, media_type=JSON)


async def _refused(_: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, APIError)
    return Response(json_bytes({"error": refusal.message}), refusal.status, dict(refusal.headers), JSON)


async def _not_found(request: Request, error: Exception) -> Response:
    """Starlette's own refusals, in our form."""
    assert isinstance(error, HTTPException)
    known = f"GET {', '.join(LOOKED_AT)}; POST {', '.join(ENDPOINTS)}"
    message = f"{request.method[:20]} {request.url.path[:200]} is nothing here; there are {known}"
    return Response(json_bytes({"error": message}), error.status_code, error.headers, JSON)

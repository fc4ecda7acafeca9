"""The FastAPI application of one server: the API and the page."""

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
from electra.serving.http.host_names import HostNames
from electra.serving.http.hosted_model import HostedModel
from electra.serving.http.limits import APIError, Limits
from electra.serving.http.metrics import Metrics
from electra.serving.http.middleware import AuthAndLimitsMiddleware, json_bytes
from electra.serving.http.schemas import (
    PredictRequest,
    ProposalsRequest,
    Schema,
    TextsRequest,
    parse_request,
    with_limits,
)
from electra.serving.http.worker import Operation, Worker

JSON = "application/json"
ERRORS = {
    401: "the access token is missing or wrong",
    404: "there is no such model",
    408: "the request arrived too slowly",
    409: "the model does not support this operation",
    413: "the body is too large",
    415: "the Content-Type is not application/json",
    421: "the server does not answer to this host name",
    422: "the body is not valid JSON, or does not match the schema",
    429: "too many requests are waiting",
    431: "the URL and the headers are too large",
    500: "the model failed",
    503: "the server is stopping, or the model was too busy",
    504: "the model did not finish in time",
}
POST_PATHS = ("/score", "/rescore", "/predict", "/embed", "/proposals")
GET_PATHS = ("/", "/models", "/health", "/ready", "/metrics", "/openapi.json")


class ModelServer:
    """A FastAPI application (`app`) and the thread that runs its models (`worker`).

    Args:
        models: one or two.
        token: the access token of clients. None: no token is needed.
        wait: seconds that an idle model waits for further requests.
    """

    def __init__(
        self,
        models: Sequence[HostedModel],
        *,
        limits: Limits | None = None,
        names: HostNames | None = None,
        token: str | None = None,
        wait: float = 0.002,
    ) -> None:
        self.limits = limits or Limits()
        self.models, self.token, self.metrics = models, token, Metrics()
        operations: dict[str, Operation] = {
            f"{name} {number}": operation
            for number, model in enumerate(models, start=1)
            for name, operation in model.operations().items()
        }
        self.worker = Worker(operations, limits=self.limits, wait=wait, metrics=self.metrics)
        self.metrics.ready.set_function(lambda: not self.worker.draining)
        self.app = FastAPI(
            title="electra", version=electra.__version__, docs_url=None, redoc_url=None, lifespan=self._lifespan
        )  # FastAPI's own pages of documentation would load scripts from another host
        self.app.add_middleware(
            AuthAndLimitsMiddleware,
            limits=self.limits,
            names=names or HostNames(),
            token=token,
            metrics=self.metrics,
            endpoints=[*POST_PATHS, *GET_PATHS],
        )
        self.app.add_exception_handler(APIError, _error_response)
        self.app.add_exception_handler(HTTPException, _not_found_response)
        handlers = Handlers(models, self.worker)
        self._add_post("/score", TextsRequest, handlers.score)
        self._add_post("/rescore", TextsRequest, handlers.rescore)
        self._add_post("/predict", PredictRequest, handlers.predict)
        self._add_post("/embed", TextsRequest, handlers.embed)
        self._add_post("/proposals", ProposalsRequest, handlers.proposals)
        self._add_get_routes()

    def drain(self) -> None:
        """Refuse new requests; accepted requests still get their response.

        This is called in a signal handler, so it must not take a lock.
        """
        self.worker.draining = True

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        for model in self.models:
            model.warm_up()
        self.worker.start()
        yield
        self.worker.stop()

    def _add_post(
        self, path: str, schema: type[Schema], handler: Callable[[Schema], Awaitable[Mapping[str, Any]]]
    ) -> None:
        """Add an endpoint. pydantic parses the body in one pass, and the response is serialized once."""
        limited = with_limits(schema, self.limits)

        async def endpoint(request: Request) -> Response:
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
                raise APIError(415, f"send the body as JSON, with the header Content-Type: {JSON}")
            content = await handler(parse_request(limited, await request.body()))
            return Response(json_bytes(content), media_type=JSON)

        summary, _, more = (inspect.getdoc(handler) or path).partition("\n")
        body = {"required": True, "content": {JSON: {"schema": limited.model_json_schema()}}}
        self.app.post(
            path, summary=summary, description=re.sub(r"\s+", " ", more).strip(), responses=_error_schemas(),
            response_model=get_type_hints(handler)["return"], openapi_extra={"requestBody": body},
            operation_id=path[1:],
        )(endpoint)  # fmt: skip

    def _add_get_routes(self) -> None:
        html, policy = load_page()

        @self.app.get("/", include_in_schema=False)
        async def page() -> Response:
            return Response(html, media_type="text/html", headers={"Content-Security-Policy": policy})

        @self.app.get("/models", summary="The models, the operations of each, and the limits")
        async def models() -> dict[str, Any]:
            limits = {name: getattr(self.limits, name) for name in ("characters", "texts", "body")}
            described = [model.describe() for model in self.models]
            return {"electra": electra.__version__, "models": described, "limits": limits}

        @self.app.get(
            "/health", summary="Whether the server works", responses={503: {"description": "it does not work"}}
        )
        async def health() -> Response:
            return _status("ok", 200) if self.worker.alive else _status("the model's thread has died", 503)

        @self.app.get(
            "/ready", summary="Whether the server accepts requests", responses={503: {"description": "not now"}}
        )
        async def ready() -> Response:
            return _status("stopping", 503) if self.worker.draining else _status("ready", 200)

        @self.app.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
        async def metrics() -> Response:
            return Response(self.metrics.render(), media_type="text/plain; version=0.0.4")


def load_page() -> tuple[bytes, str]:
    """The page, and the Content-Security-Policy that allows its one style, its one script, and nothing else."""
    folder = files("electra.serving.http")
    names = ("page.html", "page.js", "page_predictions.js")
    html, *scripts = (folder.joinpath(name).read_text(encoding="utf-8") for name in names)
    html = html.replace("<script></script>", f"<script>\n{''.join(scripts)}</script>")
    allowed = []
    for tag in ("style", "script"):
        content = html.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        allowed.append(f"{tag}-src 'sha256-{digest}'")
    others = "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return html.encode(), f"default-src 'none'; {'; '.join(allowed)}; {others}"


def _error_schemas() -> dict[int | str, dict[str, Any]]:
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    content = {JSON: {"schema": error}}
    return {status: {"description": meaning, "content": content} for status, meaning in ERRORS.items()}


def _status(text: str, status: int) -> Response:
    return Response(json_bytes({"status": text}), status, media_type=JSON)


async def _error_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, APIError)
    return Response(json_bytes({"error": error.message}), error.status, dict(error.headers), JSON)


async def _not_found_response(request: Request, error: Exception) -> Response:
    """Starlette's own errors (404 and 405) as our JSON."""
    assert isinstance(error, HTTPException)
    paths = f"GET {', '.join(GET_PATHS)}; POST {', '.join(POST_PATHS)}"
    method, path = request.method[:20], request.url.path[:200]
    problem = f"{path} does not accept {method}" if error.status_code == 405 else f"{method} {path} does not exist"
    message = f"{problem}; the API has {paths}"
    return Response(json_bytes({"error": message}), error.status_code, error.headers, JSON)

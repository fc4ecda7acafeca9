"""ASGI middleware: host, access token, size and time limits, response headers, and metrics of all requests."""

import asyncio
import contextlib
import hmac
import json
import time
from collections.abc import Collection
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from electra.serving.http.host_names import HostNames
from electra.serving.http.limits import MAX_HEADER_BYTES, APIError, Limits
from electra.serving.http.metrics import Metrics

PUBLIC_PATHS = ("/", "/health", "/ready")
"""Paths that need no access token: the page, which asks for it, and the health checks."""
MAX_NAME = 100
"""Characters of a host's name that a message shows."""
DISCARD_FACTOR = 8
"""A body that is too large is read up to this multiple of the limit before the connection is closed."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a client that closed the connection before the response."""


class AuthAndLimitsMiddleware:
    """Refuses requests that are for another host, have no access token, or are too large or too slow, and counts
    every request.

    Args:
        names: names of the server.
        token: clients must send it as `Authorization: Bearer TOKEN`. None: no token is needed.
        endpoints: paths that are counted by name. All others are counted as "other".
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        names: HostNames,
        token: str | None,
        metrics: Metrics,
        endpoints: Collection[str],
    ) -> None:
        self.app, self.limits, self.names, self.metrics = app, limits, names, metrics
        self.token = None if token is None else token.encode()
        self.endpoints = frozenset(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), CLIENT_CLOSED_REQUEST
        more = b"expect" not in dict(scope["headers"])  # else the client waits for "100 Continue", or a refusal

        async def receive_body() -> Message:
            nonlocal more
            message = await receive()
            more = message.get("more_body", False)
            return message

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            self._check_headers(scope)
            if (body := await self._read_body_in_time(receive_body)) is not None:
                response = asyncio.ensure_future(self.app(scope, _replay(body, receive), send_with_headers))
                await _cancel_on_disconnect(response, receive)
        except APIError as error:
            await _send_error(send_with_headers, error)
            if error.status == 413 and more:
                await self._discard_body(receive)
            await send_with_headers({"type": "http.response.body"})
        finally:
            endpoint = scope["path"] if scope["path"] in self.endpoints else "other"
            self.metrics.observe_request(endpoint, status, time.perf_counter() - started)

    def _check_headers(self, scope: Scope) -> None:
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])  # ": " and the end of the line
        if size > MAX_HEADER_BYTES:
            message = f"the URL and the headers are too large: at most {MAX_HEADER_BYTES:,} bytes together"
            raise APIError(431, message, {"Connection": "close"})
        headers = dict(scope["headers"])
        if not self.names.include(headers.get(b"host")):
            name = headers[b"host"].decode("latin-1")[:MAX_NAME]
            message = (
                f"this server does not answer to the name {name!r}; to allow it: electra serve "
                "MODEL --allowed-host NAME"
            )
            raise APIError(421, message)
        if self.token is not None and scope["path"] not in PUBLIC_PATHS:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            # The token is compared in constant time, also if the scheme is wrong.
            if not hmac.compare_digest(given.strip(), self.token) or scheme.lower() != b"bearer":
                message = "this server needs an access token, as the header Authorization: Bearer TOKEN"
                raise APIError(401, message, {"WWW-Authenticate": "Bearer"})
        self._check_size(int(headers.get(b"content-length", 0)))  # the server has checked that it is a number

    def _check_size(self, size: int) -> None:
        if size > self.limits.body:
            message = (
                f"the body is too large: at most {self.limits.body:,} bytes; send the texts in several requests"
            )
            raise APIError(413, message, {"Connection": "close"})

    async def _read_body_in_time(self, receive: Receive) -> bytes | None:
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._read_body(receive)
        except TimeoutError:
            message = f"the request did not arrive completely within {self.limits.seconds:g} seconds"
            raise APIError(408, message, {"Connection": "close"}) from None

    async def _read_body(self, receive: Receive) -> bytes | None:
        """The whole body; None if the client has closed the connection."""
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            self._check_size(size := size + len(parts[-1]))
            more = message.get("more_body", False)
        return b"".join(parts)

    async def _discard_body(self, receive: Receive) -> None:
        """Read the rest of a body after its refusal: a client that is still sending might not see the refusal if
        the connection were closed at once."""
        size, more = 0, True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.seconds):
                while more and size <= DISCARD_FACTOR * self.limits.body:
                    message = await receive()
                    size += len(message.get("body", b""))
                    more = message.get("more_body", False)


async def _cancel_on_disconnect(response: "asyncio.Future[None]", receive: Receive) -> None:
    """Wait for a response, but cancel it when its client closes the connection.

    uvicorn reports a closed connection only to a receiver of the next message, and does not stop the application.
    """
    disconnect = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((response, disconnect), return_when=asyncio.FIRST_COMPLETED)
    finally:
        disconnect.cancel()
        cancelled = response.cancel()  # False if it is done
    try:
        await response
    except asyncio.CancelledError:
        if not cancelled:
            raise


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body, which was already read, and then what comes next."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def json_bytes(content: Any) -> bytes:
    """JSON in UTF-8 without blanks."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


async def _send_error(send: Send, error: APIError) -> None:
    """Send an error response, all but the message that ends it."""
    body = json_bytes({"error": error.message})
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": True})

"""What stands in front of the API: who may ask, how much may come in, and headers for all answers."""

import asyncio
import hmac
import json
import time
from collections.abc import Collection
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from electra.serving.http.limits import MAX_HEADER_BYTES, APIError, Limits
from electra.serving.http.metrics import Metrics

OPEN = ("/", "/health", "/ready")
"""Paths that need no token: the page, which asks for one, and what supervisors look at."""
PATIENCE = 8
"""How many times the limit is read of a body before its client is cut off."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class AuthAndLimitsMiddleware:
    """ASGI middleware that refuses what has no token or is too large, and counts every request.

    Args:
        token: clients must give it as `Authorization: Bearer TOKEN`; None: all may ask.
        endpoints: paths that are counted by name; all others count as "other".
    """

    def __init__(
        self, app: ASGIApp, *, limits: Limits, token: str | None, metrics: Metrics, endpoints: Collection[str]
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.token = None if token is None else token.encode()
        self.endpoints = frozenset(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 499  # that of one who has gone

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            self._check(scope)
            if (body := await self._body_in_time(receive)) is not None:
                await _while_there(asyncio.ensure_future(self.app(scope, _again(body, receive), answer)), receive)
        except APIError as refusal:
            await _refuse(answer, refusal)
        finally:
            endpoint = scope["path"] if scope["path"] in self.endpoints else "other"
            self.metrics.answered(endpoint, status, time.perf_counter() - began)

    def _check(self, scope: Scope) -> None:
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])  # ": " and the line's end
        if size > MAX_HEADER_BYTES:
            says = f"the request's head is too large: at most {MAX_HEADER_BYTES:,} bytes of address and headers"
            raise APIError(431, says, {"Connection": "close"})
        headers = dict(scope["headers"])
        if self.token is not None and scope["path"] not in OPEN:
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            # Compared in full even where the kind is wrong; the time says nothing about the token.
            if not hmac.compare_digest(given.strip(), self.token) or kind.lower() != b"bearer":
                message = "this server wants a token: Authorization: Bearer TOKEN"
                raise APIError(401, message, {"WWW-Authenticate": "Bearer"})

    async def _body_in_time(self, receive: Receive) -> bytes | None:
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._body(receive)
        except TimeoutError:
            message = f"the request did not come in whole within {self.limits.seconds:g} seconds"
            raise APIError(408, message, {"Connection": "close"}) from None

    async def _body(self, receive: Receive) -> bytes | None:
        """All of it; None where the client has gone.

        Of one that is too large some more is read and thrown away: a client that still sends would not see the
        answer.
        """
        parts, size, more = [], 0, True
        while more and size <= PATIENCE * self.limits.body:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            size += len(message.get("body", b""))
            if size <= self.limits.body:
                parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        if size > self.limits.body:
            says = f"the request is too large: at most {self.limits.body:,} bytes; send the texts in several"
            raise APIError(413, says, {"Connection": "close"})
        return b"".join(parts)


async def _while_there(working: "asyncio.Future[None]", receive: Receive) -> None:
    """Wait for an answer; it is given up where its client hangs up, so that nothing is computed for nobody.

    uvicorn tells that a client has gone only to who asks for the next message, and lets the application go on.
    """
    leaving = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        given_up = working.cancel()  # False: it is done
    try:
        await working
    except asyncio.CancelledError:
        if not given_up:
            raise


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives the app what was read, once."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def json_bytes(facts: Any) -> bytes:
    """JSON as it goes out: UTF-8, without blanks."""
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()


async def _refuse(send: Send, refusal: APIError) -> None:
    body = json_bytes({"error": refusal.message})
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **refusal.headers}
    start = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": start})
    await send({"type": "http.response.body", "body": body})

"""Errors of clients do not harm the server, and accepted requests get their response."""

import json
import logging
import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from small_model import TEXTS
from small_server import serving
from uvicorn.protocols.http.h11_impl import H11Protocol
from waiting import LIMIT, until

from electra.serving.http import process
from electra.serving.http.hosted_model import HostedModel
from electra.serving.http.limits import Limits

JSON = {"Content-Type": "application/json"}
BODIES = 1000
CLIENTS = 200
EXAMPLES = 10
"""Of schemathesis, for each endpoint."""


@pytest.fixture(scope="module", autouse=True)
def no_errors() -> Iterator[None]:
    """Any error in the log of the server fails the test."""
    errors: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            errors.append(self.format(record))

    handler = Listening(logging.ERROR)
    loggers = [logging.getLogger(name) for name in ("electra", "uvicorn", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    yield
    for logger in loggers:
        logger.removeHandler(handler)
    assert not errors


def malformed(draw: random.Random) -> bytes:
    """A valid body with an error in it, or no valid body at all."""
    right = json.dumps({"texts": ["the cat sat", "a dog"], "model": 1}).encode()
    value = draw.choice([None, 3, -1.5, True, {}, [], [[]], [[["a"]]], "", "text", 10**400, [None], {"a": "b"}])
    field = draw.choice(["texts", "model", "text", "tokens", "count", "..", "__class__", "\x00", "é"])
    kinds = [
        lambda: right[: draw.randrange(len(right))],
        lambda: bytes(draw.randrange(256) for _ in range(draw.randrange(200))),
        lambda: right.replace(b'"a dog"', draw.choice([b"3", b"null", b'"\xff"', b'"\\ud83d"', b"{", b"NaN"])),
        lambda: json.dumps({field: value}).encode(),
        lambda: json.dumps({"texts": value}).encode(),
        lambda: json.dumps({"texts": ["a"], field + "x": value}).encode(),
        lambda: draw.choice([b"[", b'{"a":', b'{"texts":[']) * draw.randrange(1, 5000),
        lambda: json.dumps({"texts": ["a"], "model": draw.choice([0, 3, "1", 1.5, None, [1], 2**70])}).encode(),
        lambda: json.dumps({"texts": ["x" * 30_000] * draw.randrange(1, 60)}).encode(),
    ]  # fmt: skip
    return draw.choice(kinds)()


def test_a_thousand_malformed_bodies_are_refused(client: httpx.Client) -> None:
    draw = random.Random(0)
    for _ in range(BODIES):
        path = draw.choice(["/score", "/rescore", "/embed", "/predict", "/proposals"])
        body = malformed(draw)
        answer = client.post(path, content=body, headers=JSON)
        assert 400 <= answer.status_code < 500, (path, body[:200], answer.text)
        assert list(answer.json()) == ["error"] and len(answer.json()["error"]) < 600, body[:200]
    assert client.post("/score", json={"texts": ["a"]}).status_code == 200


def test_the_api_follows_its_openapi_description(client: httpx.Client) -> None:
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    named = 0
    for actual in schema.get_all_operations():
        operation = actual.ok()
        named += 1
        if operation.method == "post":  # the name of the function in a generated client
            assert operation.definition.raw["operationId"] == operation.path[1:]

        @settings(
            max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def holds(case: Any) -> None:
            case.call_and_validate(
                base_url=str(client.base_url),
                checks=[
                    checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
                    checks.response_schema_conformance,
                ],
            )  # fmt: skip

        holds()
    assert named == 9


def test_bad_requests_under_load_do_not_affect_others(hosted: HostedModel) -> None:
    with serving(hosted) as (address, _):
        expected = {text: post(address, text).json() for text in TEXTS}
        statuses: list[tuple[bool, int]] = []

        def work(seed: int) -> None:
            draw = random.Random(seed)
            with httpx.Client(base_url=address, timeout=LIMIT) as client:
                for _ in range(25):
                    if draw.random() < 0.05:
                        statuses.append(
                            (True, client.post("/score", content=malformed(draw), headers=JSON).status_code)
                        )
                        continue
                    text = draw.choice(TEXTS)
                    answer = client.post("/score", json={"texts": [text]})
                    statuses.append((False, answer.status_code))
                    tokens = answer.json()["results"][0]
                    right = expected[text]["results"][0]
                    assert tokens["tokens"] == right["tokens"]
                    assert tokens["probabilities"] == pytest.approx(right["probabilities"], abs=1e-5)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(16)))
    assert len(statuses) == 400 and any(bad for bad, _ in statuses)
    assert {status for bad, status in statuses if not bad} == {200}
    assert all(400 <= status < 500 for bad, status in statuses if bad)


class BlockedScorer:
    """A scorer that waits for `may_go` before it returns its results."""

    def __init__(self, hosted: HostedModel) -> None:
        assert hosted.scorer is not None
        self.scorer, self.began, self.may_go = hosted.scorer, threading.Event(), threading.Event()
        self.texts: list[str] = []

    def __call__(self, texts: list[str]) -> list[Any]:
        self.texts += texts
        self.began.set()
        assert self.may_go.wait(LIMIT)
        return list(self.scorer(texts))


@pytest.fixture
def blocked(hosted: HostedModel, monkeypatch: pytest.MonkeyPatch) -> BlockedScorer:
    blocked = BlockedScorer(hosted)
    monkeypatch.setattr(hosted, "operations", lambda: {"score": blocked})
    return blocked


def connected(address: str) -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=LIMIT)


def get(address: str, path: str) -> httpx.Response:
    return httpx.get(f"{address}{path}", timeout=LIMIT)


def post(address: str, text: str = "a dog") -> httpx.Response:
    return httpx.post(f"{address}/score", json={"texts": [text]}, timeout=LIMIT)


def send_until_closed(connection: socket.socket, piece: bytes) -> None:
    """Send without end until the server closes the connection."""
    end = time.monotonic() + LIMIT
    with pytest.raises(ConnectionError):
        while time.monotonic() < end:
            connection.sendall(piece)


def test_a_full_queue_refuses_with_429_and_retry_after(hosted: HostedModel, blocked: BlockedScorer) -> None:
    with serving(hosted, limits=Limits(waiting=2, seconds=LIMIT)) as (address, _), ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(post, address)]
        assert blocked.began.wait(LIMIT)
        sent += [pool.submit(post, address) for _ in range(6)]
        until(lambda: sum(one.done() for one in sent) == 4)
        refused = [one.result() for one in sent if one.done()]
        assert [one.status_code for one in refused] == [429] * 4
        assert all(int(one.headers["retry-after"]) >= 1 for one in refused)
        assert get(address, "/health").status_code == 200
        blocked.may_go.set()
        assert sorted(one.result().status_code for one in sent) == [200] * 3 + [429] * 4


def test_shutdown_finishes_accepted_requests_and_refuses_new_ones(
    hosted: HostedModel, blocked: BlockedScorer
) -> None:
    with (
        serving(hosted) as (address, server),
        httpx.Client(timeout=LIMIT, limits=httpx.Limits(max_connections=None)) as client,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        request = partial(client.post, f"{address}/score", json={"texts": ["a dog"]})
        taken = [pool.submit(request) for _ in range(CLIENTS)]
        assert blocked.began.wait(LIMIT)
        until(lambda: server.server.worker.in_flight == CLIENTS)
        server.handle_exit(15, None)
        assert post(address).status_code == 503
        assert get(address, "/ready").status_code == 503
        assert "electra_ready 0.0" in get(address, "/metrics").text
        assert get(address, "/health").status_code == 200
        blocked.may_go.set()
        assert [one.result().status_code for one in taken] == [200] * CLIENTS
    with pytest.raises(httpx.ConnectError):
        post(address)


def test_slow_clients_get_408(hosted: HostedModel) -> None:
    with serving(hosted, limits=Limits(seconds=0.3)) as (address, _), connected(address) as connection:
        connection.sendall(b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_a_request_of_a_disconnected_client_is_not_computed(hosted: HostedModel, blocked: BlockedScorer) -> None:
    with serving(hosted) as (address, server), ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, address)
        assert blocked.began.wait(LIMIT)
        body = json.dumps({"texts": ["nobody waits for this"]})
        head = "POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        head += str(len(body))
        with connected(address) as leaving:
            leaving.sendall(f"{head}\r\n\r\n{body}".encode())
            until(lambda: server.server.worker.in_flight == 2)
        until(lambda: server.server.worker.in_flight == 1)
        blocked.may_go.set()
        assert first.result().status_code == 200 and post(address).status_code == 200
        metrics = get(address, "/metrics").text
    assert blocked.texts == ["a dog", "a dog"]
    assert 'electra_requests_total{endpoint="/score",status="499"} 1.0' in metrics


def test_stalled_connections_are_closed(hosted: HostedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: clock.now))
    with serving(hosted) as (address, server):
        limit = process.KEEP_ALIVE_SECONDS + 2 * server.server.limits.seconds
        silent, slow = (connected(address) for _ in range(2))
        with silent, slow, httpx.Client(base_url=address, timeout=LIMIT) as asking:
            slow.sendall(b"POST /score HTTP/1.1\r\nHost: localhost\r\n")
            until(lambda: len(server._states) == 2)
            for clock.now in (0.0, 0.6 * limit, 1.2 * limit):
                assert asking.get("/health").status_code == 200
                until(lambda: clock.now in [since for _, since in server._states.values()])  # it has looked
            assert silent.recv(100) == slow.recv(100) == b""
            until(lambda: len(server.server_state.connections) == 1)
            assert asking.get("/health").status_code == 200


UNFINISHED = [b"", b"POST /sc", b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"]


@pytest.mark.parametrize("sent", UNFINISHED)
def test_the_oldest_of_too_many_waiting_connections_are_closed(
    hosted: HostedModel, blocked: BlockedScorer, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(process, "MAX_WAITING_CONNECTIONS", 20)
    with serving(hosted) as (address, server), ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        answered = pool.submit(post, address)  # older, but its request is complete
        assert blocked.began.wait(LIMIT)

        def open_connections(count: int, *, total: int) -> socket.socket:
            for _ in range(count):
                last = stack.enter_context(connected(address))
                last.sendall(sent)
            until(lambda: len(server._states) == total)
            return last

        oldest = open_connections(1, total=2)
        open_connections(100, total=21)
        assert oldest.recv(100) == b""
        assert get(address, "/health").status_code == 200
        blocked.may_go.set()
        assert answered.result().status_code == 200


def test_a_flood_of_connections_is_stopped_between_two_ticks(
    hosted: HostedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all open files could be used up before the next tick."""

    async def never_closes(self: process.GracefulServer, counter: int) -> bool:
        self.should_exit = self.server.worker.draining
        return await uvicorn.Server.on_tick(self, counter)

    monkeypatch.setattr(process.GracefulServer, "on_tick", never_closes)
    monkeypatch.setattr(process, "MAX_WAITING_CONNECTIONS", 20)
    with serving(hosted) as (address, server), ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(connected(address))
        assert get(address, "/health").status_code == 200  # it came last
        assert 20 <= len(server.server_state.connections) <= 20 + process.BACKLOG // 2 + 1


def test_a_chunked_body_without_end_is_refused(hosted: HostedModel) -> None:
    head = b"POST /score HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    limits = Limits(body=1000, seconds=LIMIT)
    with serving(hosted, limits=limits) as (address, _), connected(address) as connection:
        connection.sendall(head)
        send_until_closed(connection, b"a\r\n0123456789\r\n")
        assert post(address).status_code == 200
    with serving(hosted, limits=Limits(seconds=0.3)) as (address, _), connected(address) as connection:
        connection.sendall(head + b"1\r\n{\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_one_endless_word_is_refused_and_a_long_one_is_scored(client: httpx.Client) -> None:
    refused = client.post("/score", json={"texts": ["a" * 10_000_000]})
    assert refused.status_code == 413
    assert client.post("/score", json={"texts": ["a" * 20_001]}).status_code == 422
    tokens = client.post("/score", json={"texts": ["a" * 20_000]}).json()["results"][0]["tokens"]
    assert tokens == ["a" * 20_000]


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/health?{}", {}), ("/{}", {}), ("/health", {"X": "{}"}), ("/health", {"{}": "x"})],
)
def test_headers_have_a_limit(client: httpx.Client, path: str, headers: dict[str, str]) -> None:
    def ask(size: int) -> tuple[int, str | None, bytes]:  # http.client has no limit of its own
        filled = {name.format("a" * size): value.format("a" * size) for name, value in headers.items()}
        with closing(HTTPConnection(client.base_url.host, client.base_url.port, timeout=LIMIT)) as connection:
            connection.request("GET", path.format("a" * size), headers=filled)
            answer = connection.getresponse()
            return answer.status, answer.getheader("connection"), answer.read()

    assert ask(60_000)[0] == (404 if path == "/{}" else 200)
    status, kept, says = ask(80_000)
    assert (status, kept) == (431, "close")
    error = "the URL and the headers are too large: at most 65,536 bytes together"
    assert json.loads(says) == {"error": error}


def test_many_small_headers_have_the_same_limit(client: httpx.Client) -> None:
    assert client.get("/health", headers=[("x", "y")] * 10_000).status_code == 200
    assert client.get("/health", headers=[("x", "y")] * 12_000).status_code == 431


def test_headers_may_arrive_in_pieces(hosted: HostedModel) -> None:
    with serving(hosted) as (address, server), connected(address) as connection:
        assert issubclass(server.config.http_protocol_class, H11Protocol)  # httptools has no limit
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 60_000)
        until(lambda: any(len(one.conn.trailing_data[0]) > 60_000 for one in server.server_state.connections))
        connection.sendall(b"\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_headers_without_end_are_refused(hosted: HostedModel) -> None:
    with serving(hosted) as (address, _):
        with connected(address) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
            send_until_closed(connection, b"a" * 1000)
        assert post(address).status_code == 200


def test_disconnected_clients_leave_nothing_behind(hosted: HostedModel) -> None:
    with serving(hosted) as (address, server):
        for sent in (
            b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
            b"POST /sc",
            b"\x16\x03\x01",
        ):
            with connected(address) as connection:
                connection.sendall(sent)
        assert post(address).status_code == 200
        assert server.server.worker.in_flight == 0

"""What clients do wrong never harms the server, and what it has taken it answers."""

import json
import logging
import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from small_model import TEXTS
from small_server import serving

from electra.serving.http import process
from electra.serving.http.hosted_model import HostedModel
from electra.serving.http.limits import Limits

JSON = {"Content-Type": "application/json"}
BODIES = 1000
EXAMPLES = 10
"""Of schemathesis, for each endpoint."""


@pytest.fixture(scope="module", autouse=True)
def no_errors() -> Iterator[None]:
    """Whatever the server logs as an error while these tests run fails them."""
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
    """A right body with something wrong about it, or none at all."""
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


def test_the_api_is_what_its_description_says(client: httpx.Client) -> None:
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    named = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        named += 1

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


def test_under_load_a_twentieth_of_bad_requests_harms_no_other(hosted: HostedModel) -> None:
    with serving(hosted) as (address, _):
        expected = {text: httpx.post(f"{address}/score", json={"texts": [text]}).json() for text in TEXTS}
        statuses: list[tuple[bool, int]] = []

        def work(seed: int) -> None:
            draw = random.Random(seed)
            with httpx.Client(base_url=address, timeout=20) as client:
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


class Held:
    """A scorer that holds back its results until it may go."""

    def __init__(self, hosted: HostedModel) -> None:
        assert hosted.scorer is not None
        self.scorer, self.began, self.may_go = hosted.scorer, threading.Event(), threading.Event()
        self.texts: list[str] = []

    def __call__(self, texts: list[str]) -> list[Any]:
        self.texts += texts
        self.began.set()
        assert self.may_go.wait(20)
        return list(self.scorer(texts))


@pytest.fixture
def held(hosted: HostedModel, monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held(hosted)
    monkeypatch.setattr(hosted, "operations", lambda: {"score": held})
    return held


def connected(address: str) -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def post(address: str) -> httpx.Response:
    return httpx.post(f"{address}/score", json={"texts": ["a dog"]}, timeout=20)


def test_a_full_queue_refuses_with_429_and_says_when_to_come_again(hosted: HostedModel, held: Held) -> None:
    with serving(hosted, limits=Limits(waiting=2, seconds=20)) as (address, _), ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(post, address)]
        assert held.began.wait(10)
        asked += [pool.submit(post, address) for _ in range(6)]
        until = time.monotonic() + 10
        while sum(one.done() for one in asked) < 4 and time.monotonic() < until:
            time.sleep(0.01)
        refused = [one.result() for one in asked if one.done()]
        assert [one.status_code for one in refused] == [429] * 4
        assert all(int(one.headers["retry-after"]) >= 1 for one in refused)
        assert httpx.get(f"{address}/health").status_code == 200
        held.may_go.set()
        assert sorted(one.result().status_code for one in asked) == [200] * 3 + [429] * 4


def test_asked_to_stop_it_answers_what_it_has_taken_and_refuses_the_rest(hosted: HostedModel, held: Held) -> None:
    with serving(hosted) as (address, server), ThreadPoolExecutor(4) as pool:
        taken = [pool.submit(post, address) for _ in range(3)]
        assert held.began.wait(10)
        until = time.monotonic() + 10
        while server.server.worker.in_flight < 3 and time.monotonic() < until:
            time.sleep(0.01)
        server.handle_exit(15, None)
        assert post(address).status_code == 503
        assert httpx.get(f"{address}/ready").status_code == 503
        assert "electra_ready 0.0" in httpx.get(f"{address}/metrics").text
        assert httpx.get(f"{address}/health").status_code == 200
        held.may_go.set()
        assert [one.result().status_code for one in taken] == [200] * 3
    with pytest.raises(httpx.ConnectError):
        post(address)


def test_slow_clients_are_sent_away(hosted: HostedModel) -> None:
    with serving(hosted, limits=Limits(seconds=0.3)) as (address, _), connected(address) as connection:
        connection.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_what_a_client_has_asked_for_is_not_computed_when_it_has_gone(hosted: HostedModel, held: Held) -> None:
    with serving(hosted) as (address, server), ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, address)
        assert held.began.wait(10)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{address}/score", json={"texts": ["nobody waits for this"]}, timeout=0.2)
        until = time.monotonic() + 5
        while server.server.worker.in_flight > 1 and time.monotonic() < until:
            time.sleep(0.01)
        assert server.server.worker.in_flight == 1
        held.may_go.set()
        assert first.result().status_code == 200 and post(address).status_code == 200
        figures = httpx.get(f"{address}/metrics").text
    assert held.texts == ["a dog", "a dog"]
    assert 'electra_requests_total{endpoint="/score",status="499"} 1.0' in figures


def test_connections_on_which_nothing_comes_to_an_end_are_cut_off(
    hosted: HostedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "KEEP_ALIVE_SECONDS", 0.5)
    with serving(hosted, limits=Limits(seconds=0.2)) as (address, server):
        silent, slow = (connected(address) for _ in range(2))
        with silent, slow, httpx.Client(base_url=address) as asking:
            slow.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\n")
            for _ in range(14):  # longer than the others last
                assert asking.get("/health").status_code == 200
                time.sleep(0.1)
            assert silent.recv(100) == slow.recv(100) == b""
            assert len(server.server_state.connections) == 1


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/health?{}", {}), ("/{}", {}), ("/health", {"X": "{}"}), ("/health", {"{}": "x"})],
)
def test_a_head_has_a_limit(client: httpx.Client, path: str, headers: dict[str, str]) -> None:
    def ask(size: int) -> tuple[int, str | None, bytes]:  # by a client that has no limit of its own
        filled = {name.format("a" * size): value.format("a" * size) for name, value in headers.items()}
        with closing(HTTPConnection(client.base_url.host, client.base_url.port, timeout=10)) as connection:
            connection.request("GET", path.format("a" * size), headers=filled)
            answer = connection.getresponse()
            return answer.status, answer.getheader("connection"), answer.read()

    assert ask(60_000)[0] == (404 if path == "/{}" else 200)
    status, kept, says = ask(80_000)
    assert (status, kept) == (431, "close")
    error = "the URL and the headers are too large: at most 65,536 bytes together"
    assert json.loads(says) == {"error": error}


def test_many_small_headers_are_a_large_head(client: httpx.Client) -> None:
    assert client.get("/health", headers=[("x", "y")] * 10_000).status_code == 200
    assert client.get("/health", headers=[("x", "y")] * 12_000).status_code == 431


def test_a_head_that_comes_in_pieces_is_waited_for(hosted: HostedModel) -> None:
    with serving(hosted) as (address, server), connected(address) as connection:
        assert server.config.http == "h11"  # httptools knows no limit
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 60_000)
        time.sleep(0.2)  # it is read before the rest comes
        connection.sendall(b"\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_a_head_without_end_is_refused(hosted: HostedModel) -> None:
    with serving(hosted) as (address, _):
        with connected(address) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: ")
            with pytest.raises(ConnectionError):  # it is closed while we still send
                for _ in range(10_000):
                    connection.sendall(b"a" * 1000)
        assert post(address).status_code == 200


def test_clients_that_hang_up_are_forgotten(hosted: HostedModel) -> None:
    with serving(hosted) as (address, server):
        for sent in (
            b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
            b"POST /sc",
            b"\x16\x03\x01",
        ):
            with connected(address) as connection:
                connection.sendall(sent)
        assert post(address).status_code == 200
        assert server.server.worker.in_flight == 0

"""Bodies that are too large are refused before they are read; requests are timed."""

import socket

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from small_server import serving
from waiting import LIMIT, until

from electra.serving.http.hosted_model import HostedModel
from electra.serving.http.limits import Limits


@pytest.mark.parametrize("expect", ["", "Expect: 100-continue\r\n"])
def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(hosted: HostedModel, expect: str) -> None:
    def request(size: int) -> socket.socket:
        host, _, port = address.removeprefix("http://").partition(":")
        connection = socket.create_connection((host, int(port)), timeout=LIMIT / 2)
        head = f"POST /score HTTP/1.1\r\nHost: localhost\r\n{expect}Content-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode())
        return connection

    with serving(hosted, limits=Limits(body=1000, seconds=LIMIT)) as (address, _):
        with request(1001) as connection:
            answer = connection.recv(1)
            while not answer.endswith(b"}"):
                answer += connection.recv(1000)
            assert answer.startswith(b"HTTP/1.1 413") and b"at most 1,000 bytes" in answer
            if not expect:  # a client that has begun to send can end
                connection.sendall(b"a" * 1001)
            assert connection.recv(1) == b"", "the connection is closed"
        with request(1000) as connection:
            if expect:
                assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(b'{"texts": ["a"]}'.ljust(1000))
            assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_a_body_that_is_complete_is_not_waited_for_after_its_refusal(hosted: HostedModel) -> None:
    with serving(hosted, limits=Limits(body=10, seconds=LIMIT)) as (address, _):
        host, _, port = address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=LIMIT / 2) as connection:
            head = b"POST /score HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head + b"b\r\n01234567890\r\n0\r\n\r\n")
            answer = connection.recv(1)
            while received := connection.recv(1000):
                answer += received
            assert answer.startswith(b"HTTP/1.1 413")


def test_the_seconds_of_a_request_are_those_from_its_headers_to_its_end(hosted: HostedModel) -> None:
    def values() -> dict[str, float]:
        families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
        samples = families["electra_request_seconds"].samples
        return {one.name: one.value for one in samples if one.labels == {"endpoint": "/score"}}

    with serving(hosted) as (address, _), httpx.Client(base_url=address, timeout=LIMIT) as client:
        client.post("/score", json={"texts": ["a dog"]})
        until(lambda: "electra_request_seconds_sum" in values())  # it is recorded after the response
        assert 0 < values()["electra_request_seconds_sum"] <= LIMIT

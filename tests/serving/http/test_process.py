"""Which connections the server closes."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from electra.serving.http import process
from electra.serving.http.app import ModelServer
from electra.serving.http.hosted_model import HostedModel
from electra.serving.http.limits import Limits


class Connection:
    """Waits for its first request, and counts how often it was aborted."""

    cycle = None

    def __init__(self, number: int) -> None:
        self.number, self.aborted = number, 0
        self.transport = self

    def __hash__(self) -> int:
        return 0  # so that the order of a set is that in which it was filled

    def abort(self) -> None:
        self.aborted += 1


class Unordered(set[Connection]):
    """Has another order each time, as a set can have after it has grown."""

    random = random.Random(0)

    def __iter__(self) -> Iterator[Connection]:
        every = sorted(super().__iter__(), key=lambda connection: connection.number)
        self.random.shuffle(every)
        return iter(every)


def test_no_more_connections_are_closed_than_are_too_many(
    hosted: HostedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed ones are still there at the next calls, and the others came at the same time."""
    monkeypatch.setattr(process, "MAX_WAITING_CONNECTIONS", 20)
    server: Any = process.build_uvicorn_server(ModelServer([hosted], limits=Limits()))
    connections = Unordered(Connection(number) for number in range(50))
    server.server_state.connections = connections
    for _ in range(5):
        server.close_connections()
        assert sum(connection.aborted > 0 for connection in connections) == 30
    connections.update(Connection(number) for number in range(50, 60))
    server.close_connections()
    assert sum(connection.aborted > 0 for connection in connections) == 40
    assert not any(connection.aborted for connection in connections if connection.number >= 50)

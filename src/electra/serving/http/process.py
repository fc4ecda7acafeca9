"""A server's process: its socket, its signals, its end."""

import logging
import socket
import time
from types import FrameType
from typing import Any

import uvicorn

from electra.errors import ConfigError
from electra.serving.http.app import ModelServer
from electra.serving.http.limits import MAX_HEADER_BYTES

logger = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 30
"""Seconds that a connection may be silent between two requests."""


class GracefulServer(uvicorn.Server):
    """Asked to stop, it refuses new requests with 503 and ends when those that it has taken are answered."""

    def __init__(self, config: uvicorn.Config, server: ModelServer) -> None:
        super().__init__(config)
        self.server = server
        self._states: dict[Any, tuple[Any, float]] = {}  # of each connection, and since when

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.server.worker.draining:  # a second request is not put off
            self.should_exit = self.force_exit = True
            return
        logger.info("stopping when what was taken is answered (%s requests)", self.server.worker.held)
        self.server.drain()

    async def on_tick(self, counter: int) -> bool:
        if self.server.worker.draining and not self.server.worker.held:
            self.should_exit = True
        self._cut_off()
        return await super().on_tick(counter)

    def _cut_off(self) -> None:
        """Close connections on which nothing has happened in any time that is allowed for it.

        uvicorn itself waits without end for the first lines of a request, and for a client to read its answer.
        """
        now, patience = time.monotonic(), KEEP_ALIVE_SECONDS + 2 * self.server.limits.seconds
        connections: set[Any] = {one for one in self.server_state.connections if hasattr(one, "cycle")}
        states = {}
        for connection in connections:
            cycle = connection.cycle  # of the request at hand, or of the last one
            state = cycle, cycle is None or cycle.response_complete
            before, since = self._states.get(connection, (state, now))
            states[connection] = state, since if state == before else now
            if now - states[connection][1] > patience:
                connection.transport.abort()
        self._states = states


def bind_socket(host: str, port: int) -> socket.socket:
    """A bound socket, so that a port that is taken is known before a model is loaded.

    Args:
        port: 0: any that is free.

    Raises:
        ConfigError: the host or port cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host {host}: {error.strerror or error}") from error
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        raise _not_to_be_had(listening, f"{host}:{port}", error) from error
    return listening


def start_listening(listening: socket.socket) -> None:
    """Let clients connect: from here on they wait for `serve` and are not refused.

    Raises:
        ConfigError: another process, whose socket was bound while this one's was, was quicker.
    """
    host, port = listening.getsockname()[:2]
    try:
        listening.listen()
    except OSError as error:
        raise _not_to_be_had(listening, f"{host}:{port}", error) from error


def _not_to_be_had(listening: socket.socket, address: str, error: OSError) -> ConfigError:
    listening.close()
    return ConfigError(f"{address}: {(error.strerror or str(error)).lower()}; give another --port")


def build_uvicorn_server(server: ModelServer) -> GracefulServer:
    """A server that is ready to run."""
    # The guard refuses a whole head of more than HEAD bytes, h11 one that has no end: only at twice as many, since
    # it knows no answer in our form. httptools, which uvicorn prefers where it is, has no such limit.
    config = uvicorn.Config(
        server.app, http="h11", h11_max_incomplete_event_size=2 * MAX_HEADER_BYTES, log_config=None,
        access_log=False, server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(server.limits.seconds) + 1,
    )  # fmt: skip
    return GracefulServer(config, server)


def serve(server: ModelServer, listening: socket.socket) -> None:
    """Serve until a signal asks to stop."""
    build_uvicorn_server(server).run(sockets=[listening])

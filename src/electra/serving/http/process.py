"""The process of a server: its socket, its access token, its signals, and its shutdown."""

import asyncio
import logging
import os
import socket
import time
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from electra.errors import ConfigError
from electra.serving.http.app import ModelServer
from electra.serving.http.limits import MAX_HEADER_BYTES

logger = logging.getLogger(__name__)

TOKEN_VARIABLE = "ELECTRA_TOKEN"
KEEP_ALIVE_SECONDS = 30
"""Seconds that a connection may be idle between two requests."""
MAX_WAITING_CONNECTIONS = 512
"""Connections without a complete request; beyond it the oldest are closed, so that new clients are still accepted.
Many systems give a process 1,024 open files."""
BACKLOG = 128
"""Connections that the system accepts for us. asyncio takes as many at once, without a look at what is open."""


class GracefulServer(uvicorn.Server):
    """On a signal it refuses new requests with 503, and ends when all accepted requests have their response."""

    def __init__(self, config: uvicorn.Config, server: ModelServer) -> None:
        super().__init__(config)
        self.server = server
        self._states: dict[Any, tuple[Any, float]] = {}  # the state of each connection, and its time of change

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.server.worker.draining:  # a second signal ends the process at once
            self.should_exit = self.force_exit = True
            return
        logger.info("stopping after the accepted requests (%s)", self.server.worker.in_flight)
        self.server.drain()

    async def on_tick(self, counter: int) -> bool:
        if self.server.worker.draining and not self.server.worker.in_flight:
            self.should_exit = True
        self.close_connections()
        return await super().on_tick(counter)

    def close_connections(self) -> None:
        """Close connections on which nothing happened for longer than any limit allows, or that are too many.

        uvicorn itself waits forever for the first lines of a request, and for a client to read its response.
        """
        now, limit = time.monotonic(), KEEP_ALIVE_SECONDS + 2 * self.server.limits.seconds
        now_open: set[Any] = {one for one in self.server_state.connections if hasattr(one, "cycle")}
        # In a fixed order: a connection that is aborted here can still be open at the next call. It must then come
        # first again, also among those that arrived at the same time; else others would be aborted in its place.
        connections = [one for one in self._states if one in now_open]
        connections += now_open.difference(connections)
        states = {}
        for connection in connections:
            cycle = connection.cycle  # the current request, or the last one
            state = cycle, cycle is None or cycle.response_complete
            before, since = self._states.get(connection, (state, now))
            states[connection] = state, since if state == before else now
            if now - states[connection][1] > limit:
                connection.transport.abort()
        self._states = states
        waiting = [connection for connection in connections if _waits_for_client(connection.cycle)]
        waiting.sort(key=lambda connection: states[connection][1])
        for connection in waiting[: max(0, len(waiting) - MAX_WAITING_CONNECTIONS)]:
            connection.transport.abort()


def _waits_for_client(cycle: Any) -> bool:
    """Whether the last request of a connection is answered, or not complete yet; None: there was none."""
    return cycle is None or cycle.response_complete or cycle.more_body


def load_token(path: Path | None) -> str | None:
    """The access token of clients, from a file or else from the environment variable; None: no token is needed.

    Raises:
        ConfigError: the file cannot be read, or the token is empty or has blanks in it.
    """
    if path is None:
        token, source = os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE
    else:
        source = str(path)
        try:
            token = path.read_text(encoding="utf-8").strip()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(f"--token-file {path}: cannot be read: {reason}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"--token-file {path}: is not a text file") from error
    if token == "":
        raise ConfigError(f"{source}: is empty; write the access token into it, one word")
    if token is not None and (not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError(f"{source}: an access token is one word of ASCII letters, digits and punctuation")
    return token


def bind_socket(host: str, port: int) -> socket.socket:
    """A bound socket, so that a port in use is found before a model is loaded.

    Args:
        port: 0: any free port.

    Raises:
        ConfigError: the host is unknown, or the port cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host {host}: {error.strerror or error}") from error
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        raise _port_error(bound, f"{host}:{port}", error) from error
    return bound


def start_listening(bound: socket.socket) -> None:
    """Let clients connect. From now on they wait for `serve` and are not refused.

    Raises:
        ConfigError: another process that bound the same port at the same time is listening already.
    """
    host, port = bound.getsockname()[:2]
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        raise _port_error(bound, f"{host}:{port}", error) from error


def _port_error(bound: socket.socket, address: str, error: OSError) -> ConfigError:
    bound.close()
    return ConfigError(f"{address}: {(error.strerror or str(error)).lower()}; give another --port")


def build_uvicorn_server(server: ModelServer) -> GracefulServer:
    """A server that is ready to run."""

    class Protocol(H11Protocol):
        """Closes connections also between two ticks: if all files are open, asyncio accepts none for a second."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > MAX_WAITING_CONNECTIONS + BACKLOG // 2:
                graceful.close_connections()

    # The middleware refuses complete headers of more than MAX_HEADER_BYTES. h11 refuses incomplete ones,
    # without our JSON, and so only at twice the size. httptools, which uvicorn prefers if it is installed, has
    # no such limit.
    config = uvicorn.Config(
        server.app, http=Protocol, h11_max_incomplete_event_size=2 * MAX_HEADER_BYTES, log_config=None,
        access_log=False, server_header=False, backlog=BACKLOG, timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(server.limits.seconds) + 1,
    )  # fmt: skip
    graceful = GracefulServer(config, server)
    return graceful


def serve(server: ModelServer, bound: socket.socket) -> None:
    """Serve until a signal stops the server."""
    build_uvicorn_server(server).run(sockets=[bound])

"""An object store that speaks S3 (moto's server), reached through a proxy that can break connections."""

import contextlib
import logging
import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

import pytest

BUCKET = "bucket"
PASSED = 20_000
"""Bytes about a file after which the proxy breaks a connection."""


class Connection(socketserver.BaseRequestHandler):
    """One connection of a client, and its connection to the store."""

    server: "Proxy"

    def handle(self) -> None:
        self.is_of_file, self.passed = False, 0
        with socket.create_connection(self.server.store) as self.store:
            answers = threading.Thread(target=self.answer)
            answers.start()
            with contextlib.suppress(OSError):  # broken
                while data := self.request.recv(1 << 12):
                    self.is_of_file = self.is_of_file or self.server.file in data
                    self.pass_on(data, self.store)
                self.store.shutdown(socket.SHUT_WR)
            answers.join()

    def answer(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.store.recv(1 << 12):
                self.pass_on(data, self.request)

    def pass_on(self, data: bytes, target: socket.socket) -> None:
        self.passed += len(data) if self.is_of_file else 0
        if self.passed > PASSED and self.server.breaks:
            self.server.breaks -= 1
            for side in (self.store, self.request):
                side.shutdown(socket.SHUT_RDWR)
        target.sendall(data)


class Proxy(socketserver.ThreadingTCPServer):
    """Passes everything on to a store, but breaks the connection in the middle of a file as often as asked.

    Attributes:
        file: the name of the file.
        breaks: how many connections that name it are still to be broken.
    """

    daemon_threads = True

    def __init__(self, store: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.store, self.file, self.breaks = store, b"", 0
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Proxy]]:
    """A new store with an empty bucket as a file system, and its proxy; fsspec's s3:// is this store."""
    s3fs = pytest.importorskip("s3fs", reason="the extra `remote` is not installed")
    moto = pytest.importorskip("moto.moto_server.threaded_moto_server", reason="moto[s3] is not installed")
    pytest.importorskip("flask_cors", reason="flask-cors is not installed, which moto's server needs")
    monkeypatch.setattr(logging.getLogger("werkzeug"), "disabled", True)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    proxy = Proxy(server.get_host_and_port())
    settings = {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{proxy.server_address[1]}", "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "only", "AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",  # s3fs tries again, too
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    store = s3fs.S3FileSystem()
    store.mkdir(BUCKET)
    yield store, proxy
    store.rm(BUCKET, recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()
    proxy.shutdown()
    proxy.server_close()
    server.stop()

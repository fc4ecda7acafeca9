"""`electra serve` as a process that is short of something: of time to end, of open files, of memory."""

import contextlib
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from small_model import write_model
from small_server import write_run
from waiting import LIMIT, until

from electra.serving.http.process import MAX_WAITING_CONNECTIONS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the shortages are made with Linux's means")

CLIENTS = 200
IDLE, OPEN_FILES = 5000, 1024
"""Connections that send nothing, and the files that many systems let a process open."""
MEMORY = 400 << 20
HELD = """
import sys, time
from pathlib import Path
from electra.cli import main
from electra.serving.http.hosted_model import HostedModel

began, may_go = map(Path, sys.argv[1:3])

def operations(self, made=HostedModel.operations):
    def score(texts, scorer=made(self)["score"]):
        began.touch()
        while not may_go.exists():
            time.sleep(0.01)
        return scorer(texts)
    return {"score": score}

HostedModel.operations = operations
sys.exit(main(sys.argv[3:]))
"""
"""A server whose model works when the second file is there; the first says that it has texts."""
FEW_FILES = f"""
import resource, sys
from electra.cli import main

resource.setrlimit(resource.RLIMIT_NOFILE, ({OPEN_FILES}, {OPEN_FILES}))
sys.exit(main(sys.argv[1:]))
"""
LITTLE_MEMORY = f"""
import resource, sys
from pathlib import Path
from electra.cli import main
from electra.serving.http import app, hosted_model, process  # all libraries are loaded before the limit is set

used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {MEMORY},) * 2)
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("serve") / "my-run")


@contextlib.contextmanager
def started(
    folder: Path, program: str, *arguments: str, log: Path
) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """The address of a server, which a program with these arguments starts, and its process."""
    command = [sys.executable, "-c", program, *arguments, "serve", str(folder), "--port", "0", "--threads", "1"]
    with (
        log.open("wb") as file,
        subprocess.Popen([*command, "--seconds", str(LIMIT)], cwd=log.parent, stdout=file, stderr=file) as process,
    ):
        try:
            until(lambda: process.poll() is not None or "serving on" in log.read_text())
            address = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
            assert address is not None, log.read_text()
            yield address[0], process
        finally:
            process.kill()


def ask(client: httpx.Client, texts: list[str]) -> httpx.Response:
    return client.post("/score", json={"texts": texts})


def test_a_sigterm_loses_no_accepted_request(run_folder: Path, tmp_path: Path) -> None:
    began, may_go, log = (tmp_path / name for name in ("began", "may-go", "log"))
    before = sorted(run_folder.rglob("*"))
    with (
        started(run_folder, HELD, str(began), str(may_go), log=log) as (address, process),
        httpx.Client(base_url=address, timeout=LIMIT, limits=httpx.Limits(max_connections=None)) as client,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        accepted = [pool.submit(ask, client, ["a dog"])]
        try:
            until(began.exists)  # the first is being computed; the others wait
            accepted += [pool.submit(ask, client, ["a dog"]) for _ in range(CLIENTS - 1)]
            until(lambda: f"electra_waiting_requests {CLIENTS - 1}.0" in client.get("/metrics").text)
            process.send_signal(signal.SIGTERM)
            until(lambda: client.get("/ready").status_code == 503)
            assert ask(client, ["too late"]).status_code == 503
            assert not any(one.done() for one in accepted)
        finally:
            may_go.touch()
        assert [one.result().status_code for one in accepted] == [200] * CLIENTS
        assert process.wait(LIMIT) == 0
    assert f"stopping after the accepted requests ({CLIENTS})" in log.read_text()
    assert sorted(run_folder.rglob("*")) == before and sorted(tmp_path.iterdir()) == [began, log, may_go], (
        "a server writes no file"
    )


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """Lets this process open a file for each connection."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = IDLE + 500
    if most != resource.RLIM_INFINITY and most < needed:
        pytest.skip(f"needs {needed:,} open files, and the system allows {most:,}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, needed), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.usefixtures("many_open_files")
def test_thousands_of_idle_connections_do_not_lock_others_out(run_folder: Path, tmp_path: Path) -> None:
    with (
        started(run_folder, FEW_FILES, log=tmp_path / "log") as (address, process),
        httpx.Client(base_url=address, timeout=LIMIT) as client,
        ExitStack() as stack,
    ):
        idle: list[socket.socket] = []
        host, _, port = address.removeprefix("http://").partition(":")
        while len(idle) < IDLE:
            for _ in range(100):  # fewer than the system accepts at once; it repeats others after a second
                idle.append(stack.enter_context(socket.create_connection((host, int(port)), LIMIT)))
                idle[-1].setblocking(False)
            assert client.get("/health").status_code == 200
        assert ask(client, ["a dog"]).status_code == 200
        with httpx.Client(base_url=address, timeout=LIMIT) as newcomer:
            assert ask(newcomer, ["a dog"]).status_code == 200
        until(lambda: sum(map(is_closed, idle)) >= IDLE - MAX_WAITING_CONNECTIONS)
        assert sum(map(is_closed, idle)) <= IDLE - MAX_WAITING_CONNECTIONS + 2, (
            "the clients' two are among the 512"
        )
        assert client.get("/health").status_code == 200 and process.poll() is None
    assert "rror" not in (tmp_path / "log").read_text()


def test_too_little_memory_is_an_error_of_one_request(tmp_path: Path) -> None:
    """A layer of this network needs 512 MiB for 2,048 tokens, which are computed together."""
    model = write_model(tmp_path / "wide", feed_forward_size=65_536)
    short, large = ["a dog"], ["a dog ate the cat " * 6] * 128
    with (
        started(model, LITTLE_MEMORY, log=tmp_path / "log") as (address, process),
        httpx.Client(base_url=address, timeout=LIMIT) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        for _ in range(2):
            answers = list(pool.map(lambda texts: ask(client, texts), [short, large, *[short] * 6]))
            assert [one.status_code for one in answers] == [200, 500, *[200] * 6]
            assert "the model failed on this request" in answers[1].json()["error"]
        assert client.get("/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
    assert "not enough memory" in (tmp_path / "log").read_text()

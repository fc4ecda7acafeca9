"""`electra serve` in a separate process: from its start to its graceful shutdown."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from small_server import write_run
from waiting import LIMIT

from electra.cli import main
from electra.commands.serve import ServeConfig, run
from electra.errors import ConfigError
from electra.serving.http import process


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("serve") / "my-run")


def test_a_process_serves_until_a_signal_stops_it(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "electra", "serve", str(run_folder), "--port", "0", "--token-file",
         str(tmp_path / "token"), "--threads", "1", "--allowed-host", "a.example", "--allowed-host", "b.example"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        lines = [process.stderr.readline(), process.stderr.readline()]
        assert lines[0] == "my-run: score, rescore, embed, proposals\n"
        address = re.search(r"http://127\.0\.0\.1:\d+", lines[1])
        assert address is not None, lines
        headers = {"Authorization": "Bearer abc"}
        with httpx.Client(
            base_url=address[0], timeout=LIMIT
        ) as client:  # no retries: it accepts connections before it logs this
            answer = client.post("/score", json={"texts": ["a dog"]}, headers=headers)
            assert answer.json()["results"][0]["tokens"] == ["a", "dog"]
            assert client.post("/score", json={"texts": ["a dog"]}).status_code == 401
            names = ("a.example", "b.example", "c.example")
            statuses = [client.get("/health", headers={"Host": name}).status_code for name in names]
            assert statuses == [200, 200, 421]
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_only_this_machine_reaches_a_server_by_default() -> None:
    config = ServeConfig("RUN")
    assert config.host == "127.0.0.1" and config.allowed_host == ()


@pytest.mark.parametrize(
    ("host", "token", "shown"), [("127.0.0.1", None, True), ("0.0.0.0", None, False), ("0.0.0.0", "abc", True)]
)
def test_texts_of_dev_are_not_shown_to_everyone_in_the_network(
    host: str, token: str | None, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(model: str, *, shows_dev: bool, **others: object) -> None:
        raise InterruptedError(str(shows_dev))

    monkeypatch.setattr("electra.serving.http.hosted_model.HostedModel", loaded)
    bound = process.bind_socket(host, 0)
    monkeypatch.setattr(process, "bind_socket", lambda *address: bound)
    monkeypatch.setattr(process, "load_token", lambda path: token)
    with bound, pytest.raises(InterruptedError, match=str(shown)):
        run(ServeConfig("RUN", host=host, port=0))


def test_mistakes_are_found_before_a_model_is_loaded(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "image").write_bytes(b"\xff\xd8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = [
            (["--port", "70000"], "--port: must be at least 0 and at most 65535, got 70000"),
            (
                ["--wait", "-1", "--texts", "0"],
                "--wait: must be at least 0 and at most 1000, got -1.0\n--texts: must be at least 1, got 0",
            ),
            (
                ["--allowed-host", "a.example", "--allowed-host", "http://a.example:80"],
                "--allowed-host: must be a host name without http:// and port, got 'http://a.example:80'",
            ),
            (["--port", port], f"127.0.0.1:{port}: address already in use; give another --port"),
            (["--host", "no.such.host.invalid"], "--host no.such.host.invalid: "),
            (["--token-file", str(tmp_path / "none")], "none: cannot be read: no such file or directory"),
            (["--token-file", str(tmp_path / "empty")], "empty: is empty; write the access token into it"),
            (["--token-file", str(tmp_path / "image")], "image: is not a text file"),
        ]
        for arguments, message in cases:
            assert main(["serve", str(run_folder), *arguments]) == 2
            shown = capsys.readouterr().err
            assert message in shown and "Errno" not in shown
    monkeypatch.setenv("ELECTRA_TOKEN", "two words")
    assert main(["serve", str(run_folder)]) == 2
    assert "ELECTRA_TOKEN: an access token is one word" in capsys.readouterr().err


def test_of_two_servers_that_start_at_once_on_one_port_one_fails() -> None:
    first = process.bind_socket("127.0.0.1", 0)
    with first, process.bind_socket("127.0.0.1", port := first.getsockname()[1]) as second:
        process.start_listening(first)
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: address already in use; give another --port"):
            process.start_listening(second)


def test_without_the_extra_it_says_what_to_install(
    run_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "fastapi" else True)
    assert main(["serve", str(run_folder)]) == 2
    assert 'needs fastapi; install the extra: pip install "electra[serve]"' in capsys.readouterr().err


def test_the_time_to_wait_for_requests_is_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def created(models: object, *, wait: float, **others: object) -> None:
        raise InterruptedError(f"{wait} seconds")

    monkeypatch.setattr("electra.serving.http.app.ModelServer", created)
    loaded = SimpleNamespace(max_length=8)
    monkeypatch.setattr("electra.serving.http.hosted_model.HostedModel", lambda *_, **__: loaded)
    bound = process.bind_socket("127.0.0.1", 0)
    monkeypatch.setattr(process, "bind_socket", lambda *address: bound)
    with bound, pytest.raises(InterruptedError, match=r"^0\.005 seconds"):
        run(ServeConfig("RUN", port=0, wait=5.0))

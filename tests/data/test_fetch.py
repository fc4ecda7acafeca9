"""Fetching prepared data through fsspec: from a memory file system and a web server."""

import functools
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pytest
from waiting import LIMIT

from electra.cli import main
from electra.commands.data.fetch import FetchConfig, run
from electra.data import fetch
from electra.data.fetch import fetch_data
from electra.data.shards import TokenData, write_manifest
from electra.errors import CheckpointError, ConfigError, DataError
from electra.preparation.config import PrepareConfig
from electra.preparation.run import prepare


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def there(data_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(data_folder, tmp_path / "there"))


@pytest.fixture
def server(there: Path) -> Iterator[str]:
    """The address of a local web server."""
    serving = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(there.parent)))
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{serving.server_port}/{there.name}"
    serving.shutdown()
    thread.join()
    serving.server_close()


def test_from_a_web_server(server: str, there: Path, tmp_path: Path) -> None:
    assert "tokens to train on" in run(FetchConfig(server, tmp_path / "here"))
    here, fingerprint = TokenData.open(tmp_path / "here"), TokenData.open(there).fingerprint
    assert here.fingerprint == fingerprint
    assert not list((tmp_path / "here").glob(".*"))


def test_from_an_object_store(there: Path, tmp_path: Path) -> None:
    """Simulated by the memory file system of fsspec."""
    store = fsspec.filesystem("memory")
    store.put(str(there), "/bucket/wiki", recursive=True)
    fetch_data("memory://bucket/wiki", tmp_path / "here")
    assert TokenData.open(tmp_path / "here").fingerprint == TokenData.open(there).fingerprint
    store.rm("/bucket", recursive=True)


def test_an_interrupted_fetch_resumes(there: Path, tmp_path: Path) -> None:
    lost = (there / "train-00000.tokens").rename(tmp_path / "lost")
    with pytest.raises(DataError, match=r"train-00000\.tokens: cannot be fetched \(there is no such file"):
        fetch_data(str(there), tmp_path / "here")
    assert not (tmp_path / "here/manifest.json").exists(), "it is no data yet"
    before = list((tmp_path / "here").iterdir())
    assert len(before) > 3
    for path in before:
        os.utime(path, ns=(0, 0))  # an old time, because a clock may be coarse
    (tmp_path / "here/heldout-00000.tokens").write_bytes(b"damaged")
    lost.rename(there / "train-00000.tokens")
    fetch_data(str(there), tmp_path / "here")
    TokenData.open(tmp_path / "here")
    assert {path.name for path in before if path.stat().st_mtime_ns} == {"heldout-00000.tokens"}


def test_progress_counts_the_files_that_are_here(
    there: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fetch_data(str(there), here := tmp_path / "here")
    for name in ("tokenizer.json", "unigram.npy"):
        (here / name).unlink()
    caplog.clear()
    with caplog.at_level("INFO"):
        fetch_data(str(there), here)
    counts = [record.progress for record in caplog.records if hasattr(record, "progress")]
    total = counts[0][1]
    assert (
        counts == [(total - 1, total), (total, total)] and f"{total - 2} of {total} files are here" in caplog.text
    )


def test_damage_at_the_source_is_named(there: Path, tmp_path: Path) -> None:
    content = bytearray((there / "train-00000.sentences").read_bytes())
    content[3] ^= 1
    (there / "train-00000.sentences").write_bytes(content)
    with pytest.raises(
        DataError, match=r"train-00000\.sentences: expected sha256 .* the file is damaged at the source"
    ):
        fetch_data(str(there), tmp_path / "here")
    assert not (tmp_path / "here/train-00000.sentences").exists()


@pytest.mark.parametrize("name", ["train-00000.tokens", "train-00000.sentences", "unigram.npy"])
def test_a_file_with_more_bytes_than_the_manifest_says_is_refused(there: Path, tmp_path: Path, name: str) -> None:
    size = (there / name).stat().st_size
    with (there / name).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(DataError, match=rf"{name}: expected {size:,} bytes at most, by the manifest.* restore"):
        fetch_data(str(there), tmp_path / "here")
    assert not [path for path in (tmp_path / "here").iterdir() if name in path.name]


def test_what_is_not_a_regular_file_is_refused(there: Path, tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    for end in (Path("/dev/null"), fifo):
        for name in ("train-00000.tokens", "manifest.sha256", "manifest.json"):
            content = (there / name).read_bytes()
            (there / name).unlink()
            (there / name).symlink_to(end)
            with pytest.raises(DataError, match=rf"{name}: cannot be fetched \(it is not a regular file"):
                fetch_data(str(there), tmp_path / "here")
            (there / name).unlink()
            (there / name).write_bytes(content)
    fetch_data(f"file://{there}", tmp_path / "here")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1, "9", None])
def test_sizes_in_the_manifest_must_be_whole_numbers(there: Path, tmp_path: Path, number: Any) -> None:
    for path in (("splits", "train", "shards", 0, "tokens"), ("tokenizer", "vocabulary_size")):
        manifest = record = json.loads((there / "manifest.json").read_text())
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = number
        write_manifest(other := Path(shutil.copytree(there, tmp_path / path[0])), manifest)
        with pytest.raises(DataError, match=r"manifest is incomplete or invalid .* is no number of items"):
            fetch_data(str(other), tmp_path / "here")


@pytest.mark.parametrize("where", ["..", "an absolute path"])
def test_nothing_is_written_outside_the_folder(there: Path, tmp_path: Path, where: str) -> None:
    (around := tmp_path / "around").mkdir()
    name = "../outside" if where == ".." else str(around / "outside")
    for file in there.glob("train-00000.*"):  # the source has such files
        copy = Path(f"{there}/{name}{file.suffix}")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    manifest = json.loads((there / "manifest.json").read_text())
    manifest["splits"]["train"]["shards"][0]["name"] = name
    (there / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="names a file that cannot be in its folder"):
        fetch_data(str(there), around / "here")
    assert list(around.iterdir()) == []


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (b"{", "not a manifest"), (b"[" * 100_000, "not a manifest"), (b"[]", "manifest is incomplete"),
        (b"\xff", "not a manifest"), (b'{"splits": 3}', "the manifest is incomplete or invalid"),
        (b" " * (1 << 26) + b"{}", "it has more than 64 MiB; it is no file of prepared data"),
    ],
)  # fmt: skip
def test_a_hostile_manifest_is_refused(there: Path, tmp_path: Path, manifest: bytes, message: str) -> None:
    (there / "manifest.json").write_bytes(manifest)
    with pytest.raises(DataError, match=message):
        fetch_data(str(there), tmp_path / "here")
    (there / "manifest.sha256").unlink()
    with pytest.raises(DataError, match="manifest"):
        TokenData.open(there)
    assert not (tmp_path / "here").exists()


def test_links_in_the_folder_are_replaced_and_not_followed(there: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (precious := tmp_path / "precious").write_text("precious")
    shutil.copy(there / "manifest.sha256", tmp_path / "here")
    (tmp_path / "here/train-00000.tokens").symlink_to(precious)
    (tmp_path / "here/manifest.json").symlink_to(tmp_path / "new")
    fetch_data(str(there), tmp_path / "here")
    assert precious.read_text() == "precious" and not (tmp_path / "new").exists()
    assert not any(path.is_symlink() for path in (tmp_path / "here").iterdir())


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("nowhere", "there is no such file"),
        ("http://127.0.0.1:9/data", "the connection is refused"),
        ("http://nowhere.invalid/data", "the host name is unknown"),
        ("nosuch://a/b", "Protocol not known: nosuch"),
    ],
)
def test_unreachable_sources(source: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", source, "--out", str(tmp_path / "here")]) == 2
    said = capsys.readouterr().err
    assert "manifest.json: cannot be fetched (" in said and why in said and "Error" not in said


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    assert main(["data", "fetch", "s3://bucket/data", "--out", str(tmp_path / "here")]) == 2
    assert 'pip install "electra[remote]"' in capsys.readouterr().err


def test_errors_of_a_server(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["data", "fetch", f"{server}/none", "--out", str(tmp_path / "here")]) == 2
    assert "(there is no such file)" in capsys.readouterr().err
    monkeypatch.setattr(Quiet, "do_GET", lambda self: self.send_error(403))
    assert main(["data", "fetch", server, "--out", str(tmp_path / "here")]) == 2
    assert "(the server answers with status 403)" in capsys.readouterr().err

    def breaks(self: Quiet) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"too little")

    monkeypatch.setattr(Quiet, "do_GET", breaks)
    assert main(["data", "fetch", server, "--out", str(tmp_path / "here")]) == 2
    assert "(the connection broke; give the same command again" in capsys.readouterr().err


@pytest.fixture
def other(data_folder: Path, tmp_path: Path) -> Path:
    """Other data with the same tokenizer."""
    (corpus := tmp_path / "corpus.txt").write_text("A fox follows the road.\n\nA sailor paints a boat.")
    out = tmp_path / "other"
    prepare(PrepareConfig((str(corpus),), out, tokenizer=data_folder / "tokenizer.json", workers=1))
    return out


def test_two_fetches_into_one_folder_do_not_mix(
    there: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes when the first has found the folder empty, and has written nothing yet."""
    here, checked, may_go = tmp_path / "here", threading.Event(), threading.Event()
    main_thread, check = threading.current_thread(), fetch._check_out

    def check_and_wait(*arguments: Any) -> None:
        check(*arguments)
        if threading.current_thread() is not main_thread:
            checked.set()
            assert may_go.wait(LIMIT)

    monkeypatch.setattr(fetch, "_check_out", check_and_wait)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(fetch_data, str(there), here)
        try:
            assert checked.wait(LIMIT)
            with pytest.raises(
                CheckpointError, match=r"is fetching data; wait for its end, or give another --out"
            ):
                fetch_data(str(other), here)
        finally:
            may_go.set()
        first.result(LIMIT)
    assert TokenData.open(here).fingerprint == TokenData.open(there).fingerprint
    assert not list(here.glob("taken.*"))


def test_other_data_in_the_folder_are_not_overwritten(there: Path, other: Path) -> None:
    def contents(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    before = contents(other)
    with pytest.raises(
        ConfigError, match=r"holds other data \(its fingerprint is \w{8}, that of the source \w{8}\)"
    ):
        fetch_data(str(there), other)
    (other / "manifest.json").unlink()
    with pytest.raises(ConfigError, match="holds a part of other data"):
        fetch_data(str(there), other)
    (other / "manifest.sha256").unlink()
    with pytest.raises(ConfigError, match="is not empty"):
        fetch_data(str(there), other)
    assert contents(other) == {name: before[name] for name in before if not name.startswith("manifest")}


def test_damaged_files_in_the_folder_are_replaced(there: Path, tmp_path: Path) -> None:
    fetch_data(str(there), tmp_path / "here")
    (tmp_path / "here/tags.json").write_text("{}")  # of `electra data tags`
    (tmp_path / "here/train-00000.tokens").write_bytes(b"damaged")
    fetch_data(str(there), tmp_path / "here")
    TokenData.open(tmp_path / "here")

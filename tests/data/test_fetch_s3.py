"""Fetching prepared data from a store that speaks S3; its connections break."""

from pathlib import Path
from typing import Any

import pytest
from object_store import BUCKET, Proxy

from electra.cli import main
from electra.data.fetch import fetch_data
from electra.data.shards import TokenData
from electra.errors import DataError

SOURCE = f"s3://{BUCKET}/wiki"
FILE = "train-00000.tokens"


@pytest.fixture
def proxy(object_store: tuple[Any, Proxy], data_folder: Path) -> Proxy:
    """The proxy of a store that has prepared data."""
    store, proxy = object_store
    store.put(str(data_folder), f"{BUCKET}/wiki", recursive=True)
    return proxy


@pytest.mark.usefixtures("proxy")
def test_the_command_fetches_all(data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", SOURCE, "--out", str(tmp_path / "here")]) == 0
    assert "tokens to train on" in capsys.readouterr().out
    assert TokenData.open(tmp_path / "here").fingerprint == TokenData.open(data_folder).fingerprint


def test_a_missing_shard_is_named(object_store: tuple[Any, Proxy], data_folder: Path, tmp_path: Path) -> None:
    store, _ = object_store
    store.put(str(data_folder), f"{BUCKET}/wiki", recursive=True)
    store.rm(f"{BUCKET}/wiki/{FILE}")
    with pytest.raises(DataError, match=rf"{SOURCE}/{FILE}: cannot be fetched \(there is no such file\)"):
        fetch_data(SOURCE, tmp_path / "here")
    assert not (tmp_path / "here/manifest.json").exists()
    store.put_file(str(data_folder / FILE), f"{BUCKET}/wiki/{FILE}")
    fetch_data(SOURCE, tmp_path / "here")
    TokenData.open(tmp_path / "here")


def test_a_connection_that_breaks_once_is_made_again(proxy: Proxy, tmp_path: Path) -> None:
    proxy.file, proxy.breaks = FILE.encode(), 1
    fetch_data(SOURCE, tmp_path / "here")
    assert proxy.breaks == 0
    TokenData.open(tmp_path / "here")


def test_a_connection_that_always_breaks_is_an_error_and_the_rest_is_kept(
    proxy: Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.file, proxy.breaks = FILE.encode(), 1000
    command = ["data", "fetch", SOURCE, "--out", str(tmp_path / "here")]
    assert main(command) == 2
    assert proxy.breaks < 1000
    assert f"{SOURCE}/{FILE}: cannot be fetched (the connection broke; give the same" in capsys.readouterr().err
    kept = [path.name for path in (tmp_path / "here").iterdir()]
    assert len(kept) > 3 and FILE not in kept and "manifest.json" not in kept
    proxy.breaks = 0
    assert main(command) == 0
    TokenData.open(tmp_path / "here")


@pytest.mark.usefixtures("proxy")
def test_errors_of_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    assert main(["data", "fetch", "s3://nowhere/wiki", "--out", str(tmp_path / "here")]) == 2
    assert "(there is no such bucket)" in capsys.readouterr().err
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3fs.S3FileSystem.clear_instance_cache()
    assert main(["data", "fetch", SOURCE, "--out", str(tmp_path / "here")]) == 2
    assert "(there are no credentials; set AWS_ACCESS_KEY_ID and" in capsys.readouterr().err

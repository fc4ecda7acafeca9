"""`electra data fetch`: prepared data from somewhere else, a file at a time, checked."""

import json
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import tyro

from electra import durable
from electra.data.shards import (
    CHECKSUM,
    MANIFEST,
    TOKENIZER,
    UNIGRAM_COUNTS,
    TokenData,
    file_sha256,
    read_manifest,
    shard_files,
)
from electra.errors import ConfigError, DataError

logger = logging.getLogger(__name__)

AT_ONCE = 8
"""Files that are on their way at the same time."""
REASONS = {
    ConnectionRefusedError: "the connection is refused: is a server running there?",
    socket.gaierror: "no host of that name is known",
    TimeoutError: "no answer came in time",
}
"""What keeps a server from being reached, in words."""


@dataclass(frozen=True)
class FetchConfig:
    """From where, and where to."""

    source: tyro.conf.Positional[str]
    """The folder of prepared data, as fsspec writes it: https://host/data, s3://bucket/data, gs://..., a path."""
    out: Path
    """The folder to write: a new one, or one with these data, of which what is whole is not fetched again."""


def run(config: FetchConfig) -> str:
    """Fetch prepared data from a web server or an object store (`pip install "electra[remote]"`), and check them.

    Every file is compared with its checksum in the manifest, which comes last: before that the folder is no data.
    The same command goes on where it was stopped.

    Examples:
        electra data fetch https://data.example/wiki --out DATA
        electra data fetch s3://bucket/wiki --out DATA
    """
    manifest, checksum = (_read(config.source, name) for name in (MANIFEST, CHECKSUM))
    files = _files(json.loads(manifest), config.source)
    _check_out(config.out, json.loads(manifest), checksum)
    config.out.mkdir(parents=True, exist_ok=True)
    if not (config.out / MANIFEST).is_file():  # the beginning of a folder must tell what it is of
        _put(config.out / CHECKSUM, checksum)
    missing = {name: sha256 for name, sha256 in files.items() if not _is_whole(config.out / name, sha256)}
    logger.info("%s of %s files are here", len(files) - len(missing), len(files))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        fetched = pool.map(partial(_fetch, config), missing.items())
        for number, name in enumerate(fetched, start=len(files) - len(missing) + 1):
            logger.info("fetched %s", name, extra={"progress": (number, len(files))})
    _put(config.out / CHECKSUM, checksum)
    _put(config.out / MANIFEST, manifest)
    data = TokenData.open(config.out, verify=False)
    return f"{config.out}: {data.train.tokens:,} tokens to train on, fingerprint {data.fingerprint}"


def _files(manifest: Any, source: str) -> dict[str, str]:
    """The checksum of each file, by name.

    Raises:
        DataError: the manifest is none, or names files outside its folder.
    """
    shards = shard_files(manifest, source)
    try:
        return {TOKENIZER: manifest["tokenizer"]["sha256"], UNIGRAM_COUNTS: manifest["unigram_counts"], **shards}
    except (KeyError, TypeError) as error:
        raise DataError(f"{source}: its manifest lacks or garbles {error}") from error


def _check_out(out: Path, manifest: dict[str, Any], checksum: bytes) -> None:
    """
    Raises:
        ConfigError: the folder holds anything but these data or the beginning of them.
        DataError: the manifest that is there is damaged.
    """
    if (out / MANIFEST).is_file():
        there, given = read_manifest(out).get("fingerprint"), manifest.get("fingerprint")
        if there != given:
            raise ConfigError(
                f"--out: {out} holds other data (fingerprint {str(there)[:8]} there, {str(given)[:8]} to be "
                "fetched); give a new folder"
            )
    elif (out / CHECKSUM).is_file():
        if (out / CHECKSUM).read_bytes() != checksum:
            raise ConfigError(f"--out: {out} holds the beginning of other data; give a new folder, or delete it")
    elif out.is_dir() and any(not path.match(".*.partial") for path in out.iterdir()):
        raise ConfigError(f"--out: {out} is not empty; give a new folder")


def _put(path: Path, content: bytes) -> None:
    if not path.is_file() or path.read_bytes() != content:
        durable.write(path, lambda partial: partial.write_bytes(content))


def _is_whole(path: Path, sha256: str) -> bool:
    return path.is_file() and file_sha256(path) == sha256


def _fetch(config: FetchConfig, file: tuple[str, str]) -> str:
    """Raises:
    DataError: it cannot be fetched, or is damaged.
    """
    name, sha256 = file

    def fetch(partial: Path) -> None:
        _copy(config.source, name, partial)
        if (found := file_sha256(partial)) != sha256:
            raise DataError(
                f"{config.source}/{name}: sha256 {sha256} expected, {found} fetched: it is damaged there"
            )

    durable.write(config.out / name, fetch)
    return name


def _read(source: str, name: str) -> bytes:
    try:
        with fsspec.open(f"{source.rstrip('/')}/{name}", "rb") as file:
            content: bytes = file.read()
            return content
    except Exception as error:  # whatever a network, a store or its library can raise
        raise DataError(f"{source}/{name}: cannot be fetched ({_why(error)})") from error


def _copy(source: str, name: str, target: Path) -> None:
    try:
        with fsspec.open(f"{source.rstrip('/')}/{name}", "rb") as file, target.open("wb") as written:
            while piece := file.read(1 << 22):
                written.write(piece)
    except OSError as error:
        if error.filename == str(target) or error.errno == 28:
            raise
        raise DataError(f"{source}/{name}: cannot be fetched ({_why(error)})") from error
    except Exception as error:
        raise DataError(f"{source}/{name}: cannot be fetched ({_why(error)})") from error


def _why(error: Exception) -> str:
    """In words. fsspec says "file not found" of whatever a web server does, and keeps the truth as the cause."""
    causes = list(_causes(error))
    for kind, words in REASONS.items():
        if any(isinstance(cause, kind) for cause in causes):
            return words
    if isinstance(error, ImportError):
        return f'{error}; pip install "electra[remote]"'
    first = causes[-1]
    status = getattr(first, "status", None)
    if isinstance(first, FileNotFoundError) or status == 404:
        return "there is no such file"
    if status:
        return f"the server answers with status {status}"
    return str(first).partition("\n")[0] or type(first).__name__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it was raised from, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

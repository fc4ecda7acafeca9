"""`electra data fetch`: prepared data from somewhere else, a file at a time, checked."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import tyro

from electra import durable
from electra.data.shards import CHECKSUM, MANIFEST, TOKENIZER, UNIGRAM_COUNTS, TokenData, file_sha256, shard_files
from electra.errors import DataError

logger = logging.getLogger(__name__)

AT_ONCE = 8
"""Files that are on their way at the same time."""


@dataclass(frozen=True)
class FetchConfig:
    """From where, and where to."""

    source: tyro.conf.Positional[str]
    """The folder of prepared data, as fsspec writes it: https://host/data, s3://bucket/data, gs://..., a path."""
    out: Path
    """The folder to write; what is there already and whole is not fetched again."""


def run(config: FetchConfig) -> str:
    """Fetch prepared data from a web server or an object store (`pip install 'electra[remote]'`), and check them.

    Every file is compared with its checksum in the manifest, which comes last: before that the folder is no data.
    The same command goes on where it was stopped.

    Examples:
        electra data fetch https://data.example/wiki --out DATA
        electra data fetch s3://bucket/wiki --out DATA
    """
    manifest = _read(config.source, MANIFEST)
    files = _files(json.loads(manifest), config.source)
    config.out.mkdir(parents=True, exist_ok=True)
    missing = {name: sha256 for name, sha256 in files.items() if not _is_whole(config.out / name, sha256)}
    logger.info("%s of %s files are here", len(files) - len(missing), len(files))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        fetched = pool.map(partial(_fetch, config), missing.items())
        for number, name in enumerate(fetched, start=len(files) - len(missing) + 1):
            logger.info("fetched %s", name, extra={"progress": (number, len(files))})
    durable.write(config.out / CHECKSUM, lambda path: path.write_bytes(_read(config.source, CHECKSUM)))
    durable.write(config.out / MANIFEST, lambda path: path.write_bytes(manifest))
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
    message = str(error).partition("\n")[0]
    if isinstance(error, ImportError):
        message += "; pip install 'electra[remote]'"
    return f"{type(error).__name__}: {message}"

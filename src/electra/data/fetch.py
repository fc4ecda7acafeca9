"""Fetch prepared data from a web server or an object store, file by file, and check them."""

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from electra import durable
from electra.data.shards import (
    CHECKSUM,
    MANIFEST,
    TOKENIZER,
    UNIGRAM_COUNTS,
    DataFile,
    TokenData,
    copy_at_most,
    counts_size,
    file_sha256,
    read_manifest,
    shard_files,
)
from electra.data.tokenizer import MAX_BYTES as MAX_TOKENIZER_BYTES
from electra.errors import ConfigError, DataError
from electra.folder_lock import hold, is_lock_file
from electra.json_files import MAX_BYTES

logger = logging.getLogger(__name__)

CONNECTIONS = 8
"""Number of files that are fetched at the same time."""
BROKEN = "the connection broke; give the same command again, it fetches what is missing"
REASONS = {
    "ConnectionRefusedError": "the connection is refused: is a server running there?",
    "gaierror": "the host name is unknown",
    "TimeoutError": "no answer in time",
    "ConnectionResetError": BROKEN,
    "ServerDisconnectedError": BROKEN,
    "ClientPayloadError": BROKEN,
    "NoSuchBucket": "there is no such bucket",
    "NoCredentialsError": "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
}
"""Why a file cannot be fetched, in words, by the name of the exception."""


def fetch_data(source: str, out: Path) -> TokenData:
    """Fetch prepared data and compare every file with its checksum in the manifest.

    The manifest is written last: before that, the folder is not complete. Files in `out` that are complete are not
    fetched again.

    Args:
        source: the folder of the data, as fsspec writes it: https://host/data, s3://bucket/data, gs://..., a path.
        out: a new folder, or one with (a part of) the same data.

    Raises:
        CheckpointError: another process works in `out`, or it cannot be written to.
        ConfigError: `out` holds something else.
        DataError: a file cannot be fetched, is damaged, or has more bytes than the manifest says.
    """
    content, checksum = (_read(source, name) for name in (MANIFEST, CHECKSUM))
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source}/{MANIFEST}: not a manifest ({error})") from error
    files = _files(manifest, source)
    with hold(out, work="fetching data"):
        _check_out(out, manifest, checksum)
        if not (out / MANIFEST).is_file():  # the checksum tells which data the unfinished folder holds
            _write(out / CHECKSUM, checksum)
        missing = {name: file for name, file in files.items() if not _is_complete(out / name, file.sha256)}
        complete = len(files) - len(missing)
        logger.info("%s of %s files are here", complete, len(files))
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            fetched = pool.map(partial(_fetch, source, out), missing.items())
            for number, name in enumerate(fetched, start=complete + 1):
                logger.info("fetched %s", name, extra={"progress": (number, len(files))})
        _write(out / CHECKSUM, checksum)
        _write(out / MANIFEST, content)
        return TokenData.open(out, verify=False)


def _files(manifest: Any, source: str) -> dict[str, DataFile]:
    """Return the files that the manifest names.

    Raises:
        DataError: the manifest is invalid, or names files outside its folder.
    """
    shards = shard_files(manifest, source)
    try:
        tokenizer = DataFile(manifest["tokenizer"]["sha256"], MAX_TOKENIZER_BYTES)
        counts = DataFile(manifest["unigram_counts"], counts_size(manifest))
        return {TOKENIZER: tokenizer, UNIGRAM_COUNTS: counts, **shards}
    except (KeyError, TypeError) as error:
        raise DataError(f"{source}: the manifest is incomplete or invalid ({error})") from error


def _check_out(out: Path, manifest: dict[str, Any], checksum: bytes) -> None:
    """
    Raises:
        ConfigError: the folder holds anything but these data or a part of them.
        DataError: the manifest in the folder is damaged.
    """
    if (out / MANIFEST).is_file():
        existing, expected = read_manifest(out).get("fingerprint"), manifest.get("fingerprint")
        if existing != expected:
            raise ConfigError(
                f"--out: {out} holds other data (its fingerprint is {str(existing)[:8]}, that of the source "
                f"{str(expected)[:8]}); give a new folder"
            )
    elif (out / CHECKSUM).is_file():
        if (out / CHECKSUM).read_bytes() != checksum:
            raise ConfigError(f"--out: {out} holds a part of other data; give a new folder, or delete it")
    elif any(not path.match(".*.partial") and not is_lock_file(path.name) for path in out.iterdir()):
        raise ConfigError(f"--out: {out} is not empty; give a new folder")


def _write(path: Path, content: bytes) -> None:
    if not path.is_file() or path.read_bytes() != content:
        durable.write(path, lambda partial: partial.write_bytes(content))


def _is_complete(path: Path, sha256: str) -> bool:
    return path.is_file() and file_sha256(path) == sha256


def _fetch(source: str, out: Path, file: tuple[str, DataFile]) -> str:
    """Fetch one file and return its name.

    Raises:
        DataError: it cannot be fetched, is damaged, or too large.
    """
    name, (sha256, size) = file

    def fetch(partial: Path) -> None:
        with _open(source, name, target=partial) as there:
            copy_at_most(there, partial, size, name=f"{source}/{name}")
        if (actual := file_sha256(partial)) != sha256:
            raise DataError(
                f"{source}/{name}: expected sha256 {sha256}, found {actual}: the file is damaged at the source"
            )

    durable.write(out / name, fetch)
    return name


def _read(source: str, name: str) -> bytes:
    with _open(source, name) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise DataError(f"{source}/{name}: it has more than {MAX_BYTES >> 20} MiB; it is no file of prepared data")
    return content


@contextmanager
def _open(source: str, name: str, *, target: Path | None = None) -> Iterator[IO[bytes]]:
    """Open a file of the source for the block.

    Args:
        target: where the block writes to; an error there is not one of the source.

    Raises:
        DataError: it cannot be opened or read, or is not a regular file.
    """
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    try:
        opened = fsspec.open(f"{source.rstrip('/')}/{name}", "rb")
        is_local = isinstance(opened.fs, LocalFileSystem)
        if is_local and (path := Path(opened.path)).exists() and not path.is_file():  # it may have no end
            raise OSError("it is not a regular file, but a folder, a pipe or a device; put the file itself there")
        with opened as file:
            yield file
    except DataError:
        raise
    except Exception as error:  # whatever a network, a store or its library can raise
        if isinstance(error, OSError) and (error.errno == 28 or error.filename == str(target)):
            raise
        raise DataError(f"{source}/{name}: cannot be fetched ({_explain(error)})") from error


def _explain(error: Exception) -> str:
    """Return the reason in words. fsspec says "file not found" for every error of a web server; the cause is
    kept."""
    causes = list(_causes(error))
    for kind, words in REASONS.items():
        if any(kind in [one.__name__ for one in type(cause).__mro__] for cause in causes):
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
    """Yield an error, the error that it was raised from, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

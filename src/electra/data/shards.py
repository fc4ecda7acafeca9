"""Token shards: a folder of memory-mapped token ids with sentence and document boundaries, and its manifest.

A shard NAME is several files with raw little-endian arrays:

    NAME.tokens      uint16, or uint32 for vocabularies above 65,536 entries; no special tokens
    NAME.sentences   int64, the END of each sentence, in tokens of this shard
    NAME.documents   int64, the END of each document, in sentences of this shard
    NAME.unigram     held-out only: NAME.tokens with 15% of the positions replaced by draws from the unigram
                     distribution of the training part, drawn once; `eval/unigram_auc` is measured on it

`manifest.json` is written last, so a folder that has one is complete.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from electra import durable
from electra.data.tokenizer import MAX_BYTES as MAX_TOKENIZER_BYTES
from electra.data.tokenizer import SpecialTokens
from electra.errors import DataError
from electra.json_files import MAX_BYTES, utf8

logger = logging.getLogger(__name__)

FORMAT = 1
MANIFEST = "manifest.json"
CHECKSUM = "manifest.sha256"
TOKENIZER = "tokenizer.json"
UNIGRAM_COUNTS = "unigram.npy"
SplitName = Literal["train", "heldout"]
SPLITS: tuple[SplitName, ...] = ("train", "heldout")
ENDS = np.dtype("<i8")
UNIGRAM_SHARE = 0.15
NPY_HEADER = 128
"""Bytes of a file of token counts before the counts."""
BLOCK = 1 << 22
"""Bytes that are copied at a time."""

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Ends = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """One shard, memory-mapped: reading a slice reads only that slice from disk."""

    name: str
    tokens: Tokens
    sentence_ends: Ends
    document_ends: Ends
    unigram: Tokens | None


@dataclass(frozen=True)
class Split:
    """The shards of the training or of the held-out part."""

    shards: list[Shard]

    @property
    def tokens(self) -> int:
        return sum(len(shard.tokens) for shard in self.shards)

    @property
    def sentences(self) -> int:
        return sum(len(shard.sentence_ends) for shard in self.shards)

    @property
    def documents(self) -> int:
        return sum(len(shard.document_ends) for shard in self.shards)

    @property
    def document_lengths(self) -> Ends:
        """Tokens of each document, (documents,)."""
        ends = [shard.sentence_ends[shard.document_ends - 1] for shard in self.shards if len(shard.document_ends)]
        return np.concatenate([np.diff(one, prepend=0) for one in ends]) if ends else np.zeros(0, np.int64)

    @property
    def sentence_lengths(self) -> Ends:
        """Tokens of each sentence, (sentences,)."""
        lengths = [np.diff(shard.sentence_ends, prepend=0) for shard in self.shards]
        return np.concatenate(lengths) if lengths else np.zeros(0, np.int64)


SHARD_FILE = re.compile(r"[\w-]{1,100}\.\w{1,20}")
"""Valid names of the files of shards."""


class DataFile(NamedTuple):
    """A file that a manifest names.

    Attributes:
        size: its bytes; of a file that is no part of a shard, at most.
    """

    sha256: str
    size: int


FileStamps = Mapping[str, list[int]]
"""By path: inode, bytes, and the times of the last changes of content and of inode in nanoseconds."""


@dataclass(frozen=True)
class TokenData:
    """Prepared data, opened for reading."""

    folder: Path
    manifest: dict[str, Any]
    special: SpecialTokens
    train: Split
    heldout: Split
    unigram_counts: Counts
    """How often each id occurs in the training part, (vocabulary_size,)."""
    stamps: FileStamps
    """Stamps of the files of the shards before they were opened."""

    @property
    def tokenizer_path(self) -> Path:
        return self.folder / TOKENIZER

    @property
    def vocabulary_size(self) -> int:
        return int(self.manifest["tokenizer"]["vocabulary_size"])

    @property
    def fingerprint(self) -> str:
        """The identity of the data: a sha256 over the tokenizer and every shard."""
        return str(self.manifest["fingerprint"])

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True, verified: FileStamps | None = None) -> "TokenData":
        """Open a folder of prepared data.

        Args:
            verify: read every file once and compare its sha256 with that in the manifest. Sizes are always
                compared.
            verified: `stamps` of files that were verified earlier. Files that have not changed since are not read
                again.

        Raises:
            DataError: the folder is not (or not completely) prepared, or files are missing or damaged; the message
                names all of them.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        if verify and not (folder / CHECKSUM).is_file():
            logger.warning(
                "%s: %s is missing, so changes of %s cannot be detected; if it was not changed: "
                "cd %s && sha256sum %s > %s",
                folder, CHECKSUM, MANIFEST, folder, MANIFEST, CHECKSUM,
            )  # fmt: skip
        stamps = _stamps(folder, manifest)
        try:
            dtype = _token_type(manifest)
            if damage := list(_find_damage(folder, manifest, dtype, verify, verified or {})):
                raise DataError("\n".join(damage) + f"\n  {_repair_hint(folder)}")
            splits = {
                split: Split(
                    [_open_shard(folder, record, dtype) for record in manifest["splits"][split]["shards"]]
                )
                for split in SPLITS
            }
            special = SpecialTokens(**manifest["tokenizer"]["special_tokens"])
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{folder / MANIFEST}: the manifest is incomplete or invalid ({error}); {_repair_hint(folder)}"
            ) from error
        try:
            counts = np.load(folder / UNIGRAM_COUNTS)
        except Exception as error:  # numpy parses the header as Python and raises many kinds of errors
            raise DataError(
                f"{folder / UNIGRAM_COUNTS}: cannot be read ({error}); {_repair_hint(folder)}"
            ) from error
        return cls(folder, manifest, special, splits["train"], splits["heldout"], counts, stamps)

    @property
    def mixture(self) -> tuple[tuple[int, float], ...]:
        """Number of training shards and weight of each part; empty: the data are not a mixture."""
        return tuple((part["shards"], part["weight"]) for part in self.manifest.get("mixture", ()))


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Read the manifest of a finished folder.

    Raises:
        DataError: there is none, it is unreadable, or its format is unknown to this version.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        state = (
            "its preparation is not finished: run the same `electra prepare` command again"
            if (path.parent / "progress.json").is_file()
            else "make it with `electra prepare CORPUS --out DATA`"
        )
        raise DataError(f"{path.parent}: no prepared data here ({MANIFEST} is missing); {state}")
    content = _read_at_most(path, MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise DataError(f"{path}: it has more than {MAX_BYTES >> 20} MiB; it is no manifest")
    checksum, line = path.with_name(CHECKSUM), _checksum_line(content).encode()
    # data that early versions prepared have none
    if checksum.is_file() and _read_at_most(checksum, len(line) + 1) != line:
        raise DataError(f"{path}: it is damaged, or {checksum.name} is; {_repair_hint(path.parent)}")
    try:
        manifest = json.loads(content.decode())
        version = manifest["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: not a manifest ({error!r}); {_repair_hint(path.parent)}") from error
    if version != FORMAT:
        raise DataError(f"{path}: format {version}, but this version of electra reads format {FORMAT}")
    return dict(manifest)


def _read_at_most(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def token_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """Return uint16 if every id fits, else uint32; little-endian."""
    return np.dtype("<u2" if vocabulary_size <= 1 << 16 else "<u4")


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, which is read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_at_most(file: IO[bytes], target: Path, size: int, *, name: str) -> None:
    """Copy the rest of an open file, which may be endless.

    Raises:
        DataError: it has more bytes than the manifest says; no more than those are written.
    """
    left = size
    with target.open("wb") as copy:
        while block := file.read(min(BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                raise DataError(
                    f"{name}: expected {size:,} bytes at most, by the manifest, and found more; restore the file, "
                    "or make these data again"
                )
            copy.write(block)


def fingerprint(tokenizer_sha256: str, splits: dict[str, Any]) -> str:
    """Return the sha256 over the hash of the tokenizer and all shard checksums, in order."""
    digest = hashlib.sha256(tokenizer_sha256.encode())
    for split in SPLITS:
        for record in splits[split]["shards"]:
            for kind in sorted(record["sha256"]):
                digest.update(f"{record['name']}.{kind}={record['sha256'][kind]};".encode())
    return digest.hexdigest()


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the checksum of a manifest, as `sha256sum -c` reads it, then the manifest, which finishes the
    folder."""
    content = utf8(json.dumps(manifest, indent=1, ensure_ascii=False))
    durable.write_text(folder / CHECKSUM, _checksum_line(content))
    durable.write(folder / MANIFEST, lambda partial: partial.write_bytes(content))


def _checksum_line(manifest: bytes) -> str:
    return f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n"


def _open_shard(folder: Path, record: dict[str, Any], dtype: np.dtype[Any]) -> Shard:
    name = record["name"]
    arrays: dict[str, Any] = {}
    for kind in record["sha256"]:
        length, item = _layout(record, kind, dtype)
        # An empty file cannot be mapped.
        arrays[kind] = np.memmap(folder / f"{name}.{kind}", item, mode="r") if length else np.zeros(0, item)
    return Shard(name, arrays["tokens"], arrays["sentences"], arrays["documents"], arrays.get("unigram"))


def _layout(record: dict[str, Any], kind: str, dtype: np.dtype[Any]) -> tuple[int, np.dtype[Any]]:
    """Return the number and the type of the items of a file of a shard."""
    length = _count(record["tokens" if kind == "unigram" else kind])
    return length, ENDS if kind in ("sentences", "documents") else dtype


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r:.50} is no number of items")
    return value


def _token_type(manifest: dict[str, Any]) -> np.dtype[Any]:
    if manifest["dtype"] not in ("uint16", "uint32"):
        raise TypeError(f"dtype {manifest['dtype']!r}")
    return np.dtype(manifest["dtype"]).newbyteorder("<")


def counts_size(manifest: dict[str, Any]) -> int:
    """Return the maximum bytes of the file of token counts."""
    return NPY_HEADER + np.dtype(np.int64).itemsize * _count(manifest["tokenizer"]["vocabulary_size"])


def shard_files(manifest: dict[str, Any], where: str | Path) -> dict[str, DataFile]:
    """Return the files of all shards, by name.

    Raises:
        DataError: the manifest lacks them, or a name is not one of a file in its folder.
    """
    try:
        records = [record for split in SPLITS for record in manifest["splits"][split]["shards"]]
        dtype, files = _token_type(manifest), {}
        for record in records:
            for kind, sha256 in record["sha256"].items():
                length, item = _layout(record, kind, dtype)
                files[f"{record['name']}.{kind}"] = DataFile(sha256, length * item.itemsize)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{where}: the manifest is incomplete or invalid ({error}); make the data again"
        ) from error
    if invalid := [name for name in files if not SHARD_FILE.fullmatch(name)]:
        raise DataError(f"{where}: the manifest names a file that cannot be in its folder: {invalid[0][:80]!r}")
    return files


def _stamps(folder: Path, manifest: dict[str, Any]) -> FileStamps:
    """Return the stamps of the existing files of the shards."""
    paths = [(folder / name).resolve() for name in shard_files(manifest, folder / MANIFEST)]
    return {str(path): _stamp(path) for path in paths if path.is_file()}


def _stamp(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _find_damage(
    folder: Path, manifest: dict[str, Any], dtype: np.dtype[Any], verify: bool, verified: FileStamps
) -> Iterator[str]:
    """Yield what is wrong with the files that a manifest names; all of them are checked."""
    for split in SPLITS:
        for record in manifest["splits"][split]["shards"]:
            for kind, checksum in record["sha256"].items():
                path = folder / f"{record['name']}.{kind}"
                length, item = _layout(record, kind, dtype)
                unchanged = path.is_file() and verified.get(str(path.resolve())) == _stamp(path)
                compare = verify and not unchanged
                yield from _check_file(path, length * item.itemsize, checksum if compare else None)
    yield from _check_file(folder / TOKENIZER, None, manifest["tokenizer"]["sha256"])
    counts = folder / UNIGRAM_COUNTS
    yield from _check_file(counts, None, manifest.get("unigram_counts"), most=counts_size(manifest))


def _check_file(
    path: Path, size: int | None, checksum: str | None, *, most: int = MAX_TOKENIZER_BYTES
) -> Iterator[str]:
    """
    Args:
        size: the bytes that the file must have; None: at most `most`.
    """
    if not path.is_file():
        yield f"{path}: " + ("it is not a regular file" if path.exists() else "the file is missing")
        return
    actual_size = path.stat().st_size
    if size is not None and actual_size != size:
        yield f"{path}: expected {size} bytes, found {actual_size}"
    elif size is None and actual_size > most:
        yield f"{path}: expected at most {most} bytes, found {actual_size}"
    elif checksum is not None and (actual := file_sha256(path)) != checksum:
        yield f"{path}: expected sha256 {checksum}, found {actual}: the file is damaged"


def _repair_hint(folder: Path) -> str:
    """Return how to repair damaged data. The command alone would regard the folder as finished."""
    return f"delete {folder}, then repeat the command that made it"

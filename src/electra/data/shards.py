"""Token shards: a folder of memory-mapped token ids with sentence and document boundaries, and its manifest.

A shard NAME is raw little-endian arrays side by side:

    NAME.tokens      uint16, or uint32 for vocabularies above 65,536 entries; no special tokens
    NAME.sentences   int64, the END of each sentence, in tokens of this shard
    NAME.documents   int64, the END of each document, in sentences of this shard
    NAME.unigram     held-out only: NAME.tokens with 15 % of the positions replaced by draws from the training
                     part's unigram distribution, drawn once; the fixed yardstick of `eval/unigram_auc`

`manifest.json` is written last, so a folder with one is complete.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from electra import durable
from electra.data.tokenizer import SpecialTokens
from electra.errors import DataError

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


PLAIN = re.compile(r"[\w-]{1,100}\.\w{1,20}")
"""What a shard's file may be called."""
Stamps = Mapping[str, list[int]]
"""Of files, by path: number, bytes, and nanoseconds of the last changes of content and of anything."""


@dataclass(frozen=True)
class TokenData:
    """What `electra prepare` wrote, opened for reading."""

    folder: Path
    manifest: dict[str, Any]
    special: SpecialTokens
    train: Split
    heldout: Split
    unigram_counts: Counts
    """How often each id stands in the training part, shape (vocabulary_size,)."""
    stamps: Stamps
    """Of the shards' files, by path, as they were before they were opened."""

    @property
    def tokenizer_path(self) -> Path:
        return self.folder / TOKENIZER

    @property
    def vocabulary_size(self) -> int:
        return int(self.manifest["tokenizer"]["vocabulary_size"])

    @property
    def fingerprint(self) -> str:
        """A sha256 over the tokenizer and every shard: the identity of the data."""
        return str(self.manifest["fingerprint"])

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True, found_whole: Stamps | None = None) -> "TokenData":
        """Opens a folder of shards.

        Args:
            verify: read every file once and compare its sha256 with the manifest's; sizes always are.
            found_whole: `stamps` of an earlier time at which that was done: files that have not been written
                since are not read again.

        Raises:
            DataError: when the folder is not (or not completely) prepared, or files are missing or damaged; all
                of them are named.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        if verify and not (folder / CHECKSUM).is_file():
            logger.warning(
                "%s: %s is missing, so nothing tells whether %s was changed; if it was not: "
                "cd %s && sha256sum %s > %s",
                folder, CHECKSUM, MANIFEST, folder, MANIFEST, CHECKSUM,
            )  # fmt: skip
        stamps = _stamps(folder, manifest)
        try:
            dtype = np.dtype(manifest["dtype"]).newbyteorder("<")
            if faults := list(_faults(folder, manifest, dtype, verify, found_whole or {})):
                raise DataError("\n".join(faults) + f"\n  {_anew(folder)}")
            splits = {
                split: Split(
                    [_open_shard(folder, record, dtype) for record in manifest["splits"][split]["shards"]]
                )
                for split in SPLITS
            }
            special = SpecialTokens(**manifest["tokenizer"]["special_tokens"])
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{folder / MANIFEST}: the manifest lacks or garbles {error}; {_anew(folder)}"
            ) from error
        try:
            counts = np.load(folder / UNIGRAM_COUNTS)
        except Exception as error:  # its header is parsed as Python is, with as many errors
            raise DataError(f"{folder / UNIGRAM_COUNTS}: cannot be read ({error}); {_anew(folder)}") from error
        return cls(folder, manifest, special, splits["train"], splits["heldout"], counts, stamps)

    @property
    def mixture(self) -> tuple[tuple[int, float], ...]:
        """The training shards of each part, and the weight that its rows have; empty: all rows are alike."""
        return tuple((part["shards"], part["weight"]) for part in self.manifest.get("mixture", ()))


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a finished folder.

    Raises:
        DataError: when there is none, it is unreadable, or of a format that this version does not know.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        state = (
            "its preparation was not finished: run the same `electra prepare` again"
            if (path.parent / "progress.json").is_file()
            else "make it with `electra prepare CORPUS --out DATA`"
        )
        raise DataError(f"{path.parent}: no prepared data here ({MANIFEST} is missing); {state}")
    checksum = path.with_name(CHECKSUM)  # data that were prepared by early versions have none
    if checksum.is_file() and checksum.read_bytes() != _checksum_line(path.read_bytes()).encode():
        raise DataError(f"{path}: it is damaged, or {checksum.name} is; {_anew(path.parent)}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version = manifest["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: not a manifest ({error!r}); {_anew(path.parent)}") from error
    if version != FORMAT:
        raise DataError(f"{path}: format {version}, but this version of electra reads format {FORMAT}")
    return dict(manifest)


def token_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """uint16 where every id fits, else uint32; little-endian."""
    return np.dtype("<u2" if vocabulary_size <= 1 << 16 else "<u4")


def file_sha256(path: Path) -> str:
    """The sha256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(tokenizer_sha256: str, splits: dict[str, Any]) -> str:
    """The sha256 over the tokenizer's hash and all shard checksums, in order."""
    digest = hashlib.sha256(tokenizer_sha256.encode())
    for split in SPLITS:
        for record in splits[split]["shards"]:
            for kind in sorted(record["sha256"]):
                digest.update(f"{record['name']}.{kind}={record['sha256'][kind]};".encode())
    return digest.hexdigest()


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Writes the checksum of a manifest, as `sha256sum -c` reads it, then the manifest: the folder is finished."""
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    line = _checksum_line(text.encode())
    durable.write_text(folder / CHECKSUM, line)
    durable.write_text(folder / MANIFEST, text)


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
    """How many items a shard's file has, and of what type."""
    return record["tokens" if kind == "unigram" else kind], ENDS if kind in ("sentences", "documents") else dtype


def shard_files(manifest: dict[str, Any], where: str | Path) -> dict[str, str]:
    """The files of all shards and their checksums.

    Raises:
        DataError: the manifest lacks them, or names what cannot be a file beside it.
    """
    try:
        found = {
            f"{record['name']}.{kind}": sha256
            for split in SPLITS
            for record in manifest["splits"][split]["shards"]
            for kind, sha256 in record["sha256"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{where}: the manifest lacks or garbles {error}; make the data again") from error
    if odd := [name for name in found if not PLAIN.fullmatch(name)]:
        raise DataError(f"{where}: the manifest names a file that cannot be beside it: {odd[0][:80]!r}")
    return found


def _stamps(folder: Path, manifest: dict[str, Any]) -> Stamps:
    """Of those files that there are."""
    paths = [(folder / name).resolve() for name in shard_files(manifest, folder / MANIFEST)]
    return {str(path): _stamp(path) for path in paths if path.is_file()}


def _stamp(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _faults(
    folder: Path, manifest: dict[str, Any], dtype: np.dtype[Any], verify: bool, found_whole: Stamps
) -> Iterator[str]:
    """What is wrong with the files that a manifest names; all are looked at."""
    for split in SPLITS:
        for record in manifest["splits"][split]["shards"]:
            for kind, checksum in record["sha256"].items():
                path = folder / f"{record['name']}.{kind}"
                length, item = _layout(record, kind, dtype)
                wanted = verify and not (path.is_file() and found_whole.get(str(path.resolve())) == _stamp(path))
                yield from _fault(path, length * item.itemsize, checksum if wanted else None)
    yield from _fault(folder / TOKENIZER, None, manifest["tokenizer"]["sha256"])
    yield from _fault(folder / UNIGRAM_COUNTS, None, manifest.get("unigram_counts"))


def _fault(path: Path, size: int | None, checksum: str | None) -> Iterator[str]:
    if not path.is_file():
        yield f"{path}: the file is missing"
    elif size is not None and (found := path.stat().st_size) != size:
        yield f"{path}: {size} bytes expected, {found} found"
    elif checksum is not None and (actual := file_sha256(path)) != checksum:
        yield f"{path}: sha256 {checksum} expected, {actual} found: it is damaged"


def _anew(folder: Path) -> str:
    """What to do about damage: the command alone would take the folder for finished."""
    return f"delete {folder}, then repeat the command that made it"

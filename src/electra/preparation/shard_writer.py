"""Writing the shards of one split so that a killed run goes on where it last committed.

A growing shard is NAME.KIND.partial; once it is full it is synced, hashed and renamed. `commit` syncs and returns
how long everything is; a writer made from that state cuts off what came after it.
"""

import os
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from electra import durable
from electra.data.shards import ENDS, UNIGRAM_SHARE, Counts, SplitName, file_sha256
from electra.errors import DataError
from electra.preparation.encoding import Encoded

KINDS = ("tokens", "sentences", "documents")


class SplitWriter:
    """Appends encoded documents to shards of about `shard_tokens` tokens; a batch is never divided."""

    def __init__(
        self,
        folder: Path,
        split: SplitName,
        dtype: np.dtype[Any],
        shard_tokens: int,
        state: dict[str, Any] | None = None,
    ) -> None:
        """
        Args:
            state: what `commit` returned, to go on from there.

        Raises:
            DataError: when the files do not hold what the state says.
        """
        self.folder = folder
        self.split = split
        self.items = {"tokens": dtype, "sentences": ENDS, "documents": ENDS}
        self.shard_tokens = shard_tokens
        self.finished: list[dict[str, Any]] = list(state["finished"]) if state else []
        self._open(dict(state["open"]) if state else dict.fromkeys(KINDS, 0))

    def add(self, encoded: Encoded) -> bool:
        """Appends a batch; True when that filled a shard."""
        ends = encoded.sentence_ends + self.lengths["tokens"], encoded.document_ends + self.lengths["sentences"]
        for kind, array in zip(KINDS, (encoded.tokens, *ends), strict=True):
            self.files[kind].write(array.astype(self.items[kind], copy=False).data)
            self.lengths[kind] += len(array)
        if self.lengths["tokens"] < self.shard_tokens:
            return False
        self._close_shard()
        self._open(dict.fromkeys(KINDS, 0))
        return True

    def commit(self) -> dict[str, Any]:
        """Puts everything on the disk and returns the state, as JSON."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        return {"finished": list(self.finished), "open": dict(self.lengths)}

    def finish(self) -> list[dict[str, Any]]:
        """Closes the last shard; the manifest's records of all of them."""
        if self.lengths["documents"]:
            self._close_shard()
        else:
            self.close()
            for kind in KINDS:
                self._path(kind, partial=True).unlink()
        return self.finished

    def close(self) -> None:
        """Lets go of the open files and leaves them as they are."""
        for file in self.files.values():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _name(self) -> str:
        return f"{self.split}-{len(self.finished):05d}"

    def _path(self, kind: str, *, partial: bool) -> Path:
        return self.folder / (f"{self._name}.{kind}" + ".partial" * partial)

    def _open(self, lengths: dict[str, int]) -> None:
        self.lengths = lengths
        self.files: dict[str, IO[bytes]] = {}
        for kind in KINDS:
            path, full = self._path(kind, partial=True), self._path(kind, partial=False)
            if full.exists():  # it was finished after the last commit
                full.replace(path)
            size = lengths[kind] * self.items[kind].itemsize
            found = path.stat().st_size if path.exists() else 0
            if found < size:
                raise DataError(
                    f"{path}: {size} bytes expected, {found} found, so this preparation cannot go on; "
                    f"delete {self.folder} and run the command again"
                )
            path.touch()
            os.truncate(path, size)
            self.files[kind] = path.open("ab")

    def _close_shard(self) -> None:
        self.commit()
        self.close()
        counts = {kind: self.lengths[kind] for kind in reversed(KINDS)}
        checksums = {kind: file_sha256(self._path(kind, partial=True)) for kind in KINDS}
        for kind in KINDS:
            self._path(kind, partial=True).replace(self._path(kind, partial=False))
        durable.flush(self.folder)
        self.finished.append({"name": self._name, **counts, "sha256": checksums})


def count_tokens(folder: Path, records: list[dict[str, Any]], dtype: np.dtype[Any], size: int) -> Counts:
    """How often each id stands in some shards, shape (size,)."""
    counts = np.zeros(size, np.int64)
    for record in records:
        counts += np.bincount(np.fromfile(folder / f"{record['name']}.tokens", dtype), minlength=size)
    return counts


def write_counts(path: Path, counts: Counts) -> None:
    """Writes counts as .npy, whatever the name ends in."""
    with path.open("wb") as file:
        np.save(file, counts)


def write_unigram_fakes(
    folder: Path, record: dict[str, Any], *, dtype: np.dtype[Any], counts: Counts, special: tuple[int, ...]
) -> None:
    """Writes NAME.unigram beside a held-out shard and adds its checksum to the shard's record.

    `UNIGRAM_SHARE` of the positions get a draw from the distribution of `counts` without the special tokens. A
    draw may be the original token, which then counts as original. The seed comes from the tokens, so the same
    data always has the same fakes.
    """
    random = np.random.default_rng(int(record["sha256"]["tokens"][:16], 16))
    path = folder / f"{record['name']}.tokens"
    tokens = np.fromfile(path, dtype)
    weights = counts.astype(np.float64)
    weights[list(special)] = 0
    if weights.sum() > 0:
        chosen = random.choice(len(tokens), round(UNIGRAM_SHARE * len(tokens)), replace=False)
        tokens[chosen] = random.choice(len(weights), len(chosen), p=weights / weights.sum())
    path = path.with_suffix(".unigram")
    durable.write(path, tokens.tofile)
    record["sha256"]["unigram"] = file_sha256(path)

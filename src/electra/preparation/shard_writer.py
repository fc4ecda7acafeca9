"""Write the shards of one split so that a killed run can resume from its last commit.

A growing shard is NAME.KIND.partial; when it is full it is synced, hashed and renamed. `commit` syncs the files
and returns their lengths; a writer made from that state removes what was written after it.
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
    """Appends encoded documents to shards of about `shard_tokens` tokens; a batch is never split."""

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
            state: what `commit` returned, to resume from there.

        Raises:
            DataError: the files do not hold what the state says.
        """
        self.folder = folder
        self.split = split
        self.items = {"tokens": dtype, "sentences": ENDS, "documents": ENDS}
        self.shard_tokens = shard_tokens
        self.finished: list[dict[str, Any]] = list(state["finished"]) if state else []
        self._open(dict(state["open"]) if state else dict.fromkeys(KINDS, 0))

    def add(self, encoded: Encoded) -> bool:
        """Append a batch; True when that filled a shard."""
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
        """Sync everything to the disk and return the state, as JSON."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        return {"finished": list(self.finished), "open": dict(self.lengths)}

    def finish(self) -> list[dict[str, Any]]:
        """Close the last shard and return the records of all shards for the manifest."""
        if self.lengths["documents"]:
            self._close_shard()
        else:
            self.close()
            for kind in KINDS:
                self._path(kind, partial=True).unlink()
        return self.finished

    def close(self) -> None:
        """Close the open files and leave them as they are."""
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
            current_size = path.stat().st_size if path.exists() else 0
            if current_size < size:
                raise DataError(
                    f"{path}: expected {size} bytes, found {current_size}, so this preparation cannot resume; "
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
    """Return how often each id occurs in some shards, (size,)."""
    counts = np.zeros(size, np.int64)
    for record in records:
        counts += np.bincount(np.fromfile(folder / f"{record['name']}.tokens", dtype), minlength=size)
    return counts


def write_counts(path: Path, counts: Counts) -> None:
    """Write counts as .npy, whatever the ending of the name."""
    with path.open("wb") as file:
        np.save(file, counts)


def write_unigram_fakes(
    folder: Path, record: dict[str, Any], *, dtype: np.dtype[Any], counts: Counts, special: tuple[int, ...]
) -> None:
    """Write NAME.unigram next to a held-out shard and add its checksum to the record of the shard.

    At `UNIGRAM_SHARE` of the positions the token is drawn from the distribution of `counts` without the special
    tokens. It may be the original token, which then counts as original. The seed comes from the tokens, so the
    same data always have the same fakes.
    """
    random = np.random.default_rng(int(record["sha256"]["tokens"][:16], 16))
    path = folder / f"{record['name']}.tokens"
    tokens = np.fromfile(path, dtype)
    weights = counts.astype(np.float64)
    weights[list(special)] = 0
    if weights.sum() > 0:
        positions = random.choice(len(tokens), round(UNIGRAM_SHARE * len(tokens)), replace=False)
        tokens[positions] = random.choice(len(weights), len(positions), p=weights / weights.sum())
    path = path.with_suffix(".unigram")
    durable.write(path, tokens.tofile)
    record["sha256"]["unigram"] = file_sha256(path)

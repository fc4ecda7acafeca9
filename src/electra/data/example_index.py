"""The index of a split: where its examples are in its shards, in memory or, for much text, in files.

It takes about 32 bytes per example. The files are written once, shard by shard, so that memory does not grow with
the text. They are memory-mapped, so that a run that starts again reads only the rows of its steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from electra import durable
from electra.data.packing import PackingConfig, pack
from electra.data.sampling import shard_seed
from electra.data.shards import Shard, Split
from electra.data.spans import SPECIALS_ONE_SEGMENT, SPECIALS_TWO_SEGMENTS, PackedShard
from electra.errors import CheckpointError, DataError
from electra.json_files import read_json, write_json

logger = logging.getLogger(__name__)

INDEX = "index.json"
FORMAT = 1
"""Version of the files and of the packing rules."""
COLUMNS = {"pieces": ("<u4", 2), "segment_ends": ("<i8", 2), "lengths": ("<i4", 1)}
"""Type and width of each file; `pieces` are the spans."""


@dataclass(frozen=True)
class ExampleIndex:
    """The examples of a split.

    Attributes:
        spans: (spans, 2) start in its shard and length of every span.
        segment_ends: (examples, 2) where the spans of each segment end, as indices of `spans`.
        lengths: (examples,) tokens of each row, including [CLS] and [SEP].
        shard_ends: (shards,) number of examples up to the end of each shard.
    """

    spans: npt.NDArray[np.uint32]
    segment_ends: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]
    shard_ends: npt.NDArray[np.int64]


def build_index(split: Split, config: PackingConfig, *, seed: int) -> ExampleIndex:
    """Build the index of a split in memory.

    Raises:
        DataError: a shard is too large (2^32 tokens) or its boundaries contradict each other.
    """
    parts = list(_parts(split, config, seed))
    columns = {
        name: np.concatenate([_empty(name), *(part[name] for part in parts)]).view(np.ndarray) for name in COLUMNS
    }
    return _index(columns, np.cumsum([len(part["lengths"]) for part in parts], dtype=np.int64))


def _index(columns: dict[str, Any], shard_ends: npt.NDArray[np.int64]) -> ExampleIndex:
    return ExampleIndex(columns["pieces"], columns["segment_ends"], columns["lengths"], shard_ends)


def write_index(folder: Path, split: Split, config: PackingConfig, *, seed: int, data: str) -> None:
    """Write the index of a split to files.

    Args:
        data: the fingerprint of the data.

    Raises:
        DataError: as `build_index`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    counts = []
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / name).open("wb")) for name in COLUMNS}
        for number, part in enumerate(_parts(split, config, seed), start=1):
            for name, file in files.items():
                file.write(np.ascontiguousarray(part[name]).data)
            counts.append(len(part["lengths"]))
            logger.info("packing", extra={"progress": (number, len(split.shards))})
    for name in COLUMNS:
        durable.flush(folder / name)
    record = _key(config, seed, data) | {
        "past_last": np.cumsum(counts).tolist(),
        "bytes": {name: (folder / name).stat().st_size for name in COLUMNS},
    }
    write_json(folder / INDEX, record, indent=None)


def read_index(folder: Path, config: PackingConfig, *, seed: int, data: str) -> ExampleIndex | None:
    """Map the files of an index; None: there is no index of these data and settings, or a file is incomplete."""
    try:
        record = read_json(folder / INDEX)
        sizes = {name: (folder / name).stat().st_size for name in COLUMNS}
    except (OSError, CheckpointError):
        return None
    shard_ends, expected = record.pop("past_last", None), record.pop("bytes", None)
    if record != _key(config, seed, data) or expected != sizes:
        return None
    columns = {name: _map(folder / name, name) for name in COLUMNS}
    return _index(columns, np.array(shard_ends, dtype=np.int64))


def _key(config: PackingConfig, seed: int, data: str) -> dict[str, Any]:
    """Return what an index depends on."""
    return {"format": FORMAT, "packing": asdict(config), "seed": seed, "data": data}


def _map(path: Path, name: str) -> Any:
    if not path.stat().st_size:  # an empty file cannot be mapped
        return _empty(name)
    dtype, width = COLUMNS[name]
    column = np.memmap(path, dtype, mode="r").view(np.ndarray)  # slicing an array is faster than slicing a memmap
    return column.reshape(-1, width) if width > 1 else column


def _empty(name: str) -> npt.NDArray[Any]:
    dtype, width = COLUMNS[name]
    return np.empty((0, width) if width > 1 else 0, dtype)


def _parts(split: Split, config: PackingConfig, seed: int) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield the columns, shard by shard."""
    before = 0
    for number, shard in enumerate(split.shards):
        packed = _pack(shard, config, seed=shard_seed(seed, number))
        columns = {
            "pieces": packed.spans,
            "segment_ends": packed.segment_ends + before,
            "lengths": _lengths(packed, config),
        }
        yield {name: column.astype(COLUMNS[name][0], copy=False) for name, column in columns.items()}
        before += len(packed.spans)


def _lengths(packed: PackedShard, config: PackingConfig) -> npt.NDArray[np.int64]:
    if config.streams:
        return np.full(len(packed.segment_ends), config.sequence_length)
    tokens = np.concatenate([[0], np.cumsum(packed.spans[:, 1])])
    ends = tokens[packed.segment_ends]
    starts = np.concatenate([[0], ends[:-1, 1]])
    special = np.where(ends[:, 0] < ends[:, 1], SPECIALS_TWO_SEGMENTS, SPECIALS_ONE_SEGMENT)
    if config.packs_documents:
        special *= np.diff(packed.segment_ends[:, 1], prepend=0)
    if config.separates_documents:
        special += np.diff(packed.segment_ends[:, 1], prepend=0) - 1
    return ends[:, 1] - starts + special


def _pack(shard: Shard, config: PackingConfig, *, seed: int) -> PackedShard:
    tokens = len(shard.tokens)
    if tokens > np.iinfo(np.uint32).max:
        raise DataError(
            f"shard {shard.name}: {tokens:,} tokens are too many (2^32 at most); prepare smaller shards"
        )
    if len(shard.sentence_ends) and int(shard.sentence_ends[-1]) != tokens:
        raise DataError(
            f"shard {shard.name}: its sentences end at token {int(shard.sentence_ends[-1]):,}, but it has "
            f"{tokens:,} tokens; prepare the data again"
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    return pack(shard.sentence_ends, shard.document_ends, config, rng=rng)

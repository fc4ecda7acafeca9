"""The last step of a preparation, when all shards are written: token counts, unigram fakes and the manifest."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from electra import __version__, durable
from electra.data.shards import (
    FORMAT,
    TOKENIZER,
    UNIGRAM_COUNTS,
    file_sha256,
    fingerprint,
    token_dtype,
    write_manifest,
)
from electra.data.tokenizer import describe_tokenizer, special_tokens
from electra.preparation.progress import Progress
from electra.preparation.report import find_warnings, vocabulary_warnings
from electra.preparation.shard_writer import count_tokens, write_counts, write_unigram_fakes


def finish_data(
    folder: Path,
    tokenizer: Tokenizer,
    records: dict[str, list[dict[str, Any]]],
    progress: Progress,
    *,
    started: float,
) -> dict[str, Any]:
    """Count tokens, draw the unigram fakes, and write the manifest, which makes a folder of shards complete.

    Args:
        records: the records of the finished shards, by split.
        progress: the counts of the whole preparation.
        started: the time of the beginning, by `time.monotonic`.

    Returns:
        The manifest.
    """
    assert progress.heldout is not None
    description = describe_tokenizer(tokenizer)
    dtype = token_dtype(description["vocabulary_size"])
    counts = count_tokens(folder, records["train"], dtype, description["vocabulary_size"])
    durable.write(folder / UNIGRAM_COUNTS, lambda path: write_counts(path, counts))
    special = special_tokens(tokenizer).ids
    for record in records["heldout"]:
        write_unigram_fakes(folder, record, dtype=dtype, counts=counts, special=special)
    splits = {
        split: {kind: sum(record[kind] for record in shards) for kind in ("documents", "sentences", "tokens")}
        | {"shards": shards}
        for split, shards in records.items()
    }
    statistics = _statistics(progress, tokens=splits["train"]["tokens"] + splits["heldout"]["tokens"])
    checksum = file_sha256(folder / TOKENIZER)
    manifest = {
        "format": FORMAT,
        "electra_version": __version__,
        "made": {
            "options": progress.options,
            "seconds": round(time.monotonic() - started, 3),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        },
        "tokenizer": {"sha256": checksum, **description},
        "dtype": "uint16" if dtype.itemsize == 2 else "uint32",
        "splits": splits,
        "statistics": statistics,
        "warnings": [
            *vocabulary_warnings(
                tokenizer, statistics["unknown_share"], asked=progress.options.get("vocabulary_size")
            ),
            *find_warnings(statistics, splits, tail=progress.heldout.tail_of is not None),
        ],
        "unigram_counts": file_sha256(folder / UNIGRAM_COUNTS),
        "fingerprint": fingerprint(checksum, splits),
    }
    write_manifest(folder, manifest)
    return manifest


def _statistics(progress: Progress, *, tokens: int) -> dict[str, Any]:
    return {
        "documents": progress.documents,
        "characters": progress.characters,
        "tokens": tokens,
        "characters_per_token": progress.characters / tokens,
        "unknown_share": progress.unknown / tokens,
        "duplicate_share": progress.duplicates.share,
        "rejects": progress.rejects,
        "left_out": dict(progress.left_out),
    }

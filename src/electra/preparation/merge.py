"""Merge folders of prepared data into one, as a whole or as a mixture of parts sampled by weight."""

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from electra import __version__, durable
from electra.data.mixture import BLOCK
from electra.data.shards import (
    FORMAT,
    MANIFEST,
    SPLITS,
    TOKENIZER,
    UNIGRAM_COUNTS,
    Counts,
    TokenData,
    copy_at_most,
    file_sha256,
    fingerprint,
    read_manifest,
    shard_files,
    token_dtype,
    write_manifest,
)
from electra.data.tokenizer import MAX_BYTES, describe_tokenizer, load_tokenizer
from electra.errors import ConfigError, DataError
from electra.folder_lock import hold, is_lock_file
from electra.preparation.shard_writer import write_counts, write_unigram_fakes

MERGE_FILES = re.compile(r"(train|heldout)-\d+\.\w+|tokenizer\.json|unigram\.npy|manifest\.sha256|\..*\.partial")
"""Files that a killed merge may have left; the manifest comes last."""
KINDS = ("documents", "sentences", "tokens")


@dataclass(frozen=True)
class MergeResult:
    """A folder of merged data.

    Attributes:
        reused: whether it existed already, so that nothing was done.
    """

    folder: Path
    manifest: dict[str, Any]
    reused: bool = False

    def __str__(self) -> str:
        train, heldout = (self.manifest["splits"][split] for split in SPLITS)
        documents, shards = self.manifest["statistics"]["documents"], len(train["shards"]) + len(heldout["shards"])
        return (
            f"{self.folder}: {documents:,} documents, {train['tokens']:,} tokens to train on and "
            f"{heldout['tokens']:,} held out, in {shards} shards" + "; already merged, nothing to do" * self.reused
        )


def merge_data(folders: Sequence[Path], out: Path, *, weights: tuple[float, ...] = ()) -> MergeResult:
    """Merge folders that were prepared with one tokenizer, after checking every file.

    Args:
        folders: in the order in which their shards are merged.
        out: a new folder, or one of an earlier merge of the same folders.
        weights: how often training samples from each folder. Empty: every row is equally likely.

    Raises:
        ConfigError: the arguments contradict each other, or `out` holds something else.
        DataError: the data are damaged, or cannot be merged.
    """
    _check_arguments(folders, weights)
    if (out / MANIFEST).is_file():
        return _check_finished(folders, out, weights)
    names = [path.name for path in out.iterdir()] if out.exists() else []
    if any(not MERGE_FILES.fullmatch(name) and not is_lock_file(name) for name in names):
        raise ConfigError(f"--out: {out} is not empty; give a new folder")
    parts = [TokenData.open(folder) for folder in folders]
    _check_parts(parts, weights)
    with hold(out, work="merging data"):
        if (out / MANIFEST).is_file():  # another process has finished them
            return _check_finished(folders, out, weights)
        return MergeResult(out, _write_merged(out, parts, weights))


def _check_arguments(folders: Sequence[Path], weights: tuple[float, ...]) -> None:
    if len(folders) < 2:
        raise ConfigError("give at least two folders that `electra prepare` made")
    if weights and len(weights) != len(folders):
        raise ConfigError(f"--weights: got {len(weights)} weights for {len(folders)} folders; give one for each")
    if weights and len(folders) > BLOCK:
        raise ConfigError(f"--weights: at most {BLOCK:,} folders, got {len(folders):,}")
    if invalid := [weight for weight in weights if not 0 < weight < math.inf]:
        raise ConfigError(f"--weights: must be above 0, got {invalid[0]:g}")


def _check_finished(folders: Sequence[Path], out: Path, weights: tuple[float, ...]) -> MergeResult:
    """Return the data that are there already, if they were merged from the same folders with the same weights.

    Raises:
        ConfigError: they were not.
        DataError: their files are missing or damaged.
    """
    manifest = read_manifest(out)
    parts = [read_manifest(folder)["fingerprint"] for folder in folders]
    stored_weights = tuple(part["weight"] for part in manifest.get("mixture", ()))
    if manifest["made"].get("parts") != parts or stored_weights != weights:
        raise ConfigError(f"--out: {out} is not empty: it holds other parts, or other weights; give a new folder")
    TokenData.open(out)
    return MergeResult(out, manifest, reused=True)


def _check_parts(parts: list[TokenData], weights: tuple[float, ...]) -> None:
    first = parts[0].manifest
    for part in parts[1:]:
        if part.manifest["tokenizer"]["sha256"] != first["tokenizer"]["sha256"]:
            raise DataError(
                f"{part.folder}: another tokenizer than that of {parts[0].folder}; prepare it again with "
                f"--tokenizer {parts[0].tokenizer_path}"
            )
    if len({part.fingerprint for part in parts}) < len(parts):
        raise DataError("two of the folders hold the same data; give each folder once")
    if weights and (empty := [part.folder for part in parts if not part.train.tokens]):
        raise DataError(f"{empty[0]}: it has no text to train on; leave it out of the mixture")
    if mixtures := [part.folder for part in parts if part.mixture]:
        raise DataError(f"{mixtures[0]} is a mixture already; merge the folders that it was made from")


def _write_merged(out: Path, parts: list[TokenData], weights: tuple[float, ...]) -> dict[str, Any]:
    """Write the merged data and return their manifest."""
    durable.write(out / TOKENIZER, lambda path: _copy(parts[0].tokenizer_path, path, MAX_BYTES))
    counts = _mix_counts(parts, weights)
    durable.write(out / UNIGRAM_COUNTS, lambda path: write_counts(path, counts))
    special, dtype = parts[0].special.ids, token_dtype(parts[0].vocabulary_size)
    splits: dict[str, Any] = {}
    for split in SPLITS:
        records: list[dict[str, Any]] = []
        for part in parts:
            files = shard_files(part.manifest, part.folder / MANIFEST)
            for record in part.manifest["splits"][split]["shards"]:
                name = f"{split}-{len(records):05d}"
                checksums = {kind: value for kind, value in record["sha256"].items() if kind != "unigram"}
                for kind in checksums:
                    source = f"{record['name']}.{kind}"
                    _link(part.folder / source, out / f"{name}.{kind}", size=files[source].size)
                records.append({**record, "name": name, "sha256": checksums})
                if split == "heldout":  # the fakes are drawn by the frequencies of all parts together
                    write_unigram_fakes(out, records[-1], dtype=dtype, counts=counts, special=special)
        splits[split] = {kind: sum(record[kind] for record in records) for kind in KINDS} | {"shards": records}
    manifest = {
        "format": FORMAT,
        "electra_version": __version__,
        "made": {
            "options": {"merged": [str(part.folder) for part in parts]},
            "parts": [part.fingerprint for part in parts],
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        },
        "tokenizer": {
            "sha256": file_sha256(out / TOKENIZER), **describe_tokenizer(load_tokenizer(out / TOKENIZER)),
        },
        "dtype": parts[0].manifest["dtype"],
        "splits": splits,
        "statistics": _merge_statistics([part.manifest["statistics"] for part in parts]),
        "warnings": sorted({warning for part in parts for warning in part.manifest["warnings"]}),
        "unigram_counts": file_sha256(out / UNIGRAM_COUNTS),
    }  # fmt: skip
    manifest["fingerprint"] = fingerprint(manifest["tokenizer"]["sha256"], splits)
    if weights:
        manifest["mixture"] = [
            {"folder": str(part.folder), "shards": len(part.train.shards), "weight": weight}
            for part, weight in zip(parts, weights, strict=True)
        ]
        sizes_and_weights = [[part["shards"], part["weight"]] for part in manifest["mixture"]]
        identity = manifest["fingerprint"] + json.dumps(sizes_and_weights)
        manifest["fingerprint"] = hashlib.sha256(identity.encode()).hexdigest()
    write_manifest(out, manifest)
    return manifest


def _mix_counts(parts: list[TokenData], weights: tuple[float, ...]) -> Counts:
    """Return how often each id occurs in the training part, or would if the size of each part were its weight."""
    if not weights:
        return np.sum([part.unigram_counts for part in parts], axis=0, dtype=np.int64)
    tokens = np.array([part.train.tokens for part in parts], np.float64)
    factors = np.array(weights) / sum(weights) * tokens.sum() / np.maximum(tokens, 1)
    mixed = sum(factor * part.unigram_counts for factor, part in zip(factors, parts, strict=True))
    return np.ceil(mixed).astype(np.int64)


def _merge_statistics(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of the statistics, and the means of shares."""
    total = {name: sum(part[name] for part in parts) for name in ("documents", "characters", "tokens", "rejects")}
    left_out: Counter[str] = sum((Counter(part.get("left_out", {})) for part in parts), Counter())
    return {
        **total,
        "left_out": dict(left_out),
        "characters_per_token": total["characters"] / total["tokens"],
        "unknown_share": sum(part["unknown_share"] * part["tokens"] for part in parts) / total["tokens"],
        "duplicate_share": sum(part["duplicate_share"] * part["documents"] for part in parts) / total["documents"],
    }


def _link(source: Path, target: Path, *, size: int) -> None:
    """Link a file, or copy it where links are impossible. Of a symbolic link, its file is linked."""
    target.unlink(missing_ok=True)  # left by a merge that was killed
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without hard links
        durable.write(target, lambda path: _copy(source, path, size))


def _copy(source: Path, target: Path, size: int) -> None:
    """Copy a file whose size was checked: another program may still be writing to it."""
    with source.open("rb") as file:
        copy_at_most(file, target, size, name=str(source))

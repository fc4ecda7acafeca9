"""`electra data merge`: what several machines prepared becomes one folder."""

import hashlib
import json
import math
import os
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

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
    file_sha256,
    fingerprint,
    read_manifest,
    token_dtype,
    write_manifest,
)
from electra.data.tokenizer import describe_tokenizer, load_tokenizer
from electra.errors import ConfigError, DataError
from electra.preparation.shard_writer import write_counts, write_unigram_fakes

OURS = re.compile(r"(train|heldout)-\d+\.\w+|tokenizer\.json|unigram\.npy|manifest\.sha256|\..*\.partial")
"""What a merge that was killed may have left; the manifest comes last."""
KINDS = ("documents", "sentences", "tokens")


@dataclass(frozen=True)
class MergeConfig:
    """What to join, and where to."""

    parts: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="PART...", help_behavior_hint="(required)")
    ]
    """Folders that `electra prepare` made with one tokenizer, in the order that their shards are to have."""
    out: Path
    """The folder to write: a new one."""
    weights: tuple[float, ...] = ()
    """How often training draws from each part, one number a part (3 1: three rows of four are of the first). Left
    out: all rows are alike, so a part counts by its size."""


@dataclass(frozen=True)
class MergeResult:
    """A folder of merged data, and its manifest; `before` when it was there already and nothing was done."""

    folder: Path
    manifest: dict[str, Any]
    before: bool = False

    def __str__(self) -> str:
        train, heldout = (self.manifest["splits"][split] for split in SPLITS)
        documents, shards = self.manifest["statistics"]["documents"], len(train["shards"]) + len(heldout["shards"])
        return (
            f"{self.folder}: {documents:,} documents, {train['tokens']:,} tokens to train on and "
            f"{heldout['tokens']:,} held out, in {shards} shards"
            + "; were merged before, nothing to do"
            * self.before
        )


def run(config: MergeConfig) -> MergeResult:
    """Join folders that `electra prepare` made of parts of a corpus, on one machine or on many, into one.

    All parts must have been made with one tokenizer: train it once, and give it to every other `electra prepare`
    with --tokenizer. Shards are linked where the file system can, else copied; they are checked first. Documents
    that two parts have in common stay twice. With --weights the result is a mixture: each part has its share of
    the rows of training, whatever its size, and small ones come round more often. On data that were merged so
    before the same command does nothing.

    Examples:
        electra data merge PART-1 PART-2 PART-3 --out DATA
        electra data merge WIKIPEDIA BOOKS --weights 3 1 --out MIXTURE
    """
    if len(config.parts) < 2:
        raise ConfigError("electra data merge: give at least two folders that `electra prepare` made")
    if config.weights and len(config.weights) != len(config.parts):
        raise ConfigError(
            f"--weights: {len(config.weights)} numbers for {len(config.parts)} folders; give each one"
        )
    if config.weights and len(config.parts) > BLOCK:
        raise ConfigError(f"--weights: at most {BLOCK:,} parts, got {len(config.parts):,}")
    if bad := [weight for weight in config.weights if not 0 < weight < math.inf]:
        raise ConfigError(f"--weights: must be above 0, got {bad[0]:g}")
    if (config.out / MANIFEST).is_file():
        return _finished(config)
    if config.out.exists() and any(not OURS.fullmatch(path.name) for path in config.out.iterdir()):
        raise ConfigError(f"--out: {config.out} is not empty; give a new folder")
    parts = [TokenData.open(folder) for folder in config.parts]
    first = parts[0].manifest
    for part in parts[1:]:
        if part.manifest["tokenizer"]["sha256"] != first["tokenizer"]["sha256"]:
            raise DataError(
                f"{part.folder}: another tokenizer than that of {parts[0].folder}; prepare it again with "
                f"--tokenizer {parts[0].tokenizer_path}"
            )
    if len({part.fingerprint for part in parts}) < len(parts):
        raise DataError("electra data merge: two of the folders hold the same data")
    if config.weights and (empty := [part.folder for part in parts if not part.train.tokens]):
        raise DataError(f"{empty[0]}: has no text to train on; leave it out of the mixture")
    if mixed := [part.folder for part in parts if part.mixture]:
        raise DataError(f"{mixed[0]} is a mixture already; merge what it was made of")
    return MergeResult(config.out, _merged(config.out, parts, config.weights))


def _finished(config: MergeConfig) -> MergeResult:
    """What is there already, if it was merged of the same parts with the same weights.

    Raises:
        ConfigError: it was not.
        DataError: its files are missing or damaged.
    """
    before = read_manifest(config.out)
    parts = [read_manifest(folder)["fingerprint"] for folder in config.parts]
    weights = tuple(part["weight"] for part in before.get("mixture", ()))
    if before["made"].get("parts") != parts or weights != config.weights:
        raise ConfigError(
            f"--out: {config.out} is not empty: it holds data that were made otherwise; give a new folder"
        )
    TokenData.open(config.out)
    return MergeResult(config.out, before, before=True)


def _merged(out: Path, parts: list[TokenData], weights: tuple[float, ...]) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    durable.write(out / TOKENIZER, lambda path: shutil.copyfile(parts[0].tokenizer_path, path))
    counts = _counts(parts, weights)
    durable.write(out / UNIGRAM_COUNTS, lambda path: write_counts(path, counts))
    special, dtype = parts[0].special.ids, token_dtype(parts[0].vocabulary_size)
    splits: dict[str, Any] = {}
    for split in SPLITS:
        records: list[dict[str, Any]] = []
        for part in parts:
            for record in part.manifest["splits"][split]["shards"]:
                name = f"{split}-{len(records):05d}"
                checksums = {kind: value for kind, value in record["sha256"].items() if kind != "unigram"}
                for kind in checksums:
                    _link(part.folder / f"{record['name']}.{kind}", out / f"{name}.{kind}")
                records.append({**record, "name": name, "sha256": checksums})
                if split == "heldout":  # whose fakes are drawn by the frequencies of all parts together
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
        "statistics": _statistics([part.manifest["statistics"] for part in parts]),
        "warnings": sorted({warning for part in parts for warning in part.manifest["warnings"]}),
        "unigram_counts": file_sha256(out / UNIGRAM_COUNTS),
    }  # fmt: skip
    manifest["fingerprint"] = fingerprint(manifest["tokenizer"]["sha256"], splits)
    if weights:
        manifest["mixture"] = [
            {"folder": str(part.folder), "shards": len(part.train.shards), "weight": weight}
            for part, weight in zip(parts, weights, strict=True)
        ]
        parts_of_it = [[part["shards"], part["weight"]] for part in manifest["mixture"]]
        mixed = manifest["fingerprint"] + json.dumps(parts_of_it)
        manifest["fingerprint"] = hashlib.sha256(mixed.encode()).hexdigest()
    write_manifest(out, manifest)
    return manifest


def _counts(parts: list[TokenData], weights: tuple[float, ...]) -> Counts:
    """How often each id stands in the training part, or would if each part were as large as its weight says."""
    if not weights:
        return np.sum([part.unigram_counts for part in parts], axis=0, dtype=np.int64)
    tokens = np.array([part.train.tokens for part in parts], np.float64)
    factors = np.array(weights) / sum(weights) * tokens.sum() / np.maximum(tokens, 1)
    mixed = sum(factor * part.unigram_counts for factor, part in zip(factors, parts, strict=True))
    return np.ceil(mixed).astype(np.int64)


def _statistics(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums, and means over what they are shares of."""
    total = {name: sum(part[name] for part in parts) for name in ("documents", "characters", "tokens", "rejects")}
    left_out: Counter[str] = sum((Counter(part.get("left_out", {})) for part in parts), Counter())
    return {
        **total,
        "left_out": dict(left_out),
        "characters_per_token": total["characters"] / total["tokens"],
        "unknown_share": sum(part["unknown_share"] * part["tokens"] for part in parts) / total["tokens"],
        "duplicate_share": sum(part["duplicate_share"] * part["documents"] for part in parts) / total["documents"],
    }


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)  # of a merge that was killed
    try:
        os.link(source, target)
    except OSError:  # another file system, or one that knows no links
        durable.write(target, lambda path: shutil.copyfile(source, path))

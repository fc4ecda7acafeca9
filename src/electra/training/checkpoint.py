"""Checkpoints: written whole or not at all, verified when read, rotated.

A checkpoint is a folder `step-00001200` with everything that a run needs to go on and everything that a
person needs to use the weights elsewhere. It is written beside its place under another name, flushed to the
disk, and renamed; `state.json` holds the size and checksum of every other file.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from electra.errors import CheckpointError

logger = logging.getLogger(__name__)

STATE = "state.json"


@dataclass(frozen=True)
class CheckpointConfig:
    """When checkpoints are written and which are kept."""

    every: int = 0
    """Steps between checkpoints; 0: ten in a run."""
    keep: int = 2
    """How many of the latest are kept: at least 2, so that there is one before a damaged one."""
    milestone_every: int = 0
    """Checkpoints at multiples of this step are kept for good; 0: none but the last."""

    def problems(self) -> Iterator[str]:
        if self.keep < 2:
            yield f"keep: must be at least 2, so that there is one before a damaged one, got {self.keep}"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and found whole."""

    path: Path
    state: dict[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of one of its safetensors files."""
        return load_file(self.path / f"{name}.safetensors")


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, config: CheckpointConfig) -> None:
        self.folder, self.config = folder, config

    def save(
        self,
        step: int,
        tensors: Mapping[str, dict[str, Tensor]],
        *,
        state: dict[str, Any],
        texts: Mapping[str, str],
    ) -> Path:
        """Write the checkpoint of a step, then delete those that are no longer kept.

        Args:
            tensors: safetensors files by name, without the ending.
            state: anything that JSON can hold.
            texts: further files by name.

        Raises:
            CheckpointError: the disk is full or refuses; what was begun is removed, older ones stay.
        """
        path = self.folder / f"step-{step:08d}"
        partial = self.folder / f".{path.name}.partial"
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            for name, group in tensors.items():
                save_file(
                    {key: value.contiguous() for key, value in group.items()}, partial / f"{name}.safetensors"
                )
            for name, text in texts.items():
                (partial / name).write_text(text, encoding="utf-8")
            files = {file.name: _fingerprint(file) for file in sorted(partial.iterdir())}
            (partial / STATE).write_text(json.dumps({"step": step, "files": files, **state}, indent=1) + "\n")
            for file in [*partial.iterdir(), partial]:
                _flush(file)
            if path.exists():
                shutil.rmtree(path)
            partial.rename(path)
            _flush(self.folder)
        except Exception as error:
            # safetensors reports a full disk as an error of its own, so every kind is caught here
            shutil.rmtree(partial, ignore_errors=True)
            last = self.names()[-1:] or ["none"]
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to {self.folder}: {error}\n"
                f"  the last good checkpoint is {last[0]}; make room, then give the same command again"
            ) from error
        self._rotate(path.name)
        return path

    def names(self) -> list[str]:
        """The names of all checkpoints, oldest first."""
        return sorted(path.name for path in self.folder.glob("step-*") if path.is_dir())

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; damaged ones are named and passed over.

        Raises:
            CheckpointError: there are checkpoints, and none is whole.
        """
        names = self.names()
        for name in reversed(names):
            try:
                return read_checkpoint(self.folder / name)
            except CheckpointError as error:
                logger.warning("%s; going on with the checkpoint before it", error)
        if names:
            raise CheckpointError(
                f"none of the {len(names)} checkpoints in {self.folder} can be read; start another run beside it "
                "with --fresh"
            )
        return None

    def _rotate(self, newest: str) -> None:
        """Delete what is no longer kept. Damaged ones that lie beyond the newest do not count."""
        milestone = self.config.milestone_every
        names = [name for name in self.names() if name <= newest]
        for name in names[: -self.config.keep]:
            if not milestone or int(name.removeprefix("step-")) % milestone:
                shutil.rmtree(self.folder / name)
        for partial in self.folder.glob(".step-*.partial"):  # of a process that died while it wrote
            shutil.rmtree(partial, ignore_errors=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint, once all its files have the size and checksum that they were written with.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        files = state["files"]
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path / STATE} cannot be read: {error}") from error
    for name, expected in files.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{file} is missing")
        if file.stat().st_size != expected["bytes"]:
            raise CheckpointError(f"{file} is damaged: {file.stat().st_size} bytes of {expected['bytes']}")
        if _fingerprint(file) != expected:
            raise CheckpointError(f"{file} is damaged: its checksum differs from the one it was written with")
    return Checkpoint(path, state)


def _fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    return {"bytes": file.stat().st_size, "sha256": digest.hexdigest()}


def _flush(path: Path) -> None:
    """Make sure that a file or folder is on the disk before anything relies on it."""
    if os.name == "nt" and path.is_dir():  # Windows has no such thing for folders
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

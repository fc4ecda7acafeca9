"""Checkpoints: written atomically, verified when read, rotated.

A checkpoint is a folder `step-00001200` with everything that is needed to resume the run, and to use the weights
elsewhere. It is written under a temporary name, flushed to the disk, and renamed. `state.json` has the size and
checksum of every other file.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from electra.durable import MODE, flush
from electra.errors import CheckpointError
from electra.json_files import json_text
from electra.training.config import CheckpointConfig
from electra.training.sharding import OPTIMIZER_SEPARATOR, load_unsharded

logger = logging.getLogger(__name__)

STATE = "state.json"
MAX_NAME_LENGTH = 255
CHECKSUM = "state.sha256"
"""File with the checksum of state.json, in the format of `sha256sum -c`."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files were verified."""

    path: Path
    state: dict[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Read the tensors of `model`, `optimizer` or `memory` (possibly none), also from a sharded checkpoint.

        Raises:
            CheckpointError: the file is not a safetensors file.
        """
        file = self.path / f"{name}.safetensors"
        if file.is_file():
            try:
                return load_file(file)
            except (SafetensorError, ValueError) as error:
                raise CheckpointError(f"{file} cannot be read: {error}") from error
        if name == "memory":  # never sharded
            return {}
        return {
            key: value
            for key, value in load_unsharded(self.path).items()
            if (OPTIMIZER_SEPARATOR in key) == (name == "optimizer") and not key.startswith(MEMORY_PREFIX)
        }


MEMORY_PREFIX = "remembered/"
"""Prefix of the names of tensors that belong to a memory (see objectives/stream_memory.py)."""


class Checkpoints:
    """The checkpoints of a run.

    Args:
        warn: called with a message for every damaged checkpoint that is skipped.
    """

    def __init__(
        self, folder: Path, config: CheckpointConfig, *, warn: Callable[[str], object] = logger.warning
    ) -> None:
        self.folder, self.config, self.warn = folder, config, warn

    def save(
        self,
        step: int,
        write: Callable[[Path], None],
        *,
        state: dict[str, Any],
        texts: Mapping[str, str],
    ) -> Path:
        """Write the checkpoint of a step, then delete old checkpoints.

        Args:
            write: writes safetensors files to a folder.
            state: anything that JSON can represent.
            texts: further text files by name.

        Raises:
            CheckpointError: the checkpoint cannot be written (disk full). It is removed; older ones are kept.
        """
        path = self.folder / f"step-{step:08d}"
        partial = self.partial(step)
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            write(partial)
            for name, text in texts.items():
                (partial / name).write_text(text, encoding="utf-8")
            files = {file.name: _fingerprint(file) for file in sorted(partial.iterdir())}
            text = json_text({"step": step, "files": files, **state}, indent=1, ensure_ascii=True)
            (partial / STATE).write_text(text, encoding="utf-8")
            (partial / CHECKSUM).write_text(_checksum_line(text.encode()), encoding="utf-8")
            for file in partial.iterdir():
                file.chmod(MODE)
                flush(file)
            flush(partial)
            _remove(path)
            partial.rename(path)
            flush(self.folder)
        except Exception as error:
            # safetensors has its own exception for a full disk, so all kinds are caught.
            shutil.rmtree(partial, ignore_errors=True)
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to {self.folder}: {error}\n"
                f"  {self.describe_newest()}; make room, then give the same command again"
            ) from error
        self._rotate(path.name)
        return path

    def partial(self, step: int) -> Path:
        """The temporary folder of a checkpoint, before it is renamed."""
        return self.folder / f".step-{step:08d}.partial"

    def names(self) -> list[str]:
        """The names of all checkpoints, oldest first."""
        return sorted(path.name for path in self.folder.glob("step-*") if path.is_dir())

    def describe_newest(self) -> str:
        """A sentence about the newest checkpoint, for messages."""
        if names := self.names():
            return f"the last good checkpoint is {names[-1]} in {self.folder}"
        return "there is no checkpoint yet"

    def latest(self) -> Checkpoint | None:
        """Read the newest checkpoint that is not damaged; None: there is no checkpoint.

        Raises:
            CheckpointError: all checkpoints are damaged.
        """
        names = self.names()
        for name in reversed(names):
            try:
                return read_checkpoint(self.folder / name)
            except CheckpointError as error:
                self.warn(f"{error}; using the checkpoint before it")
        if names:
            raise CheckpointError(
                f"none of the {len(names)} checkpoints in {self.folder} can be read; start a new run with --fresh"
            )
        return None

    def _rotate(self, newest: str) -> None:
        """Delete old checkpoints. Damaged checkpoints of later steps do not count."""
        milestone = self.config.milestone_every
        names = [name for name in self.names() if name <= newest]
        for name in names[: -self.config.keep]:
            if not milestone or int(name.removeprefix("step-")) % milestone:
                _remove(self.folder / name)
        for partial in self.folder.glob(".step-*.partial"):  # from a process that died while writing
            shutil.rmtree(partial, ignore_errors=True)


def _remove(path: Path) -> None:
    """Rename a checkpoint, then delete it, so that a partly deleted one does not look like a checkpoint."""
    if path.exists():
        renamed = path.with_name(f".{path.name}.deleted.partial")
        shutil.rmtree(renamed, ignore_errors=True)
        path.rename(renamed)
        flush(path.parent)
        shutil.rmtree(renamed)


def write_tensors(folder: Path, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write groups of tensors to safetensors files, by name without the extension."""
    for name, group in groups.items():
        save_file({key: value.contiguous() for key, value in group.items()}, folder / f"{name}.safetensors")


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, and verify the size and checksum of all its files.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        content = (path / STATE).read_bytes()
        checksum = path / CHECKSUM  # checkpoints of early versions have none
        valid = not checksum.is_file() or checksum.read_bytes() == _checksum_line(content).encode()
    except OSError as error:
        raise CheckpointError(f"{path / STATE} cannot be read: {error}") from error
    if not valid:
        raise CheckpointError(f"{path / STATE} is damaged, or {CHECKSUM} is")
    try:
        state = json.loads(content)
        files = {name: (file["bytes"], file["sha256"]) for name, file in state["files"].items()}
    except KeyError as error:
        raise CheckpointError(f"{path / STATE} is damaged: it lacks {error}") from error
    except (TypeError, AttributeError) as error:
        raise CheckpointError(f"{path / STATE} is damaged: it is not the state of a checkpoint") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path / STATE} cannot be read: {error}") from error
    for name, expected in files.items():
        file = path / name
        if file.name != name or len(name) > MAX_NAME_LENGTH:
            raise CheckpointError(f"{path / STATE} is damaged: it has an impossible file name: {name[:80]!r}")
        if not file.is_file():
            raise CheckpointError(f"{file} is missing")
        if file.stat().st_size != expected[0]:
            raise CheckpointError(
                f"{file} is damaged: it has {file.stat().st_size} bytes instead of {expected[0]}"
            )
        if tuple(_fingerprint(file).values()) != expected:
            raise CheckpointError(f"{file} is damaged: its checksum differs from the one in {STATE}")
    return Checkpoint(path, state)


def _checksum_line(state: bytes) -> str:
    return f"{hashlib.sha256(state).hexdigest()}  {STATE}\n"


def _fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    return {"bytes": file.stat().st_size, "sha256": digest.hexdigest()}

"""Checkpoints: written whole or not at all, verified when read, rotated.

A checkpoint is a folder `step-00001200` with everything that a run needs to go on and everything that a
person needs to use the weights elsewhere. It is written beside its place under another name, flushed to the
disk, and renamed; `state.json` holds the size and checksum of every other file.
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
from electra.training.sharding import OF_OPTIMIZER, load_whole

logger = logging.getLogger(__name__)

STATE = "state.json"
LONGEST_NAME = 255
CHECKSUM = "state.sha256"
"""Of state.json, which has those of all other files; as `sha256sum -c` reads it."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and found whole."""

    path: Path
    state: dict[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of its `model` or `optimizer`, also where several processes wrote their parts of them; or of
        its `memory`, which may hold none.

        Raises:
            CheckpointError: the file is none of tensors.
        """
        file = self.path / f"{name}.safetensors"
        if file.is_file():
            try:
                return load_file(file)
            except (SafetensorError, ValueError) as error:
                raise CheckpointError(f"{file} cannot be read: {error}") from error
        if name == "memory":  # which the leader writes as a whole
            return {}
        found = load_whole(self.path)
        return {
            key: value
            for key, value in found.items()
            if (OF_OPTIMIZER in key) == (name == "optimizer") and not key.startswith(REMEMBERED)
        }


REMEMBERED = "remembered/"
"""Begins the name of a tensor that is neither a weight nor of the optimiser, but what is remembered of rows."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        warn: told of every damaged one that is passed over.
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
        """Write the checkpoint of a step, then delete those that are no longer kept.

        Args:
            write: writes safetensors files into the folder that it is given.
            state: anything that JSON can hold.
            texts: further files by name.

        Raises:
            CheckpointError: the disk is full or refuses; what was begun is removed, older ones stay.
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
            # safetensors reports a full disk as an error of its own, so every kind is caught here
            shutil.rmtree(partial, ignore_errors=True)
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to {self.folder}: {error}\n"
                f"  {self.newest()}; make room, then give the same command again"
            ) from error
        self._rotate(path.name)
        return path

    def partial(self, step: int) -> Path:
        """Where the checkpoint of a step is written before it is renamed."""
        return self.folder / f".step-{step:08d}.partial"

    def names(self) -> list[str]:
        """The names of all checkpoints, oldest first."""
        return sorted(path.name for path in self.folder.glob("step-*") if path.is_dir())

    def newest(self) -> str:
        """What to say of the newest one."""
        for name in self.names()[-1:]:
            return f"the last good checkpoint is {name} in {self.folder}"
        return "there is no checkpoint yet"

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
                self.warn(f"{error}; going on with the checkpoint before it")
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
                _remove(self.folder / name)
        for partial in self.folder.glob(".step-*.partial"):  # of a process that died while it wrote
            shutil.rmtree(partial, ignore_errors=True)


def _remove(path: Path) -> None:
    """Take a checkpoint's name away, then delete it: one that is half deleted must not look like one."""
    if path.exists():
        doomed = path.with_name(f".{path.name}.deleted.partial")
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        flush(path.parent)
        shutil.rmtree(doomed)


def write_tensors(folder: Path, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Safetensors files by name, without the ending."""
    for name, group in groups.items():
        save_file({key: value.contiguous() for key, value in group.items()}, folder / f"{name}.safetensors")


def read_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint, once all its files have the size and checksum that they were written with.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        content = (path / STATE).read_bytes()
        checksum = path / CHECKSUM  # those of early versions have none
        sound = not checksum.is_file() or checksum.read_bytes() == _checksum_line(content).encode()
    except OSError as error:
        raise CheckpointError(f"{path / STATE} cannot be read: {error}") from error
    if not sound:
        raise CheckpointError(f"{path / STATE} is damaged, or {CHECKSUM} is")
    try:
        state = json.loads(content)
        files = {name: (facts["bytes"], facts["sha256"]) for name, facts in state["files"].items()}
    except KeyError as error:
        raise CheckpointError(f"{path / STATE} is damaged: it lacks {error}") from error
    except (TypeError, AttributeError) as error:
        raise CheckpointError(f"{path / STATE} is damaged: it holds something else than a checkpoint's") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path / STATE} cannot be read: {error}") from error
    for name, expected in files.items():
        file = path / name
        if file.name != name or len(name) > LONGEST_NAME:
            raise CheckpointError(f"{path / STATE} names a file that cannot be its own: {name[:80]!r}")
        if not file.is_file():
            raise CheckpointError(f"{file} is missing")
        if file.stat().st_size != expected[0]:
            raise CheckpointError(f"{file} is damaged: {file.stat().st_size} bytes of {expected[0]}")
        if tuple(_fingerprint(file).values()) != expected:
            raise CheckpointError(f"{file} is damaged: its checksum differs from the one it was written with")
    return Checkpoint(path, state)


def _checksum_line(state: bytes) -> str:
    return f"{hashlib.sha256(state).hexdigest()}  {STATE}\n"


def _fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    return {"bytes": file.stat().st_size, "sha256": digest.hexdigest()}

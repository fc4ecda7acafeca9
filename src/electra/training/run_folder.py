"""A run's folder: the interface between the verbs, and the guard against mixing two runs up."""

import contextlib
import json
import logging
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from electra import __version__, durable
from electra.config import flat, load_config
from electra.errors import CheckpointError, ConfigError
from electra.json_files import read_json
from electra.training.distributed import rank, world_size

logger = logging.getLogger(__name__)

Config = TypeVar("Config")


@dataclass(frozen=True)
class RunFolder:
    """The places inside a run's folder."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    def log_of(self, rank: int) -> Path:
        """The log of one of several processes; rank 0, which leads, has that of the run."""
        return self.path / f"log-{rank}.txt" if rank else self.log

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def export(self) -> Path:
        return self.path / "export"

    @property
    def end(self) -> Path:
        """How the run ended, where it ended in order."""
        return self.path / "ended.json"

    @property
    def curves(self) -> Path:
        """The last file of a run that goes to its end."""
        return self.path / "curves.png"

    @property
    def card(self) -> Path:
        return self.path / "README.md"

    @property
    def trace(self) -> Path:
        return self.path / "profile" / "trace.json"

    @property
    def index(self) -> Path:
        """Where the examples of much text lie, packed once."""
        return self.path / "index"

    @property
    def verified(self) -> Path:
        """The files of the data as this machine found them whole."""
        return self.path / "verified" / f"{platform.node() or 'machine'}.json"

    def found_whole(self) -> dict[str, list[int]]:
        """What `verified` says; empty where there is nothing of the kind."""
        try:
            return read_json(self.verified, optional=True)
        except CheckpointError:
            return {}

    def write_rows(self, step: int, rows: list[dict[str, Any]]) -> str:
        """Keep what the batch of a step that was not finite was made of, each process its part; where, in here."""
        of_process = f"-{rank()}" if rank() else ""
        path = self.path / "not-finite" / f"step-{step:08d}{of_process}.jsonl"
        path.parent.mkdir(exist_ok=True)
        durable.write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        return path.relative_to(self.path).as_posix()


def open_run(path: Path, *, fresh: bool) -> RunFolder:
    """The folder of a run; with `fresh`, the first free one of PATH, PATH-2, PATH-3 … beside it.

    Raises:
        CheckpointError: the folder holds something that is no run.
    """
    if fresh:
        number, wanted = 1, path
        while path.exists():
            number += 1
            path = wanted.with_name(f"{wanted.name}-{number}")
    check_free(run := RunFolder(path))
    path.mkdir(parents=True, exist_ok=True)
    return run


def check_free(run: RunFolder) -> None:
    """Refuse a place where something lies that is no run.

    Raises:
        CheckpointError: it is a file, or a folder that holds something else.
    """
    path = run.path
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path} is a file; give another --out")
    if path.is_dir() and not run.config.exists():
        ours = {"log.txt", "environment.json", "taken.json", "ended.json", run.trace.parent.name}
        ours |= {run.index.name, run.verified.parent.name}
        names = sorted(file.name for file in path.iterdir())
        if others := [name for name in names if name not in ours and not _of_a_process(name)]:
            raise CheckpointError(
                f"{path} is not empty and holds no run (found {', '.join(others[:3])}); give another --out"
            )


def _of_a_process(name: str) -> bool:
    return name.endswith(".partial") or (name.startswith("log-") and name.endswith(".txt"))


def agree(run: RunFolder, wanted: Config, *, settled: Mapping[str, Any], ignore: tuple[str, ...]) -> Config:
    """The config of the run that is in the folder, once it is sure that the wanted one is the same.

    What may differ is as it is wanted now.

    Args:
        settled: settings that a run fills in by itself, with the value that leaves them open; a wanted config
            that leaves them open agrees with whatever the run chose.
        ignore: settings that do not change the result (where the data lies now).

    Raises:
        CheckpointError: naming each setting that differs; or the run's config cannot be read.
    """
    stored = stored_config(run, type(wanted))
    have, want = flat(stored), flat(wanted)
    differences = [
        f"{name}: the run has {have[name]!r}, asked for {want[name]!r}"
        for name in have
        if have[name] != want[name]
        and name not in ignore
        and not (name in settled and want[name] == settled[name])
    ]
    if differences:
        raise CheckpointError(
            f"{run.path} belongs to another config:\n"
            + "\n".join(f"  {difference}" for difference in differences)
            + "\n  go on with the old settings, give another --out, or start another run beside it with --fresh"
        )
    for name in ignore:
        stored = _with(stored, name, want[name])
    return stored


def stored_config(run: RunFolder, kind: type[Config]) -> Config:
    """The config that a run was begun with.

    Raises:
        CheckpointError: it cannot be read; naming a checkpoint's copy that can.
    """
    try:
        return load_config(kind, run.config)
    except ConfigError as error:
        for copy in sorted(run.checkpoints.glob(f"step-*/{run.config.name}"), reverse=True):
            with contextlib.suppress(ConfigError):
                load_config(kind, copy)
                raise CheckpointError(f"{error}\n  a checkpoint has a copy: cp {copy} {run.config}") from error
        raise


def _with(config: Config, name: str, value: Any) -> Config:
    """A config with another value of a setting, named `section.name` or `name`."""
    first, _, rest = name.partition(".")
    return replace(config, **{first: _with(getattr(config, first), rest, value) if rest else value})  # type: ignore[type-var]


def environment() -> dict[str, Any]:
    """What a result may depend on besides the config and the data."""
    facts: dict[str, Any] = {
        "electra": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "platform": platform.platform(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": world_size(),
    }
    if torch.cuda.is_available():
        facts["accelerator"] = torch.cuda.get_device_name()
    return facts

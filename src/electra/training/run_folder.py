"""A run's folder: the interface between the verbs, and the guard against mixing two runs up."""

import logging
import os
import platform
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from electra import __version__
from electra.config import flat, load_config
from electra.errors import CheckpointError

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

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def export(self) -> Path:
        return self.path / "export"

    @property
    def card(self) -> Path:
        return self.path / "README.md"

    @property
    def trace(self) -> Path:
        return self.path / "profile" / "trace.json"

    @staticmethod
    def write_text(path: Path, text: str) -> None:
        """Write one of these files whole or not at all."""
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")  # others may write here, too
        partial.write_text(text, encoding="utf-8")
        with partial.open("rb+") as stream:
            os.fsync(stream.fileno())
        partial.replace(path)


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
    run = RunFolder(path)
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path} is a file; give another --out")
    if path.is_dir() and not run.config.exists():
        ours = {"log.txt", "environment.json", run.trace.parent.name}
        names = sorted(file.name for file in path.iterdir())
        if others := [name for name in names if name not in ours and not name.endswith(".partial")]:
            raise CheckpointError(
                f"{path} is not empty and holds no run (found {', '.join(others[:3])}); give another --out"
            )
    path.mkdir(parents=True, exist_ok=True)
    return run


def agree(run: RunFolder, wanted: Config, *, settled: Mapping[str, Any], ignore: tuple[str, ...]) -> Config:
    """The config of the run that is in the folder, once it is sure that the wanted one is the same.

    Args:
        settled: settings that a run fills in by itself, with the value that leaves them open; a wanted config
            that leaves them open agrees with whatever the run chose.
        ignore: settings that do not change the result (where the data lies now).

    Raises:
        CheckpointError: naming each setting that differs.
    """
    stored = load_config(type(wanted), run.config)
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
    return stored


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
    }
    if torch.cuda.is_available():
        facts["accelerator"] = torch.cuda.get_device_name()
    return facts

"""The folder of a run: its files, and checks that a command does not mix two runs."""

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
from electra.config_fields import plain
from electra.errors import CheckpointError, ConfigError
from electra.folder_lock import is_lock_file
from electra.json_files import read_json
from electra.training.distributed import rank, world_size

logger = logging.getLogger(__name__)

Config = TypeVar("Config")


@dataclass(frozen=True)
class RunFolder:
    """The paths inside a run's folder."""

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

    def log_of_rank(self, rank: int) -> Path:
        """The log file of a process; rank 0 writes the log of the run."""
        return self.path / f"log-{rank}.txt" if rank else self.log

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def export(self) -> Path:
        return self.path / "export"

    @property
    def end(self) -> Path:
        """How the run ended; missing if its process was killed."""
        return self.path / "ended.json"

    @property
    def curves(self) -> Path:
        """The last file that a finished run writes."""
        return self.path / "curves.png"

    @property
    def card(self) -> Path:
        return self.path / "README.md"

    @property
    def trace(self) -> Path:
        return self.path / "profile" / "trace.json"

    @property
    def index(self) -> Path:
        """The index of packed examples, for large data."""
        return self.path / "index"

    @property
    def verified(self) -> Path:
        """Sizes and times of the data files that this machine has verified."""
        return self.path / "verified" / f"{platform.node() or 'machine'}.json"

    def read_verified(self) -> dict[str, list[int]]:
        """The content of `verified`; empty if it does not exist or is damaged."""
        try:
            return read_json(self.verified, optional=True)
        except CheckpointError:
            return {}

    def write_rows(self, step: int, rows: list[dict[str, Any]]) -> str:
        """Write the rows of a step that was not finite, each process its own; return the path within the
        folder."""
        suffix = f"-{rank()}" if rank() else ""
        path = self.path / "not-finite" / f"step-{step:08d}{suffix}.jsonl"
        path.parent.mkdir(exist_ok=True)
        durable.write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        return path.relative_to(self.path).as_posix()


def open_run(path: Path, *, fresh: bool) -> RunFolder:
    """Create the folder of a run, or use an existing one; with `fresh`, the first of PATH, PATH-2, PATH-3 … that
    does not exist.

    Raises:
        CheckpointError: the folder contains something else than a run.
    """
    if fresh:
        number, first = 1, path
        while path.exists():
            number += 1
            path = first.with_name(f"{first.name}-{number}")
    check_out_folder(run := RunFolder(path))
    path.mkdir(parents=True, exist_ok=True)
    return run


def check_out_folder(run: RunFolder) -> None:
    """Refuse an output path that exists and is not a run, or that cannot be written.

    Raises:
        CheckpointError: it is a file, or a folder with something else, or there is no permission to write.
    """
    path = run.path
    existing = next(above for above in (path, *path.absolute().parents) if above.exists())
    if not existing.is_dir():
        raise CheckpointError(f"{existing} is a file; give another --out")
    if not os.access(existing, os.W_OK):
        raise CheckpointError(f"{existing}: there is no permission to write here; give another --out")
    if path.is_dir() and not run.config.exists():
        run_files = {"log.txt", "environment.json", "ended.json", run.trace.parent.name}
        run_files |= {run.index.name, run.verified.parent.name}
        names = sorted(file.name for file in path.iterdir())
        if others := [name for name in names if name not in run_files and not _is_process_file(name)]:
            raise CheckpointError(
                f"{path} is not empty and is not a run (it has {', '.join(others[:3])}); give another --out"
            )


def _is_process_file(name: str) -> bool:
    return is_lock_file(name) or name.endswith(".partial") or (name.startswith("log-") and name.endswith(".txt"))


def require_same_config(
    run: RunFolder, wanted: Config, *, settled: Mapping[str, Any], ignore: tuple[str, ...]
) -> Config:
    """Check that a config is the same as that of the run in the folder; return the run's config.

    Args:
        settled: settings that a run fills in, with the value that leaves them open. A wanted config that leaves
            them open agrees with any value of the run.
        ignore: settings that do not change the result (such as the path of the data). The returned config has the
            wanted values.

    Raises:
        CheckpointError: settings differ (it names each), or the run's config cannot be read.
    """
    stored = stored_config(run, type(wanted))
    old, new = flat(stored), flat(wanted)
    differences = [
        f"{name}: the run has {_shown(old[name])}, asked for {_shown(new[name])}"
        for name in old
        # A name is in one of them only if the kinds of a section differ, and then its `kind` is listed.
        if name in new
        and old[name] != new[name]
        and name not in ignore
        and not (name in settled and new[name] == settled[name])
    ]
    if differences:
        raise CheckpointError(
            f"{run.path} belongs to another config:\n"
            + "\n".join(f"  {difference}" for difference in differences)
            + "\n  use the settings of the run, give another --out, or start a new run with --fresh"
        )
    for name in ignore:
        stored = _with_setting(stored, name, new[name])
    return stored


def _shown(value: Any) -> str:
    return "no value" if value is None else repr(plain(value))


def stored_config(run: RunFolder, kind: type[Config]) -> Config:
    """The config that a run was started with.

    Raises:
        CheckpointError: it cannot be read, but the copy in a checkpoint can (it names the copy).
        ConfigError: it cannot be read.
    """
    try:
        return load_config(kind, run.config)
    except ConfigError as error:
        for copy in sorted(run.checkpoints.glob(f"step-*/{run.config.name}"), reverse=True):
            with contextlib.suppress(ConfigError):
                load_config(kind, copy)
                raise CheckpointError(f"{error}\n  a checkpoint has a copy: cp {copy} {run.config}") from error
        raise


def _with_setting(config: Config, name: str, value: Any) -> Config:
    """A config with another value of a setting, given as `section.name` or `name`."""
    first, _, rest = name.partition(".")
    return replace(config, **{first: _with_setting(getattr(config, first), rest, value) if rest else value})  # type: ignore[type-var]


def environment() -> dict[str, Any]:
    """Versions and hardware that a result can depend on, besides the config and the data."""
    values: dict[str, Any] = {
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
        values["accelerator"] = torch.cuda.get_device_name()
    return values

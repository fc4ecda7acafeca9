"""How the runs of a study are fine-tuned."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from electra.analysis.frozen_probes import FROZEN_PROBES
from electra.config import flat, load_config, overrides_of
from electra.errors import ConfigError, DataError
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.load_task import load_task
from electra.studies.arms import StudySetup
from electra.studies.config import parse_task
from electra.training.run_folder import RunFolder

DEFAULTS = "defaults"
SECTIONS = ("optimizer.", "head.", "evaluation.")
SETTINGS = ("train.epochs", "train.batch_size", "train.dropout", "data.max_length")
"""Settings and sections that may be set for all fine-tunings of a study."""
MODEL = "model=MODEL"
"""A config needs a model; each run puts its own in this place."""
TASK_FOLDERS = {"chunking": "chunking-conll2000", "upos": "pos-ud-english-ewt", "ner-wnut17": "ner-wnut17"}
"""Folders of tasks in the folder of all tasks; those of GLUE are in `glue`."""


def normalize_settings(given: Sequence[str], stored: Sequence[str]) -> tuple[str, ...]:
    """The settings that are not the defaults, as `name=value`, sorted and with values in one spelling.

    Args:
        given: on the command line, or the word `defaults`.
        stored: those of the study so far, which are kept if none are given.

    Raises:
        ConfigError: a setting does not exist, is given twice, or may not be set for all fine-tunings.
    """
    if not given:
        return tuple(stored)
    if DEFAULTS in given:
        if len(given) > 1:
            raise ConfigError(f"--tune: give either {DEFAULTS} or settings, not both")
        return ()
    names = [one.partition("=")[0] for one in given]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"--tune: {twice[0]} is given twice")
    try:
        config = load_config(FinetuneConfig, None, [MODEL, *given])
    except ConfigError as error:
        raise ConfigError(f"--tune: {error}") from error
    defaults = flat(load_config(FinetuneConfig, None, [MODEL]))
    changed = {name: value for name, value in flat(config).items() if value != defaults[name]}
    if others := [name for name in {**dict.fromkeys(names), **changed} if not _is_allowed(name)]:
        known = ", ".join([*(f"{section}*" for section in SECTIONS), *SETTINGS])
        raise ConfigError(f"--tune: {others[0]}: only settings of fine-tuning itself are allowed: {known}")
    return tuple(f"{name}={json.dumps(changed[name])}" for name in sorted(changed))


def _is_allowed(name: str) -> bool:
    return name.startswith(SECTIONS) or name in SETTINGS


def task_folder(tasks: Path, task: str) -> Path:
    """The folder with the data of a task, in the folder of all tasks."""
    return tasks / TASK_FOLDERS.get(parse_task(task)[0], "glue")


def finetune_config(setup: StudySetup, task: str, *, model: Path, out: Path) -> FinetuneConfig:
    """The config of the fine-tunings of a model on a task."""
    assert setup.tasks is not None
    name, fraction = parse_task(task)
    settings = {
        "model": model, "task": name, "out": out, "seeds": setup.task_seeds,
        "data.path": task_folder(setup.tasks, task), "data.fraction": fraction,
        "tracking.tensorboard": False, "train.device": setup.device,
        "train.precision": "auto" if RunFolder(out).config.is_file() else setup.precision,
    }  # fmt: skip
    config = load_config(FinetuneConfig, None, [*overrides_of(settings), *setup.finetune_settings])
    return replace(config, tracking=config.tracking.trusted(()))  # the settings can be those of a study's folder


def output_name(task: str, settings: Sequence[str]) -> str:
    """The name of the folder of a task's fine-tunings, with a checksum of their settings if there are any."""
    name = task.replace(":", "-")
    return f"{name}-{hashlib.sha256(' '.join(settings).encode()).hexdigest()[:8]}" if settings else name


def check_task_data(setup: StudySetup) -> None:
    """Load the data of all tasks and probes.

    Raises:
        DataError: the data of a task is missing or malformed.
    """
    for task in setup.suite:
        assert setup.tasks is not None
        if task in FROZEN_PROBES:
            FROZEN_PROBES[task].read(setup.tasks)
            continue
        if not (folder := task_folder(setup.tasks, task)).is_dir():
            raise DataError(f"--tasks: {task} has no folder {folder}")
        load_task(finetune_config(setup, task, model=setup.data, out=setup.out))

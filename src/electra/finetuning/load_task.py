"""Load the task that a config names, with its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from electra.errors import ConfigError, caller_name, did_you_mean
from electra.finetuning.config import FinetuneConfig
from electra.registry import tasks
from electra.tasks.catalog import NAMED_TASKS, NamedTask, find_named_task

if TYPE_CHECKING:
    from electra.tasks.base import Problem, Task

OWN_DATA_SETTINGS = ("train", "dev", "test", "text", "pair", "label")
"""Settings of the user's own data: files and columns."""


def load_task(config: FinetuneConfig) -> Task:
    """Load the task of a config with its data.

    Raises:
        ConfigError: there is no such task, or a setting of its data is missing or does not apply.
        DataError: the data are missing or cannot be used.
    """
    from electra.tasks.classification import Classification

    name, loader = find_task(config)
    task = loader.load_task(name, config.data, config.head)
    if config.data.class_weights and not (isinstance(task.problem, Classification) and task.problem.weights):
        raise ConfigError(
            "data.class_weights: is for your own tables of kind classification or pair; leave it out"
        )
    return task


def find_task(config: FinetuneConfig) -> tuple[str, NamedTask | type[Problem]]:
    """Return the name of the task of a config, and what loads it. A wrong name is refused without torch.

    Raises:
        ConfigError: there is no such task, or a setting of its data is missing or does not apply.
    """
    if config.data.path is None and config.data.train is None:
        option = caller_name(", --data PATH", "")
        raise ConfigError(f"data.path: is missing; give the folder or file of the task's data{option}")
    if config.kind != "named":
        if find_named_task(config.task) or config.task == "glue":
            raise ConfigError(
                f"kind: --task {config.task} has its own kind; leave out --kind, or for your own data give "
                "another --task"
            )
        return config.task or config.kind, tasks.get(config.kind)
    if not config.task:
        raise ConfigError("task: is missing; give --task NAME, or for your own data --kind classification")
    if (named := find_named_task(config.task)) is None:
        names = list(NAMED_TASKS)
        raise ConfigError(
            f"task: there is no task {config.task!r}{did_you_mean(config.task, names)}\n"
            f"  tasks: {', '.join(names)}; "
            f"for your own data give --kind {', '.join(tasks.names())}"
        )
    _check_data_settings(config, named[1])
    return named


def _check_data_settings(config: FinetuneConfig, task: NamedTask) -> None:
    """Refuse files and columns of the user's own data for a task that has its own."""
    given = [
        f"data.{name}"
        for name in OWN_DATA_SETTINGS
        if name not in task.data_settings and getattr(config.data, name) is not None
    ]
    if given:
        raise ConfigError(
            f"{', '.join(given)}: {config.task} has its own files and columns; leave this out, or give --kind for "
            "your own data"
        )

"""Tasks with public data by name, and the problems of fine-tuned models."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

from electra.config_fields import json_problem
from electra.errors import CheckpointError, ConfigError
from electra.registry import tasks
from electra.tasks import glue, squad, tagging_datasets

if TYPE_CHECKING:
    from electra.tasks.base import Problem, Task
    from electra.tasks.config import DataConfig, HeadConfig


class NamedTask(Protocol):
    """A task with public data.

    Attributes:
        data_settings: settings of the section [data] that name its files, besides `path`.
    """

    @property
    def data_settings(self) -> tuple[str, ...]: ...

    def load_task(self, name: str, data: DataConfig, head: HeadConfig) -> Task:
        """Load the task from its official files.

        Raises:
            DataError: a file is missing or damaged.
        """
        ...


NAMED_TASKS: dict[str, NamedTask] = {**glue.TASKS, **squad.TASKS, **tagging_datasets.TASKS}
STORED_BESIDE_PROBLEM = ("max_length", "long", "longest", "failed")
"""What a model stores together with its problem: settings of the input, and why its fine-tuning failed."""


def find_named_task(name: str) -> tuple[str, NamedTask] | None:
    """Return a task with public data and its name; None: there is no such task."""
    name = glue.canonical_name(name) or name
    return (name, NAMED_TASKS[name]) if name in NAMED_TASKS else None


def task_problems(fields: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the types of the fields that `load_problem` reads.

    Of a kind that is not registered here, only the fields that all kinds have are checked.
    """
    problems = [
        f"{name} must be a whole number above 0, found {reprlib.repr(value)}"
        for name in ("max_length", "longest")
        if type(value := fields.get(name, 1)) is not int or value < 1
    ]
    problems += [
        f"{name} must be a string, found {reprlib.repr(value)}"
        for name in ("kind", "long", "failed")
        if not isinstance(value := fields.get(name, ""), str)
    ]
    if problems:
        return problems
    problem = tasks.find(fields.get("kind", ""))
    hints = {} if problem is None else get_type_hints(problem)
    found = {name: json_problem(fields[name], hints[name]) for name in hints if name in fields and name != "kind"}
    return [f"{name} {problem}" for name, problem in found.items() if problem]


def load_problem(fields: Mapping[str, Any]) -> Problem:
    """Return the problem of a fine-tuned model from what `Problem.to_dict` returned and `STORED_BESIDE_PROBLEM`.

    Raises:
        CheckpointError: there is no such kind of problem, or a field has another type than the problem needs.
    """
    if problems := task_problems(fields):
        raise CheckpointError(f"the model cannot be used: the description of its task: {'; '.join(problems)}")
    own = {name: value for name, value in fields.items() if name not in ("kind", *STORED_BESIDE_PROBLEM)}
    try:
        problem: Problem = tasks.get(fields.get("kind", "")).from_dict(own)
    except (ConfigError, TypeError) as error:
        raise CheckpointError(f"the model cannot be used: {error}") from error
    return problem

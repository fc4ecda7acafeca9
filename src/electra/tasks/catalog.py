"""Tasks by name, and problems by kind."""

from collections.abc import Mapping
from typing import Any, Protocol

from electra.errors import CheckpointError, ConfigError, did_you_mean
from electra.tasks import glue, question_answering, tagging_datasets
from electra.tasks.base import Problem, Task
from electra.tasks.classification import Classification, PairClassification
from electra.tasks.config import DataConfig, HeadConfig
from electra.tasks.multilabel import Multilabel
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.regression import Regression
from electra.tasks.tagging import Tagging


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


NAMED_TASKS: dict[str, NamedTask] = {**glue.TASKS, **question_answering.SQUAD, **tagging_datasets.TASKS}
PROBLEMS: dict[str, type[Problem]] = {
    "classification": Classification,
    "pair": PairClassification,
    "multilabel": Multilabel,
    "regression": Regression,
    "tagging": Tagging,
    "answering": QuestionAnswering,
}
STORED_SETTINGS = ("max_length", "long", "longest")
"""Settings of the input that a model stores together with its problem."""


def find_named_task(name: str) -> tuple[str, NamedTask] | None:
    """Return a task with public data and its name; None: there is no such task."""
    name = glue.canonical_name(name) or name
    return (name, NAMED_TASKS[name]) if name in NAMED_TASKS else None


def get_problem_class(kind: str) -> type[Problem]:
    """Return the class of a kind of problem.

    Raises:
        ConfigError: there is no such kind.
    """
    if kind not in PROBLEMS:
        raise ConfigError(
            f"there is no kind of task {kind!r}{did_you_mean(kind, list(PROBLEMS))}; known are "
            f"{', '.join(PROBLEMS)}"
        )
    return PROBLEMS[kind]


def load_problem(fields: Mapping[str, Any]) -> Problem:
    """Return the problem of a fine-tuned model from what `Problem.to_dict` returned and `STORED_SETTINGS`.

    Raises:
        CheckpointError: there is no such kind of problem.
    """
    own = {name: value for name, value in fields.items() if name not in ("kind", *STORED_SETTINGS)}
    try:
        return get_problem_class(fields.get("kind", "")).from_dict(own)
    except ConfigError as error:
        raise CheckpointError(f"the model cannot be used: {error}") from error

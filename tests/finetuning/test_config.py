"""The defaults of a fine-tuning that depend on the task, its size, and the size of the model."""

from dataclasses import replace
from typing import Any

import pytest

from electra.finetuning.config import FinetuneConfig, load_task_config, resolve
from electra.modeling.encoders.bert import BertConfig
from electra.tasks.base import Task
from electra.tasks.regression import Regression

SETTINGS: dict[str, Any] = {"model": "RUN", "task": "mine", "kind": "regression", "data.path": "x.csv"}


def resolved(
    *, examples: int, width: int = 64, epochs: float = 3, trained_length: int | None = None, **settings: Any
) -> FinetuneConfig:
    config = load_task_config(SETTINGS | {name.replace("__", "."): value for name, value in settings.items()})
    encoder = replace(BertConfig(), hidden_size=width)
    task = Task("mine", Regression("mine"), {}, default_epochs=epochs)
    return resolve(config, encoder, task, examples=examples, longest=128, trained_length=trained_length)


@pytest.mark.parametrize(
    ("examples", "expected"),
    [
        (100_000, 3),
        (3_200, 3),  # 100 steps an epoch
        (3_199, 3),
        (3_168, 4),  # 99 steps an epoch
        (815, 12),
        (32, 300),
        (1, 300),
    ],
)
def test_few_examples_are_read_more_often_so_that_there_are_300_steps(examples: int, expected: int) -> None:
    assert resolved(examples=examples).train.epochs == expected


@pytest.mark.parametrize(
    ("width", "rate", "decay"),
    [
        (64, 1e-3, 0.8),
        (255, 1e-3, 0.8),
        (256, 3e-4, 0.8),
        (384, 3e-4, 0.8),
        (385, 1e-4, 0.8),
        (1023, 1e-4, 0.8),
        (1024, 5e-5, 0.9),
    ],
)
def test_rate_and_decay_follow_the_width(width: int, rate: float, decay: float) -> None:
    optimizer = resolved(examples=815, width=width).optimizer
    assert (optimizer.learning_rate, optimizer.layer_decay) == (rate, decay)
    given = resolved(
        examples=815, width=width, optimizer__learning_rate=1e-3, optimizer__layer_decay=1.0
    ).optimizer
    assert (given.learning_rate, given.layer_decay) == (1e-3, 1.0)


def test_the_epochs_of_a_task_are_the_least() -> None:
    assert resolved(examples=5_749, epochs=10).train.epochs == 10


def test_epochs_that_are_given_stay() -> None:
    assert resolved(examples=32, train__epochs=2).train.epochs == 2


def test_windows_of_long_texts_have_the_trained_length_unless_one_is_given() -> None:
    def max_length(**settings: Any) -> int:
        return resolved(examples=32, trained_length=32, **settings).data.max_length

    assert (max_length(data__long="windows"), max_length(data__long="cut")) == (32, 128)
    assert max_length(data__long="windows", data__max_length=64) == 64

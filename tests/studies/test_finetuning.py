"""Fine-tuning settings of a study."""

from pathlib import Path

import pytest

from electra.errors import ConfigError
from electra.studies.finetuning import normalize_settings, task_folder


def test_equal_settings_have_one_spelling() -> None:
    actual = normalize_settings(("optimizer.learning_rate=1e-3", "optimizer.layer_decay=1"), ())
    assert actual == ("optimizer.layer_decay=1.0", "optimizer.learning_rate=0.001")
    assert normalize_settings(("optimizer.layer_decay=1.0", "optimizer.learning_rate=0.001"), ()) == actual
    assert (
        normalize_settings(("optimizer.layer_decay=1", "optimizer.learning_rate=0.001", "train.dropout=0.1"), ())
        == actual
    )


def test_without_settings_the_stored_ones_are_kept_and_defaults_resets_them() -> None:
    before = ["optimizer.layer_decay=1.0"]
    assert normalize_settings((), before) == ("optimizer.layer_decay=1.0",)
    assert normalize_settings(("defaults",), before) == ()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            ("optimizer.learning_rat=1",),
            "--tune: 1 problem in the overrides:\n.*did you mean --optimizer.learning_rate",
        ),
        (("optimizer.layer_decay=1", "optimizer.layer_decay=0.9"), "optimizer.layer_decay is given twice"),
        (("seeds=2",), "--tune: seeds: only settings of fine-tuning itself"),
        (("train.report_every=10",), "--tune: train.report_every: only settings"),
        (("data={fraction=0.5}",), "--tune: data: only settings|--tune: data.fraction: only settings"),
        (("defaults", "train.epochs=2"), "either defaults or settings"),
        (("train.epochs",), "--tune: "),
    ],
)
def test_invalid_settings_are_refused(given: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        normalize_settings(given, ())


@pytest.mark.parametrize(
    ("task", "folder"),
    [("chunking", "chunking-conll2000"), ("chunking:0.5", "chunking-conll2000"), ("sst-2:0.15", "glue")],
)
def test_a_part_of_a_task_is_in_the_folder_of_the_task(task: str, folder: str) -> None:
    assert task_folder(Path("tasks"), task) == Path("tasks", folder)

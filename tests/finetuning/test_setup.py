"""What the seeds of a fine-tuning share: the encoder that they start from."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from electra.cli import main
from electra.errors import ConfigError
from electra.finetuning.config import load_task_config
from electra.finetuning.setup import build_setup, count_steps, fingerprint, micro_batches
from electra.tasks.base import Rows

SETTINGS = {"kind": "classification", "train.precision": "float32", "train.device": "cpu", "train.epochs": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    path.write_text("text,label\n" + "a splendid day,good\na dreadful day,bad\n" * 20)
    return path


def test_weights_to_start_from(small_model: str, data: Path) -> None:
    def table(init: str, seed: int) -> torch.Tensor:
        settings = {**SETTINGS, "model": small_model, "data.path": data, "init": init}
        model = build_setup(load_task_config(settings)).build_model(seed)
        return model.encoder.state_dict()["embeddings.token.weight"]

    assert torch.equal(table("pretrained", 0), table("pretrained", 1))
    assert torch.equal(table("random", 0), table("random", 0)), "the seed decides"
    assert not torch.equal(table("random", 0), table("random", 1))
    assert not torch.equal(table("random", 1), table("pretrained", 1))


def test_a_run_from_random_weights_says_so(
    small_model: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
    out = tmp_path / "out"
    arguments = ["finetune", small_model, "--data", str(data), "--out", str(out), "--init", "random", *options]
    assert main([*arguments, "--init-from-task", str(tmp_path)]) == 2
    assert "--init random: starts from no other weights" in capsys.readouterr().err
    assert main(arguments) == 0
    assert json.loads((out / "results.json").read_text())["pretrained"] is None
    assert "starting from random weights" in (out / "model/README.md").read_text()


@pytest.mark.parametrize(
    ("epochs", "size", "expected"),
    [
        (1, 32, "1 epoch of 32 rows a step"),
        (0.5, 1, "0.5 epochs of 1 row a step"),
        (3, 8, "3 epochs of 8 rows a step"),
    ],
)
def test_the_start_says_how_long_the_run_is(
    epochs: float, size: int, expected: str, small_model: str, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = {
        **SETTINGS,
        "model": small_model,
        "data.path": data,
        "train.epochs": epochs,
        "train.batch_size": size,
    }
    build_setup(load_task_config(settings))
    assert caplog.text.rstrip().endswith(expected)


@pytest.mark.parametrize(("epochs", "steps"), [(0.1, 1), (1, 3), (1.5, 5), (2, 6)])
def test_a_part_of_an_epoch_is_rounded_up_to_a_step(epochs: float, steps: int, data: Path) -> None:
    settings = {"model": "M", "data.path": data, "train.epochs": epochs, "train.batch_size": 16}
    assert count_steps(load_task_config(settings), range(36)) == steps  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "numbers", "reason"),
    [
        ({}, "0.001, times 0.8", " (rate and decay by the model's width, 32)"),
        ({"optimizer.learning_rate": 1e-3}, "0.001, times 0.8", " (decay by the model's width, 32)"),
        ({"optimizer.layer_decay": 0.5}, "0.001, times 0.5", " (rate by the model's width, 32)"),
        ({"optimizer.learning_rate": 1e-3, "optimizer.layer_decay": 0.5}, "0.001, times 0.5", ""),
    ],
)
def test_the_start_says_why_the_defaults_are_what_they_are(
    given: dict[str, float], numbers: str, reason: str, small_model: str, data: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    settings = {**SETTINGS, "model": small_model, "data.path": data, "train.epochs": 0, **given}
    setup = build_setup(load_task_config(settings))
    epochs, usual = setup.config.train.epochs, setup.task.default_epochs
    assert epochs > usual
    assert caplog.messages[-1] == (
        f"learning rate {numbers} from each block to the block below{reason}; "
        f"{epochs:g} epochs of 32 rows a step (more than the usual {usual:g}, so that there are 300 steps)"
    )


@pytest.mark.parametrize(("rows", "warned"), [(29, True), (30, False)])
def test_a_small_dev_part_gives_a_warning(
    rows: int, warned: bool, small_model: str, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "dev.csv").write_text("text,label\n" + "a day,good\n" * rows)
    settings = {**SETTINGS, "model": small_model, "data.path": data, "data.dev": str(tmp_path / "dev.csv")}
    build_setup(load_task_config(settings))
    assert (f"dev has only {rows} examples, so chance decides" in caplog.text) == warned


def test_each_seed_has_its_own_order(small_model: str, data: Path) -> None:
    setup = build_setup(load_task_config({**SETTINGS, "model": small_model, "data.path": data}))
    rows = setup.rows["train"]
    orders = []
    for seed in (0, 0, 1):
        config = replace(setup.config, seed=seed)
        (batch,) = micro_batches(config, rows, 0, pad=setup.pad, device=setup.device)
        orders.append(batch.targets["answer"].tolist())
    assert orders[0] == orders[1] != orders[2]


def test_each_micro_batch_has_a_seed_of_its_own(small_model: str, data: Path) -> None:
    sizes = {"train.batch_size": 16, "train.micro_batch_size": 4}
    setup = build_setup(load_task_config({**SETTINGS, **sizes, "model": small_model, "data.path": data}))
    seeds = [
        batch.seed
        for step in (0, 1)
        for batch in micro_batches(setup.config, setup.rows["train"], step, pad=setup.pad, device=setup.device)
    ]
    assert len(seeds) == len(set(seeds)) == 8


@pytest.mark.parametrize("changed", ["starts", "ids", "target", "token target"])
def test_a_fingerprint_covers_all_that_the_network_sees(changed: str) -> None:
    def rows() -> Rows:
        starts, places = np.array([0, 3, 6]), np.arange(2)
        targets, labels = {"answer": np.array([1, 0])}, {"labels": np.array([0, 1, 2, 0, 0, 1])}
        return Rows(np.arange(6, dtype=np.int32), starts, places, places, targets, labels)

    other = rows()
    values = {
        "starts": other.starts, "ids": other.ids, "target": other.targets["answer"],
        "token target": other.token_targets["labels"],
    }  # fmt: skip
    values[changed][1] += 1
    assert fingerprint(rows()) == fingerprint(rows()) != fingerprint(other)


def test_a_seed_does_not_train_the_encoder_of_the_next(small_model: str, data: Path) -> None:
    setup = build_setup(load_task_config({**SETTINGS, "model": small_model, "data.path": data}))
    with torch.no_grad():
        for parameter in setup.build_model(0).encoder.parameters():
            parameter.zero_()
    assert setup.build_model(1).encoder.token_table.weight.any()


def test_a_device_that_is_missing_is_named_by_its_setting(small_model: str, data: Path) -> None:
    config = load_task_config({**SETTINGS, "model": small_model, "data.path": data, "train.device": "cuda:99"})
    with pytest.raises(ConfigError, match=r"^--train\.device cuda:99: "):
        build_setup(config)

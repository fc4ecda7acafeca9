"""What a fine-tuning must not mix up: other runs, other data, other encoders, other units."""

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import electra
from electra.config import load_config
from electra.errors import CheckpointError, ConfigError
from electra.recipes.finetune import FinetuneResult, finetune
from electra.recipes.finetune_config import FinetuneConfig, load_task_config
from electra.recipes.predict import PredictConfig
from electra.recipes.predict import run as predict

SETTINGS: dict[str, Any] = {
    "kind": "classification", "train.precision": "float32", "train.batch_size": 16, "train.epochs": 1,
    "optimizer.learning_rate": 1e-2, "tracking.tensorboard": False, "train.device": "cpu",
}  # fmt: skip
NOUNS = ["gardener", "sailor", "clock", "river", "teacher", "fox", "boat", "road"]


@pytest.fixture(scope="module", autouse=True)
def _products_are_not_timed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("electra.training.precision.product_flops", lambda dtype, device: 1e9)
        yield


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for split, count in (("train", 48), ("dev", 16)):
        with (folder / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["review", "stars"])
            writer.writerows([f"{NOUNS[i % 8]} {NOUNS[i % 3]}", 1 + i % 4] for i in range(count))
    return folder


def tune(model: str, data: Path, out: Path, **others: Any) -> FinetuneResult:
    settings = SETTINGS | {"data.text": "review", "data.label": "stars"} | others
    return finetune(load_task_config({**settings, "model": model, "data.path": data, "out": out}))


def test_the_folder_of_another_kind_of_run_is_left_as_it_is(small_model: str, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text("[masking]\nshare = 0.15\n")
    with pytest.raises(CheckpointError, match="no fine-tuning"):
        tune(small_model, data, run)
    assert (run / "config.toml").read_text() == "[masking]\nshare = 0.15\n"


def test_other_settings_do_not_touch_what_is_there(small_model: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tune(small_model, data, out)
    before = (out / "config.toml").read_bytes()
    for others in ({"optimizer.learning_rate": 3e-3}, {"optimizer.learning_rate": 3e-3, "seed": 5}):
        with pytest.raises(CheckpointError, match="learning_rate"):
            tune(small_model, data, out, **others)
    assert (out / "config.toml").read_bytes() == before
    assert [result.seed for result in tune(small_model, data, out, seeds=2).seeds] == [0, 1]


def test_finished_seeds_are_those_of_their_data_and_their_encoder(
    small_model: str, data: Path, tmp_path: Path
) -> None:
    out, other, copied = tmp_path / "out", tmp_path / "other", tmp_path / "model"
    tune(small_model, data, out)
    shutil.copytree(small_model, copied)
    shutil.copytree(data, other)
    with (other / "dev.csv").open("a") as file:
        file.write("fox fox,1\n")
    with pytest.raises(CheckpointError, match="another data"):
        tune(small_model, other, out)
    first = tune(small_model, data, out)
    assert first.seeds[0].identity.keys() == {"data", "model"}


def test_the_precision_is_the_one_that_it_began_in(small_model: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tune(small_model, data, out, **{"train.precision": "bfloat16"})
    tune(small_model, data, out, **{"train.precision": "auto", "seeds": 2})
    for folder in (out, out / "seed-1"):
        assert load_config(FinetuneConfig, folder / "config.toml").train.precision == "bfloat16"


def test_a_task_of_short_rows_leaves_the_encoder_its_length(small_model: str, data: Path, tmp_path: Path) -> None:
    tune(small_model, data, tmp_path / "short", **{"data.max_length": 12})
    [long] = electra.load(tmp_path / "short", device="cpu").predict([" ".join(NOUNS * 3)])
    [cut] = electra.load(tmp_path / "short", device="cpu").predict([" ".join((NOUNS * 3)[:10])])
    assert long["scores"] == pytest.approx(cut["scores"], abs=1e-6), "its own task reads rows of 12"
    tune(str(tmp_path / "short"), data, tmp_path / "longer", **{"data.max_length": 40})
    with pytest.raises(ConfigError, match="reads 48 tokens at most"):
        tune(small_model, data, tmp_path / "out", **{"data.max_length": 49})


def test_values_leave_in_their_own_unit(small_model: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tune(small_model, data, out, kind="regression")
    texts = ["sailor fox", "clock river boat"]
    ours = [one["value"] for one in electra.load(out, device="cpu").predict(texts)]
    tokenizer = AutoTokenizer.from_pretrained(out / "model")
    theirs = AutoModelForSequenceClassification.from_pretrained(out / "model").eval()
    with torch.inference_mode():
        logits = [float(theirs(**tokenizer(text, return_tensors="pt")).logits) for text in texts]
    assert logits == pytest.approx(ours, abs=1e-4)
    lines = (out / "seed-0" / "dev.jsonl").read_text().splitlines()
    assert len(lines) == 16 and all(-3 < value < 8 for value in ours), "stars, from 1 to 4, not shares"


def test_a_row_is_shown_with_its_text_whatever_the_column_is_called(
    small_model: str, data: Path, tmp_path: Path
) -> None:
    tune(small_model, data, tmp_path / "out")
    shown = predict(PredictConfig(str(tmp_path / "out"), input=str(data / "dev.csv")))
    assert str(shown).splitlines()[0].endswith("\tgardener gardener")


def test_columns_mean_nothing_to_a_task_with_files_of_its_own(
    small_model: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"data\.text, data\.label: cola has its own files"):
        tune(small_model, data, tmp_path / "out", kind="named", task="cola")
    with pytest.raises(ConfigError, match="there is no task 'mine'"):
        tune(small_model, data, tmp_path / "out", kind="named", task="mine")

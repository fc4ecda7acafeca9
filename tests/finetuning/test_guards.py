"""A fine-tuning does not mix up runs, data, encoders or units."""

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import electra
from electra.commands.finetune import FinetuneCommand, read_command
from electra.commands.predict import PredictConfig
from electra.commands.predict import run as predict
from electra.config import load_config
from electra.errors import CheckpointError, ConfigError, DivergedError
from electra.finetuning.config import FinetuneConfig, load_task_config
from electra.finetuning.results import FinetuneResult
from electra.finetuning.run import finetune
from electra.folder_lock import acquire

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


def test_the_folder_of_another_kind_of_run_is_not_changed(small_model: str, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text("[masking]\nshare = 0.15\n")
    with pytest.raises(CheckpointError, match="another kind of run"):
        tune(small_model, data, run)
    assert (run / "config.toml").read_text() == "[masking]\nshare = 0.15\n"


def test_only_one_process_works_on_a_fine_tuning(small_model: str, data: Path, tmp_path: Path) -> None:
    with acquire(tmp_path / "out"), pytest.raises(CheckpointError, match=r"process \d+ .* is fine-tuning; wait"):
        tune(small_model, data, tmp_path / "out")
    tune(small_model, data, tmp_path / "out")
    assert not (tmp_path / "out/taken.json").exists()


def test_a_run_with_other_settings_is_not_changed(small_model: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tune(small_model, data, out)
    before = (out / "config.toml").read_bytes()
    for others in ({"optimizer.learning_rate": 3e-3}, {"optimizer.learning_rate": 3e-3, "seed": 5}):
        with pytest.raises(CheckpointError, match="learning_rate"):
            tune(small_model, data, out, **others)
    assert (out / "config.toml").read_bytes() == before
    assert [result.seed for result in tune(small_model, data, out, seeds=2).seeds] == [0, 1]


def test_finished_seeds_need_the_same_data_and_encoder(small_model: str, data: Path, tmp_path: Path) -> None:
    out, other, moved = tmp_path / "out", tmp_path / "other", tmp_path / "model"
    first = tune(small_model, data, out)
    shutil.copytree(small_model, moved)
    shutil.copytree(data, other)
    with (other / "dev.csv").open("a") as file:
        file.write("fox fox,1\n")
    with pytest.raises(CheckpointError, match="trained with other data"):
        tune(small_model, other, out)
    assert tune(str(moved), data, out).seeds == first.seeds, "the same encoder elsewhere"
    weights = load_file(moved / "model.safetensors")
    save_file({name: x + 0.01 for name, x in weights.items()}, moved / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match="trained with another model"):
        tune(str(moved), data, out)


def test_results_have_every_seed_of_the_folder(small_model: str, data: Path, tmp_path: Path) -> None:
    """results.json and the model belong to all seeds, not only to those of the last command."""
    out = tmp_path / "out"
    tune(small_model, data, out, seeds=3)
    results, model = (out / "results.json").read_text(), (out / "model/model.safetensors").read_bytes()
    assert [result.seed for result in tune(small_model, data, out, seeds=1).seeds] == [0, 1, 2]
    assert (out / "results.json").read_text() == results
    more = tune(small_model, data, out, seed=7)
    assert [result.seed for result in more.seeds] == [0, 1, 2, 7]
    same = json.loads(results)["best_seed"] == more.best.seed
    assert ((out / "model/model.safetensors").read_bytes() == model) == same


def test_a_seed_that_diverges_is_flagged_and_the_others_count(
    small_model: str, data: Path, tmp_path: Path, breaks: Callable[[int, Callable[[], None]], None]
) -> None:
    out, runs = tmp_path / "out", []

    def diverge() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise DivergedError("5 steps in a row were not finite")

    breaks(2, diverge)
    result = tune(small_model, data, out, seeds=2)
    assert [one.diverged for one in result.seeds] == [True, False] and result.best.seed == 1
    results = json.loads((out / "results.json").read_text())
    assert results["seeds"][0]["failed"] == "it diverged at step 2" and results["best_seed"] == 1
    assert "failed: it diverged" in render(result) and (out / "model/config.json").is_file()
    hot = tune(small_model, data, tmp_path / "hot", **{"optimizer.learning_rate": 1e30, "train.epochs": 4})
    assert str(hot.seeds[0].failed).startswith("it diverged at step") and "best model" not in render(hot)
    file = min((tmp_path / "hot/seed-0/not-finite").iterdir())
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 16 and all(row["text"].split()[0] in NOUNS for row in rows)
    results = json.loads((tmp_path / "hot/results.json").read_text(), parse_constant=pytest.fail)
    assert results["model"] is None and 0 <= results["seeds"][0]["metrics"]["accuracy"] <= 1


def render(result: FinetuneResult) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(result)
    return captured.get()


def test_a_new_or_changed_test_split_is_predicted(small_model: str, data: Path, tmp_path: Path) -> None:
    out, test = tmp_path / "out", data / "test.csv"
    tune(small_model, data, out)
    test.write_text("review,stars\nfox boat,1\nriver,2\n")
    first = tune(small_model, data, out)
    lines = (out / "test.jsonl").read_text().splitlines()
    assert len(lines) == 2 and not first.seeds[0].others, "the seed never saw it"
    (out / "test.jsonl").write_text("")
    tune(small_model, data, out)
    assert (out / "test.jsonl").read_text() == "", "nothing is predicted twice"
    test.write_text("review,stars\nfox boat,1\n")
    tune(small_model, data, out)
    (line,) = (out / "test.jsonl").read_text().splitlines()
    alone, beside = json.loads(line), json.loads(lines[0])
    assert alone["label"] == beside["label"]
    assert alone["scores"] == pytest.approx(beside["scores"], abs=1e-5), "a batch of one rounds otherwise"
    tune(small_model, data, out, seeds=2)
    test.unlink()
    assert len(tune(small_model, data, out, seeds=3).seeds) == 3


def test_narrow_models_have_a_learning_rate_of_their_own(small_model: str, data: Path, tmp_path: Path) -> None:
    tune(small_model, data, tmp_path / "out", **{"optimizer.learning_rate": 0.0})
    settings = load_config(FinetuneConfig, tmp_path / "out/config.toml").optimizer
    assert (settings.learning_rate, settings.layer_decay, settings.weight_decay) == (1e-3, 0.8, 0.0)


def test_a_resumed_run_keeps_its_precision(small_model: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tune(small_model, data, out, **{"train.precision": "bfloat16"})
    tune(small_model, data, out, **{"train.precision": "auto", "seeds": 2})
    for folder in (out, out / "seed-1"):
        assert load_config(FinetuneConfig, folder / "config.toml").train.precision == "bfloat16"


def test_a_task_with_short_rows_keeps_the_length_of_the_encoder(
    small_model: str, data: Path, tmp_path: Path
) -> None:
    tune(small_model, data, tmp_path / "short", **{"data.max_length": 12})
    [long] = electra.load(tmp_path / "short", device="cpu").predict([" ".join(NOUNS * 3)])
    [cut] = electra.load(tmp_path / "short", device="cpu").predict([" ".join((NOUNS * 3)[:10])])
    assert long["scores"] == pytest.approx(cut["scores"], abs=1e-6), "its own task reads rows of 12"
    tune(str(tmp_path / "short"), data, tmp_path / "longer", **{"data.max_length": 40})
    with pytest.raises(ConfigError, match="reads at most 48 tokens"):
        tune(small_model, data, tmp_path / "out", **{"data.max_length": 49})


def test_exported_values_have_the_unit_of_the_data(small_model: str, data: Path, tmp_path: Path) -> None:
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


def test_dev_predictions_have_their_text_for_any_column_name(small_model: str, data: Path, tmp_path: Path) -> None:
    tune(small_model, data, tmp_path / "out")
    shown = predict(PredictConfig(str(tmp_path / "out"), input=str(data / "dev.csv")))
    assert str(shown).splitlines()[0].endswith("\tgardener gardener")


def test_columns_are_refused_for_a_task_with_its_own_files(small_model: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.text, data\.label: cola has its own files"):
        tune(small_model, data, tmp_path / "out", kind="named", task="cola")
    with pytest.raises(ConfigError, match="there is no task 'mine'"):
        tune(small_model, data, tmp_path / "out", kind="named", task="mine")


def test_data_can_be_next_to_the_task_file(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my.toml").write_text('kind = "classification"\n[data]\npath = "data"\n')
    command = FinetuneCommand("MODEL", task=str(tmp_path / "my.toml"))
    assert read_command(command).data.path == data
    (tmp_path / "here/data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert read_command(command).data.path == Path("data"), "in the current folder"
    with pytest.raises(ConfigError, match=r"there is no file .*nix\.toml"):
        read_command(replace(command, task=str(tmp_path / "nix.toml")))


def test_unknown_tokens_give_a_warning(
    small_model: str, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tune(small_model, data, tmp_path / "known")
    assert "not in the vocabulary" not in caplog.text
    for path in data.glob("*.csv"):
        path.write_text(path.read_text().replace("gardener", "园丁").replace("sailor", "水手"))
    tune(small_model, data, tmp_path / "out")
    assert re.search(r": train: \d\d% of the tokens are not in the vocabulary of the model", caplog.text)

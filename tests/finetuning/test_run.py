"""Fine-tuning from end to end: results, resuming, several seeds, mistakes."""

import csv
import json
import random
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from table_finetuning import NOUNS, SETTINGS, records, sentence, tune, write

import electra
from electra.cli import main
from electra.errors import ConfigError
from electra.export.loading import load_pretrained
from electra.finetuning.compare import compare_finetunings
from electra.finetuning.config import load_task_config
from electra.finetuning.evaluator import DevEvaluator
from electra.finetuning.results import FinetuneResult
from electra.finetuning.setup import build_setup
from electra.serving.predictor import Predictor
from electra.tasks.subsampling import subsample
from electra.training.run_folder import RunFolder

Breaks = Callable[[int, Callable[[], None]], None]


@pytest.fixture(scope="module")
def hopeless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts with random scores."""
    draw, folder = random.Random(0), tmp_path_factory.mktemp("hopeless")
    for name, count in (("train", 96), ("dev", 40)):
        write(folder / f"{name}.csv", [{"text": sentence(draw), "score": draw.random()} for _ in range(count)])
    return folder


def command(model: str, data: Path, out: Path, *arguments: str, **others: Any) -> list[str]:
    settings = {name: value for name, value in (SETTINGS | others).items() if value is not None}
    options = [part for name, value in settings.items() for part in (f"--{name}", str(value).lower())]
    return ["finetune", model, "--data", str(data), "--out", str(out), *options, *arguments]


def evaluations(folder: Path) -> list[float]:
    return [one["eval/spearman"] for one in records(folder / "metrics.jsonl") if "eval/spearman" in one]


def predict_dev(out: Path, data: Path) -> list[float]:
    """Predictions of the exported model for dev."""
    with (data / "dev.csv").open() as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    return [one["value"] for one in electra.load(out, device="cpu").predict(texts)]


def stored_predictions(seed: Path) -> Any:
    """Predictions for dev that a seed wrote, approximately."""
    return pytest.approx([one["value"] for one in records(seed / "dev.jsonl")], abs=1e-4)


def test_an_easy_table_is_learned(finished: FinetuneResult) -> None:
    assert finished.metric == "accuracy" and min(finished.values("accuracy")) > 0.9 and finished.exit_code == 0
    actual = electra.load(finished.out, device="cpu").predict(["a splendid boat", "the dreadful river"])
    assert [one["label"] for one in actual] == ["good", "bad"]


def test_a_progress_bar_of_each_seed_is_shown_if_asked_for(
    model: str, easy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SETTINGS, "model": model, "data.path": easy, "out": tmp_path / "out", "train.epochs": 0.2}
    config = load_task_config({**settings, "seeds": 2})
    electra.finetune(config, progress=True)
    printed = capsys.readouterr()
    assert printed.out == "" and all(f"seed {seed}: 100%" in printed.err for seed in (0, 1))


def test_the_table_has_a_column_for_failures_only_if_a_run_failed(finished: FinetuneResult) -> None:
    def columns(result: FinetuneResult) -> list[str]:
        (table, *_) = result.__rich__().renderables  # type: ignore[union-attr]
        return [column.header for column in table.columns]  # type: ignore[union-attr]

    seeds = [replace(finished.seeds[0], failed="it diverged at step 2"), *finished.seeds[1:]]
    assert columns(finished) == ["seed", "accuracy", "macro F1", "Matthews correlation"]
    assert columns(replace(finished, seeds=seeds)) == [*columns(finished), ""]


def test_results_follow_the_contract(finished: FinetuneResult, model: str) -> None:
    results = json.loads((finished.out / "results.json").read_text())
    assert (results["task"], results["metric"], results["failed"]) == ("classification", "accuracy", 0)
    assert [seed["seed"] for seed in results["seeds"]] == [0, 1]
    assert results["seeds"][0].keys() >= {"seed", "metrics"} and results["seeds"][0]["failed"] is None
    values = [seed["metrics"]["accuracy"] for seed in results["seeds"]]
    assert results["median"] == results["mean"] == pytest.approx(sum(values) / 2)
    assert results["examples"] == {"train": 360, "dev": 40} and results["pretrained"] == model
    assert values[results["best_seed"]] == max(values)
    assert all(seed["steps"] == 2 * 23 for seed in results["seeds"])
    names = {str(path.relative_to(finished.out)) for path in finished.out.rglob("*")}
    assert {"config.toml", "environment.json", "log.txt", "model/config.json", "model/README.md"} <= names
    assert not [name for name in names if "checkpoints" in name or "partial" in name or "best" in name]
    card = (finished.out / "model" / "README.md").read_text()
    assert "360 examples of train, 40 examples of dev. 46 steps" in card and str(finished.out.parent) not in card
    dev = records(finished.out / "seed-1/dev.jsonl")
    assert len(dev) == 40 and set(dev[0]) == {"text", "gold", "label", "scores"}
    assert {one["gold"] for one in dev if "splendid" in one["text"]} == {"good"}


def test_the_folder_of_the_model_has_no_text_of_the_data(finished: FinetuneResult, easy: Path) -> None:
    texts = {one["text"] for one in records(finished.out / "seed-0/dev.jsonl")}
    files = [path.read_bytes() for path in (finished.out / "model").rglob("*") if path.is_file()]
    assert texts and len(files) > 4
    assert not [text for text in texts if any(text.encode() in content for content in files)]


def test_the_model_is_that_of_the_best_seed(model: str, hopeless: Path, tmp_path: Path) -> None:
    result = tune(model, hopeless, tmp_path / "out", kind="regression", seeds=4, train__epochs=1)
    values = result.values("spearman")
    best = values.index(max(values))
    assert best != 0, "or it would be the first one's in any case"
    assert predict_dev(tmp_path / "out", hopeless) == stored_predictions(tmp_path / "out" / f"seed-{best}")


def test_each_seed_has_its_own_head(model: str, easy: Path, tmp_path: Path) -> None:
    settings = SETTINGS | {"model": model, "data.path": easy, "out": tmp_path / "out", "seeds": 2}
    setup = build_setup(load_task_config(settings))
    first, again, second = (setup.build_model(seed).state_dict() for seed in (0, 0, 1))
    same = {name for name in first if torch.equal(first[name], second[name])}
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert {name for name in first if name.startswith("encoder.")} <= same
    assert {name for name in first if name.startswith("head.") and name.endswith("weight")}.isdisjoint(same)


def test_the_layer_decay_reaches_the_steps(model: str, easy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = tune(model, easy, out, optimizer__layer_decay=1e-9, train__epochs=1)
    before = load_pretrained(model).encoder.state_dict()
    after = load_pretrained(out / "model").encoder.state_dict()
    assert before.keys() == after.keys() and result.seeds[0].steps > 20
    for name, weights in before.items():
        torch.testing.assert_close(after[name], weights, rtol=0, atol=1e-7, msg=name)


def test_the_last_or_the_best_weights_are_kept(model: str, hopeless: Path, tmp_path: Path) -> None:
    for keep, wanted in (("last", lambda values: values[-1]), ("best", max)):
        out = tmp_path / keep
        more = {"evaluation__keep": keep, "evaluation__every": 1, "train__epochs": 6}
        result = tune(model, hopeless, out, kind="regression", **more)
        values = evaluations(out / "seed-0")
        assert len(values) == 36 and result.values("spearman") == pytest.approx([wanted(values)])
        assert predict_dev(out, hopeless) == stored_predictions(out / "seed-0")
    assert max(values) > values[-1], "or the two cannot be told apart"


@torch.no_grad()
def test_of_equal_evaluations_the_first_weights_are_kept(model: str, easy: Path, tmp_path: Path) -> None:
    setup = build_setup(
        load_task_config(SETTINGS | {"model": model, "data.path": easy, "evaluation.keep": "best"})
    )
    network, run = setup.build_model(0), RunFolder(tmp_path)
    run.metrics.touch()
    evaluator, row_E = DevEvaluator(setup, network, run), network.encoder.token_table.weight[setup.pad]
    row_E.fill_(1)
    first = evaluator.evaluate(0)
    run.metrics.write_text(json.dumps({"step": 1, **first}))
    row_E.fill_(2)
    assert evaluator.evaluate(0) == first, "a row that no text reads changes nothing"
    evaluator.final_outputs()
    assert (row_E == 1).all()


def test_patience_stops_a_run(model: str, hopeless: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    more = {"evaluation__patience": 2, "evaluation__every": 1, "train__epochs": 9}
    result = tune(model, hopeless, out, kind="regression", **more)
    values = evaluations(out / "seed-0")
    assert len(values) == values.index(max(values)) + 3 == result.seeds[0].steps < 54


def test_with_patience_every_epoch_is_evaluated(model: str, hopeless: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tune(model, hopeless, out, kind="regression", evaluation__patience=9, train__epochs=3)
    assert len(evaluations(out / "seed-0")) == 3


def test_a_run_with_constant_predictions_has_failed(
    model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(0)
    rows = [{"text": sentence(draw), "label": "rare" if i % 20 == 0 else "usual"} for i in range(200)]
    data = write(tmp_path / "train.csv", rows)
    result = tune(model, data, tmp_path / "out", train__epochs=3)
    assert result.seeds[0].failed == 'it always predicts "usual"'
    (*_, shown) = result.__rich__().renderables  # type: ignore[union-attr]
    assert str(shown).endswith('model (failed: it always predicts "usual"; do not use it)')
    assert json.loads((tmp_path / "out/results.json").read_text())["failed"] == 1
    assert result.seeds[0].metrics["matthews"] == 0.0
    caplog.clear()
    Predictor(tmp_path / "out", device="cpu")
    assert caplog.messages == [
        f'the fine-tuning of {tmp_path / "out"} failed: it always predicts "usual"; do not use its predictions'
    ]


def test_a_dry_run_estimates(model: str, easy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(model, easy, tmp_path / "out", "--dry-run", "--seeds", "3")) == 0
    shown = capsys.readouterr().out
    for words in ("learning_rate = 0.01", "steps of each seed", "46", "total time", "peak memory"):
        assert words in shown
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "named", "task": "rtee"}, r"no task 'rtee'; did you mean 'rte'\?\n  tasks: cola, .*--kind"),
        ({"kind": "named"}, "task: is missing; give --task NAME"),
        ({"kind": "tagging", "data.text": "upos"}, "data.text: 'upos' is not a column of tagged text; give"),
        ({"train.epochs": -1, "data.fraction": 2, "seeds": 0}, r"(?s)fraction: .*epochs: .*seeds: must be"),
        ({"train.epochs": -1}, r"train\.epochs: must be above 0, or 0 for the default, got -1\.0"),
        ({"task": "cola", "kind": "pair"}, "kind: --task cola has its own kind; leave out .* another --task"),
        ({"task": "glue", "kind": "pair"}, "kind: --task glue has its own kind"),
        ({"train.batch_size": 16, "train.micro_batch_size": 5}, "5 does not divide a batch_size of 16"),
        ({"data.shots": 2, "data.fraction": 0.5}, "give either shots or fraction"),
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(
    settings: dict[str, Any], message: str, model: str, easy: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        tune(model, easy, tmp_path / "out", **settings)


def test_mistakes_exit_2(model: str, easy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(model, easy, tmp_path / "out", "--data.label", "mood")) == 2
    assert "there is no column 'mood'; the columns are 'text', 'label'" in capsys.readouterr().err
    assert main(["finetune", model, "--task", "rte", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "electra: a fine-tuning needs --data, the data of the task\n"
    assert main(command(str(tmp_path / "none"), easy, tmp_path / "out")) == 2
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["pair", "multilabel", "regression", "tagging"])
def test_every_kind_of_own_data(kind: str, model: str, tmp_path: Path) -> None:
    draw, out = random.Random(0), tmp_path / "out"
    if kind == "tagging":
        data = tmp_path / "train.txt"
        data.write_text("".join(f"{draw.choice(NOUNS)} O\nsplendid B-X\nthe O\n\n" for _ in range(120)))
    else:
        kinds = [("splendid", 5), ("dreadful", 1)] * 120
        rows = [{"text": sentence(draw, word), "text_pair": sentence(draw), "label": n} for word, n in kinds]
        data = write(tmp_path / "train.csv", rows)
    result = tune(model, data, out, kind=kind, train__epochs=3)
    metric = {"pair": "accuracy", "multilabel": "micro_f1", "regression": "spearman", "tagging": "span_f1"}[kind]
    assert result.metric == metric and result.values(metric)[0] > 0.8 and result.seeds[0].failed is None
    named = {"pair": "single_label", "multilabel": "multi_label"}  # for transformers
    expected = f"{named[kind]}_classification" if kind in named else "regression" if kind == "regression" else None
    assert json.loads((out / "model/config.json").read_text()).get("problem_type") == expected


def test_a_file_may_be_named_without_a_folder(
    model: str, easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(easy.parent)
    arguments = command(model, easy, tmp_path / "out", "--data.train", easy.name, "--seed", "3")
    place = arguments.index("--data")
    assert main([*arguments[:place], *arguments[place + 2 :]]) == 0
    assert [one["seed"] for one in json.loads((tmp_path / "out/results.json").read_text())["seeds"]] == [3]


def test_each_seed_has_its_own_sample(
    model: str, easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[int, Any] = {}

    def record(*arguments: Any, seed: int, **others: Any) -> Any:
        drawn[seed] = subsample(*arguments, seed=seed, **others)
        return drawn[seed]

    monkeypatch.setattr("electra.finetuning.setup.subsample", record)
    for name, more in (("shots", {"data__shots": 20}), ("fraction", {"data__fraction": 0.1})):
        result = tune(model, easy, tmp_path / name, **more, seeds=2)
        assert [seed.steps for seed in result.seeds] == [6, 6]
        assert drawn.keys() == {0, 1} and drawn[0] != drawn[1]
        drawn.clear()


def glue(folder: Path) -> Path:
    draw = random.Random(0)
    for split, count in (("train", 64), ("dev", 16), ("test", 4)):
        rows = [
            f"{sentence(draw, word)}\t{label}" for word, label in [("splendid", 1), ("dreadful", 0)] * (count // 2)
        ]
        path = folder / "SST-2" / f"{split}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("sentence\tlabel\n" + "\n".join(rows) + "\n")
    return folder


def test_a_task_of_glue_by_name_and_its_submission(model: str, tmp_path: Path) -> None:
    out, archive = tmp_path / "out", tmp_path / "submission.zip"
    arguments = command(
        model, glue(tmp_path / "glue"), out, "--task", "SST-2", "--submission", str(archive), kind=None
    )
    assert main(arguments) == 0
    results = json.loads((out / "results.json").read_text())
    assert (results["task"], results["metric"], results["examples"]["test"]) == ("sst-2", "accuracy", 4)
    test = [one["label"] for one in records(out / "test.jsonl")]
    with zipfile.ZipFile(archive) as content:
        text = content.read("SST-2.tsv").decode()
    assert text == "index\tprediction\n" + "".join(f"{i}\t{label}\n" for i, label in enumerate(test))


def test_each_seed_stores_its_predictions_of_test_for_a_comparison(model: str, easy: Path, tmp_path: Path) -> None:
    data, rows = tmp_path / "data", easy.read_text().splitlines()
    data.mkdir()
    for name, of_split in (("train", rows[1:65]), ("dev", rows[65:81]), ("test", rows[81:99])):
        (data / f"{name}.csv").write_text("\n".join([rows[0], *of_split]))
    out = tmp_path / "out"
    for seed in tune(model, data, out, seeds=2).seeds:
        stored = records(out / f"seed-{seed.seed}/test.jsonl")
        assert [f"{one['text']},{one['gold']}" for one in stored] == rows[81:99]
        right = sum(one["label"] == one["gold"] for one in stored)
        assert seed.others["test"]["accuracy"] == pytest.approx(right / 18)
    compared = compare_finetunings(out, out, resamples=5).others["test"]
    assert compared.interval == (0, 0) and compared.examples == 18


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_test_splits_are_predicted_on_a_gpu(model: str, tmp_path: Path) -> None:
    more = {"kind": "named", "task": "sst-2", "train__device": "cuda"}
    tune(model, glue(tmp_path / "glue"), tmp_path / "out", **more)
    assert len(records(tmp_path / "out/test.jsonl")) == 4


def test_a_fine_tuning_can_start_from_another(finished: FinetuneResult, model: str, tmp_path: Path) -> None:
    draw = random.Random(1)
    data = write(tmp_path / "train.csv", [{"text": sentence(draw), "label": i % 3} for i in range(60)])
    arguments = command(
        model, data, tmp_path / "out", "--init-from-task", str(finished.out), **{"optimizer.learning_rate": 1e-12}
    )
    assert main(arguments) == 0
    assert json.loads((tmp_path / "out/results.json").read_text())["pretrained"] == str(finished.out)
    before, after = (load_file(out / "model/model.safetensors") for out in (finished.out, tmp_path / "out"))
    assert all(
        torch.allclose(before[name], after[name], atol=1e-6) for name in before if name.startswith("electra.")
    )
    assert before["classifier.out_proj.weight"].shape[0] == 2 and after["classifier.out_proj.weight"].shape[0] == 3


def test_a_task_in_a_file(model: str, easy: Path, tmp_path: Path) -> None:
    lines = [
        f'data.path = "{easy}"',
        'kind = "classification"',
        "train.epochs = 0.1",
        "tracking.tensorboard = false",
    ]
    (tmp_path / "reviews.toml").write_text(
        "\n".join([*lines, 'train.precision = "float32"', 'train.device = "cpu"'])
    )
    assert main(["finetune", model, "--task", str(tmp_path / "reviews.toml"), "--out", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out/results.json").read_text())["task"] == "reviews"

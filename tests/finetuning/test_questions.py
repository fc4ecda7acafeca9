"""Fine-tuning for questions, some without an answer: metrics, files, resuming, export."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import electra
from electra.errors import ConfigError
from electra.finetuning import seed_run
from electra.finetuning.config import load_task_config
from electra.finetuning.results import FinetuneResult
from electra.finetuning.run import finetune
from electra.tasks.squad_files import read_questions
from electra.tasks.squad_metrics import best_thresholds, compute_squad_metrics

NAMES = ["Ann", "Bob", "Cid", "Dot", "Eve", "Flo"]


@pytest.fixture(scope="module")
def model(make_model: Callable[[Sequence[str], int, int], str]) -> str:
    return make_model([f"{name} saw the red fox , who did not see {name}" for name in NAMES] * 5, 120, 80)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Who saw the fox? The only name in the passage, or nobody; some passages make several rows."""
    folder, draw = tmp_path_factory.mktemp("data"), random.Random(0)
    for name, count in (("train", 64), ("dev", 24)):
        paragraphs = []
        for number in range(count):
            who = draw.choice(NAMES) if number % 3 else None
            before = "the fox did not see the red . " * draw.choice([1, 1, 1, 5])
            context = f"{before}{who} saw the fox" if who else f"{before}the fox"
            answers = [{"text": who, "answer_start": context.index(who)}] if who else []
            asked = {"id": f"{name}-{number}", "question": "who saw the fox", "answers": answers}
            paragraphs.append({"context": context, "qas": [{**asked, "is_impossible": who is None}]})
        (folder / f"{name}-v2.0.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return folder


def tune(model: str, data: Path, out: Path, **others: Any) -> FinetuneResult:
    settings = {
        "model": model, "task": "squad2", "data.path": data, "out": out, "train.precision": "float32",
        "train.batch_size": 8, "optimizer.learning_rate": 5e-3, "tracking.tensorboard": False,
        "train.device": "cpu", "train.epochs": 4, "data.max_length": 72,
    }  # fmt: skip
    return finetune(load_task_config({**settings, **others}))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("span", ["conditional", "plain"])
def test_metrics_and_files_belong_to_the_same_predictions(
    span: str, model: str, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = tune(model, data, out, **{"head.span": span})
    metrics, seed = result.seeds[0].metrics, out / "seed-0"
    questions, _ = read_questions(data / "dev-v2.0.json")
    golds = [[text for text, _ in question.answers] for question in questions]
    answers = json.loads((seed / "predictions.json").read_text())
    odds = json.loads((seed / "null_odds.json").read_text())
    given = [answers[question.id] for question in questions]
    assert {name: metrics[name] for name in ("exact", "f1")} == pytest.approx(
        {
            name: value
            for name, value in compute_squad_metrics(given, golds, impossible=True).items()
            if "_" not in name
        }
    )
    said = lines(seed / "dev.jsonl")
    best = [one["n_best"][0]["text"] if one["n_best"] else "" for one in said]
    thresholds = best_thresholds(best, golds, [odds[question.id] for question in questions])
    assert metrics["exact"] == pytest.approx(thresholds["best_exact"]), "the threshold is the best one of dev"
    assert metrics["exact"] > 0.5 and result.metric == "exact"
    asked = [(question.question, question.context) for question in questions]
    assert [one["answer"] for one in electra.load(out, device="cpu").predict(asked)] == given
    architecture = json.loads((out / "model/config.json").read_text())["architectures"]
    assert (architecture == ["ElectraForQuestionAnswering"]) == (span == "plain")


def test_the_best_weights_are_those_of_the_reported_metric(model: str, data: Path, tmp_path: Path) -> None:
    result = tune(model, data, tmp_path / "out", **{"evaluation.keep": "best", "evaluation.every": 4})
    seen = [one["eval/exact"] for one in lines(tmp_path / "out/seed-0/metrics.jsonl") if "eval/exact" in one]
    assert result.seeds[0].metrics["exact"] == pytest.approx(max(seen))


def test_a_crashed_run_resumes_bit_for_bit(
    model: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    breaks: Callable[[int, Callable[[], None]], None],
) -> None:  # fmt: skip
    monkeypatch.setattr(seed_run, "MIN_CHECKPOINT_STEPS", 3)

    def crash() -> None:
        raise RuntimeError("the machine is gone")

    tune(model, data, tmp_path / "whole", **{"train.epochs": 1})
    breaks(7, crash)
    with pytest.raises(RuntimeError):
        tune(model, data, tmp_path / "died", **{"train.epochs": 1})
    breaks(2, crash)
    tune(model, data, tmp_path / "died", **{"train.epochs": 1})
    for name in ("seed-0/dev.jsonl", "seed-0/null_odds.json", "model/model.safetensors"):
        assert (tmp_path / "died" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_rows_must_hold_a_question(model: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rows of 60 tokens cannot hold a question of 64"):
        tune(model, data, tmp_path / "out", **{"data.max_length": 60})

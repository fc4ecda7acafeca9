"""A small fine-tuning: its settings, its data, and what it leaves."""

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loop import CLOCKS
from safetensors.torch import load_file

from electra.finetuning.config import load_task_config
from electra.finetuning.results import FinetuneResult
from electra.finetuning.run import finetune

NOUNS = ["gardener", "sailor", "clock", "neighbour", "river", "teacher", "fox", "garden", "boat", "road", "town"]
SETTINGS: dict[str, Any] = {
    "kind": "classification", "train.precision": "float32", "train.batch_size": 16, "train.epochs": 2,
    "optimizer.learning_rate": 1e-2, "tracking.tensorboard": False, "train.device": "cpu",
}  # fmt: skip


def sentence(draw: random.Random, *words: str) -> str:
    parts = [*words, *draw.choices(NOUNS, k=draw.randint(2, 8))]
    return " ".join(draw.sample(parts, len(parts)))


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def tune(model: str, data: Path, out: Path, **others: Any) -> FinetuneResult:
    """Fine-tune with settings whose dots are written as two underscores."""
    settings = SETTINGS | {name.replace("__", "."): value for name, value in others.items()}
    return finetune(load_task_config({**settings, "model": model, "data.path": data, "out": out}))


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def contents(out: Path) -> dict[str, Any]:
    """Contents of a fine-tuning's folder, without times."""
    results = json.loads((out / "results.json").read_text())
    for seed in results["seeds"]:
        del seed["seconds"]
    metrics = {
        place.parent.name: [{k: v for k, v in one.items() if k not in CLOCKS} for one in records(place)]
        for place in out.glob("seed-*/metrics.jsonl")
    }
    weights = {name: tensor.tolist() for name, tensor in load_file(out / "model/model.safetensors").items()}
    return {"results": results, "metrics": metrics, "weights": weights, "dev": records(out / "seed-0/dev.jsonl")}

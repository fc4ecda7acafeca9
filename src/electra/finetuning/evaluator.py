"""Evaluation on dev during a run: metrics, the best weights, early stopping."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from electra import durable
from electra.finetuning.results import write_predictions
from electra.finetuning.setup import DEV, FinetuneSetup
from electra.reports.metrics import read_metrics
from electra.tasks.base import Outputs, Prediction, Problem
from electra.tasks.task_model import TaskModel
from electra.training.run_folder import RunFolder

BEST_WEIGHTS = "best.safetensors"


class DevEvaluator:
    """Evaluates a model on dev, keeps its best weights if the config says so, and decides when to stop.

    Args:
        run: the folder of the run, whose metrics.jsonl has the earlier evaluations.
    """

    def __init__(self, setup: FinetuneSetup, model: TaskModel, run: RunFolder) -> None:
        self.setup, self.model, self.run = setup, model, run
        self.key = f"eval/{setup.task.problem.metric}"
        self.best_weights = run.path / BEST_WEIGHTS
        self.last_outputs: list[Outputs] | None = None

    def evaluate(self, _: int) -> dict[str, float]:
        """Return the metrics on dev, with the prefix eval/."""
        self.last_outputs = compute_split_outputs(self.setup, self.model, DEV)
        metrics = predict_dev(self.setup, self.last_outputs)[2]
        metrics = {f"eval/{name}": value for name, value in metrics.items()}
        if self._keeps_best and metrics[self.key] > max(self._earlier_values(), default=-math.inf):
            weights = {name: p.detach().contiguous() for name, p in self.model.named_parameters()}
            durable.write(self.best_weights, lambda partial: save_file(weights, partial))
        return metrics

    def should_stop(self, _: dict[str, Any]) -> bool:
        """Whether `evaluation.patience` evaluations brought no improvement."""
        patience, values = self.setup.config.evaluation.patience, self._earlier_values()
        return bool(patience) and len(values) - 1 - values.index(max(values)) >= patience

    def final_outputs(self) -> list[Outputs]:
        """Load the best weights into the model, if they are kept, and return its outputs on dev."""
        if self._keeps_best and self.best_weights.is_file():
            weights = load_file(self.best_weights)
            assert weights.keys() == dict(self.model.named_parameters()).keys(), "the weights are of this model"
            self.model.load_state_dict(weights, strict=False)  # weights that blocks share are stored once
            self.last_outputs = None
        return self.last_outputs or compute_split_outputs(self.setup, self.model, DEV)

    @property
    def _keeps_best(self) -> bool:
        return self.setup.config.evaluation.keep == "best"

    def _earlier_values(self) -> list[float]:
        """The metric of each evaluation so far; in a resumed run, of those before its checkpoint."""
        return [float(evaluation[self.key]) for evaluation in read_metrics(self.run.path).evaluations]


def compute_split_outputs(setup: FinetuneSetup, model: TaskModel, split: str) -> list[Outputs]:
    """Return the outputs of a model for each row of a split."""
    with setup.precision.autocast(setup.device):
        return model.outputs(setup.rows[split], pad=setup.pad, device=setup.device)


def score_split(setup: FinetuneSetup, model: TaskModel, split: str, folder: Path) -> dict[str, float]:
    """Write a model's predictions for a split into the folder of its seed, and return their metrics."""
    problem, examples = model.problem, setup.task.splits[split]
    predictions = problem.decode(examples, setup.rows[split], compute_split_outputs(setup, model, split))
    write_scored_predictions(folder, split, problem, examples, predictions)
    return problem.compute_metrics(examples, predictions)


def write_scored_predictions(
    folder: Path, split: str, problem: Problem, examples: Sequence[Any], predictions: Sequence[Prediction]
) -> None:
    """Write predictions next to the texts and answers of their examples, as `electra compare` reads them."""
    described = [
        {**problem.describe_example(example), **prediction}
        for example, prediction in zip(examples, predictions, strict=True)
    ]
    write_predictions(folder, split, described)


def predict_dev(
    setup: FinetuneSetup, outputs: Sequence[Outputs]
) -> tuple[Problem, list[Prediction], dict[str, float]]:
    """Return the problem with the threshold that is best for outputs on dev, its predictions and their metrics."""
    problem, examples, rows = setup.task.problem, setup.task.splits[DEV], setup.rows[DEV]
    predictions = problem.decode(examples, rows, outputs)
    metrics = problem.compute_metrics(examples, predictions)
    if (tuned := problem.with_tuned_threshold(metrics)) is not problem:
        predictions = tuned.decode(examples, rows, outputs)
        metrics = tuned.compute_metrics(examples, predictions)
    return tuned, predictions, metrics

"""The results of a fine-tuning's seeds, and its files."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.table import Table

from electra import durable
from electra.config import load_config
from electra.errors import CheckpointError, ConfigError, DataError
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.load_task import load_task
from electra.finetuning.setup import DEV, FinetuneSetup
from electra.objectives.metric_labels import metric_label
from electra.tasks import squad_files
from electra.tasks.base import Prediction, Problem
from electra.training.checkpoint_io import describe_difference
from electra.training.run_folder import RunFolder, require_same_config

MAY_CHANGE = ("out", "data.path", "model", "train.device", "tracking.tracker", "tracking.on_event")
"""Settings of a finished or interrupted run that may differ: a command, the device, the tracker, and paths, whose
fingerprints show that their content is the same."""
SHOWN_METRICS = 6
"""Number of metrics in the table on the console. All are in results.json."""


@dataclass(frozen=True)
class SeedResult:
    """The result of one seed.

    Attributes:
        metrics: metrics on dev by name.
        failed: why the run counts as failed; None: it did not fail.
        seconds: duration of the steps, without evaluations.
        identity: what it was trained from: fingerprints of the data and of the encoder.
        diverged: its numbers became infinite or NaN, so it has no model.
        others: metrics on other splits that have answers (MNLI's mismatched part, a test split), by split.
        fingerprints: those of the splits in `others`. Results from before 2026-11-29 have none.
    """

    seed: int
    metrics: dict[str, float]
    failed: str | None
    steps: int
    seconds: float
    identity: dict[str, str] = field(default_factory=dict)
    diverged: bool = False
    others: dict[str, dict[str, float]] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)

    def with_metrics_of(self, splits: Mapping[str, str]) -> "SeedResult":
        """Return the result without the metrics on splits that have changed since, or are gone.

        Args:
            splits: the present fingerprints of the further splits.
        """
        others = {
            split: metrics
            for split, metrics in self.others.items()
            if split in splits and self.fingerprints.get(split, splits[split]) == splits[split]
        }
        return replace(self, others=others)


@dataclass(frozen=True)
class FinetuneResult:
    """The results of a fine-tuning's seeds."""

    out: Path
    task: str
    metric: str
    seeds: list[SeedResult]
    stopped_by: int | None = None
    notes: list[str] = field(default_factory=list)

    def with_seed(self, result: SeedResult) -> "FinetuneResult":
        """Return the results with one more."""
        return replace(self, seeds=sorted([*self.seeds, result], key=lambda one: one.seed))

    @property
    def exit_code(self) -> int:
        """0, or 128 + the number of the signal that stopped it, as in shells."""
        return 128 + self.stopped_by if self.stopped_by else 0

    @property
    def best(self) -> SeedResult:
        """The seed with the best metric. Failed seeds rank below all others, diverged ones last."""
        return max(self.seeds, key=lambda one: (one.failed is None, not one.diverged, one.metrics[self.metric]))

    @property
    def failed(self) -> int:
        """Number of failed seeds."""
        return sum(result.failed is not None for result in self.seeds)

    def values(self, name: str) -> list[float]:
        """Return a metric of every seed, including failed ones."""
        return [result.metrics[name] for result in self.seeds]

    def to_dict(self, setup: FinetuneSetup) -> dict[str, Any]:
        """Return the contents of results.json."""
        values = self.values(self.metric)
        return {
            "task": self.task,
            "metric": self.metric,
            "median": statistics.median(values),
            "mean": statistics.mean(values),
            "standard_deviation": statistics.stdev(values) if len(values) > 1 else None,
            "failed": self.failed,
            "seeds": [
                {k: v for k, v in asdict(result).items() if k not in ("identity", "fingerprints")}
                for result in self.seeds
            ],
            "best_seed": self.best.seed,
            "pretrained": setup.config.model if setup.config.init == "pretrained" else None,
            "model": None if self.best.diverged else "model",
            "examples": {split: len(examples) for split, examples in setup.task.splits.items()},
            "notes": list(setup.task.notes),
        }

    def __rich__(self) -> RenderableType:
        if self.stopped_by is not None:
            return f"{self.out}: stopped after {len(self.seeds)} seeds; the same command resumes it"
        names = [name for name in self.seeds[0].metrics if "/" not in name][:SHOWN_METRICS]
        status = [""] if self.failed else []
        table = Table(
            "seed", *map(metric_label, names), *status, title=f"{self.task} on {DEV}", title_justify="left"
        )
        for result in self.seeds:
            failed = f"failed: {result.failed}" if result.failed else ""
            table.add_row(
                str(result.seed), *(f"{result.metrics[name]:.4f}" for name in names), *([failed] if status else [])
            )
        if len(self.seeds) > 1:
            table.add_section()
            for label, function in (
                ("median", statistics.median),
                ("mean", statistics.mean),
                ("deviation", statistics.stdev),
            ):
                table.add_row(label, *(f"{function(self.values(name)):.4f}" for name in names), *status)
        others = []
        for split in set.intersection(*(set(result.others) for result in self.seeds)):
            median = statistics.median(result.others[split][self.metric] for result in self.seeds)
            others.append(f"{split}: {metric_label(self.metric)} {median:.4f}")
        paths = [f"results: {self.out / 'results.json'}"]
        if (self.out / "model").is_dir():
            failed = f" (failed: {self.best.failed}; do not use it)" if self.best.failed else ""
            paths.append(f"best model: {self.out / 'model'}{failed}")
        return Group(table, *others, *paths, *self.notes)


def failure_reason(problem: Problem, predictions: Sequence[Prediction], examples: Sequence[Any]) -> str | None:
    """Return why a run counts as failed: it predicts the same for all of dev (the most frequent answer, or
    none)."""
    answers = [prediction[problem.answer_key] for prediction in predictions]
    gold = [problem.describe_example(example)["gold"] for example in examples]
    if all(isinstance(answer, float) for answer in answers):
        is_constant = len(answers) > 1 and bool(torch.tensor(answers).std() < 0.01 * torch.tensor(gold).std())
        return "its predictions hardly differ" if is_constant else None
    if problem.reads_words:
        answers, gold = [*chain(*answers)], [*chain(*gold)]
    distinct, distinct_gold = ({json.dumps(one, ensure_ascii=False) for one in each} for each in (answers, gold))
    if not len(distinct) == 1 < len(distinct_gold):
        return None
    answer = distinct.pop()
    return "it never predicts an answer" if answer == '""' else f"it always predicts {answer}"


def write_predictions(folder: Path, split: str, predictions: Sequence[Prediction]) -> None:
    """Write predictions as JSON lines, atomically; those for questions also for SQuAD's script."""
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in predictions)
    durable.write_text(folder / f"{split}.jsonl", lines)
    if predictions and "null_odds" in predictions[0]:
        squad_files.write_predictions(folder, predictions)


def load_finished_seeds(out: Path, config: FinetuneConfig, identity: Mapping[str, str]) -> list[SeedResult]:
    """Return the results of all seeds that are finished already, in order.

    Args:
        identity: what they must have been trained from.

    Raises:
        CheckpointError: they were trained with other settings or data.
    """
    numbers = (path.name.removeprefix("seed-") for path in out.glob("seed-*"))
    seeds = sorted(int(number) for number in numbers if number.isdigit())
    results = [_load_result(out / f"seed-{seed}", replace(config, seeds=1, seed=seed), identity) for seed in seeds]
    return [result for result in results if result is not None]


def _load_result(folder: Path, config: FinetuneConfig, identity: Mapping[str, str]) -> SeedResult | None:
    path = folder / "result.json"
    if not path.is_file():
        return None
    require_same_config(RunFolder(folder), config, settled={}, ignore=MAY_CHANGE)
    try:
        result = SeedResult(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); remove it to run this seed again") from error
    if changed := [name for name, value in identity.items() if result.identity.get(name) != value]:
        raise CheckpointError(
            f"{folder} was trained with {' and '.join(map(describe_difference, changed))}; give another --out, or "
            "start next to it with --fresh"
        )
    return result


def find_finetuning(model: str | Path) -> Path | None:
    """Return the folder of the fine-tuning that a MODEL belongs to: itself or its parent; None: it is neither."""
    path = Path(model)
    if RunFolder(path).config.is_file():
        return path
    parent = path.resolve().parent
    return parent if (parent / "results.json").is_file() and RunFolder(parent).config.is_file() else None


def load_finetuning_config(folder: Path) -> FinetuneConfig:
    """Return the config of a fine-tuning's folder, or of a seed's."""
    return load_config(FinetuneConfig, RunFolder(folder).config)


def load_dev_examples(model: str | Path, path: Path | None) -> Sequence[Any]:
    """Return the dev examples of the task that a model was fine-tuned for.

    Args:
        path: the data of the task; None: the data that it was fine-tuned on.

    Raises:
        DataError: the model is not in the folder of a fine-tuning, or its data cannot be read.
    """
    folder = find_finetuning(model)
    if folder is None:
        raise DataError(
            f"{model} does not say which task it was fine-tuned for; give the folder of the fine-tuning"
        )
    config = load_finetuning_config(folder)
    if path is not None:
        config = replace(config, data=replace(config.data, path=path))
    try:
        return load_task(config).splits[DEV]
    except (DataError, ConfigError) as error:
        raise DataError(f"{error}; give the task's data with --data") from error

"""Comparison of two fine-tunings of one task: paired bootstrap over the examples of dev."""

import json
import logging
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from electra.analysis.bootstrap import percentile_interval
from electra.errors import CheckpointError, DataError
from electra.export.display_name import display_names
from electra.finetuning.load_task import load_task
from electra.finetuning.results import load_finetuning_config
from electra.finetuning.setup import DEV
from electra.json_files import read_json
from electra.tasks.base import Prediction, Task
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Comparison:
    """The metric of two fine-tunings, and their difference.

    Attributes:
        metric: its name; the values are means over the seeds.
        interval: the 95% interval of the difference, second - first.
        probability: the two-sided p-value: how often a difference of this size comes from the choice of examples
            alone.
        seeds: the number of seeds of each.
        deviations: the standard deviation over the seeds of each; None for a single seed.
        names: of the two fine-tunings: the ends of their paths that differ.
        failed: the number of seeds of each that count as failed.
        others: the means of both on further splits with answers, such as test, by split.
    """

    metric: str
    first: float
    second: float
    interval: tuple[float, float]
    probability: float
    examples: int
    seeds: tuple[int, int]
    deviations: tuple[float | None, float | None]
    names: tuple[str, str]
    failed: tuple[int, int]
    others: dict[str, tuple[float, float]]

    def as_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric, "first": self.first, "second": self.second,
            "difference": self.second - self.first, "interval": self.interval, "p": self.probability,
            "examples": self.examples, "seeds": self.seeds, "standard_deviations": self.deviations,
            "names": self.names, "failed": self.failed, "others": self.others,
        }  # fmt: skip


def compare_finetunings(
    first: Path, second: Path, *, data: Path | None = None, resamples: int = 1000, seed: int = 0
) -> Comparison:
    """Compare two fine-tunings by their predictions for the same examples of dev.

    Args:
        first, second: folders that `electra finetune` wrote.
        data: the task's data, if it was moved since.

    Raises:
        CheckpointError: a folder is no fine-tuning, or the two have different tasks or data.
        DataError: the data has changed since.
    """
    task = _load_common_task(first, second, data)
    examples, problem = task.splits[DEV], task.problem
    known = json.loads(json.dumps([problem.describe_example(example) for example in examples]))
    sides = [_read_predictions(folder, known) for folder in (first, second)]
    one, other = (read_json(folder / "results.json")["seeds"] for folder in (first, second))
    metric = problem.metric

    def scores(runs: list[list[Prediction]], indices: list[int]) -> list[float]:
        """The metric of each seed on some examples."""
        sample = [examples[i] for i in indices]
        return [problem.compute_metrics(sample, [predictions[i] for i in indices])[metric] for predictions in runs]

    values = [scores(runs, list(range(len(examples)))) for runs in sides]
    means = [statistics.mean(of_seeds) for of_seeds in values]
    rng = np.random.default_rng(seed)
    differences = np.empty(resamples)
    for number in range(resamples):
        indices = rng.integers(len(examples), size=len(examples)).tolist()
        first_mean, second_mean = (statistics.mean(scores(runs, indices)) for runs in sides)
        differences[number] = second_mean - first_mean
        done = number + 1
        if done % 10 == 0:
            logger.info("%s of %s resamples", done, resamples, extra={"progress": (done, resamples)})
    observed, names = means[1] - means[0], display_names([first, second])
    # Resampled differences vary around the observed one as they would vary around 0 under the null hypothesis.
    at_least_as_large = int((np.abs(differences - differences.mean()) >= abs(observed)).sum())
    deviations = [statistics.stdev(of_seeds) if len(of_seeds) > 1 else None for of_seeds in values]
    return Comparison(
        metric, means[0], means[1], percentile_interval(differences), (at_least_as_large + 1) / (resamples + 1),
        len(examples), (len(values[0]), len(values[1])), (deviations[0], deviations[1]),
        names=(names[0], names[1]), failed=(_count_failed(one), _count_failed(other)),
        others=_common_splits(one, other, metric),
    )  # fmt: skip


def _count_failed(seeds: list[dict[str, Any]]) -> int:
    return sum(seed.get("failed") is not None for seed in seeds)


def _common_splits(
    first: list[dict[str, Any]], second: list[dict[str, Any]], metric: str
) -> dict[str, tuple[float, float]]:
    """The means over the seeds of both on the splits that every seed was evaluated on, besides dev."""
    sides = [[seed.get("others", {}) for seed in seeds] for seeds in (first, second)]
    splits = [
        split for split in sides[0][0] if all(metric in seed.get(split, {}) for side in sides for seed in side)
    ]
    means = [{split: statistics.mean(seed[split][metric] for seed in side) for split in splits} for side in sides]
    return {split: (means[0][split], means[1][split]) for split in splits}


def _load_common_task(first: Path, second: Path, data: Path | None) -> Task:
    """The task of both fine-tunings."""
    configs = []
    for folder in (first, second):
        if not RunFolder(folder).config.is_file() or not (folder / "results.json").is_file():
            raise CheckpointError(
                f"{folder} holds no finished fine-tuning; give a folder that `electra finetune` wrote"
            )
        if tasks := sorted(path.parent.name for path in folder.glob("*/results.json")):
            raise CheckpointError(f"{folder} holds several fine-tunings; compare one of them: {', '.join(tasks)}")
        config = load_finetuning_config(folder)
        if data is None and config.data.path is not None and not config.data.path.exists():
            raise CheckpointError(
                f"{config.data.path}, the data of {folder}, does not exist; give its new place: --data PATH"
            )
        configs.append(config if data is None else replace(config, data=replace(config.data, path=data)))
    one, other = (load_task(config) for config in configs)
    if one.name != other.name or list(one.splits[DEV]) != list(other.splits[DEV]):
        raise CheckpointError(
            f"{first} and {second} were evaluated on different data ({one.name}, {len(one.splits[DEV]):,} "
            f"examples, and {other.name}, {len(other.splits[DEV]):,}); compare two fine-tunings of one task"
        )
    return one


def _read_predictions(folder: Path, known: list[dict[str, Any]]) -> list[list[Prediction]]:
    """The predictions of each seed for dev.

    Args:
        known: the texts and labels of the examples as they are now; the predictions are stored with those of then.

    Raises:
        CheckpointError: predictions are missing.
        DataError: they are of other examples.
    """
    seeds = [seed["seed"] for seed in read_json(folder / "results.json")["seeds"]]
    files = [folder / f"seed-{seed}" / f"{DEV}.jsonl" for seed in seeds]
    if missing := [path for path in files if not path.is_file()]:
        raise CheckpointError(f"{missing[0]} is missing; run the fine-tuning again")
    runs = []
    for path in files:
        with path.open(encoding="utf-8") as file:
            runs.append([json.loads(line) for line in file])
    for path, predictions in zip(files, runs, strict=True):
        if len(predictions) != len(known):
            raise DataError(
                f"{path}: {len(predictions):,} predictions for {len(known):,} examples; the data has changed"
            )
        for line, (prediction, now) in enumerate(zip(predictions, known, strict=True), start=1):
            if changed := [name for name, value in now.items() if prediction.get(name, value) != value]:
                raise DataError(
                    f"{path}:{line}: {changed[0]} is {prediction[changed[0]]!r}, but {now[changed[0]]!r} in the "
                    "current data; the data has changed, or belongs to another task"
                )
    return runs

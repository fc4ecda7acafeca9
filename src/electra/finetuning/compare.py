"""Comparison of two fine-tunings of one task: paired bootstrap over the examples of dev, test and so on."""

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
class Difference:
    """The metric of two fine-tunings on one split, and their difference.

    Attributes:
        first, second: means over the seeds.
        deviations: the standard deviation over the seeds of each; None for a single seed.
        interval: the 95% interval of the difference, second - first. It and the next two are None if the seeds'
            predictions are not known.
        probability: the two-sided p-value: how often a difference of this size comes from the choice of examples
            alone.
        examples: their number.
    """

    first: float
    second: float
    deviations: tuple[float | None, float | None]
    interval: tuple[float, float] | None = None
    probability: float | None = None
    examples: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "first": self.first, "second": self.second, "difference": self.second - self.first,
            "interval": self.interval, "p": self.probability, "examples": self.examples,
            "standard_deviations": self.deviations,
        }  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """Two fine-tunings on dev, and on further splits with answers.

    Attributes:
        metric: the name of the metric.
        seeds: the number of seeds of each.
        names: of the two fine-tunings: the ends of their paths that differ.
        failed: the number of seeds of each that count as failed.
        others: the further splits that all seeds were evaluated on, such as test.
    """

    metric: str
    dev: Difference
    seeds: tuple[int, int]
    names: tuple[str, str]
    failed: tuple[int, int]
    others: dict[str, Difference]

    def as_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric, **self.dev.as_json(), "seeds": self.seeds, "names": self.names,
            "failed": self.failed, "others": {split: one.as_json() for split, one in self.others.items()},
        }  # fmt: skip


def compare_finetunings(
    first: Path, second: Path, *, data: Path | None = None, resamples: int = 1000, seed: int = 0
) -> Comparison:
    """Compare two fine-tunings by their predictions for the same examples of dev, and of splits such as test.

    Args:
        first, second: folders that `electra finetune` wrote.
        data: the task's data, if it was moved since.

    Raises:
        CheckpointError: a folder is no fine-tuning, or the two have different tasks or data.
        DataError: the dev data has changed since.
    """
    task, folders = _load_common_task(first, second, data), (first, second)
    one, other = (read_json(folder / "results.json")["seeds"] for folder in folders)
    metric, names = task.problem.metric, display_names([first, second])

    def on_split(split: str) -> Difference:
        return _paired_bootstrap(task, split, folders, resamples=resamples, seed=seed)

    dev, others = on_split(DEV), {}
    for split, means in _common_splits(one, other, metric).items():
        try:
            others[split] = on_split(split)
        except CheckpointError as error:
            logger.warning("the difference on %s has no interval: %s", split, error)
            others[split] = means
        except DataError as error:  # the two may have been evaluated on different examples
            logger.warning("%s is not compared: %s", split, error)
    return Comparison(
        metric, dev, seeds=(len(one), len(other)), names=(names[0], names[1]),
        failed=(_count_failed(one), _count_failed(other)), others=others,
    )  # fmt: skip


def _paired_bootstrap(
    task: Task, split: str, folders: tuple[Path, Path], *, resamples: int, seed: int
) -> Difference:
    """The difference on a split, whose examples are drawn again for its interval: the same ones for both.

    Raises:
        CheckpointError: predictions are missing.
        DataError: they are of other examples.
    """
    examples, problem = task.splits.get(split, ()), task.problem
    known = json.loads(json.dumps([problem.describe_example(example) for example in examples]))
    sides = [_read_predictions(folder, split, known) for folder in folders]

    def scores(runs: list[list[Prediction]], indices: list[int]) -> list[float]:
        """The metric of each seed on some examples."""
        sample = [examples[i] for i in indices]
        return [
            problem.compute_metrics(sample, [predictions[i] for i in indices])[problem.metric]
            for predictions in runs
        ]

    means = _means(*(scores(runs, list(range(len(examples)))) for runs in sides))
    rng = np.random.default_rng(seed)
    differences = np.empty(resamples)
    for number in range(resamples):
        indices = rng.integers(len(examples), size=len(examples)).tolist()
        first_mean, second_mean = (statistics.mean(scores(runs, indices)) for runs in sides)
        differences[number] = second_mean - first_mean
        done = number + 1
        if done % 10 == 0:
            logger.info("%s: %s of %s resamples", split, done, resamples, extra={"progress": (done, resamples)})
    # Resampled differences vary around the observed one as they would vary around 0 under the null hypothesis.
    deviations = np.abs(differences - differences.mean())
    at_least_as_large = int((deviations >= abs(means.second - means.first)).sum())
    return replace(
        means, interval=percentile_interval(differences), probability=(at_least_as_large + 1) / (resamples + 1),
        examples=len(examples),
    )  # fmt: skip


def _means(first: list[float], second: list[float]) -> Difference:
    """The difference of the means over the seeds, without an interval."""
    one, other = (statistics.stdev(values) if len(values) > 1 else None for values in (first, second))
    return Difference(statistics.mean(first), statistics.mean(second), (one, other))


def _count_failed(seeds: list[dict[str, Any]]) -> int:
    return sum(seed.get("failed") is not None for seed in seeds)


def _common_splits(
    first: list[dict[str, Any]], second: list[dict[str, Any]], metric: str
) -> dict[str, Difference]:
    """The means over the seeds of both on the splits that every seed was evaluated on, besides dev."""
    sides = [[seed.get("others", {}) for seed in seeds] for seeds in (first, second)]
    splits = [
        split for split in sides[0][0] if all(metric in seed.get(split, {}) for side in sides for seed in side)
    ]
    return {split: _means(*([seed[split][metric] for seed in side] for side in sides)) for split in splits}


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


def _read_predictions(folder: Path, split: str, known: list[dict[str, Any]]) -> list[list[Prediction]]:
    """The predictions of each seed for a split.

    Args:
        known: the texts and labels of the examples as they are now; the predictions are stored with those of then.

    Raises:
        CheckpointError: predictions are missing.
        DataError: they are of other examples.
    """
    seeds = [seed["seed"] for seed in read_json(folder / "results.json")["seeds"]]
    files = [folder / f"seed-{seed}" / f"{split}.jsonl" for seed in seeds]
    if missing := [path for path in files if not path.is_file()]:
        raise CheckpointError(
            f"{missing[0]} is missing; run the fine-tuning again with --fresh, "
            "which writes next to it, and compare that folder"
        )
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

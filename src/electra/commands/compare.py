"""`electra compare`: is one fine-tuning better than another? A paired bootstrap over the examples of dev."""

from __future__ import annotations

import json
import logging
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro
from rich.console import Group, RenderableType
from rich.table import Table

from electra.analysis.bootstrap import percentile_interval
from electra.errors import CheckpointError, ConfigError, DataError
from electra.json_files import read_json

if TYPE_CHECKING:
    from electra.tasks.base import Prediction, Task

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompareConfig:
    """The command line of `electra compare`."""

    first: tyro.conf.Positional[Path]
    """A folder that `electra finetune` wrote."""
    second: tyro.conf.Positional[Path]
    """Another one, of the same task and data."""
    data: Path | None = None
    """Where the task's data lie now, if they were moved since."""
    resamples: int = 1000
    """How often the examples are drawn anew."""
    seed: int = 0
    """Of the drawing."""
    json: bool = False
    """The figures as one JSON object."""


@dataclass(frozen=True)
class Comparison:
    """The figure of both, their difference, and how sure it is.

    Attributes:
        metric: the name of the figure; each is the mean over the seeds.
        interval: in which the difference (second - first) lies in 95 % of the resamples.
        probability: two-sided: how often a difference as large as this one comes of the choice of examples alone.
        seeds: how many runs each has.
        deviations: the standard deviations over the seeds.
    """

    metric: str
    first: float
    second: float
    interval: tuple[float, float]
    probability: float
    examples: int
    seeds: tuple[int, int]
    deviations: tuple[float | None, float | None]
    in_json: bool = False

    def facts(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "metric": self.metric, "first": self.first, "second": self.second,
            "difference": self.second - self.first, "interval": self.interval, "p": self.probability,
            "examples": self.examples, "seeds": self.seeds, "standard_deviations": self.deviations,
        }  # fmt: skip

    def __rich__(self) -> RenderableType:
        if self.in_json:
            return json.dumps(self.facts())
        table = Table("", self.metric, "seeds", "deviation over seeds")
        for name, value, seeds, deviation in zip(
            ("first", "second"), (self.first, self.second), self.seeds, self.deviations, strict=True
        ):
            table.add_row(name, f"{value:.4f}", str(seeds), "–" if deviation is None else f"{deviation:.4f}")
        low, high = self.interval
        sure = "more than the choice of examples explains" if self.probability < 0.05 else "not sure"
        line = f"second - first: {self.second - self.first:+.4f}, 95 % interval {low:+.4f} to {high:+.4f}"
        lines = [f"{line}, p = {self.probability:.3f} ({sure}; {self.examples:,} examples)"]
        if min(self.seeds) < 3:
            lines.append("with fewer than three seeds, how much the seed decides is not known")
        return Group(table, *lines)


def run(config: CompareConfig) -> Comparison:
    """Compare two fine-tunings of one task on the same examples of dev: paired bootstrap of the mean over seeds.

    Examples:
        electra compare OUT-SMALL OUT-BASE
        electra compare OUT1 OUT2 --resamples 10000 --json
    """
    from electra.finetuning.seed_run import DEV

    if config.resamples < 1:
        raise ConfigError(f"--resamples: must be at least 1, got {config.resamples}")
    task = _task(config.first, config.second, config.data)
    examples, problem = task.splits[DEV], task.problem
    known = json.loads(json.dumps([problem.known(example) for example in examples]))
    sides = [_predictions(folder, known) for folder in (config.first, config.second)]
    metric = problem.metric

    def value(runs: list[list[Prediction]], chosen: list[int]) -> list[float]:
        there = [examples[i] for i in chosen]
        return [problem.score(there, [predictions[i] for i in chosen])[metric] for predictions in runs]

    every = list(range(len(examples)))
    values = [value(runs, every) for runs in sides]
    means = [statistics.mean(each) for each in values]
    random = np.random.default_rng(config.seed)
    differences = np.empty(config.resamples)
    for number in range(config.resamples):
        chosen = random.integers(len(examples), size=len(examples)).tolist()
        first, second = (statistics.mean(value(runs, chosen)) for runs in sides)
        differences[number] = second - first
        done = number + 1
        if done % 10 == 0:
            logger.info("%s of %s resamples", done, config.resamples, extra={"progress": (done, config.resamples)})
    observed = means[1] - means[0]
    # Around the difference that was seen, as under the hypothesis that there is none it lies around 0.
    beyond = int((np.abs(differences - differences.mean()) >= abs(observed)).sum())
    low, high = percentile_interval(differences)
    deviations = [statistics.stdev(each) if len(each) > 1 else None for each in values]
    return Comparison(
        metric, means[0], means[1], (low, high), (beyond + 1) / (config.resamples + 1), len(examples),
        (len(values[0]), len(values[1])), (deviations[0], deviations[1]), config.json,
    )  # fmt: skip


def _task(first: Path, second: Path, data: Path | None) -> Task:
    """The task of both, with its data from where they lie now if that is given.

    Raises:
        CheckpointError: a folder is no fine-tuning, or the two are of different tasks or data.
    """
    from electra.finetuning.load_task import load_task
    from electra.finetuning.results import load_finetuning_config
    from electra.finetuning.seed_run import DEV
    from electra.training.run_folder import RunFolder

    configs = []
    for folder in (first, second):
        if not RunFolder(folder).config.is_file() or not (folder / "results.json").is_file():
            raise CheckpointError(
                f"{folder} holds no finished fine-tuning; give a folder that `electra finetune` wrote"
            )
        if inside := sorted(one.parent.name for one in folder.glob("*/results.json")):
            raise CheckpointError(f"{folder} holds several fine-tunings; compare one of them: {', '.join(inside)}")
        config = load_finetuning_config(folder)
        if data is None and config.data.path is not None and not config.data.path.exists():
            raise CheckpointError(
                f"{config.data.path}, the data of {folder}, is not there; say where: --data PATH"
            )
        configs.append(config if data is None else replace(config, data=replace(config.data, path=data)))
    tasks = [load_task(config)[0] for config in configs]
    names = [(task.name, len(task.splits[DEV])) for task in tasks]
    if names[0] != names[1] or list(tasks[0].splits[DEV]) != list(tasks[1].splits[DEV]):
        raise CheckpointError(
            f"{first} and {second} were judged on different data ({names[0][0]}, {names[0][1]:,} examples, and "
            f"{names[1][0]}, {names[1][1]:,}); compare two fine-tunings of one task"
        )
    return tasks[0]


def _predictions(folder: Path, known: list[dict[str, Any]]) -> list[list[Prediction]]:
    """What each seed said of dev.

    Args:
        known: texts and right answers of the examples as they are now; beside the predictions stand those of then.

    Raises:
        CheckpointError: predictions are missing.
        DataError: they are of other examples.
    """
    from electra.finetuning.seed_run import DEV

    seeds = [one["seed"] for one in read_json(folder / "results.json")["seeds"]]
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
                f"{path}: {len(predictions):,} predictions for {len(known):,} examples; the data have changed"
            )
        for line, (prediction, now) in enumerate(zip(predictions, known, strict=True), start=1):
            if odd := [name for name, value in now.items() if prediction.get(name, value) != value]:
                raise DataError(
                    f"{path}:{line}: {odd[0]} is {prediction[odd[0]]!r}, but {now[odd[0]]!r} in the data as they "
                    "are now; they have changed since, or are another task's"
                )
    return runs

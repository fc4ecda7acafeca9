"""The runs of a study: each arm at each share of the budget with each seed, taken by whoever is free.

OUT/study.json                          what all runs have in common; whoever comes first writes it
OUT/arms/ARM.toml                       the config of an arm, which `electra pretrain` takes too
OUT/runs/ARM/SHARE/seed-0/run           the pre-training, a run's folder
OUT/runs/ARM/SHARE/seed-0/tasks/TASK    the fine-tunings; a checksum of --tune's settings behind the name
OUT/runs/ARM/SHARE/seed-0/result.json   what came of it; written last
OUT/runs/ARM/SHARE/seed-0/taken.json    who is at it; touched while they live
"""

import hashlib
import json
import logging
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from electra import durable
from electra.analysis.minimal_pairs import paradigm_accuracies
from electra.config import load_config, overrides_of
from electra.data.tokenizer import SpecialTokens
from electra.errors import CheckpointError, DivergedError
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.run import finetune
from electra.objectives.base import NetworkName
from electra.pretraining.config import PretrainConfig, build_objective
from electra.pretraining.run import pretrain
from electra.reports.metrics import read_metrics
from electra.reports.study import read_facts, tasks_of
from electra.serving.scorer import Scorer
from electra.studies.config import Arm, Study, task_and_fraction
from electra.training.cost_estimate import count_parameters, estimate_cost
from electra.training.precision import PrecisionName
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

RESULT = "result.json"
FOLDERS = {"chunking": "chunking-conll2000", "upos": "pos-ud-english-ewt", "ner-wnut17": "ner-wnut17"}
"""Of tasks in the folder of all tasks; those of GLUE lie in `glue`."""
PAIRS = 100
"""Of each of BLiMP's 67 files."""


@dataclass(frozen=True)
class Common:
    """What all runs of a study share.

    Attributes:
        budget: of one run, as it was given, and the FLOPs (modern convention) that it came to.
        tasks: the folder of all tasks; the suite is empty where there is none.
        task_seeds: fine-tunings of each task.
        tune: settings of all fine-tunings that are not the defaults, as `name=value` (study_tuning).
        precision: of all runs whose config leaves it open. Chosen once: each run's own measurement would differ by
            chance.
    """

    out: Path
    study: Study
    data: Path
    budget: float
    flops: float
    tasks: Path | None
    suite: tuple[str, ...]
    task_seeds: int
    tune: tuple[str, ...] = ()
    precision: PrecisionName | Literal["auto"] = "auto"


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    arm: Arm
    share: float
    seed: int

    def folder(self, out: Path) -> Path:
        return out / "runs" / self.arm.name / f"{self.share:g}" / f"seed-{self.seed}"

    def result(self, out: Path) -> dict[str, Any]:
        """What came of it; empty where nothing has yet."""
        path = self.folder(out) / RESULT
        return read_facts(path) if path.is_file() else {}

    def done(self, common: Common) -> bool:
        """Whether it was trained, and fine-tuned for the whole suite as often as is wanted; or has failed."""
        found = self.result(common.out)
        tasks = tasks_of(found, common.tune)
        enough = {task for task in tasks if len(tasks[task]["values"]) >= common.task_seeds}
        return bool(found) and (found["failed"] is not None or enough >= set(common.suite))

    def __str__(self) -> str:
        share = "" if self.share == 1 else f", {self.share:.4g} of the budget"
        return f"{self.arm.name}{share}, seed {self.seed}"


def jobs(study: Study, seeds: int) -> list[Job]:
    """All runs of a study, one seed of everything before the next."""
    return [Job(arm, share, seed) for seed in range(seeds) for share in study.shares for arm in study.arms]


def arm_config(common: Common, arm: Arm, settings: Mapping[str, Any], *, folder: Path) -> PretrainConfig:
    """The config of an arm, from a file of its own that is written into a folder.

    Raises:
        ConfigError: the arm's settings are wrong.
    """
    path, text = folder / f"{arm.name}.toml", common.study.toml(arm, folder)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        folder.mkdir(parents=True, exist_ok=True)
        durable.write_text(path, text)
    return load_config(PretrainConfig, path, overrides_of({"data": common.data, **settings}))


def run_job(common: Common, job: Job, steps: int) -> int:
    """Pre-train, fine-tune and write what came of it; what was done before is not done again.

    A run whose losses are no numbers any more has failed, which is a result, too.

    Returns:
        0, or 128 + the number of the signal that stopped it.

    Raises:
        CheckpointError: it was pre-trained, and its weights are gone.
    """
    folder, started = job.folder(common.out), time.perf_counter()
    found = job.result(common.out)  # of fewer tasks, fewer fine-tunings of each, or others
    if not found:
        ended = _pretrained(common, job, steps)
        if isinstance(ended, int):
            return ended
        found = ended
    if found["failed"] is None:
        model = folder / "run" / "export" / found["tower"]
        if not model.is_dir():
            raise CheckpointError(
                f"{folder} was trained, but its weights are gone: there is no {model}\n"
                f"  put them back, or delete {folder / RESULT}: the run is then trained again"
            )
        scores = dict(tasks_of(found, common.tune))
        for task in common.suite:
            out = folder / "tasks" / _folder(task, common.tune)
            tuned = finetune(task_config(common, task, model=model, out=out))
            if tuned.exit_code:
                return tuned.exit_code
            scores[task] = {"metric": tuned.metric, "values": tuned.values(tuned.metric), "failed": tuned.failed}
        if common.tune:
            found["tuned"] = {**found.get("tuned", {}), " ".join(common.tune): scores}
        else:
            found["tasks"] = scores
        if found.get("blimp") is None and found["tower"] == "discriminator":
            found["blimp"] = _blimp(common, model)
    found["hours"] = found.get("hours", 0.0) + (time.perf_counter() - started) / 3600
    durable.write_text(folder / RESULT, json.dumps(found, indent=1) + "\n")
    return 0


def _pretrained(common: Common, job: Job, steps: int) -> dict[str, Any] | int:
    """What came of a pre-training; or the exit code of one that was stopped."""
    folder = job.folder(common.out)
    settings = {"out": folder / "run", "train.steps": steps, "train.seed": job.seed}
    about = {
        "arm": job.arm.name, "share": job.share, "seed": job.seed, "steps": steps, "failed": None, "tasks": {},
    }  # fmt: skip
    try:
        config = arm_config(common, job.arm, settings, folder=common.out / "arms")
        if config.train.precision == "auto" and not RunFolder(folder / "run").config.is_file():
            config = replace(config, train=replace(config.train, precision=common.precision))
        trained = pretrain(config)
    except DivergedError as error:
        logger.warning("%s: %s", job, error)
        return {**about, "failed": str(error).splitlines()[0]}
    if trained.exit_code:
        return trained.exit_code
    assert trained.exported is not None
    metrics = read_metrics(folder / "run")
    settled = load_config(PretrainConfig, folder / "run" / "config.toml")
    return {
        **about,
        **{name: metrics.reports[-1][name] for name in ("tokens", "flops", "seconds")},
        "precision": settled.train.precision,
        "tower": tower_of(trained.exported.folders),
        **_costs(settled),
        "evaluation": {k: v for k, v in metrics.evaluations[-1].items() if k.startswith("eval/")},
        "reached": {
            f"{name} {level:g}": _reached(metrics.evaluations, name, level)
            for name, levels in common.study.reached.items()
            for level in levels
        },
        "blimp": None,
    }


def _costs(config: PretrainConfig) -> dict[str, float]:
    """Parameters of the network that is scored, and about how much memory its training takes, in bytes."""
    with torch.device("meta"):
        objective = build_objective(config, SpecialTokens(0, 1, 2, 3, 4))
    towers, length = objective.exportable_networks(), config.packing.sequence_length
    tower = towers[tower_of(towers)]
    memory = estimate_cost(objective, config.train, length=length).memory
    return {"parameters": count_parameters(tower.encoder, tower.head), "memory": memory}


def _folder(task: str, tune: Sequence[str]) -> str:
    """The settings themselves are in the config.toml there; all of them would be too long a name."""
    name = task.replace(":", "-")
    return f"{name}-{hashlib.sha256(' '.join(tune).encode()).hexdigest()[:8]}" if tune else name


def tower_of(towers: Collection[NetworkName]) -> NetworkName:
    """The one that is scored."""
    return "discriminator" if "discriminator" in towers else "encoder"


def task_config(common: Common, task: str, *, model: Path, out: Path) -> FinetuneConfig:
    """The config of the fine-tunings for a task."""
    assert common.tasks is not None
    name, fraction = task_and_fraction(task)
    settings = {
        "model": model, "task": name, "out": out, "seeds": common.task_seeds,
        "data.path": task_folder(common.tasks, task), "data.fraction": fraction,
        "tracking.tensorboard": False,
        "train.precision": "auto" if RunFolder(out).config.is_file() else common.precision,
    }  # fmt: skip
    return load_config(FinetuneConfig, None, [*overrides_of(settings), *common.tune])


def _reached(evaluations: Sequence[Mapping[str, Any]], name: str, level: float) -> int | None:
    """The tokens that were seen when a figure first was that large."""
    return next((one["tokens"] for one in evaluations if (one.get(name) or 0) >= level), None)


def _blimp(common: Common, model: Path) -> float | None:
    """The mean accuracy over BLiMP's paradigms, zero-shot, where its files are among the tasks."""
    if common.tasks is None or not (common.tasks / "blimp").is_dir():
        return None
    return statistics.mean(paradigm_accuracies(Scorer(model), common.tasks / "blimp", pairs=PAIRS).values())


def task_folder(tasks: Path, task: str) -> Path:
    """Where the data of a task lie in the folder of all tasks."""
    return tasks / FOLDERS.get(task_and_fraction(task)[0], "glue")

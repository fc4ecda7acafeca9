"""The runs of a study: each arm at each fraction of the budget with each seed.

OUT/study.json                          what all runs share; written by the first process
OUT/arms/ARM.toml                       the config of an arm, which `electra pretrain` takes too
OUT/runs/ARM/FRACTION/seed-0/run        the pre-training, a run's folder
OUT/runs/ARM/FRACTION/seed-0/tasks/TASK the fine-tunings; with a checksum of their settings, if there are any
OUT/runs/ARM/FRACTION/seed-0/result.json  the results; written last
OUT/runs/ARM/FRACTION/seed-0/taken.json   the process that works on it; touched while the process lives
"""

import logging
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from electra.analysis.minimal_pairs import paradigm_accuracies
from electra.config import load_config
from electra.errors import CheckpointError, DivergedError
from electra.json_files import write_json
from electra.objectives.base import NetworkName
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import pretrain
from electra.reports.metrics import read_metrics
from electra.reports.study_results import ARCHIVE_FILE, RESULT_FILE, Record, read_run, run_folder, task_scores
from electra.serving.likelihood import load_likelihood_scorer
from electra.studies.arms import StudySetup, load_arm_config, meta_objective
from electra.studies.config import Arm, Study
from electra.studies.scores import score_task, values_needed
from electra.training.cost_estimate import count_parameters, estimate_cost
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

BLIMP_PAIRS = 100
"""Pairs from each of BLiMP's 67 files."""
BLIMP_SCORES = {
    "blimp": ("discriminator", ("log-original-sum", "electric-pll")),
    "blimp_pll": ("encoder", ("pll",)),
}
"""The keys of BLiMP's accuracy in results: the network, and the scores of sentences, of which one is possible."""


@dataclass(frozen=True)
class StudyRun:
    """One run of a study."""

    arm: Arm
    budget_fraction: float
    seed: int

    def folder(self, out: Path) -> Path:
        return run_folder(out, self.arm.name, self.budget_fraction, self.seed)

    def read_result(self, out: Path) -> Record:
        """Its results; empty if there are none yet."""
        return read_run(out, self.arm.name, self.budget_fraction, self.seed)

    def is_done(self, setup: StudySetup) -> bool:
        """Whether it has failed, or was pre-trained and has enough scores of each task."""
        result = self.read_result(setup.out)
        scores = task_scores(result, setup.finetune_settings)
        complete = {task for task in scores if len(scores[task]["values"]) >= values_needed(setup, task)}
        return bool(result) and (result["failed"] is not None or complete >= set(setup.suite))

    def __str__(self) -> str:
        fraction = "" if self.budget_fraction == 1 else f", {self.budget_fraction:.4g} of the budget"
        return f"{self.arm.name}{fraction}, seed {self.seed}"


def study_runs(study: Study, seeds: int) -> list[StudyRun]:
    """All runs of a study: all runs of one seed before those of the next."""
    return [
        StudyRun(arm, fraction, seed)
        for seed in range(seeds)
        for fraction in study.budget_fractions
        for arm in study.arms
    ]


def train_and_score(setup: StudySetup, run: StudyRun, steps: int) -> int:
    """Pre-train, fine-tune and write the results; parts that are done already are not repeated.

    A run whose loss becomes non-finite has failed; that is a result, too.

    Returns:
        0, or 128 + the number of the signal that stopped it.

    Raises:
        CheckpointError: it was pre-trained, and its weights are missing.
    """
    folder, started = run.folder(setup.out), time.perf_counter()
    result = run.read_result(setup.out)  # it may lack tasks or fine-tunings, or have other fine-tuning settings
    if not result:
        trained = _pretrain(setup, run, steps)
        if isinstance(trained, int):
            return trained
        result = trained
    if result["failed"] is None:
        model = folder / "run" / "export" / result["tower"]
        if not model.is_dir():
            path = folder / RESULT_FILE
            where = f"{path}" if path.is_file() else f"the run's line in {setup.out / ARCHIVE_FILE}"
            raise CheckpointError(
                f"{folder} was trained, but its weights are missing: there is no {model}\n"
                f"  restore them, or delete {where}: the run is then trained again"
            )
        scores = dict(task_scores(result, setup.finetune_settings))
        for task in setup.suite:
            if len(scores.get(task, {}).get("values", ())) >= values_needed(setup, task):
                continue
            scored = score_task(setup, task, model=model, folder=folder / "tasks")
            if isinstance(scored, int):
                return scored
            scores[task] = scored
        if setup.finetune_settings:
            result["tuned"] = {**result.get("tuned", {}), " ".join(setup.finetune_settings): scores}
        else:
            result["tasks"] = scores
        for key, (network, names) in BLIMP_SCORES.items():
            if result.get(key) is None:
                result[key] = _score_blimp(setup, model.with_name(network), names)
    result["hours"] = result.get("hours", 0.0) + (time.perf_counter() - started) / 3600
    write_json(folder / RESULT_FILE, result)
    return 0


def _pretrain(setup: StudySetup, run: StudyRun, steps: int) -> Record | int:
    """The results of a pre-training; or the exit code if a signal stopped it."""
    folder = run.folder(setup.out)
    settings = {"out": folder / "run", "train.steps": steps, "train.seed": run.seed}
    result = {
        "arm": run.arm.name, "share": run.budget_fraction, "seed": run.seed, "steps": steps, "failed": None,
        "tasks": {},
    }  # fmt: skip
    try:
        config = load_arm_config(setup, run.arm, settings, folder=setup.out / "arms")
        if config.train.precision == "auto" and not RunFolder(folder / "run").config.is_file():
            config = replace(config, train=replace(config.train, precision=setup.precision))
        trained = pretrain(config)
    except DivergedError as error:
        logger.warning("%s: %s", run, error)
        return {**result, "failed": str(error).splitlines()[0]}
    if trained.exit_code:
        return trained.exit_code
    assert trained.exported is not None
    metrics = read_metrics(folder / "run")
    resolved = load_config(PretrainConfig, folder / "run" / "config.toml")
    return {
        **result,
        **{name: metrics.reports[-1][name] for name in ("tokens", "flops", "seconds")},
        "precision": resolved.train.precision,
        "tower": scored_network(trained.exported.folders),
        **_measure_size(resolved),
        "evaluation": {k: v for k, v in metrics.evaluations[-1].items() if k.startswith("eval/")},
        "reached": {
            f"{name} {level:g}": _tokens_to(metrics.evaluations, name, level)
            for name, levels in setup.study.thresholds.items()
            for level in levels
        },
    }


def _measure_size(config: PretrainConfig) -> dict[str, float]:
    """Parameters of the network that is scored, and an estimate of the memory of its training, in bytes."""
    objective = meta_objective(config)
    networks = objective.exportable_networks()
    network = networks[scored_network(networks)]
    length = config.packing.sequence_length
    memory = estimate_cost(objective, config.train, config.optimizer, length=length).memory
    return {"parameters": count_parameters(network.encoder, network.head), "memory": memory}


def scored_network(networks: Collection[NetworkName]) -> NetworkName:
    """Which of the exported networks is fine-tuned and scored."""
    return "discriminator" if "discriminator" in networks else "encoder"


def _tokens_to(evaluations: Sequence[Mapping[str, Any]], name: str, level: float) -> int | None:
    """The number of tokens seen when a metric first was at least `level`; None if it never was."""
    return next((one["tokens"] for one in evaluations if (one.get(name) or 0) >= level), None)


def _score_blimp(setup: StudySetup, model: Path, names: Sequence[str]) -> float | None:
    """The mean accuracy over BLiMP's paradigms, zero-shot.

    None: its files are not among the tasks, or the run has no such network, or one without these scores.
    """
    if setup.tasks is None or not (setup.tasks / "blimp").is_dir() or not model.is_dir():
        return None
    scorer = load_likelihood_scorer(model, device=setup.device)
    score = next((name for name in names if name in scorer.names), None)
    if score is None:
        return None
    accuracies = paradigm_accuracies(scorer, setup.tasks / "blimp", score=score, pairs=BLIMP_PAIRS)
    return statistics.mean(accuracies.values())

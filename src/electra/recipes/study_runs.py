"""The runs of a study: each arm at each share of the budget with each seed, taken by whoever is free.

OUT/study.json                          what all runs have in common; whoever comes first writes it
OUT/arms/ARM.toml                       the config of an arm, which `electra pretrain` takes too
OUT/runs/ARM/SHARE/seed-0/run           the pre-training, a run's folder
OUT/runs/ARM/SHARE/seed-0/tasks/TASK    the fine-tunings
OUT/runs/ARM/SHARE/seed-0/result.json   what came of it; written last
OUT/runs/ARM/SHARE/seed-0/taken.json    who is at it; touched while they live
"""

import contextlib
import json
import logging
import os
import platform
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.config import load_config, overrides_of
from electra.errors import CheckpointError
from electra.recipes.finetune import finetune
from electra.recipes.finetune_config import load_task_config
from electra.recipes.pretrain import pretrain
from electra.recipes.pretrain_config import PretrainConfig
from electra.recipes.study_config import Arm, Study
from electra.reports.metrics import read_metrics
from electra.serving.minimal_pairs import accuracies
from electra.serving.scorer import Scorer
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

FOLDERS = {"chunking": "chunking-conll2000", "upos": "pos-ud-english-ewt", "ner-wnut17": "ner-wnut17"}
"""Of tasks in the folder of all tasks; those of GLUE lie in `glue`."""
FRACTIONS = {"sst-2": 0.15}
"""Of the training data, where it is large: 10,000 sentences, others for each seed."""
PAIRS = 100
"""Of each of BLiMP's 67 files."""
BEAT, DEAD = 20.0, 300.0
"""Seconds between two signs of life, and without one after which a run may be taken over."""


@dataclass(frozen=True)
class Common:
    """What all runs of a study share.

    Attributes:
        budget: of one run, as it was given, and the FLOPs (modern convention) that it came to.
        tasks: the folder of all tasks; the suite is empty where there is none.
        task_seeds: fine-tunings of each task.
    """

    out: Path
    study: Study
    data: Path
    budget: float
    flops: float
    tasks: Path | None
    suite: tuple[str, ...]
    task_seeds: int


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    arm: Arm
    share: float
    seed: int

    def folder(self, out: Path) -> Path:
        return out / "runs" / self.arm.name / f"{self.share:g}" / f"seed-{self.seed}"

    def done(self, out: Path) -> bool:
        return (self.folder(out) / "result.json").is_file()

    def __str__(self) -> str:
        share = "" if self.share == 1 else f", {self.share:.4g} of the budget"
        return f"{self.arm.name}{share}, seed {self.seed}"


def jobs(study: Study, seeds: int) -> list[Job]:
    """All runs of a study, one seed of everything before the next."""
    return [Job(arm, share, seed) for seed in range(seeds) for share in study.shares for arm in study.arms]


def arm_config(common: Common, arm: Arm, settings: Mapping[str, Any]) -> PretrainConfig:
    """The config of an arm, from a file of its own in the study's folder."""
    path = common.out / "arms" / f"{arm.name}.toml"
    text = common.study.toml(arm)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        RunFolder.write_text(path, text)
    return load_config(PretrainConfig, path, overrides_of({"data": common.data, **settings}))


def run_job(common: Common, job: Job, steps: int) -> int:
    """Pre-train, fine-tune and write what came of it; what was done before is not done again.

    Returns:
        0, or 128 + the number of the signal that stopped it.
    """
    folder = job.folder(common.out)
    settings = {"out": folder / "run", "train.steps": steps, "train.seed": job.seed}
    started = time.perf_counter()
    trained = pretrain(arm_config(common, job.arm, settings))
    if trained.exit_code:
        return trained.exit_code
    assert trained.exported is not None
    tower = next(name for name in ("discriminator", "encoder") if name in trained.exported.folders)
    scores: dict[str, dict[str, Any]] = {}
    for task in common.suite:
        out = folder / "tasks" / task
        if not (out / "results.json").is_file():
            assert common.tasks is not None
            found = finetune(
                load_task_config({
                    "model": trained.exported.folders[tower], "task": task, "out": out, "seeds": common.task_seeds,
                    "data.path": task_folder(common.tasks, task), "data.fraction": FRACTIONS.get(task, 1.0),
                    "tracking.tensorboard": False,
                })
            )  # fmt: skip
            if found.exit_code:
                return found.exit_code
        results = json.loads((out / "results.json").read_text(encoding="utf-8"))
        values = [seed["metrics"][results["metric"]] for seed in results["seeds"]]
        scores[task] = {"metric": results["metric"], "values": values, "failed": results["failed"]}
    metrics = read_metrics(folder / "run")
    facts = {
        "arm": job.arm.name,
        "share": job.share,
        "seed": job.seed,
        "steps": steps,
        "tokens": metrics.reports[-1]["tokens"],
        "flops": metrics.reports[-1]["flops"],
        "seconds": metrics.reports[-1]["seconds"],
        "hours_here": (time.perf_counter() - started) / 3600,
        "tower": tower,
        "evaluation": {k: v for k, v in metrics.evaluations[-1].items() if k.startswith("eval/")},
        "reached": {
            f"{name} {level:g}": next((e["tokens"] for e in metrics.evaluations if e.get(name, 0) >= level), None)
            for name, levels in common.study.reached.items()
            for level in levels
        },
        "tasks": scores,
        "blimp": _blimp(common, trained.exported.folders[tower]) if tower == "discriminator" else None,
        "average": statistics.mean(statistics.median(s["values"]) for s in scores.values()) if scores else None,
    }
    RunFolder.write_text(folder / "result.json", json.dumps(facts, indent=1) + "\n")
    return 0


def _blimp(common: Common, model: Path) -> float | None:
    """The mean accuracy over BLiMP's paradigms, zero-shot, where its files are among the tasks."""
    if common.tasks is None or not (common.tasks / "blimp").is_dir():
        return None
    return statistics.mean(accuracies(Scorer(model), common.tasks / "blimp", pairs=PAIRS).values())


def task_folder(tasks: Path, task: str) -> Path:
    """Where the data of a task lie in the folder of all tasks."""
    return tasks / FOLDERS.get(task, "glue")


@contextlib.contextmanager
def taken(folder: Path) -> Iterator[bool]:
    """Take a run, if nobody who lives has it; give it back at the end.

    Two who find the same dead one's run at the same moment could both take it; the second write of its claim is
    seen by the first at its next look, which is why each looks once more after a moment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "taken.json"
    mine = json.dumps({"host": platform.node(), "process": os.getpid(), "since": time.time()})
    if not _claim(path, mine):
        yield False
        return
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            with contextlib.suppress(OSError):
                os.utime(path)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield True
    finally:
        ended.set()
        thread.join()
        path.unlink(missing_ok=True)


def _claim(path: Path, mine: str) -> bool:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(mine)
        return True
    except FileExistsError:
        pass
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error}") from error
    with contextlib.suppress(OSError):
        if not _is_alive(path):
            logger.warning("%s: whoever took it is dead; going on with it", path.parent)
            RunFolder.write_text(path, mine)
            time.sleep(0.2)
            return path.read_text(encoding="utf-8") == mine
    return False


def _is_alive(path: Path) -> bool:
    """Whether there was a sign of life; of this machine's processes it is known for certain."""
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        owner = {}
    if owner.get("host") == platform.node():
        try:
            os.kill(int(owner["process"]), 0)
        except ProcessLookupError:
            return False
        except (OSError, KeyError, ValueError):
            pass
    return time.time() - path.stat().st_mtime < DEAD

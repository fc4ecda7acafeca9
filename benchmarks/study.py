"""What `electra study` costs beside its runs: a study, and the same pre-trainings and fine-tunings called bare.

    python benchmarks/study.py --data DATA --tasks TASKS [--steps 300] [--arms electra bert] [--rounds 3]

In turn, in this process: the study of `objectives` with some arms at a budget of so many steps of the control,
from nothing to the table and the pictures; and `pretrain` and `finetune` alone, with the same settings, of the
same arms. A first round is thrown away, so that neither pays for first calls. A study also asks BLiMP, which is
part of the scoring: it is left out here. Each round is a study of its own; the median over the rounds counts.
"""

import argparse
import json
import logging
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from electra.commands.study import StudyCommand, run
from electra.config import load_config, overrides_of
from electra.finetuning.config import load_task_config
from electra.finetuning.run import finetune
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import pretrain
from electra.studies.plan import StudyPlan

TASK, FOLDER, FRACTION = "chunking", "chunking-conll2000", 0.1
BASE = "electra-nano"


def bare(arms: Path, steps: dict[str, int], data: Path, tasks: Path, out: Path) -> None:
    """The runs of a study without it."""
    for arm, count in steps.items():
        settings = overrides_of({"data": data, "out": out / arm / "run", "train.steps": count, "train.seed": 0})
        pretrain(load_config(PretrainConfig, arms / f"{arm}.toml", settings))
        tower = next(one for one in ("discriminator", "encoder") if (out / arm / "run/export" / one).is_dir())
        finetune(
            load_task_config({
                "model": out / arm / "run/export" / tower, "task": TASK, "out": out / arm / "task", "seeds": 1,
                "data.path": tasks / FOLDER, "data.fraction": FRACTION, "tracking.tensorboard": False,
            })
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--arms", nargs="+", default=["electra", "bert"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.getLogger("electra").setLevel(logging.ERROR)
    found: dict[str, list[float]] = {"study": [], "bare": []}
    with tempfile.TemporaryDirectory() as folder:
        with_blimp, tasks = options.tasks.resolve(), Path(folder, "tasks")
        tasks.mkdir()
        (tasks / FOLDER).symlink_to(with_blimp / FOLDER)
        command = StudyCommand(
            "objectives", options.data, Path(folder, "first"), tasks=tasks, seeds=1, task_seeds=1,
            suite=(f"{TASK}:{FRACTION}",), arms=tuple(options.arms), base=BASE, dry_run=True, budget=1e12,
        )  # fmt: skip
        planned = run(command)
        assert isinstance(planned, StudyPlan)
        budget = options.steps * planned.common.flops / planned.steps("electra", 1.0)
        for number in range(options.rounds + 1):
            out = Path(folder, f"study-{number}")
            started = time.perf_counter()
            run(StudyCommand(**{**vars(command), "out": out, "budget": budget, "dry_run": False}))
            took = time.perf_counter() - started
            results = [json.loads(file.read_text()) for file in out.glob("runs/*/*/*/result.json")]
            steps = {one["arm"]: one["steps"] for one in results}
            started = time.perf_counter()
            bare(out / "arms", steps, options.data, tasks, Path(folder, f"bare-{number}"))
            if number:
                found["bare"].append(time.perf_counter() - started)
                found["study"].append(took)
                ratio = found["study"][-1] / found["bare"][-1]
                print(f"study {took:.1f} s, bare {found['bare'][-1]:.1f} s, {ratio:.3f} ×", flush=True)
            shutil.rmtree(out)
    ratios = [a / b for a, b in zip(found["study"], found["bare"], strict=True)]
    more = 100 * (statistics.median(ratios) - 1)
    print(f"overhead, median: {more:+.1f} % of {statistics.median(found['bare']):.0f} s")
    if options.json:
        options.json.write_text(
            json.dumps({"about": vars(options), "seconds": found}, indent=1, default=str) + "\n"
        )


if __name__ == "__main__":
    main()

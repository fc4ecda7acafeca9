"""A long run of very small networks: do memory, open files or the time of a step grow?

    python benchmarks/endurance.py [--steps 20000] [--precision float32] [--json FILE] [--picture FILE.png]

Trains on generated text, with reports, evaluations, checkpoints and TensorBoard like any run, and measures its
own process every 100 steps: resident memory, open files, threads, seconds per step. Prints the medians of the
second and of the last tenth of the run, and the number of steps with non-finite gradients.
"""

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch

from electra.config import load_config
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import pretrain
from electra.training.trainer import Trainer
from torture import SETTINGS, make_data

EVERY = 100
NAMES = {"resident": "resident memory, MiB", "files": "open files", "seconds": "milliseconds a step"}


def watch_process() -> list[dict[str, float]]:
    """Measurements of this process during the runs that follow."""
    seen: list[dict[str, float]] = []
    me, step = psutil.Process(), Trainer._after_step
    last = time.perf_counter()

    def after_step(self: Trainer) -> None:
        nonlocal last
        step(self)
        if self.progress.step % EVERY == 0:
            now = time.perf_counter()
            seen.append({
                "step": self.progress.step, "resident": me.memory_info().rss / 2**20, "files": me.num_fds(),
                "threads": me.num_threads(), "seconds": 1000 * (now - last) / EVERY,
            })  # fmt: skip
            last = now

    Trainer._after_step = after_step  # type: ignore[method-assign]
    return seen


def draw(seen: list[dict[str, float]], path: Path, title: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, label) in zip(figure.subplots(3, sharex=True), NAMES.items(), strict=True):
        values = [one[name] for one in seen]
        axes.plot([one["step"] for one in seen], values, linewidth=0.8)
        axes.set_ylabel(label)
        axes.set_ylim(0, 1.2 * max(values))
        axes.grid(alpha=0.3)
    axes.set_xlabel("step")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("electra").setLevel(logging.ERROR)
    seen = watch_process()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = [f"data={make_data(folder)}", f"out={folder / 'run'}", f"train.steps={options.steps}"]
        given += [f"train.precision={options.precision}", "checkpoint.every=200", "tracking.tensorboard=true"]
        result = pretrain(load_config(PretrainConfig, "electra-tiny", [*SETTINGS, *given]))
        records = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    tenth = max(1, len(seen) // 10)
    found: dict[str, Any] = {
        name: [statistics.median(one[name] for one in part) for part in (seen[tenth : 2 * tenth], seen[-tenth:])]
        for name in ("resident", "files", "threads", "seconds")
    }
    losses = [record["loss"] for record in records if "loss" in record]
    found |= {
        "precision": options.precision, "steps": result.outcome.step,
        "reports that were not finite": sum(one is None for one in losses),
        "steps that were not finite": sum(record.get("health") == "not finite" for record in records),
        "first loss": losses[0], "last loss": losses[-1],
    }  # fmt: skip
    for name, value in found.items():
        print(f"{name}: {value}")
    if options.json:
        options.json.write_text(json.dumps(found | {"seen": seen}, indent=1) + "\n")
    if options.picture:
        draw(seen, options.picture, f"{options.steps:,} steps of very small networks, {options.precision}")


if __name__ == "__main__":
    sys.exit(main())

"""Predict the cost of a run on many GPUs: compute, bytes, checkpoints, failures; and check it on this machine.

    python benchmarks/scale.py                  tables of the predictions
    python benchmarks/scale.py --check          two processes on this machine, predicted and measured
    python benchmarks/scale.py --failures       the formula for lost time compared with a simulation of failures

A step on n GPUs is assumed to take the time of its FLOPs at a fixed utilization (UTILIZATION), plus the part of
the all-reduce of gradients that does not overlap with the backward pass: a ring moves 2 (n - 1) / n times the
gradient's bytes over the slowest link. Nothing else is modeled: no stragglers, no reading of data (2 bytes a
token), no congestion. The time lost to failures follows Young (1974) and Daly (2006): with a checkpoint of δ
seconds every T seconds, a failure every M seconds on average, and R seconds until the run has restarted,

    lost = δ / T + (T / 2 + R) / M,        minimal at T = √(2 δ M).
"""

import argparse
import math
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from electra.config import load_config
from electra.data.shards import TokenData
from electra.data.tokenizer import SpecialTokens
from electra.modeling.flops import training_flops
from electra.pretraining.build import build
from electra.pretraining.config import PretrainConfig, build_objective, with_vocabulary
from electra.pretraining.resolve import resolve
from electra.training import distributed
from electra.training.cost_estimate import count_parameters
from electra.training.optim import build_optimizer
from electra.training.update import Update

UTILIZATION = 0.35
"""Of the GPU's products in bfloat16; what compiled encoders of these sizes reach is not measured yet."""
HOURS_BETWEEN_FAILURES = 50_000
"""Of one GPU with its share of the machine: what Llama 3's report comes to (419 in 54 days of 16,384 GPUs)."""
RESTART = 120.0
"""Seconds until a run is at work again after a failure."""


@dataclass(frozen=True)
class Cluster:
    """GPUs of one kind (H100): FLOP/s; bytes/s inside a machine, between machines, and of all to the disk."""

    flops: float = 989e12
    inside: float = 450e9
    between: float = 50e9
    machine: int = 8
    disk: float = 5e9


@dataclass(frozen=True)
class Job:
    """A preset with its batch: FLOPs of a step, trained weights, length."""

    flops: float
    parameters: int
    steps: int
    sequences: int

    @property
    def gradient_bytes(self) -> float:
        return 4.0 * self.parameters

    @property
    def checkpoint_bytes(self) -> float:
        """Weights and two moments, float32."""
        return 12.0 * self.parameters


def job(preset: str, *, least: int = 1) -> Job:
    """A preset as it is; or with a batch of `least` sequences and fewer steps, if its own batch is smaller."""
    settings = with_vocabulary(load_config(PretrainConfig, preset))
    with torch.device("meta"):
        objective = build_objective(settings, SpecialTokens(0, 1, 2, 3, 4))
    length, own = settings.packing.sequence_length, settings.train.batch_size
    batch = max(own, least)
    flops = batch * training_flops(objective.networks(length), length)
    return Job(flops, count_parameters(objective), (settings.train.steps or 0) * own // batch, batch)


def all_reduce_seconds(size: float, processes: int, cluster: Cluster) -> float:
    bandwidth = cluster.inside if processes <= cluster.machine else cluster.between
    return 2 * (processes - 1) / processes * size / bandwidth


def step_seconds(one: Job, gpus: int, cluster: Cluster) -> tuple[float, float, float]:
    """Seconds of compute, of the all-reduce, and of both if it overlaps with two thirds of the compute."""
    compute = one.flops / gpus / (cluster.flops * UTILIZATION)
    reduce = all_reduce_seconds(one.gradient_bytes, gpus, cluster)
    return compute, reduce, compute + max(0.0, reduce - 2 / 3 * compute)


def best_interval(checkpoint: float, between_failures: float) -> float:
    return math.sqrt(2 * checkpoint * between_failures)


def lost_fraction(checkpoint: float, interval: float, between_failures: float) -> float:
    """The fraction of time lost to checkpoints and failures."""
    return checkpoint / interval + (interval / 2 + RESTART) / between_failures


def simulate_lost(checkpoint: float, interval: float, between_failures: float, *, work: float, seed: int) -> float:
    """The same fraction in one simulated run with this many seconds of work and random failures."""
    draw = random.Random(seed)
    clock = saved = done = 0.0
    failure = draw.expovariate(1 / between_failures)
    while done < work:
        ahead = min(interval, work - done)
        if clock + ahead + checkpoint <= failure:
            clock, done = clock + ahead + checkpoint, done + ahead
            saved = done
        else:
            clock, done = failure + RESTART, saved
            failure = clock + draw.expovariate(1 / between_failures)
    return 1 - work / clock


def tables() -> None:
    cluster = Cluster()
    row(
        "preset", "GPUs", "sequences a step", "compute a step", "bytes moved by a GPU", "all-reduce", "step",
        "efficiency", "run", "lost to failures, at best",
    )  # fmt: skip
    row(*["---"] * 10)
    for preset in ("electra-base", "electra-large"):
        for gpus in (1, 8, 64, 1024):
            one = job(preset, least=gpus)
            compute, reduce, step = step_seconds(one, gpus, cluster)
            between = 3600 * HOURS_BETWEEN_FAILURES / gpus
            write = one.checkpoint_bytes / cluster.disk
            interval = best_interval(write, between)
            row(
                preset, f"{gpus:,}", f"{one.sequences:,}", f"{1e3 * compute:,.1f} ms",
                f"{2 * (gpus - 1) / gpus * one.gradient_bytes / 1e6:,.0f} MB", f"{1e3 * reduce:.1f} ms",
                f"{1e3 * step:,.1f} ms", f"{compute / step:.0%}", f"{one.steps * step / 3600:,.1f} h",
                f"{lost_fraction(write, interval, between):.2%}, a checkpoint every {interval / 60:,.0f} min",
            )  # fmt: skip


def row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |")


def failures() -> None:
    row("GPUs", "failure every", "checkpoint", "every", "lost, formula", "lost, simulated (20 runs)")
    row(*["---"] * 6)
    for gpus, checkpoint in ((64, 1.0), (1024, 1.0), (1024, 30.0), (16_384, 30.0)):
        between = 3600 * HOURS_BETWEEN_FAILURES / gpus
        interval = best_interval(checkpoint, between)
        runs = [simulate_lost(checkpoint, interval, between, work=30 * between, seed=seed) for seed in range(20)]
        row(
            f"{gpus:,}", f"{between / 3600:,.1f} h", f"{checkpoint:g} s", f"{interval / 60:.1f} min",
            f"{lost_fraction(checkpoint, interval, between):.2%}",
            f"{statistics.mean(runs):.2%} ± {statistics.stdev(runs):.2%}",
        )  # fmt: skip


def check(data: Path) -> None:
    """Time one process with a whole batch, one with half of it, two with half each, and an all-reduce."""
    one = job("electra-small")
    command = [sys.executable, str(Path(__file__)), "--worker", "--data", str(data)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    def out(*arguments: str) -> list[float]:
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        return [float(word) for word in done.stdout.split()]

    (whole,), (half,) = out(*command, "--rows", "16"), out(*command, "--rows", "8")
    two, reduce = out(*torchrun, *command[1:], "--rows", "16")
    hidden = half + max(0.0, reduce - 2 / 3 * half)
    print(f"one process: 16 rows {whole:.3f} s, 8 rows {half:.3f} s a step")
    print(f"an all-reduce of {one.gradient_bytes / 1e6:.0f} MB between two: {reduce:.3f} s")
    print(
        f"two processes, 16 rows: predicted {hidden:.3f} (hidden) to {half + reduce:.3f} s, measured {two:.3f} s"
    )
    best, worst = whole / 2 / hidden, whole / 2 / (half + reduce)
    print(f"efficiency: predicted {worst:.0%} to {best:.0%}, measured {whole / 2 / two:.0%}")


def worker(data: Path, rows: int) -> None:
    """Print the seconds of a step of electra-small (median) and, with two processes, those of an all-reduce."""
    torch.set_num_threads(1)
    settings = load_config(PretrainConfig, "electra-small", [
        f"train.batch_size={rows}", "train.precision=float32", "train.steps=1000", f"data={data}", "out=unused",
    ])  # fmt: skip
    opened = TokenData.open(data, verify=False)
    with distributed.init_distributed(minutes=5):
        resolved = resolve(settings, opened)
        parts = build(resolved.config, opened, resolved.warm_start)
        objective = parts.objective
        update = Update(
            objective, build_optimizer(objective, settings.optimizer), gradient_clip=1.0,
            precision=parts.precision, device=parts.device,
        )  # fmt: skip
        objective.train()
        seconds = []
        for step in range(8):
            objective.begin_step(step, 1000)
            batches = parts.feed.micro_batches(step)
            start = time.perf_counter()
            update(batches, 1e-4)
            seconds.append(time.perf_counter() - start)
        found = [statistics.median(seconds[2:])]
        if distributed.world_size() > 1:
            gradient, seconds = torch.zeros(count_parameters(objective)), []
            for _ in range(6):
                start = time.perf_counter()
                dist.all_reduce(gradient)
                seconds.append(time.perf_counter() - start)
            found.append(statistics.median(seconds[1:]))
        if distributed.is_main_process():
            print(*found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--failures", action="store_true")
    parser.add_argument("--data", type=Path, help="prepared data, for --check")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.data, options.rows)
    elif options.check:
        check(options.data)
    elif options.failures:
        failures()
    else:
        tables()


if __name__ == "__main__":
    main()

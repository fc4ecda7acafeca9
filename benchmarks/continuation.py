"""Does a trained encoder become better by being continued on text of a domain? Ways of continuing at equal FLOPs.

    python benchmarks/continuation.py MODEL --data DATA --tasks TASKS --out RESULTS.jsonl --runs FOLDER
        --arm plus pretrain=electra-plus-tiny train.batch_size=16 optimizer.learning_rate=1e-4
        --arm masked-lm pretrain=electra-tiny objective.kind=masked-lm packing.builder=packed train.batch_size=16
            optimizer.learning_rate=1e-4 optimizer.max_warmup_steps=10000
        [--flops 1.4e14] [--seeds 0 1 2 3 4] [--task ner-bc5cdr=815] [--repetitions 2]

MODEL is a folder in transformers' form, and DATA was prepared with its tokenizer. An arm is a name, a preset
(`pretrain=`) and settings; the arm `untouched` is MODEL itself, and is always there. Each seed continues with its
own order of the text and fine-tunes on its own samples of the examples (0: all), the same in all arms. Each result
is one line of RESULTS; those that are there are not run again, and a run that was stopped is resumed in FOLDER. At
the end a table: the mean of each arm in points, and its difference from MODEL by seeds with Student's interval.
"""

import argparse
import json
import logging
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import electra
from electra.export.loading import AVERAGED
from electra.pretraining.dry_run import dry_run
from electra.reports.study_results import t_interval
from finetuning_defaults import run as finetune

UNTOUCHED = "untouched"
KEY = ("model", "task", "examples", "flops", "arm", "seed")

Arm = Mapping[str, object]
Rows = dict[tuple[Any, ...], dict[str, Any]]


def parse(value: str) -> object:
    """The value of a setting on the command line, as in TOML where it is a number or a truth value."""
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def pretrain(out: Path, model: Path, data: Path, arm: Arm, flops: float, seed: int) -> int:
    """Continue MODEL with a number of FLOPs, or go on with a run that was stopped. Return the number of steps."""
    settings = {
        "data": str(data), "out": str(out), "init.discriminator": str(model), "train.seed": seed,
        "train.steps": 1000,
        **{name: value for name, value in arm.items() if name != "pretrain"},
    }  # fmt: skip
    per_step = dry_run(electra.load_config(str(arm["pretrain"]), {**settings, "out": None})).cost.flops / 1000
    steps = round(flops / per_step)
    settings |= {"train.steps": steps}
    config = electra.load_config(str(arm["pretrain"]), settings)
    electra.pretrain(config)
    if config.init.average and not (out / "export" / AVERAGED).is_dir():
        raise SystemExit(
            f"{out}: the average is missing, and its log.txt says why; correct that and run electra export"
        )
    return steps


def read(path: Path) -> Rows:
    """The stored results by model, task, examples, FLOPs, arm and seed."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {tuple(row[key] for key in KEY): row for row in rows}


def points_of(rows: Rows, group: tuple[Any, ...]) -> dict[int, float]:
    """The mean over the fine-tunings of each seed, in points."""
    return {key[-1]: 100 * statistics.mean(row["values"]) for key, row in rows.items() if key[:-1] == group}


def table(rows: Rows) -> Iterator[str]:
    """One line per task, number of FLOPs and arm."""
    yield "task | examples | FLOPs | arm | seeds | mean | less untouched, 95% | seconds"
    for group in dict.fromkeys(key[:-1] for key in rows):
        model, task, examples, flops, arm = group
        points = points_of(rows, group)
        base = points_of(rows, (model, task, examples, 0.0, UNTOUCHED))
        difference = "" if arm == UNTOUCHED else interval([points[seed] - base[seed] for seed in points])
        seconds = statistics.median(row["seconds"] for key, row in rows.items() if key[:-1] == group)
        cells = (
            task,
            examples or "all",
            f"{flops:.2g}",
            arm,
            len(points),
            f"{statistics.mean(points.values()):.1f}",
        )
        yield " | ".join([*map(str, cells), difference, f"{seconds:.0f}"])


def interval(differences: Sequence[float]) -> str:
    """The mean and, of two or more, Student's interval of 95%."""
    mean = f"{statistics.mean(differences):+.2f}"
    if len(differences) == 1:
        return mean
    low, high = t_interval(differences)
    return f"{mean} ({low:+.2f} to {high:+.2f})"


def read_arms(given: Sequence[Sequence[str]]) -> dict[str, Arm]:
    """The arms by their names, the untouched model first."""
    arms: dict[str, Arm] = {UNTOUCHED: {}}
    for name, *pairs in given:
        arms[name] = {key: parse(value) for key, _, value in (pair.partition("=") for pair in pairs)}
    return arms


def measure(options: argparse.Namespace, done: Rows, name: str, arm: Arm, flops: float, seed: int) -> None:
    """Continue and fine-tune for one arm and seed; add the results that are missing."""
    tasks = [(task, int(examples)) for task, _, examples in (task.partition("=") for task in options.task)]
    keys = [(options.model.name, task, examples, flops if arm else 0.0, name, seed) for task, examples in tasks]
    for key in keys:
        if key in done and done[key]["settings"] != arm:
            raise SystemExit(f"{options.out}: the arm {name} has other settings there; give it another name")
    if all(key in done for key in keys):
        return
    start = time.perf_counter()
    model, steps = options.model, 0
    if arm:
        model = options.runs / f"{name}-{flops:.2g}-{seed}"
        steps = pretrain(model, options.model, options.data, arm, flops, seed)
    seconds = time.perf_counter() - start
    for key in keys:
        if key in done:
            continue
        _, task, examples, *_ = key
        values = [
            finetune(model, options.tasks, task, examples, 100 * seed + repetition, {})["value"]
            for repetition in range(options.repetitions)
        ]
        row = dict(zip(KEY, key, strict=True))
        row |= {"settings": arm, "steps": steps, "seconds": round(seconds, 1), "values": values}
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
            os.fsync(file.fileno())
        done[key] = row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True, help="folder of the tasks")
    parser.add_argument("--out", type=Path, required=True, metavar="RESULTS", help="a .jsonl file, added to")
    parser.add_argument("--runs", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--arm", nargs="+", action="append", default=[], metavar="NAME SETTING=VALUE")
    parser.add_argument("--flops", type=float, nargs="+", default=[1.4e14])
    parser.add_argument("--seeds", type=int, nargs="+", default=range(5))
    parser.add_argument("--task", nargs="+", default=["ner-bc5cdr=815"], metavar="TASK=EXAMPLES")
    parser.add_argument("--repetitions", type=int, default=2, help="fine-tunings of each seed")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    done = read(options.out)
    for flops in options.flops:
        for seed in options.seeds:
            for name, arm in read_arms(options.arm).items():
                measure(options, done, name, arm, flops, seed)
    print("\n".join(table(done)))


if __name__ == "__main__":
    main()

"""Fine-tuning and transformers' Trainer: the same model, rows, hyperparameters and seeds, alternately.

    python benchmarks/finetune.py MODEL --data TASKS [--tasks cola mrpc ...] [--seeds 3] [--epochs 3] [--json FILE]

Both start from the same weights, with AdamW, linear warm-up over a tenth and linear decay, without layer-wise
decay (the Trainer has none), and in the same precision: by default the one that is faster for ours on this
machine. Each line has the metric on dev of every seed, the median, and the seconds of all steps without
evaluations and checkpoints. The Trainer that pads to the maximum length is timed on a few steps, which all take
the same time. TASKS holds a folder for each task: glue, chunking-conll2000, ner-wnut17, squad. The Trainer needs
the extra `peers`: pip install 'electra[peers]'.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from electra.finetuning.config import load_task_config
from electra.finetuning.seed_run import run_seed
from electra.finetuning.setup import FinetuneSetup, build_setup
from electra.tasks.base import Task
from electra.training.events import EventHook
from electra.training.run_folder import RunFolder
from electra.training.trainer import Outcome
from finetune_peer import train

FOLDERS = {
    "chunking": "chunking-conll2000", "ner-wnut17": "ner-wnut17", "upos": "pos-ud-english-ewt", "squad": "squad",
}  # fmt: skip
QUESTIONS = {"data.train": "train-sample.json", "data.dev": "xquad-en.json", "head.span": "plain"}
"""Settings for squad: a sample of its training set, other questions for dev, and transformers' head."""


def settings_of(options: argparse.Namespace, task: str) -> dict[str, Any]:
    return {
        "model": options.model, "task": task, "data.path": str(Path(options.data, FOLDERS.get(task, "glue"))),
        "optimizer.learning_rate": options.learning_rate, "optimizer.layer_decay": 1.0, "optimizer.epsilon": 1e-8,
        "train.epochs": options.epochs, "train.precision": options.precision, "tracking.tensorboard": False,
        "data.max_length": options.max_length, **(QUESTIONS if task == "squad" else {}),
    }  # fmt: skip


def limit_rows(setup: FinetuneSetup, rows: int) -> FinetuneSetup:
    """The setup with the first rows of the training data only."""
    examples = setup.task.splits["train"]
    if rows == 0 or len(examples) <= rows:
        return setup
    task: Task = replace(setup.task, splits={**setup.task.splits, "train": examples[:rows]})
    kept = task.problem.encode(task.training_examples(task.splits["train"]), setup.input_spec)
    return replace(setup, task=task, rows={**setup.rows, "train": kept})


def ours(setup: FinetuneSetup, seed: int) -> tuple[dict[str, float], float, int]:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        ended = run_seed(setup, seed, run, EventHook(RunFolder(run), command=""))
    assert not isinstance(ended, Outcome), "interrupted"
    return ended.result.metrics, ended.result.seconds, ended.result.steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--tasks", nargs="+", default=["cola", "sst-2", "ner-wnut17"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--max-length", type=int, default=0, help="tokens of a row; 0: as `electra finetune`")
    parser.add_argument("--rows", type=int, default=10_000, help="examples of the training data; 0: all")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "bfloat16"], help="of both")
    parser.add_argument("--padded-steps", type=int, default=20)
    parser.add_argument("--peers", nargs="+", default=["dynamic"], choices=["dynamic", "grouped"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    print("| task | metric | ours, each seed | median | Trainer | median | seconds | Trainer | ratio | padded |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.tasks:
        results[name] = compare_on_task(name, options)
        print_rows(name, results[name])
        if options.json:
            about = {"threads": torch.get_num_threads(), "time": time.strftime("%Y-%m-%d"), **vars(options)}
            options.json.write_text(json.dumps({"about": about, "tasks": results}, indent=1, default=str) + "\n")


def compare_on_task(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune for a task with both, seed by seed. Each run is a pair: the metric on dev, and the seconds."""
    setup = limit_rows(build_setup(load_task_config(settings_of(options, name))), options.rows)
    problem, config = setup.task.problem, setup.config
    labels = getattr(problem, "labels", None)
    outputs = len(labels) if labels else 1  # a regression has one; the head for answers needs no number
    shared = {
        **asdict(config.optimizer), "batch_size": config.train.batch_size, "epochs": options.epochs,
        "bfloat16": setup.precision.name == "bfloat16",
    }  # fmt: skip

    def peer(padding: Any, seed: int, steps: int = -1) -> Any:
        return train(
            config.model, problem, setup.rows, outputs=outputs, padding=padding,
            max_length=config.data.max_length, seed=seed, settings=shared, max_steps=steps,
        )  # fmt: skip

    runs: dict[str, list[tuple[float, float]]] = {"ours": [], **{kind: [] for kind in options.peers}}
    steps = 0
    for seed in range(options.seeds):
        metrics, seconds, _ = ours(setup, seed)
        runs["ours"].append((metrics[problem.metric], seconds))
        for kind in options.peers:
            seconds, steps, dev = peer(kind, seed)
            predictions = problem.decode(setup.task.splits["dev"], setup.rows["dev"], dev)
            metrics = problem.compute_metrics(setup.task.splits["dev"], predictions)
            runs[kind].append((metrics[problem.metric], seconds))
    padded = 0.0
    if options.padded_steps:
        seconds, padded_steps, _ = peer("padded", 0, options.padded_steps)
        padded = seconds / padded_steps * steps
    return {"metric": problem.metric, "runs": runs, "padded_seconds": padded, "steps": steps}


def print_rows(name: str, result: dict[str, Any]) -> None:
    """Print a row of the table for each way in which the Trainer pads."""
    values = {side: [value for value, _ in runs] for side, runs in result["runs"].items()}
    seconds = {side: [duration for _, duration in runs] for side, runs in result["runs"].items()}
    our_seconds = statistics.median(seconds["ours"])
    for kind in list(result["runs"])[1:]:
        ratio = statistics.median(b / a for a, b in zip(seconds["ours"], seconds[kind], strict=True))
        print(
            f"| {name} | {result['metric']} | {' '.join(f'{v:.4f}' for v in values['ours'])} "
            f"| {statistics.median(values['ours']):.4f} "
            f"| {kind}: {' '.join(f'{v:.4f}' for v in values[kind])} "
            f"| {statistics.median(values[kind]):.4f} | {our_seconds:.0f} "
            f"| {statistics.median(seconds[kind]):.0f} | {ratio:.2f} × "
            f"| {result['padded_seconds'] / our_seconds:.2f} × |",
            flush=True,
        )


if __name__ == "__main__":
    main()

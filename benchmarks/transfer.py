"""What a short pre-training is worth: electra-tiny, fine-tuned, beside its peer and beside random weights.

    python benchmarks/transfer.py DATA --tasks-data TASKS --out OUT [--minutes 30] [--seeds 3] [--tasks ...]

DATA is what `electra prepare` made. Ours (`electra pretrain electra-tiny`) and the peer (the same step with
transformers' classes) are pre-trained for the same minutes, each in a process of its own; the random weights are
those that transformers gives the same shapes. All are fine-tuned in the same way, without layer-wise decay, which
random weights could not bear. What is in OUT already is not made again. TASKS holds the folders glue and
chunking-conll2000. The peer wants the extra `peers`.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from electra.finetuning.config import load_task_config
from electra.finetuning.run import finetune
from pretrain_tiny import alone, ours, peer

FRACTIONS = {"sst-2": 0.15}
"""Of the training data, where it is large: 10,000 sentences, others for each seed."""
TASKS = {"cola": "glue", "sst-2": "glue", "mrpc": "glue", "sts-b": "glue", "chunking": "chunking-conll2000"}


def pretrained(data: Path, out: Path, minutes: float, dropouts: Sequence[float]) -> dict[str, Path]:
    """The folder of each model."""
    known = out / "pretrained.json"
    figures: dict[str, Any] = json.loads(known.read_text()) if known.exists() else {}
    peers = {f"peer, dropout {dropout}": (minutes, dropout) for dropout in dropouts}
    peers["random weights"] = (0.0, 0.1)
    folders = {name: out / name.replace(", ", "-").replace(" ", "-") for name in ("ours", *peers)}
    for name, folder in folders.items():
        if name not in figures:
            figures[name] = (
                alone(ours, data, folder, minutes) if name == "ours" else alone(peer, data, *peers[name], folder)
            )
            known.write_text(json.dumps(figures, indent=1) + "\n")
        print(name, figures[name], flush=True)
    return folders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks-data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--dropout", type=float, nargs="*", default=[0.0, 0.1], help="of the peer; ours has 0")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--epochs", type=float, default=0.0, help="0: those of the paper")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    models = pretrained(options.data, options.out, options.minutes, options.dropout)
    print(f"processor: {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads\n")
    print("| task | metric | " + " | ".join(models) + " |")
    print("|---" * (2 + len(models)) + "|", flush=True)
    for task in options.tasks:
        cells = []
        for model in models.values():
            out = options.out / "tasks" / task / model.name
            if not (out / "results.json").exists():
                finetune(
                    load_task_config({
                        "model": model, "task": task, "data.path": options.tasks_data / TASKS[task], "out": out,
                        "data.fraction": FRACTIONS.get(task, 1.0), "seeds": options.seeds,
                        "optimizer.learning_rate": options.learning_rate, "optimizer.layer_decay": 1.0,
                        "train.epochs": options.epochs, "tracking.tensorboard": False,
                    })
                )  # fmt: skip
            results = json.loads((out / "results.json").read_text())
            values = [seed["metrics"][results["metric"]] for seed in results["seeds"]]
            cells.append(f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})")
        print(f"| {task} | {results['metric']} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

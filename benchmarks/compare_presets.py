"""Presets side by side: the same data, the same number of steps, several seeds, one held-out measure.

    python benchmarks/compare_presets.py electra-tiny faithful-tiny --data DATA --out RUNS --steps 480

Each preset is a run of `electra pretrain` for every seed, RUNS/PRESET-SEED; one that is already there goes on
where it stopped. Then every model is evaluated as the first preset evaluates its own: its rows, its masks, its
positions. Prints a table of medians with the least and the largest. RUNS/curves.png, one line a seed, has the
figures that each run measured while it trained, on its own rows and masks.
"""

import argparse
import statistics
from pathlib import Path

import torch
from matplotlib.figure import Figure

import electra
from electra.data.shards import TokenData
from electra.pretraining.build import heldout_batches
from electra.pretraining.export import load_trained
from electra.reports.metrics import read_metrics
from electra.training.checkpoint import CheckpointConfig, Checkpoints

FIGURES = {
    "eval/masked_lm_accuracy": "masked-LM accuracy",
    "eval/masked_lm_loss": "masked-LM loss",
    "eval/discriminator_auc": "AUC, the generator's fakes",
    "eval/unigram_auc": "AUC, unigram fakes",
}
SETTINGS = {"train.precision": "float32"}


def pretrained(preset: str, seed: int, data: Path, runs: Path, steps: int) -> Path:
    run = runs / f"{preset}-{seed}"
    settings = {"data": data, "out": run, "train.steps": steps, "train.seed": seed}
    electra.pretrain(electra.load_config(preset, SETTINGS | settings))
    return run


def evaluated(run: Path, protocol: str, data: TokenData) -> dict[str, float]:
    """The held-out figures of a run's last checkpoint, measured as a preset does it."""
    checkpoint = Checkpoints(run / "checkpoints", CheckpointConfig()).latest()
    assert checkpoint is not None
    _, objective = load_trained(checkpoint)
    config = electra.load_config(protocol)
    objective.masking = config.masking
    return objective.evaluate(heldout_batches(config, data, torch.device("cpu")))


def draw(runs: dict[str, list[Path]], out: Path) -> None:
    figure = Figure(figsize=(13, 7), layout="constrained")
    for axes, (key, title) in zip(figure.subplots(2, 2).flat, FIGURES.items(), strict=True):
        for number, (preset, folders) in enumerate(runs.items()):
            for folder in folders:
                found = [e for e in read_metrics(folder).evaluations if e.get(key) is not None]
                label = preset if folder is folders[0] else None
                axes.plot([e["step"] for e in found], [e[key] for e in found], color=f"C{number}", label=label)
        axes.set(title=f"{title}, by its own held-out measure", xlabel="steps")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    runs: dict[str, list[Path]] = {preset: [] for preset in options.presets}
    for seed in options.seeds:
        for preset in options.presets:
            runs[preset].append(pretrained(preset, seed, options.data, options.out, options.steps))
    data = TokenData.open(options.data, verify=False)
    print("| preset | tokens | " + " | ".join(FIGURES.values()) + " |")
    print("|---" * (2 + len(FIGURES)) + "|")
    for preset, folders in runs.items():
        figures = [evaluated(folder, options.presets[0], data) for folder in folders]
        tokens = statistics.median(read_metrics(folder).evaluations[-1]["tokens"] for folder in folders)
        cells = [f"{tokens:,.0f}"]
        for key in FIGURES:
            values = [found[key] for found in figures]
            cells.append(f"{statistics.median(values):.4f} ({min(values):.4f}–{max(values):.4f})")
        print(f"| {preset} | " + " | ".join(cells) + " |", flush=True)
    draw(runs, options.out / "curves.png")


if __name__ == "__main__":
    main()

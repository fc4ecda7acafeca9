"""What a checkpoint costs: bytes, and seconds from the end of a step until it is on the disk under its name.

    python benchmarks/checkpoints.py [--presets electra-nano electra-small electra-base] [--out FOLDER]

Medians of five. A run writes ten by default, and one at its end; the last column is how long a run is of which
those eleven take one percent.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from electra.config import load_config
from electra.data.tokenizer import SpecialTokens
from electra.pretraining.config import PretrainConfig, build_objective
from electra.training.checkpoint import CheckpointConfig, Checkpoints
from electra.training.checkpoint_io import save
from electra.training.optim import build_optimizer
from electra.training.precision import Precision
from electra.training.update import Update


def measured(preset: str, folder: Path) -> tuple[float, list[float]]:
    """Megabytes of a checkpoint, and the seconds of five."""
    config = load_config(PretrainConfig, preset, ["model.vocabulary_size=30522"])
    objective = build_objective(config, SpecialTokens(0, 1, 2, 3, 4))
    optimizer = build_optimizer(objective, config.optimizer)
    for parameter in objective.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # so that it has moments
    cpu = torch.device("cpu")
    update = Update(objective, optimizer, gradient_clip=1.0, precision=Precision("float32", "", 1.0), device=cpu)
    checkpoints, seconds, path = Checkpoints(folder, CheckpointConfig()), [], None
    for step in range(1, 6):
        started = time.perf_counter()
        path = save(checkpoints, step, update, state={}, texts={})
        seconds.append(time.perf_counter() - started)
    assert path is not None
    return sum(file.stat().st_size for file in path.iterdir()) / 1e6, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["electra-nano", "electra-small", "electra-base"])
    parser.add_argument("--out", type=Path, help="a folder on the disk that runs are to be written to")
    options = parser.parse_args()
    torch.manual_seed(0)
    print("| preset | MB | seconds (least–most) | 1 % of a run of |\n|---|---|---|---|")
    for preset in options.presets:
        with tempfile.TemporaryDirectory(dir=options.out) as folder:
            megabytes, seconds = measured(preset, Path(folder))
        minutes = 11 * statistics.median(seconds) / 0.01 / 60
        spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})"
        print(f"| {preset} | {megabytes:,.0f} | {spread} | {minutes:.0f} min |", flush=True)


if __name__ == "__main__":
    main()

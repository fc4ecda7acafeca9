"""How the time of a training step grows with batch, length, layers and vocabulary, compared with its FLOPs.

    python benchmarks/scaling.py [--preset electra-small] [--rounds 3] [--json FILE] [--picture FILE]

One setting of ELECTRA-Small at 32 × 128 tokens is changed at a time; with the length, the number of rows changes
so that the number of tokens stays the same. Values are medians of single steps on a CPU in float32, as the
trainer makes them. The *FLOPs line* is the time of a step if it were proportional to its FLOPs (`electra flops`,
modern convention), through the point of the unchanged step. That step is measured again alternately with every
other one, and ratios are of these pairs.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from matplotlib import pyplot

from electra.config import load_config
from electra.data.collate import Batch
from electra.modeling.flops import training_flops
from electra.pretraining.config import PretrainConfig, with_vocabulary
from electra.training.allocator import keep_freed_memory
from train_step import SPECIAL, ours

ROWS, LENGTH = 32, 128
AXES = {
    "rows": [4, 8, 16, 32, 64],
    "length": [128, 256, 512, 1024, 2048],
    "layers": [3, 6, 12, 24],
    "vocabulary": [8_000, 30_522, 64_000, 128_000],
}


TIMES = [0.125, 0.25, 0.5, 1, 2, 4]


def point(preset: str, axis: str, value: int) -> tuple[PretrainConfig, Batch]:
    """The config and a batch of random ids for one value of one axis."""
    length = value if axis == "length" else LENGTH
    rows = value if axis == "rows" else ROWS * LENGTH // length
    settings = [f"model.max_positions={max(length, 512)}", f"packing.sequence_length={length}"]
    settings += [f"model.layers={value}"] if axis == "layers" else []
    config = with_vocabulary(
        load_config(PretrainConfig, preset, settings), value if axis == "vocabulary" else 30_522
    )
    ids_BL = torch.randint(1000, config.model.vocabulary_size, (rows, length))
    ids_BL[:, 0], ids_BL[:, -1] = SPECIAL.classify, SPECIAL.separate
    return config, Batch(ids_BL, torch.zeros_like(ids_BL), torch.full((rows,), length), seed=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="electra-small")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    keep_freed_memory()
    config, batch = point(options.preset, "rows", ROWS)
    base_step, objective = ours(config, batch)
    base_flops = ROWS * training_flops(objective.networks(LENGTH), LENGTH)  # type: ignore[operator]
    found: dict[str, list[dict[str, float]]] = {}
    print("| changed | tokens | seconds a step | tokens/s | times the FLOPs | times the time |")
    print("|---|---|---|---|---|---|")
    for axis, values in AXES.items():
        for value in values:
            config, batch = point(options.preset, axis, value)
            step, objective = ours(config, batch)
            seconds: tuple[list[float], list[float]] = [], []
            for number in range(options.rounds + 1):
                for times, one in zip(seconds, (base_step, step), strict=True):
                    start = time.perf_counter()
                    one()
                    if number:
                        times.append(time.perf_counter() - start)
            rows, length = batch.input_ids_BL.shape
            flops = rows * training_flops(objective.networks(length), length) / base_flops  # type: ignore[operator]
            slower = statistics.median(a / b for b, a in zip(*seconds, strict=True))
            median = statistics.median(seconds[1])
            found.setdefault(axis, []).append({"value": value, "flops": flops, "time": slower, "seconds": median})
            print(
                f"| {axis} {value:,} | {rows} × {length} | {median:.2f} | {rows * length / median:,.0f} "
                f"| {flops:.2f} | {slower:.2f} |",
                flush=True,
            )
            del step, objective
    if options.json:
        facts = {"preset": options.preset, "processor": torch.backends.cpu.get_cpu_capability(), "axes": found}
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    if options.picture:
        draw(found, options.picture)


def draw(found: dict[str, list[dict[str, float]]], path: Path) -> None:
    """One panel per axis: the measured times and the FLOPs line."""
    figure, panels = pyplot.subplots(
        1, len(found), figsize=(3.2 * len(found), 3.2), sharey=True, layout="constrained"
    )
    for panel, (axis, points) in zip(panels, found.items(), strict=True):
        values = [point["value"] for point in points]
        panel.plot(values, [point["flops"] for point in points], "--", color="0.5", label="FLOPs line")
        panel.plot(values, [point["time"] for point in points], "o-", color="tab:blue", label="measured")
        panel.set(xscale="log", yscale="log", xlabel=axis)
        panel.set_xticks(values, [f"{value:,}" for value in values], fontsize=7)
        panel.set_yticks(TIMES, [f"{time:g}" for time in TIMES])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("time of a step, times that of 32 × 128")
    panels[0].legend()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()

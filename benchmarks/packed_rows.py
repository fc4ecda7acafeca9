"""Training steps on packed rows and on rows of one document, on a CPU: tokens of text per second.

    OMP_NUM_THREADS=1 python benchmarks/packed_rows.py --data DATA [--presets electra-small modern-small]
        [--lengths 512] [--tokens 4096] [--steps 8] [--json FILE]

DATA is prepared text of whole documents, such as English Wikipedia. Each pair of steps reads batches of about
`--tokens` positions: of `packing.builder = "packed"`, and of `"doc-sentences"`, where a row ends with its document
and is padded to the longest row of the batch. A step is forward, backward, clipping and AdamW, as the trainer runs
it. Tokens of text do not include special tokens and padding. The ratio compares all tokens per all seconds; its
range is that of the pairs. With one thread, times are processor seconds.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from electra.config import load_config
from electra.data.collate import Batch
from electra.data.shards import TokenData
from electra.objectives.masking import text_mask
from electra.pretraining.build import build_batches
from electra.pretraining.config import PretrainConfig, build_objective, with_vocabulary
from electra.training.allocator import keep_freed_memory
from electra.training.optim import build_optimizer
from electra.training.precision import Precision, PrecisionName, product_flops
from electra.training.update import Update

CPU = torch.device("cpu")
clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
BUILDERS = ("packed", "doc-sentences")
Results = dict[str, list[tuple[float, int]]]
"""Seconds and tokens of text of each step, by builder."""


def steps_of(
    config: PretrainConfig, data: TokenData, precision: PrecisionName
) -> Callable[[int], tuple[float, int]]:
    """Return a function that makes one step and returns its seconds and its tokens of text."""
    torch.manual_seed(0)
    objective = build_objective(config, data.special).train()
    update = Update(
        objective,
        build_optimizer(objective, config.optimizer),
        gradient_clip=config.optimizer.gradient_clip,
        precision=Precision(precision, "", 0.0),
        device=CPU,
    )
    batches = build_batches(config, data, CPU)

    def step(number: int) -> tuple[float, int]:
        micro_batches = batches.micro_batches(number)
        start = clock()
        update(micro_batches, config.optimizer.learning_rate)
        return clock() - start, sum(count_text(batch, data) for batch in micro_batches)

    return step


def count_text(batch: Batch, data: TokenData) -> int:
    return int(text_mask(batch.input_ids_BL, data.special).sum())


def with_rows(base: PretrainConfig, builder: str, length: int, tokens: int) -> PretrainConfig:
    """The config with rows of a length and batches of about `tokens` positions."""
    return replace(
        base,
        model=replace(base.model, max_positions=max(length, base.model.max_positions)),
        packing=replace(base.packing, builder=builder, sequence_length=length),
        train=replace(base.train, batch_size=max(1, tokens // length), micro_batch_size=0),
    )


def measure(
    base: PretrainConfig, data: TokenData, precision: PrecisionName, *, length: int, tokens: int, count: int
) -> Results:
    """Seconds and tokens of text of `count` steps of each builder, alternately, after a warm-up."""
    steps = {}
    for builder in BUILDERS:
        config = with_vocabulary(with_rows(base, builder, length, tokens), data.vocabulary_size)
        steps[builder] = steps_of(config, data, precision)
    results: Results = {builder: [] for builder in BUILDERS}
    for number in range(count + 1):
        for builder, step in steps.items():
            result = step(number)
            if number:
                results[builder].append(result)
    return results


def format_line(preset: str, length: int, results: Results) -> str:
    """The line of a table: tokens per second, their ratio, and the ratios of single pairs of steps."""
    packed, alone = (
        sum(tokens for _, tokens in results[builder]) / sum(seconds for seconds, _ in results[builder])
        for builder in BUILDERS
    )
    pairs = [(a[1] / a[0]) / (b[1] / b[0]) for a, b in zip(*(results[name] for name in BUILDERS), strict=True)]
    spread = f"{min(pairs):.2f}–{max(pairs):.2f}, median {statistics.median(pairs):.2f}"
    return f"| {preset} | {length} | {packed:,.0f} | {alone:,.0f} | {packed / alone:.2f} × ({spread}) |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--presets", nargs="+", default=["electra-small", "modern-small"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[512])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    keep_freed_memory()
    data = TokenData.open(options.data, verify=False)
    faster = product_flops(torch.bfloat16, CPU) > product_flops(torch.float32, CPU)
    precision: PrecisionName = "bfloat16" if faster else "float32"
    threads, processor = torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()
    print(f"{options.data.name}, {options.tokens:,} positions, {precision}, {processor}, {threads} threads\n")
    print("| preset | length | packed: tokens/s | one document per row | ratio (of pairs) |")
    print("|---|---|---|---|---|")
    records = []
    for preset, length in itertools.product(options.presets, options.lengths):
        base = load_config(PretrainConfig, preset)
        results = measure(base, data, precision, length=length, tokens=options.tokens, count=options.steps)
        print(format_line(preset, length, results), flush=True)
        records.append({"preset": preset, "length": length, "steps": results})
    if options.json:
        where = {"processor": processor, "threads": threads, "precision": precision}
        options.json.write_text(json.dumps({**where, "results": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()

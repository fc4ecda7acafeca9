"""The data path without the model: tokens per second of batches as training consumes them.

    python benchmarks/feed.py [DATA] [--seconds 2] [--characters 30000000] [--processes 1 2 4 8] [--json FILE]

DATA is made by `electra prepare`; without it, the beginning of ../shared's English Wikipedia is prepared. Ours is
`build_batches(...).micro_batches(step)` of `electra pretrain` on a CPU: sampling, gathering and collating,
without prefetching. The peer (feed_peer.py) is `datasets` and torch's DataLoader on the same ids, in full rows of
the same length. Each runs for --seconds in one thread, alternately with the others (the peer with workers runs
alone), after a warm-up, with the data in the page cache. Values are medians over blocks of ten batches. Tokens
are those of text, special tokens included; positions also count padding, of which the peer has none. *Of a step*
is the time as a share of a training step with the same number of positions at --step-tokens-per-second, and the
inverse as a factor. In the last table the processes share the steps and start together; processor seconds do not
count the time in which other processes had the core.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

import electra
from electra.data.shards import TokenData
from electra.preparation.config import PrepareConfig
from electra.preparation.run import prepare
from electra.pretraining.build import build_batches
from electra.training.batch_source import BatchSource
from prepare import CORPUS, VOCABULARY, first_part

Shape = tuple[int, int]
SHAPES: list[Shape] = [(32, 128), (128, 128), (32, 512)]
TOGETHER: Shape = (128, 128)
BLOCK = 10
"""Batches that are timed at once: a DataLoader's workers deliver theirs in bursts."""
OURS = "ours"
Sizes = Iterator[tuple[int, int]]
"""Makes batches, and tells each one's tokens of text and its positions."""


@dataclass(frozen=True)
class Measurement:
    """Batches of one kind in one process."""

    name: str
    shape: Shape
    batch_seconds: list[float]
    """Of each block, divided by its batches."""
    batch_tokens: float
    """Tokens of text, special tokens included, in a batch on average."""
    batch_positions: float
    """The same with padding."""

    @property
    def seconds(self) -> float:
        return statistics.median(self.batch_seconds)

    @property
    def tokens_per_second(self) -> float:
        return self.batch_tokens / self.seconds


def time_blocks(shape: Shape, kinds: dict[str, Sizes], *, seconds: float) -> list[Measurement]:
    """Time blocks of batches, one of each kind alternately, until each kind had its seconds on average."""
    sizes: dict[str, list[tuple[int, int]]] = {name: [] for name in kinds}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for batches in kinds.values():  # warms up
        list(itertools.islice(batches, BLOCK))
    end = time.perf_counter() + seconds * len(kinds)
    while time.perf_counter() < end:
        for name, batches in kinds.items():
            start = time.perf_counter()
            sizes[name] += itertools.islice(batches, BLOCK)
            times[name].append((time.perf_counter() - start) / BLOCK)
    return [
        Measurement(name, shape, times[name], *map(statistics.mean, zip(*sizes[name], strict=True)))
        for name in kinds
    ]


def open_data(data: TokenData, shape: Shape) -> BatchSource:
    rows, length = shape
    settings = {"train.batch_size": rows, "packing.sequence_length": length}
    return build_batches(electra.load_config("electra-small", settings), data, torch.device("cpu"))


def ours(source: BatchSource, *, first: int = 0, every: int = 1) -> Sizes:
    for step in itertools.count(first, every):
        (batch,) = source.micro_batches(step)
        yield int(batch.lengths_B.sum()), batch.input_ids_BL.numel()


def compare_peer(
    data: TokenData, sources: dict[Shape, BatchSource], folder: Path, *, seconds: float
) -> Iterator[Measurement]:
    """Ours alternately with the peer in both formats, then the peer with workers, which must run alone."""
    os.environ["HF_HOME"] = str(folder / "cache")  # this and the next are read when datasets is imported
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    import feed_peer

    special = {"classify": data.special.classify, "separate": data.special.separate}
    ids = np.concatenate([shard.tokens for shard in data.train.shards])
    for length in {length for _, length in sources}:
        feed_peer.write(ids, folder / str(length), length=length, **special)

    def peer(shape: Shape, form: feed_peer.Form, workers: int) -> Sizes:
        for batch in feed_peer.batches(folder / str(shape[1]), rows=shape[0], workers=workers, form=form):
            yield (batch["input_ids"].numel(),) * 2  # its rows are full

    for shape, source in sources.items():
        alone = {f"peer, {form} format": peer(shape, form, 0) for form in feed_peer.FORMS}
        yield from time_blocks(shape, {OURS: ours(source), **alone}, seconds=seconds)
        for form in feed_peer.FORMS:
            yield from time_blocks(
                shape, {f"peer, {form} format, 2 workers": peer(shape, form, 2)}, seconds=seconds
            )


def run_together(source: BatchSource, processes: int, *, seconds: float) -> list[tuple[float, float]]:
    """Tokens of text per second, and per processor second, of each of several processes at once."""
    context = multiprocessing.get_context("fork")  # they share the index
    start, found = context.Barrier(processes, timeout=60), context.SimpleQueue()

    def work(number: int) -> None:
        batches = ours(source, first=number, every=processes)
        list(itertools.islice(batches, BLOCK))  # warms up
        start.wait()
        started, busy, tokens = time.perf_counter(), time.process_time(), 0
        while (spent := time.perf_counter() - started) < seconds:
            tokens += sum(size for size, _ in itertools.islice(batches, BLOCK))
        found.put((tokens / spent, tokens / (time.process_time() - busy)))

    children = [context.Process(target=work, args=(number,)) for number in range(processes)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    return [found.get() for _ in children]


def report(runs: list[Measurement], step_speed: float) -> None:
    columns = ("rows × length", "", "ms a batch (least–most)", "M tokens/s", "M positions/s", "of a step")
    print(f"| {' | '.join((*columns, 'speedup'))} |\n{'|---' * (len(columns) + 1)}|")
    own = {run.shape: run.tokens_per_second for run in runs if run.name == OURS}
    for run in runs:
        spread = f"{min(run.batch_seconds) * 1e3:.2f}–{max(run.batch_seconds) * 1e3:.2f}"
        speed = run.batch_positions / run.seconds
        print(
            f"| {run.shape[0]} × {run.shape[1]} | {run.name} | {run.seconds * 1e3:.2f} ({spread}) "
            f"| {run.tokens_per_second / 1e6:.2f} | {speed / 1e6:.2f} "
            f"| {step_speed / speed:.3%}, {speed / step_speed:,.0f} × "
            f"| {own[run.shape] / run.tokens_per_second:.1f} × |"
        )


def report_together(speeds: dict[int, list[tuple[float, float]]]) -> None:
    print("| processes | M tokens/s together | M tokens a processor second, mean |\n|---|---|---|")
    cores, busy_speeds = os.cpu_count(), []
    for processes, found in speeds.items():
        wall, busy = zip(*found, strict=True)
        busy_speeds.append(statistics.mean(busy) / 1e6)
        print(f"| {processes} | {sum(wall) / 1e6:.2f} | {busy_speeds[-1]:.2f} |")
    least = min(busy_speeds)
    print(f"\n{cores} cores here. Eight would make, by arithmetic, 8 × {least:.2f} = {8 * least:.0f} M tokens/s.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement")
    parser.add_argument("--characters", type=int, default=30_000_000, help="to prepare where there is no DATA")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument(
        "--step-tokens-per-second", type=float, default=1600, help="of ELECTRA-Small, 2 AVX2 cores"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.data is None and not (CORPUS.exists() and VOCABULARY.exists()):
        print(f"skipped: there is no DATA, and no {CORPUS} and {VOCABULARY} to make it of")
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.data is None:
            part = first_part(CORPUS, options.characters, folder)
            prepare(PrepareConfig(corpus=(str(part),), out=folder / "data", tokenizer=VOCABULARY))
        data = TokenData.open(options.data or folder / "data")  # reads it all: then it is in the page cache
        start = time.perf_counter()
        sources = {shape: open_data(data, shape) for shape in SHAPES}
        index_seconds = (time.perf_counter() - start) / len(SHAPES)
        speeds = {
            count: run_together(sources[TOGETHER], count, seconds=options.seconds) for count in options.processes
        }
        runs = list(compare_peer(data, sources, folder, seconds=options.seconds))
    tokens, cores = data.train.tokens, os.cpu_count()
    print(f"{tokens:,} tokens, {cores} cores; indexed in {index_seconds:.2f} s, once at the start of a run\n")
    report(runs, options.step_tokens_per_second)
    print(f"\n{TOGETHER[0]} × {TOGETHER[1]}:\n")
    report_together(speeds)
    if options.json:
        facts = {"cores": cores, "tokens": tokens, "index_seconds": index_seconds, "together": speeds}
        facts["step_tokens_per_second"] = options.step_tokens_per_second
        options.json.write_text(json.dumps({**facts, "runs": [asdict(run) for run in runs]}, indent=1) + "\n")


if __name__ == "__main__":
    main()

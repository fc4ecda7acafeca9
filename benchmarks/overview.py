"""All benchmarks that take minutes, in one run, and a table of them: `make bench`.

    python benchmarks/overview.py [--page docs/results/benchmarks.md] [--json FILE] [--only NAME ...]

Each benchmark is a script of this folder that runs in its own process, one after the other; all take about ten
minutes on two cores. The table replaces the one between the two marks in the page, with date and hardware. The
JSON file gets everything that the scripts measured. A benchmark that fails is named in the table and at the end.
"""

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"
LIMIT = "limit: the products alone"
Facts = dict[str, Any]
Line = tuple[str, str, str, str]
"""What was measured, ours, the peer's, and the ratio with what else there is to say."""


def prepare_lines(facts: Facts) -> Iterator[Line]:
    speeds = {
        (run["name"], run["processes"]): run["characters"] / run["wall_seconds"] / 1e6 for run in facts["runs"]
    }
    best = max((name, processes) for name, processes in speeds if name.startswith("ours, vocabulary given"))
    alone = speeds[best[0], 1]
    theirs = next((speed for (name, _), speed in speeds.items() if name.startswith("peer")), None)
    peer, ratio = (
        ("–", "–") if theirs is None else (f"{theirs:.2f} M characters/s", f"{speeds[best] / theirs:.1f} ×")
    )
    note = f"{ratio}; {best[1]} processes make {speeds[best] / alone:.2f} × one"
    yield "text to shards", f"{speeds[best]:.2f} M characters/s", f"{peer} (datasets.map and grouping)", note


def feed_lines(facts: Facts) -> Iterator[Line]:
    runs = {}
    for run in facts["runs"]:
        speed = run["batch_tokens"] / statistics.median(run["batch_seconds"]) / 1e6
        runs.setdefault(tuple(run["shape"]), {})[run["name"]] = speed
    for (rows, length), speeds in runs.items():
        ours = speeds.pop("ours")
        best = max(speeds, key=speeds.__getitem__)
        peer = f"{speeds[best]:.1f} M tokens/s ({best.removeprefix('peer, ')})"
        yield f"batches of {rows} × {length}", f"{ours:.1f} M tokens/s", peer, f"{ours / speeds[best]:.1f} ×"


def step_lines(facts: Facts) -> Iterator[Line]:
    seconds: dict[str, list[float]] = facts["seconds"]

    def ratio(one: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))

    def speed(name: str) -> str:
        return f"{facts['tokens'] / statistics.median(seconds[name]):,.0f} tokens/s"

    what = f"training step, {facts['preset']}, {facts['rows']} × {facts['length']}, {facts['precision']}"
    best = min((name for name in seconds if "skilled" in name), key=lambda name: statistics.median(seconds[name]))
    skilled = f"{ratio(best, 'ours'):.2f} ×; {ratio(LIMIT, 'ours'):.0%} of the limit"
    yield what, speed("ours"), f"{speed(best)} (transformers' classes, by a skilled user)", skilled
    yield "", "", f"{speed('naive peer')} (as they are wired plainly)", f"{ratio('naive peer', 'ours'):.2f} ×"


def score_lines(facts: Facts) -> Iterator[Line]:
    for name in ("scores", "states", "embeddings"):
        if found := facts.get(name):
            ours, theirs = (facts["sentences"] / statistics.median(found[side]) for side in ("ours", "peer"))
            yield (
                f"{name} of sentences",
                f"{ours:,.0f}/s",
                f"{theirs:,.0f}/s (batches of 32)",
                f"{found['ratio']:.2f} ×",
            )


def gpu_lines(facts: Facts) -> Iterator[Line]:
    rows = facts["rows"]
    for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
        speeds = [f"{row['tokens_per_second']:,.0f} tokens/s" for row in (ours, theirs)]
        ratio = f"{ours['tokens_per_second'] / theirs['tokens_per_second']:.2f} ×"
        ratio += f"; {ours['utilization']:.0%} of the card"
        yield f"training step, {ours['preset']}, {facts['device']}", speeds[0], speeds[1], ratio


@dataclass(frozen=True)
class Benchmark:
    """One script, its arguments, and the function that turns its results into lines (None: it passes or fails)."""

    name: str
    arguments: list[str]
    lines: Callable[[Facts], Iterator[Line]] | None


BENCHMARKS = [
    Benchmark("prepare", ["prepare.py"], prepare_lines),
    Benchmark("feed", ["feed.py", "--seconds=1"], feed_lines),
    Benchmark("small", ["train_step.py", "--rounds=5"], step_lines),
    Benchmark(
        "base", ["train_step.py", "--preset=electra-base", "--rows=4", "--length=512", "--rounds=2"], step_lines
    ),
    Benchmark("score", ["score.py"], score_lines),
    Benchmark("replay", ["replay.py", *map(str, sorted((HERE.parent / "tests/golden").iterdir()))], None),
]
if torch.cuda.is_available():
    BENCHMARKS.append(Benchmark("card", ["train_step_gpu.py"], gpu_lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs/results/benchmarks.md")
    parser.add_argument("--json", type=Path, default=HERE.parent / "docs/results/benchmarks.json")
    parser.add_argument("--only", nargs="+", choices=[one.name for one in BENCHMARKS], help="print, write nothing")
    options = parser.parse_args()
    chosen = [one for one in BENCHMARKS if not options.only or one.name in options.only]
    measured: dict[str, Facts] = {}
    lines: list[Line] = []
    start, failed = time.perf_counter(), []
    for benchmark in chosen:
        command = [sys.executable, str(HERE / benchmark.arguments[0]), *benchmark.arguments[1:]]
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder, "figures.json")
            status = subprocess.run([*command, *(["--json", str(figures)] if benchmark.lines else [])]).returncode
            if status:
                failed.append(benchmark.name)
                lines.append((benchmark.name, "failed", "", ""))
            elif benchmark.lines is None:
                lines.append(("replay of the original, five steps each", "every tensor within 1e-4", "–", "–"))
            elif figures.exists():
                measured[benchmark.name] = facts = json.loads(figures.read_text(encoding="utf-8"))
                try:
                    lines += benchmark.lines(facts)
                except (KeyError, ValueError) as error:  # the others' minutes are not to be lost
                    failed.append(benchmark.name)
                    lines.append((benchmark.name, f"not understood: {error!r}", "", ""))
            else:
                lines.append((benchmark.name, "skipped", "", ""))
    about = f"{datetime.date.today()}, {hardware()}, torch {torch.__version__}, "
    about += f"{(time.perf_counter() - start) / 60:.1f} minutes"
    table = [f"`make bench`, {about}:\n", "| | ours | peer | speedup |", "|---|---|---|---|"]
    table += [f"| {' | '.join(line)} |" for line in lines]
    text = "\n".join(table)
    sys.stdout.write(f"\n{text}\n")
    if not options.only:
        page = options.page.read_text(encoding="utf-8")
        before, begin, rest = page.partition(BEGIN)
        assert begin and END in rest, f"{options.page} has lost the marks that the table goes between"
        options.page.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
        facts = {"about": about, **measured}
        options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return bool(failed)


def hardware() -> str:
    """The processor's name, its widest relevant instructions, and the number of threads."""
    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line for line in information.read_text().splitlines() if line.startswith("model name")]
        name = names[0].partition(":")[2].strip() if names else name
    bf16 = "bf16 instructions" if torch.cpu._is_avx512_bf16_supported() else "no bf16 instructions"
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{name} ({capability}, {bf16}, {torch.get_num_threads()} threads)"


if __name__ == "__main__":
    sys.exit(main())

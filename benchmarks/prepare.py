"""Speed and memory of `electra prepare`: characters a second and the peak of all its processes together.

    python benchmarks/prepare.py [CORPUS ...]        default: ../shared/data/corpora/enwiki.jsonl.zst

Each corpus is prepared with the vocabulary given by --tokenizer and, with --train, with one trained on it. The
wall clock runs from starting the command to its end, imports and checksums included. Memory is the sum of the
resident sets of the command and its workers, sampled every 50 ms; pages that they share count more than once.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

SHARED = Path(__file__).parents[1] / "../shared/data"


def measure(arguments: list[str]) -> tuple[float, float, int]:
    """Wall seconds, processor seconds and peak bytes of one command with its children."""
    started, before = time.perf_counter(), os.times()
    process = psutil.Popen([sys.executable, "-m", "electra.cli", "prepare", *arguments], stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        try:
            family = [process, *process.children(recursive=True)]
            peak = max(peak, sum(member.memory_info().rss for member in family))
        except psutil.NoSuchProcess:
            pass
        time.sleep(0.05)
    wall, after = time.perf_counter() - started, os.times()
    if process.returncode:
        raise SystemExit(process.returncode)
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return wall, cpu, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="*", type=Path, default=[SHARED / "corpora/enwiki.jsonl.zst"])
    parser.add_argument("--tokenizer", type=Path, default=SHARED / "vocab/bert-uncased/vocab.txt")
    parser.add_argument("--train", action="store_true", help="also with a vocabulary trained on the corpus")
    parser.add_argument("--workers", type=int, default=None)
    options = parser.parse_args()
    table = Table(title=f"electra prepare on {platform.machine()}, {psutil.cpu_count()} processors")
    for name in ("corpus", "tokenizer", "characters", "tokens", "wall s", "M characters/s", "CPU s", "peak MiB"):
        table.add_column(name, justify="left" if name in ("corpus", "tokenizer") else "right")
    for corpus in options.corpus:
        for tokenizer in [options.tokenizer, None] if options.train else [options.tokenizer]:
            with tempfile.TemporaryDirectory() as folder:
                arguments = [str(corpus), "--out", f"{folder}/data"]
                arguments += ["--tokenizer", str(tokenizer)] if tokenizer else []
                arguments += ["--workers", str(options.workers)] if options.workers else []
                wall, cpu, peak = measure(arguments)
                figures = json.loads(Path(folder, "data/manifest.json").read_text())["statistics"]
            characters = figures["characters"]
            row = [corpus.name, "given" if tokenizer else "trained", f"{characters:,}", f"{figures['tokens']:,}"]
            row += [f"{wall:.1f}", f"{characters / 1e6 / wall:.2f}", f"{cpu:.1f}", f"{peak / 2**20:,.0f}"]
            table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

"""Speed and memory of `electra prepare` and its peer: characters per second, peak memory of all processes.

    python benchmarks/prepare.py [CORPUS ...] [--characters 40000000] [--workers 1 2] [--train] [--json FILE]

Default corpus: ../shared/data/corpora/enwiki.jsonl.zst. The first --characters of each corpus (0: the whole file)
are prepared with the vocabulary of --tokenizer and, with --train, with one that is trained on them. The peer,
`datasets` and transformers (prepare_peer.py), has the given vocabulary and as many processes as our fastest run.
Wall-clock time is measured from the start to the end of the command, imports and checksums included. Memory is
the sum of the resident sets of the command and its workers, sampled every 50 ms; shared pages count more than
once.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import zstandard

from electra.preparation.corpus import find_sources
from electra.readers.base import Document

SHARED = Path(__file__).parents[1] / "../shared/data"
CORPUS = SHARED / "corpora/enwiki.jsonl.zst"
VOCABULARY = SHARED / "vocab/bert-uncased/vocab.txt"
OURS_GIVEN, OURS_TRAINED = "ours, vocabulary given", "ours, vocabulary trained"
PEER = "peer: datasets and transformers, vocabulary given"


@dataclass(frozen=True)
class Run:
    """One command, from its start to its end."""

    name: str
    corpus: str
    processes: int
    characters: int
    tokens: int
    wall_seconds: float
    processor_seconds: float
    peak_bytes: int

    @property
    def speed(self) -> float:
        return self.characters / self.wall_seconds


def first_part(corpus: Path, characters: int, folder: Path) -> Path:
    """The first documents of a corpus, up to about this number of characters, as .jsonl.zst."""
    path, left = folder / f"{corpus.name.partition('.')[0]}.jsonl.zst", characters
    with zstandard.open(path, "wt", encoding="utf-8") as file:
        for source in find_sources([str(corpus)], out=folder, text_column=None):
            for item in source.read():
                if left <= 0:
                    return path
                if isinstance(item, Document):
                    file.write(json.dumps({"text": item.text}, ensure_ascii=False) + "\n")
                    left -= len(item.text)
    return path


def measure(arguments: list[str]) -> tuple[float, float, int]:
    """Wall-clock seconds, processor seconds and peak bytes of one Python process with its children."""
    started, before = time.perf_counter(), os.times()
    process = psutil.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
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


def ours(corpus: Path, tokenizer: Path | None, workers: int) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-m", "electra", "prepare", str(corpus), "--out", f"{folder}/data"]
        arguments += ["--workers", str(workers), *(["--tokenizer", str(tokenizer)] if tokenizer else [])]
        measured = measure(arguments)
        figures = json.loads(Path(folder, "data/manifest.json").read_text())["statistics"]
    return Run(
        OURS_GIVEN if tokenizer else OURS_TRAINED,
        corpus.name,
        workers,
        figures["characters"],
        figures["tokens"],
        *measured,
    )


def peer(corpus: Path, tokenizer: Path, processes: int, *, characters: int) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(Path(__file__).with_name("prepare_peer.py")), str(corpus), "--out", folder]
        measured = measure([*arguments, "--tokenizer", str(tokenizer), "--processes", str(processes)])
        figures = json.loads(Path(folder, "figures.json").read_text())
    return Run(PEER, corpus.name, processes, characters, figures["tokens"], *measured)


def report(runs: list[Run], theirs: Run | None) -> None:
    """Print the table of one corpus; both factors are ratios of speeds."""
    columns = ("", "processes", "tokens", "wall s", "M characters/s", "× one process", "processor s", "peak MiB")
    print(f"\n{runs[0].corpus}, {runs[0].characters:,} characters:\n")
    print(f"| {' | '.join((*columns, '× the peer'))} |\n{'|---' * (len(columns) + 1)}|")
    for run in [*runs, *([theirs] if theirs else [])]:
        alone = next((other.speed for other in runs if (other.name, other.processes) == (run.name, 1)), None)
        versus = theirs.speed if theirs and run.name == OURS_GIVEN else None
        factors = [f"{run.speed / other:.2f}" if other else "–" for other in (alone, versus)]
        print(
            f"| {run.name} | {run.processes} | {run.tokens:,} | {run.wall_seconds:.1f} | {run.speed / 1e6:.2f} "
            f"| {factors[0]} | {run.processor_seconds:.1f} | {run.peak_bytes / 2**20:,.0f} | {factors[1]} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="*", type=Path, default=[CORPUS])
    parser.add_argument("--tokenizer", type=Path, default=VOCABULARY, help="a vocab.txt")
    parser.add_argument("--train", action="store_true", help="also with a vocabulary trained on the corpus")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--characters", type=int, default=40_000_000, help="of each corpus; 0: all")
    parser.add_argument("--no-peer", dest="peer", action="store_false")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    wanted = {*options.corpus, options.tokenizer}
    if missing := [str(path) for path in (CORPUS, VOCABULARY) if path in wanted and not path.exists()]:
        print(f"skipped: there is no {' and no '.join(missing)}; name a CORPUS and a --tokenizer of your own")
        return
    print(f"electra prepare, {platform.machine()}, {psutil.cpu_count()} processors")
    everything: list[Run] = []
    for corpus in options.corpus:
        with tempfile.TemporaryDirectory() as folder:
            path = first_part(corpus, options.characters, Path(folder)) if options.characters else corpus
            tokenizers = [options.tokenizer, None] if options.train else [options.tokenizer]
            runs = [ours(path, tokenizer, workers) for tokenizer in tokenizers for workers in options.workers]
            theirs = None
            if options.peer and ".jsonl" in path.suffixes and options.tokenizer.suffix == ".txt":  # what it reads
                theirs = peer(path, options.tokenizer, max(options.workers), characters=runs[0].characters)
        report(runs, theirs)
        everything += [*runs, *([theirs] if theirs else [])]
    if options.json:
        facts = {"processors": psutil.cpu_count(), "runs": [asdict(run) for run in everything]}
        options.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()

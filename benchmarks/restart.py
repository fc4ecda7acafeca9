"""How long a run that was killed takes from its command to its next step, by the size of the data.

    python benchmarks/restart.py DATA [--times 1 20 60] [--preset electra-small]

DATA is what `electra prepare` made. Its training part is repeated (by links, so the disk holds it once) to have
more text. Of each size: the time to the first step of a new run, in which all files are read once to see that
they are whole and a large text is packed; and of the run that is begun again, medians of three.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from electra.data.shards import fingerprint, write_manifest

TO_THE_FIRST_STEP = """
import os, sys
from electra.cli import main
from electra.training.trainer import Trainer

def first(self):
    if sys.argv[1] == "save":
        self.progress.step += 1
        self._save()
    print("first step", flush=True)
    os._exit(0)

Trainer._step = first
sys.exit(main(sys.argv[2:]))
"""


def repeated(data: Path, folder: Path, times: int) -> int:
    """Data with the training shards of others, so many times; how many tokens that are."""
    folder.mkdir()
    manifest = json.loads((data / "manifest.json").read_text())
    shards = manifest["splits"]["train"]["shards"]
    for file in data.iterdir():
        if not file.name.startswith(("train-", "manifest.")):
            (folder / file.name).hardlink_to(file)
    many = []
    for number in range(times * len(shards)):
        shard, name = shards[number % len(shards)], f"train-{number:05d}"
        for kind in shard["sha256"]:
            (folder / f"{name}.{kind}").hardlink_to(data / f"{shard['name']}.{kind}")
        many.append({**shard, "name": name})
    manifest["splits"]["train"]["shards"] = many
    manifest["fingerprint"] = fingerprint(manifest["tokenizer"]["sha256"], manifest["splits"])
    write_manifest(folder, manifest)
    return sum(shard["tokens"] for shard in many)


def seconds(preset: str, data: Path, out: Path, mode: str) -> float:
    arguments = ["pretrain", preset, "--data", str(data), "--out", str(out), "--train.steps", "1000"]
    arguments += ["--train.precision", "float32"]
    arguments += ["--evaluation.examples", "32", "--evaluation.interim_examples", "32"]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", TO_THE_FIRST_STEP, mode, *arguments], capture_output=True, text=True, check=False
    )
    if "first step" not in done.stdout:
        sys.exit(done.stderr)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--times", type=int, nargs="+", default=[1, 20, 60])
    parser.add_argument("--preset", default="electra-small")
    options = parser.parse_args()
    print("| tokens | a new run, to its first step | begun again | the index |\n|---|---|---|---|")
    for times in options.times:
        with tempfile.TemporaryDirectory(dir=options.data.resolve().parent) as name:
            data, out = Path(name, "data"), Path(name, "run")
            tokens = repeated(options.data.resolve(), data, times)
            new = seconds(options.preset, data, out, "save")
            again = [seconds(options.preset, data, out, "look") for _ in range(3)]
            index = sum(file.stat().st_size for file in out.glob("index/*"))
        spread = f"{statistics.median(again):.1f} s ({min(again):.1f}–{max(again):.1f})"
        print(f"| {tokens / 1e6:,.0f}M | {new:.1f} s | {spread} | {index / 1e6:,.0f} MB |", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()

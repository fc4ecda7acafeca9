"""Fault injection: a run that is killed again and again, and files with flipped bits.

    python benchmarks/torture.py [--kills 50] [--flips 2000] [--steps 4000] [--json FILE]

Kills: a run of very small networks on generated text is killed by SIGKILL at random moments, every other time
while a checkpoint is written (up to 10 ms after its partial folder appears), and restarted by the same command,
until it was killed --kills times; then it runs to its end. (If a run ends earlier, another one follows.) It must
end with the weights, the optimizer's state and the metrics of a run that nobody killed, bit for bit, and at no
moment may a checkpoint with its final name be damaged.

Flips: single bits at random places of every file of a checkpoint and of prepared data, each restored before the
next. Each must be detected when the folder is opened; and a run whose newest checkpoint is damaged must resume
from the previous one, and end with the same result.

Exit status 1 if any of this failed.
"""

import argparse
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from electra.config import load_config
from electra.data.shards import TokenData
from electra.errors import CheckpointError, DataError
from electra.objectives.health import SLOWER
from electra.preparation.config import PrepareConfig
from electra.preparation.run import prepare
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import pretrain
from electra.training.checkpoint import read_checkpoint

SETTINGS = (
    "model.hidden_size=32", "model.embedding_size=32", "model.feed_forward_size=64", "model.heads=2",
    "model.layers=1", "generator.layers=1", "generator.hidden_size=16", "generator.feed_forward_size=32",
    "packing.sequence_length=32", "train.batch_size=8", "train.report_every=20", "train.precision=float32",
    "optimizer.warmup_steps=50", "evaluation.every=1000", "evaluation.examples=16",
    "evaluation.interim_examples=16", "checkpoint.every=25",
)  # fmt: skip
CLOCK = ("seconds", "tokens_per_second", "evaluation_seconds")
SYLLABLES = ["ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu"]


def config(data: Path, out: Path, steps: int) -> PretrainConfig:
    given = [f"data={data}", f"out={out}", f"train.steps={steps}"]
    return load_config(PretrainConfig, "electra-tiny", [*SETTINGS, *given])


def make_data(folder: Path) -> Path:
    """Prepared data of a few thousand sentences."""
    draw, corpus = random.Random(0), folder / "text.jsonl"
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(2000)]
    with corpus.open("w") as file:
        for _ in range(1500):
            text = " ".join(f"{' '.join(draw.choices(words, k=9))}." for _ in range(8))
            file.write(json.dumps({"text": text}) + "\n")
    prepare(PrepareConfig(corpus=(str(corpus),), out=folder / "data", vocabulary_size=600, workers=1))
    return folder / "data"


def start_training(settings: PretrainConfig) -> int:
    """The process id of a training, forked from this process, which has imported everything."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            status = pretrain(settings).exit_code
        finally:
            os._exit(status)
    return child


def exit_status(child: int) -> int | None:
    """The status of a process that has ended, or None."""
    number, status = os.waitpid(child, os.WNOHANG)
    return status if number else None


def run_kills(data: Path, folder: Path, steps: int, count: int) -> dict[str, Any]:
    """Kill a run `count` times, and compare its result with that of an uninterrupted run."""
    began = time.perf_counter()
    whole, run = folder / "whole", folder / "killed"
    os.waitpid(start_training(config(data, whole, steps)), 0)
    alone = time.perf_counter() - began
    draw, done, writing, damaged, alike = random.Random(1), 0, 0, 0, True
    while done < count:
        child, start, since = start_training(config(data, run, steps)), time.perf_counter(), time.time()
        in_checkpoint = done % 2 == 1
        wait, status = draw.uniform(0.3, 0.3 + 2 * alone / count), None
        while status is None:
            status = exit_status(child)
            waited = time.perf_counter() - start
            partial = in_checkpoint and waited >= wait and is_writing(run, since)
            if waited >= wait and (partial or not in_checkpoint):
                time.sleep(draw.uniform(0, 0.01) if partial else 0)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                done, writing = done + 1, writing + is_writing(run, since)
                break
            time.sleep(0.0002)
        if status is not None:
            print(f"a run reached its end after {done} kills")
            alike &= status == 0 and same_result(whole, run)
            shutil.rmtree(run)
            continue
        for path in (run / "checkpoints").glob("step-*"):
            try:
                read_checkpoint(path)
            except CheckpointError as error:
                damaged += 1
                print(error)
        print(f"{done} kills, {writing} of them with a checkpoint half written; at {newest(run)}", flush=True)
    _, status = os.waitpid(start_training(config(data, run, steps)), 0)
    return {
        "kills": done, "with a checkpoint half written": writing, "damaged checkpoints with a name": damaged,
        "exit": status, "same": alike and same_result(whole, run),
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def is_writing(run: Path, since: float) -> bool:
    """Whether a checkpoint was started since a moment, and is not finished."""
    try:
        return any(path.stat().st_mtime > since for path in (run / "checkpoints").glob(".step-*.partial"))
    except FileNotFoundError:  # finished just now
        return False


def newest(run: Path) -> str:
    return max((path.name for path in (run / "checkpoints").glob("step-*")), default="no checkpoint")


def same_result(one: Path, two: Path) -> bool:
    """Whether two runs ended with the same tensors and metrics, except for times."""
    last = [max((run / "checkpoints").glob("step-*")) for run in (one, two)]
    for name in ("model", "optimizer"):
        mine, theirs = (load_file(path / f"{name}.safetensors") for path in last)
        if mine.keys() != theirs.keys() or not all(torch.equal(mine[key], theirs[key]) for key in mine):
            return False
    return figures(one) == figures(two)


def figures(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    plain = [{key: value for key, value in record.items() if key not in CLOCK} for record in records]
    return [record for record in plain if record.get("health") != SLOWER]


def flip_bits(folder: Path, opened: Callable[[Path], object], count: int, draw: random.Random) -> tuple[int, int]:
    """Flip single bits in the files of a folder; the number of flips, and of those that were not detected."""
    files = sorted(path for path in folder.iterdir() if path.stat().st_size)
    tried = missed = 0
    while tried < count:
        file = files[tried % len(files)]
        place, bit = draw.randrange(file.stat().st_size), 1 << draw.randrange(8)
        with file.open("r+b") as stream:
            stream.seek(place)
            before = stream.read(1)
            stream.seek(place)
            stream.write(bytes([before[0] ^ bit]))
        try:
            opened(folder)
            missed += 1
            sys.stderr.write(f"not noticed: {file}, byte {place}\n")
        except (CheckpointError, DataError):
            pass
        with file.open("r+b") as stream:
            stream.seek(place)
            stream.write(before)
        tried += 1
    opened(folder)
    return tried, missed


def check_recovery(data: Path, run: Path, folder: Path, steps: int, draw: random.Random) -> bool:
    """Whether a run whose newest checkpoint is damaged resumes from the previous one, with the same result."""
    copy = folder / "recovered"
    shutil.copytree(run, copy)
    file = copy / "checkpoints" / newest(run) / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1
    file.write_bytes(content)
    _, status = os.waitpid(start_training(config(data, copy, steps)), 0)
    return status == 0 and same_result(run, copy)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)  # the processes are forked, which threads do not outlive
    logging.getLogger("electra").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        folder, draw = Path(name), random.Random(2)
        data = make_data(folder)
        found = run_kills(data, folder, options.steps, options.kills)
        checkpoint = folder / "whole" / "checkpoints" / newest(folder / "whole")
        for what, place, opened in (
            ("checkpoint", checkpoint, read_checkpoint), ("data", data, TokenData.open),
        ):  # fmt: skip
            tried, missed = flip_bits(place, opened, options.flips // 2, draw)
            found |= {f"flips in the {what}": tried, f"flips in the {what} that were missed": missed}
        found["recovered from a flip"] = check_recovery(data, folder / "whole", folder, options.steps, draw)
    for name, value in found.items():
        print(f"{name}: {value}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    never = (value for name, value in found.items() if "missed" in name or "damaged" in name)
    return 0 if found["same"] and found["recovered from a flip"] and not found["exit"] and not any(never) else 1


if __name__ == "__main__":
    sys.exit(main())

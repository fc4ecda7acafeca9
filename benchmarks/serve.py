"""`electra serve` under load: requests per second and latencies, compared with a plain server of the same model.

    python benchmarks/serve.py [MODEL] [--clients 32] [--seconds 20] [--rounds 3] [--preset NAME] [--json FILE]
    python benchmarks/serve.py [MODEL] --soak 60 [--json FILE]

MODEL is a run or a folder of a discriminator. Without one, an untrained network with the shape of
--preset is written. The texts are single sentences of learner English from ../shared. Each client sends one
text, waits for its scores, and sends the next, over a connection that stays open. Ours and the peer
(benchmarks/serve_peer.py) are two processes on this machine that run all the time, but get requests
alternately, in rounds of --seconds. The values are medians over the rounds; the latencies of a round are those
of all its requests. Before that, both score the same texts, and their probabilities are compared.

--soak: only ours, under full load for MINUTES, with one malformed request in twenty. It counts responses to valid
requests other than 200, responses to malformed requests other than 4xx, and broken connections, and reads the
server's memory (RSS) every ten seconds.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import torch

from electra.data.tokenizer import load_tokenizer
from electra.export.loading import find_model
from score import SHARED, write_untrained

HERE = Path(__file__).parent
WARM_UP_SECONDS = 2.0
"""Seconds of load on each server before the first measurement."""
READ_EVERY = 10.0
BAD_SHARE = 0.05
BAD = [
    b"", b"{", b"[]", b'{"texts": 3}', b'{"texts": []}', b'{"texts": [null]}', b'{"texts": ["a"], "x": 1}',
    b'{"texts": ["\\ud800"]}', b"\xff\xfe", b"[" * 5000, b'{"texts": ["a"], "model": 7}',
    json.dumps({"texts": ["a" * 50_000]}).encode(), b'{"texts": ["' + b"a" * 2**21 + b'"]}',
]  # fmt: skip


@dataclass
class Observations:
    """What the clients observed."""

    latencies: list[float] = field(default_factory=list)
    """Seconds of valid requests."""
    statuses: Counter[str] = field(default_factory=Counter)
    """The number of responses by status: "200" for valid requests, "malformed 422" for malformed ones."""


def sentences(count: int = 2000) -> list[str]:
    """The first sentences of the file."""
    blocks = (SHARED / "tasks/ged/en_realec_dev.tsv").read_text(encoding="utf-8").split("\n\n")
    texts = [" ".join(line.split("\t")[0] for line in block.splitlines()) for block in blocks if block.strip()]
    return texts[:count]


async def ask(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], body: bytes) -> tuple[int, bytes, bool]:
    """Send a request; its status, its response, and whether the connection stays open."""
    reader, writer = streams
    head = (
        f"POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
    answer = await reader.readexactly(length)
    return int(lines[0].split()[1]), answer, b"connection: close" not in lines


async def client(
    port: int, texts: Sequence[str], *, until: float, seed: int, bad: float, observations: Observations
) -> None:
    """One client, which sends requests until the time is over."""
    random_state = random.Random(seed)
    bodies = [json.dumps({"texts": [text]}).encode() for text in texts]
    streams = None
    while time.perf_counter() < until:
        malformed = random_state.random() < bad
        body = random_state.choice(BAD if malformed else bodies)
        try:
            streams = streams or await asyncio.open_connection("127.0.0.1", port)
            began = time.perf_counter()
            status, _, stays = await ask(streams, body)
            if not malformed:
                observations.latencies.append(time.perf_counter() - began)
            observations.statuses[f"malformed {status}" if malformed else str(status)] += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            observations.statuses[f"{'malformed ' * malformed}{type(error).__name__}"] += 1
            stays = False
        if not stays and streams:
            streams[1].close()
            streams = None
    if streams:
        streams[1].close()


async def load(port: int, texts: Sequence[str], *, clients: int, seconds: float, bad: float = 0.0) -> Observations:
    """What several clients observe within a time."""
    observations, until = Observations(), time.perf_counter() + seconds
    work = [
        client(port, texts, until=until, seed=seed, bad=bad, observations=observations) for seed in range(clients)
    ]
    await asyncio.gather(*work)
    return observations


async def probabilities(port: int, texts: Sequence[str]) -> list[list[float]]:
    streams = await asyncio.open_connection("127.0.0.1", port)
    found = []
    for text in texts:
        _, answer, _ = await ask(streams, json.dumps({"texts": [text]}).encode())
        found.append(json.loads(answer)["results"][0]["probabilities"])
    streams[1].close()
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextlib.contextmanager
def running(command: Sequence[str], port: int, log: Path) -> Iterator[psutil.Process]:
    """The process of a server that accepts requests."""
    environment = {name: value for name, value in os.environ.items() if name != "ELECTRA_TOKEN"}
    with log.open("w") as file:
        process = subprocess.Popen([sys.executable, *command], stdout=file, stderr=file, env=environment)
    try:
        for _ in range(1200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            if process.poll() is not None:
                sys.exit(f"{' '.join(command)} has stopped:\n{log.read_text()}")
            time.sleep(0.1)
        time.sleep(1)  # clients can connect to ours a little before it responds
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def measure(
    ports: dict[str, int], texts: Sequence[str], *, clients: int, seconds: float, rounds: int
) -> dict[str, list[Observations]]:
    """Rounds of load on each server, alternately."""
    for port in ports.values():
        asyncio.run(load(port, texts, clients=clients, seconds=WARM_UP_SECONDS))
    found: dict[str, list[Observations]] = {name: [] for name in ports}
    for _ in range(rounds):
        for name, port in ports.items():
            found[name].append(asyncio.run(load(port, texts, clients=clients, seconds=seconds)))
    return found


def compare(folder: Path, texts: Sequence[str], options: argparse.Namespace, logs: Path) -> dict[str, object]:
    """Compare ours with the peer: print a table and return its values."""
    ports = {"ours": free_port(), "peer": 0}
    threads = ["--threads", str(options.threads)]
    ours = ["-m", "electra", "serve", str(folder), "--port", str(ports["ours"]), *threads]
    with running(ours, ports["ours"], logs / "ours.txt"):
        ports["peer"] = free_port()
        theirs = [str(HERE / "serve_peer.py"), str(folder), str(ports["peer"]), *threads]
        with running(theirs, ports["peer"], logs / "peer.txt"):
            pair = [asyncio.run(probabilities(port, texts[:50])) for port in ports.values()]
            difference = max(float(np.abs(np.subtract(*one)).max(initial=0)) for one in zip(*pair, strict=True))
            found = measure(ports, texts, clients=options.clients, seconds=options.seconds, rounds=options.rounds)
    facts: dict[str, object] = {"clients": options.clients, "largest_difference": difference}
    print(f"{options.clients} clients, {options.rounds} rounds of {options.seconds:g} seconds each, alternating\n")
    print("| | requests/s | p50, ms | p95, ms | other than 200 |\n|---|---|---|---|---|")
    for name, rounds in found.items():
        speed = statistics.median(len(observations.latencies) / options.seconds for observations in rounds)
        p50, p95 = (
            statistics.median(1000 * float(np.percentile(observations.latencies, q)) for observations in rounds)
            for q in (50, 95)
        )
        errors = sum(
            count for observations in rounds for status, count in observations.statuses.items() if status != "200"
        )
        print(f"| {name} | {speed:,.0f} | {p50:.1f} | {p95:.1f} | {errors} |")
        facts[name] = {"requests_per_second": speed, "p50_ms": p50, "p95_ms": p95, "errors": errors}
    ratio = statistics.median(
        len(a.latencies) / len(b.latencies) for a, b in zip(found["ours"], found["peer"], strict=True)
    )
    print(f"\nours handles {ratio:.2f} times the requests; largest difference of a probability: {difference:.1e}")
    return {**facts, "ratio": ratio}


def soak(folder: Path, texts: Sequence[str], options: argparse.Namespace, logs: Path) -> dict[str, object]:
    """Full load for a long time: the errors of the server, and its memory."""
    port = free_port()
    threads = ["--threads", str(options.threads)]
    command = ["-m", "electra", "serve", str(folder), "--port", str(port), *threads]
    statuses: Counter[str] = Counter()
    latencies: list[float] = []
    memory: list[float] = []
    with running(command, port, logs / "ours.txt") as process:
        end = time.perf_counter() + 60 * options.soak
        while (left := end - time.perf_counter()) > 0:
            seconds = min(READ_EVERY, left)
            observations = asyncio.run(load(port, texts, clients=options.clients, seconds=seconds, bad=BAD_SHARE))
            statuses += observations.statuses
            latencies += random.sample(observations.latencies, min(100, len(observations.latencies)))
            memory.append(process.memory_info().rss / 2**20)
    errors = sum(
        count
        for status, count in statuses.items()
        if status != "200" and not (status.startswith("malformed 4") and len(status) == 13)
    )
    total, tail = sum(statuses.values()), len(memory) // 2
    print(f"{total:,} requests in {options.soak:g} minutes; {errors} errors of the server")
    print("responses: " + ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items())))
    print(f"p50 {1000 * np.percentile(latencies, 50):.1f} ms, p95 {1000 * np.percentile(latencies, 95):.1f} ms")
    early, late = max(memory[: tail + 1]), max(memory[tail:])
    print(
        f"memory: {memory[0]:.0f} MiB at the start, at most {early:.0f} in the first half, {late:.0f} in the "
        f"second"
    )
    return {"statuses": dict(statuses), "errors": errors, "memory_mib": memory, "minutes": options.soak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument(
        "--preset", default="electra-small", help="shape of the untrained network, if no MODEL is given"
    )
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of each server")
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = find_model(options.model) if options.model else write_untrained(options.preset, Path(name))
        tokenizer = load_tokenizer(folder)
        texts = [text for text in sentences() if len(tokenizer.encode(text).ids) <= 128]
        what = str(options.model.name if options.model else options.preset)
        print(f"{what}; {torch.backends.cpu.get_cpu_capability()}, {options.threads} threads of each model;")
        facts = (soak if options.soak else compare)(folder, texts, options, Path(name))
    if options.json:
        about = {"model": what, "threads": options.threads, "processor": torch.backends.cpu.get_cpu_capability()}
        options.json.write_text(json.dumps({**about, **facts}, indent=1) + "\n")


if __name__ == "__main__":
    main()

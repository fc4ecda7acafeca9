"""Training steps on a GPU, ours and transformers' classes: tokens/s, utilization, memory, days of the recipe.

    python benchmarks/train_step_gpu.py [--presets electra-small electra-base] [--cuda-graphs] [--json FILE]

Ours as the trainer runs it on a GPU: bfloat16, compiled encoders, static shapes, fused AdamW, no synchronization
inside a step, prefetched batches of random ids. The peer is peer.py on the same GPU: bfloat16, both encoders
compiled, the head only at the masked positions. Full rows of the preset's batch and length. Times are those of
all steps after the first ones, in which the networks are compiled. Utilization is the FLOPs of `electra flops`
(modern convention) divided by the time and --peak, the GPU's nominal speed of dense bfloat16 products (H100,
H200: 989e12). With --cuda-graphs our encoders are compiled into CUDA graphs (torch.compile's mode
"reduce-overhead"), for networks whose kernels take less time than their launches.

`--device cpu` tries the script itself on a machine without a GPU.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from electra.config import load_config
from electra.data.collate import Batch
from electra.modeling.flops import training_flops
from electra.pretraining.config import PretrainConfig, build_objective, with_vocabulary
from electra.training.batch_source import Prefetcher
from electra.training.optim import build_optimizer
from electra.training.precision import Precision
from electra.training.update import Update, compile_encoders
from peer import TransformersPeer
from train_step import SPECIAL, peer_config

WARM_UP = 5


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        first_step: seconds of the step in which everything is compiled.
        days: of the preset's own number of steps and batch.
        memory: bytes at the peak.
    """

    preset: str
    name: str
    rows: int
    length: int
    tokens_per_second: float
    utilization: float
    memory: int
    days: float
    first_step: float


def measure(step: Callable[[int], object], steps: int, device: torch.device) -> tuple[float, float, int]:
    """Seconds per step, seconds of the first step, and the peak memory."""

    def run(begin: int, end: int) -> float:
        start = time.perf_counter()
        for number in range(begin, end):
            step(number)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    first = run(0, 1)
    run(1, WARM_UP)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seconds = run(WARM_UP, WARM_UP + steps) / steps
    return seconds, first, torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["electra-small", "electra-base"])
    parser.add_argument(
        "--rows", type=int, help="rows at once, where the preset's batch is too large for the card"
    )
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", default="cuda")
    compilation = parser.add_mutually_exclusive_group()
    compilation.add_argument("--eager", action="store_true", help="compile nothing")
    compilation.add_argument("--cuda-graphs", action="store_true", help="compile our encoders into CUDA graphs")
    parser.add_argument("--no-peer", action="store_true", help="only ours")
    parser.add_argument("--peak", type=float, default=989e12, help="FLOP/s of dense bfloat16 products")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device, table = torch.device(options.device), []
    for preset in options.presets:
        config = with_vocabulary(load_config(PretrainConfig, preset))
        rows, length = options.rows or config.train.batch_size, config.packing.sequence_length
        # On the card one after the other, so that each has its own memory.
        compiled = not options.eager
        sides: dict[str, Callable[[], Callable[[int], object]]] = {
            "ours": partial(ours, config, rows, device, compiled=compiled, cuda_graphs=options.cuda_graphs),
            "transformers' classes": partial(theirs, config, rows, device, compiled=compiled),
        }
        for name in list(sides)[: 1 if options.no_peer else 2]:
            step = sides[name]()
            seconds, first, held = measure(step, options.steps, device)
            del step
            gc.collect()
            networks = build_objective(config, SPECIAL).networks(length)
            flops = rows * training_flops(networks, length)
            assert config.train.steps is not None
            days = config.train.steps * config.train.batch_size / rows * seconds / 86_400
            speed = rows * length / seconds
            table.append(Row(preset, name, rows, length, speed, flops / seconds / options.peak, held, days, first))
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{where}, torch {torch.__version__}, bfloat16\n")
    print("| preset | | batch | tokens/s | utilization | peak memory | full recipe | first step |")
    print("|---|---|---|---|---|---|---|---|")
    for row in table:
        memory = f"{row.memory / 2**30:.1f} GiB"
        print(
            f"| {row.preset} | {row.name} | {row.rows} × {row.length} | {row.tokens_per_second:,.0f} | "
            f"{row.utilization:.1%} | {memory} | {row.days:.2f} days | {row.first_step:.0f} s |"
        )
    if options.json:
        options.json.write_text(json.dumps({"device": where, "rows": list(map(asdict, table))}, indent=1) + "\n")


def batches_of(config: PretrainConfig, rows: int, device: torch.device) -> Prefetcher:
    """Full rows of random ids."""
    length = config.packing.sequence_length

    def micro_batches(step: int) -> list[Batch]:
        ids_BL = torch.randint(1000, 30_522, (rows, length))
        ids_BL[:, 0], ids_BL[:, -1] = SPECIAL.classify, SPECIAL.separate
        return [Batch(ids_BL, torch.zeros_like(ids_BL), torch.full((rows,), length), seed=step).to(device)]

    return Prefetcher(micro_batches)


def ours(
    config: PretrainConfig, rows: int, device: torch.device, *, compiled: bool, cuda_graphs: bool
) -> Callable[[int], object]:
    objective = build_objective(config, SPECIAL).train().to(device)
    if compiled:
        compile_encoders(objective, mode="reduce-overhead" if cuda_graphs else "default")
    update = Update(
        objective,
        build_optimizer(objective, config.optimizer),
        gradient_clip=config.optimizer.gradient_clip,
        precision=Precision("bfloat16", "", 0.0),
        device=device,
    )
    batches = batches_of(config, rows, device)
    return lambda step: update(batches(step), config.optimizer.learning_rate)


def theirs(config: PretrainConfig, rows: int, device: torch.device, *, compiled: bool) -> Callable[[int], object]:
    torch.compiler.reset()
    peer = TransformersPeer(peer_config(config, bf16=True, device=device.type, compile=compiled))
    batches = batches_of(config, rows, device)

    def step(number: int) -> None:
        (batch,) = batches(number)
        peer.step(batch.input_ids_BL, batch.segment_ids_BL, batch.lengths_B)

    return step


if __name__ == "__main__":
    main()

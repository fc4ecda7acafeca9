"""One training step on a CPU: ours, transformers' classes, and the time of the step's matrix products alone.

    python benchmarks/train_step.py [--preset electra-small] [--rows 32] [--length 128] [--rounds 7] [--json FILE]

All run alternately in this process, on the same full rows of random ids, with the recipe's dropout, in bfloat16
if this processor multiplies faster in it (then with the peer in float32, too), otherwise in float32. Ours as the
trainer runs it (forward, backward, clipping, AdamW); the *skilled peer* (peer.py) has the head only at the masked
positions; the *naive peer* computes the vocabulary's logits at every position, as the classes do by default. The
peers benefit from the memory that our process keeps. *Limit* is the time of the matrix products of our step (mm,
addmm, bmm), every shape in its fastest layout. Values are medians over the rounds; a ratio compares times of the
same round. With one thread (OMP_NUM_THREADS=1), times are processor seconds, so waiting for other processes does
not count.
"""

import argparse
import itertools
import json
import operator
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from electra.config import load_config
from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.pretraining.config import PretrainConfig, build_objective, with_vocabulary
from electra.training.allocator import keep_freed_memory
from electra.training.optim import build_optimizer
from electra.training.precision import Precision, PrecisionName, product_flops
from electra.training.update import Update
from peer import PeerConfig, TransformersPeer
from peer_deberta import DebertaPeer
from peer_modernbert import ModernBertPeer

SPECIAL = SpecialTokens(pad=0, unknown=100, classify=101, separate=102, mask=103)
LIMIT = "limit: the products alone"
Shape = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


class NaivePeer(TransformersPeer):
    """The same with logits over the vocabulary at every position."""

    def _generate(
        self, masked_BL: Tensor, segment_ids_BL: Tensor, attention_BL: Tensor, selected_BL: Tensor
    ) -> Tensor:
        logits_BLV = self.generator(masked_BL, attention_mask=attention_BL, token_type_ids=segment_ids_BL).logits
        return logits_BLV[selected_BL]


class NaiveDebertaPeer(DebertaPeer):
    """The same with DeBERTa's classes."""

    def _generate(
        self, masked_BL: Tensor, segment_ids_BL: Tensor, attention_BL: Tensor, selected_BL: Tensor
    ) -> Tensor:
        logits_BLV: Tensor = self.generator(masked_BL, attention_mask=attention_BL).logits
        return logits_BLV[selected_BL]


class NaiveModernBertPeer(ModernBertPeer):
    """The same with ModernBERT's classes."""

    def _generate(
        self, masked_BL: Tensor, segment_ids_BL: Tensor, attention_BL: Tensor, selected_BL: Tensor
    ) -> Tensor:
        return self.generator.logits(self.generator.states(masked_BL, attention_BL))[selected_BL]


PEERS: dict[str, tuple[type[TransformersPeer], type[TransformersPeer]]] = {
    "bert": (TransformersPeer, NaivePeer),
    "deberta": (DebertaPeer, NaiveDebertaPeer),
    "modernbert": (ModernBertPeer, NaiveModernBertPeer),
}
"""The skilled and the naive peer for each kind of network."""


class Products(TorchDispatchMode):
    """Counts the shapes of matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: Counter[Shape] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if name in ("mm", "bmm", "addmm", "addmm_", "baddbmm"):
            a, b = args[-2:] if name in ("mm", "bmm") else args[1:3]
            self.shapes[tuple(a.shape), tuple(b.shape), a.dtype] += 1
        return function(*args, **(kwargs or {}))


def ours(
    config: PretrainConfig, batch: Batch, precision: PrecisionName = "float32"
) -> tuple[Callable[[], None], nn.Module]:
    torch.manual_seed(0)
    objective = build_objective(config, SPECIAL).train()
    update = Update(
        objective,
        build_optimizer(objective, config.optimizer),
        gradient_clip=config.optimizer.gradient_clip,
        precision=Precision(precision, "", 0.0),
        device=torch.device("cpu"),
    )
    return lambda: update([batch], config.optimizer.learning_rate) and None, objective


def peer_config(config: PretrainConfig, **others: Any) -> PeerConfig:
    """The peer's settings for one of our configs."""
    model, generator = config.model, config.generator.encoder(config.model)
    return PeerConfig(
        layers=model.layers, hidden_size=model.hidden_size, embedding_size=model.embedding_size,
        heads=model.heads, feed_forward_size=model.feed_forward_size, dropout=model.dropout,
        generator_hidden_size=generator.hidden_size, generator_heads=generator.heads,
        generator_feed_forward_size=generator.feed_forward_size, positions=model.max_positions, **others,
    )  # fmt: skip


def peer(
    kind: type[TransformersPeer], config: PretrainConfig, batch: Batch, precision: PrecisionName
) -> Callable[[], None]:
    network = kind(peer_config(config, bf16=precision == "bfloat16"))
    return lambda: network.step(batch.input_ids_BL, batch.segment_ids_BL, batch.lengths_B) and None


def limit(objective: nn.Module, batch: Batch, precision: PrecisionName) -> Callable[[], None]:
    """The matrix products of one step and nothing else, each shape in its fastest layout."""
    cpu = torch.device("cpu")
    with sdpa_kernel(SDPBackend.MATH), Products() as products:
        with Precision(precision, "", 0.0).autocast(cpu):
            loss = objective(batch).loss
        loss.backward()
    work = [(count, *_best_layout(*shape)) for shape, count in products.shapes.items()]

    def step() -> None:
        for count, a, b, out in work:
            for _ in range(count):
                torch.matmul(a, b, out=out)

    return step


def _best_layout(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Factors and product: row-major or column-major, whichever is fastest."""
    layouts = []
    for a_turned, b_turned in itertools.product((False, True), repeat=2):
        a = torch.randn(*a_shape[:-2], *a_shape[:-3:-1]).mT if a_turned else torch.randn(a_shape)
        b = torch.randn(*b_shape[:-2], *b_shape[:-3:-1]).mT if b_turned else torch.randn(b_shape)
        a, b = a.to(dtype), b.to(dtype)
        layouts.append((a, b, a @ b))
    seconds: list[list[float]] = [[] for _ in layouts]
    for _, (times, (a, b, out)) in itertools.product(range(7), zip(seconds, layouts, strict=True)):
        start = time.perf_counter()
        torch.matmul(a, b, out=out)
        times.append(time.perf_counter() - start)
    return min(zip(map(statistics.median, seconds), range(len(layouts)), layouts, strict=True))[2]


def measure_rounds(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of single steps, one of each alternately; the first round is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for number in range(rounds + 1):
        for name, step in steps.items():
            start = clock()
            step()
            if number:
                seconds[name].append(clock() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="electra-small")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    config = with_vocabulary(load_config(PretrainConfig, options.preset))
    if config.model.kind not in PEERS:
        parser.error(
            f"--preset {options.preset}: no peer for kind {config.model.kind}, only for {', '.join(PEERS)}; "
            "benchmarks/encoders.py measures relative positions"
        )
    keep_freed_memory()
    ids_BL = torch.randint(1000, 30_522, (options.rows, options.length))
    ids_BL[:, 0], ids_BL[:, -1] = SPECIAL.classify, SPECIAL.separate
    lengths_B = torch.full((options.rows,), options.length)
    batch = Batch(ids_BL, torch.zeros_like(ids_BL), lengths_B, seed=0)
    cpu = torch.device("cpu")
    bfloat16_is_faster = product_flops(torch.bfloat16, cpu) > product_flops(torch.float32, cpu)
    precision: PrecisionName = "bfloat16" if bfloat16_is_faster else "float32"
    step, objective = ours(config, batch, precision)
    skilled, naive = PEERS[config.model.kind]
    steps = {
        "ours": step,
        "skilled peer": peer(skilled, config, batch, precision),
        **({"skilled peer, float32": peer(skilled, config, batch, "float32")} if bfloat16_is_faster else {}),
        "naive peer": peer(naive, config, batch, precision),
        LIMIT: limit(objective, batch, precision),
    }
    seconds, tokens = measure_rounds(steps, options.rounds), ids_BL.numel()
    medians = {name: statistics.median(values) for name, values in seconds.items()}

    def ratio(name: str, other: str) -> float:
        """The median ratio of the seconds of the same round: what slows the machine for a while slows both."""
        return statistics.median(map(operator.truediv, seconds[name], seconds[other]))

    threads, processor = torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()
    print(f"{options.preset}, {options.rows} x {options.length}, {precision}, {processor}, {threads} threads\n")
    print("| | seconds a step, median (least–most) | tokens/s | share of the limit | speedup |")
    print("|---|---|---|---|---|")
    for name, median in medians.items():
        spread = f"{min(seconds[name]):.2f}–{max(seconds[name]):.2f}"
        print(
            f"| {name} | {median:.2f} ({spread}) | {tokens / median:,.0f} "
            f"| {ratio(LIMIT, name):.0%} | {ratio(name, 'ours'):.2f} × |"
        )
    if options.json:
        what = {"preset": options.preset, "rows": options.rows, "length": options.length, "tokens": tokens}
        where = {"processor": processor, "threads": threads, "precision": precision}
        options.json.write_text(json.dumps({**what, **where, "seconds": seconds}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Training steps of encoders with relative positions on a CPU: ours, transformers' XLNet, and ours in plain code.

    OMP_NUM_THREADS=1 python benchmarks/encoders.py [--precisions float32 bfloat16] [--rounds 9] [--json FILE]

All run alternately in this process, on the same random ids: forward and backward passes with a memory from the
previous batch, dropout in the same places, no optimizer.

*xlnet*: two streams in both directions under a permutation, one sixth of the tokens predicted. The peer is
XLNetLMHeadModel, whose head computes only the targets. *transformer-xl*: one stream to the left, every token
predicts the next. The peers are the same class with attn_type "uni", and our network with `attend_plain` and
PyTorch's cross-entropy. Values are medians over the rounds; a ratio compares times of the same round. With one
thread, times are processor seconds, so waiting for other processes does not count.

Shapes: B batch, L length, M memory, N targets, Y blocks, D hidden size.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from electra.modeling.encoders.base import EncoderConfig, gather_positions
from electra.modeling.encoders.relative import RelativeConfig, RelativeEncoder
from electra.modeling.kernels import relative_attention
from electra.modeling.kernels.cross_entropy import sampled_cross_entropy
from electra.training.allocator import keep_freed_memory

Step = Callable[[], float]
BY_HEAD = relative_attention.attend_by_head


class Batch:
    """Random ids, segments, a permutation, targets and a memory."""

    def __init__(self, options: argparse.Namespace) -> None:
        B, L, M = options.rows, options.length, options.memory
        random = torch.Generator().manual_seed(1)
        self.ids_BL = torch.randint(options.vocabulary, (B, L), generator=random)
        self.segment_ids_BL = (torch.arange(L) >= L // 2).long().expand(B, -1)
        order_BL = torch.rand(B, L, generator=random).argsort(1)
        self.targets_BN = order_BL.topk(L // 6, dim=1).indices
        # A target is seen by the targets that come later; all other tokens are seen by everyone.
        others_BL = order_BL < L - L // 6
        rank_BL = torch.where(others_BL, -1, order_BL)
        self.permutation_BLL = rank_BL[:, None, :] < rank_BL[:, :, None]
        self.permutation_BLL |= others_BL[:, None, :]
        size = options.layers, B, M, options.hidden_size
        self.memory_YBMD = torch.randn(size, generator=random) if M else None


def config(options: argparse.Namespace, *, left: bool) -> EncoderConfig:
    return RelativeConfig(
        layers=options.layers, hidden_size=options.hidden_size, embedding_size=options.hidden_size,
        feed_forward_size=4 * options.hidden_size, heads=options.heads, vocabulary_size=options.vocabulary,
        type_vocabulary_size=1 if left else 2, dropout=options.dropout, attention_dropout=options.dropout,
        direction="left" if left else "both", memory_length=options.memory,
    )  # fmt: skip


def backward(loss: Tensor, network: nn.Module) -> float:
    loss.backward()
    for parameter in network.parameters():
        parameter.grad = None
    return loss.item()


def ours(options: argparse.Namespace, batch: Batch, *, left: bool, plain: bool = False) -> Step:
    torch.manual_seed(0)
    encoder = RelativeEncoder(config(options, left=left), query_stream=not left).train()
    table_VE, bias_V = encoder.embeddings.token.weight, nn.Parameter(torch.zeros(options.vocabulary))
    none_BN = batch.targets_BN[:, :0]

    def states_and_words() -> tuple[Tensor, Tensor]:
        if left:
            states_BLD = encoder.encode(batch.ids_BL, memory_YBMD=batch.memory_YBMD).states_BND
            return states_BLD[:, :-1].flatten(0, 1), batch.ids_BL[:, 1:].flatten()
        targets_BND = encoder.encode(
            batch.ids_BL, batch.segment_ids_BL, memory_YBMD=batch.memory_YBMD, positions_BN=none_BN,
            permutation_BLL=batch.permutation_BLL, targets_BN=batch.targets_BN,
        ).targets_BND  # fmt: skip
        return targets_BND.flatten(0, 1), gather_positions(batch.ids_BL, batch.targets_BN).flatten()

    def step() -> float:
        relative_attention.attend_by_head = attend_by_head_plain if plain else BY_HEAD
        x_ND, words_N = states_and_words()
        if plain:
            return backward(F.cross_entropy(F.linear(x_ND, table_VE, bias_V).float(), words_N), encoder)
        weights_N = torch.full(words_N.shape, 1 / len(words_N))
        return backward(
            sampled_cross_entropy(x_ND, table_VE, bias_V, words_N, weights_N, torch.rand(len(words_N)))[0], encoder
        )

    return step


def attend_by_head_plain(query_BXHK: Tensor, *others: Any) -> Tensor:
    """A replacement for `attend_by_head`."""
    *inputs, query_mask, p = others
    B, X, H, _ = query_BXHK.shape
    factors = F.dropout(query_BXHK.new_ones(H, B, X, query_mask.keys), p) if p else 1.0
    return relative_attention.attend_plain(query_BXHK, *inputs, query_mask, factors)


def peer(options: argparse.Namespace, batch: Batch, *, left: bool) -> Step:
    torch.manual_seed(0)
    network = transformers.XLNetLMHeadModel(
        transformers.XLNetConfig(
            vocab_size=options.vocabulary, d_model=options.hidden_size, n_layer=options.layers,
            n_head=options.heads, d_inner=4 * options.hidden_size, attn_type="uni" if left else "bi",
            mem_len=options.memory or None, dropout=options.dropout,
        )
    ).train()  # fmt: skip
    disable_extra_dropout(network.transformer)
    L = options.length
    mems = None if batch.memory_YBMD is None else [memory.transpose(0, 1) for memory in batch.memory_YBMD]
    given: dict[str, Any] = {"mems": mems, "use_mems": mems is not None}
    words_BN = batch.ids_BL[:, 1:]
    if not left:
        unseen_BLL = ~batch.permutation_BLL | torch.eye(L, dtype=torch.bool)
        words_BN = gather_positions(batch.ids_BL, batch.targets_BN)
        given |= {
            "perm_mask": unseen_BLL.float(),
            "target_mapping": F.one_hot(batch.targets_BN, L).float(),
            "token_type_ids": batch.segment_ids_BL,
        }

    def step() -> float:
        logits_BNV = network(batch.ids_BL, **given).logits
        logits_BNV = logits_BNV[:, :-1] if left else logits_BNV
        return backward(F.cross_entropy(logits_BNV.flatten(0, 1).float(), words_BN.flatten()), network)

    return step


def disable_extra_dropout(network: Any) -> None:
    """Turn off the dropout that only the class has: of distances, last states, inner feed-forward states."""
    network.word_embedding = nn.Sequential(network.word_embedding, network.dropout)
    network.dropout = nn.Identity()
    for layer in network.layer:
        layer.ff.layer_2 = nn.Sequential(layer.ff.layer_2, layer.ff.dropout)
        layer.ff.dropout = nn.Identity()


def measure_rounds(steps: dict[str, Step], rounds: int, precision: str) -> dict[str, list[float]]:
    """Seconds of single steps, one of each alternately; the first round is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for number in range(rounds + 1):
        for name, step in steps.items():
            start = clock()
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                step()
            if number:
                seconds[name].append(clock() - start)
    return seconds


def compare(models: dict[str, dict[str, Step]], options: argparse.Namespace) -> None:
    """Compare our step of each model, which is the first one, with the others, and print a line for each."""
    found = []
    for precision in options.precisions:
        for model, steps in models.items():
            mine, *others = measure_rounds(steps, options.rounds, precision).items()
            line = f"{model}, {precision}: {mine[0]} {statistics.median(mine[1]):.3f} s a step"
            for name, theirs in others:
                ratios = sorted(a / b for a, b in zip(theirs, mine[1], strict=True))
                middle = statistics.median(ratios)
                line += f"; {name} {statistics.median(theirs):.3f}: speedup {middle:.2f}"
                line += f" ({ratios[0]:.2f}–{ratios[-1]:.2f})"
                found.append({"model": model, "precision": precision, "beside": name, "ratio": middle})
            print(line, flush=True)
    print(f"threads: {torch.get_num_threads()}, load of the last minute: {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def parse_options(description: str | None, sizes: dict[str, int], models: list[str]) -> argparse.Namespace:
    """The command line of both benchmarks of encoders."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--only", choices=models)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    sizes = {
        "layers": 4, "hidden-size": 256, "heads": 4, "rows": 16, "length": 128, "memory": 128,
        "vocabulary": 8_192, "rounds": 9,
    }  # fmt: skip
    options = parse_options(__doc__, sizes, ["xlnet", "transformer-xl"])
    keep_freed_memory()
    transformers.logging.set_verbosity_error()
    batch = Batch(options)
    models: dict[str, dict[str, Step]] = {
        "xlnet": {"ours": ours(options, batch, left=False), "transformers": peer(options, batch, left=False)},
        "transformer-xl": {
            "ours": ours(options, batch, left=True),
            "transformers": peer(options, batch, left=True),
            "plain": ours(options, batch, left=True, plain=True),
        },
    }
    compare({name: steps for name, steps in models.items() if options.only in (None, name)}, options)


if __name__ == "__main__":
    main()

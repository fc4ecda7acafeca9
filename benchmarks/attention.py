"""Steps in bfloat16 on a CPU with our attention and with PyTorch's kernel, in turn in one process.

    OMP_NUM_THREADS=1 python benchmarks/attention.py --data DATA [--presets electra-nano electra-tiny] [--pairs 12]

A pair is a step with the one and a step with the other, on batches of one size; the first pair is thrown away.
"""

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from electra.data.shards import TokenData
from electra.modeling.kernels import attention
from electra.pretraining.build import assembled, with_vocabulary_of
from electra.pretraining.config import load_config
from electra.pretraining.warm_start import WarmStart
from electra.training.optim import build_optimizer
from electra.training.update import Update


def pytorchs(query_BNHK: Tensor | None, packed_BLGHK: Tensor, mask_B11L: Tensor | None, share: float) -> Tensor:
    """In place of `attend_by_head`."""
    assert not share, "PyTorch has no kernel with dropout for a CPU"
    query_BNHK = packed_BLGHK[:, :, 0] if query_BNHK is None else query_BNHK
    query, key, value = (x.transpose(1, 2) for x in (query_BNHK, *packed_BLGHK.unbind(2)[-2:]))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask_B11L).transpose(1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--presets", nargs="+", default=["electra-nano", "electra-tiny"])
    parser.add_argument("--pairs", type=int, default=12)
    options = parser.parse_args()
    data, kernels = TokenData.open(options.data, verify=False), (pytorchs, attention.attend_by_head)
    for preset in options.presets:
        config = load_config(preset, {"data": options.data, "train.steps": 1_000, "train.precision": "bfloat16"})
        config = replace(config, model=with_vocabulary_of(config, data))
        objective, feed, precision, device = assembled(config, data, WarmStart())
        update = Update(
            objective, build_optimizer(objective, config.optimizer), gradient_clip=config.optimizer.gradient_clip,
            precision=precision, device=device,
        )  # fmt: skip
        objective.train()
        seconds: list[list[float]] = [[], []]
        for step in range(2 * options.pairs):
            attention.attend_by_head = kernels[step % 2]
            objective.begin_step(step, 1_000)
            batches, started = feed.micro_batches(step), time.perf_counter()
            update(batches, rate=1e-4)
            seconds[step % 2].append(time.perf_counter() - started)
        theirs, ours = (one[1:] for one in seconds)
        ratios = sorted(a / b for a, b in zip(theirs, ours, strict=True))
        print(
            f"{preset}, threads: {torch.get_num_threads()}: PyTorch's {statistics.median(theirs):.4f} s a step, "
            f"ours {statistics.median(ours):.4f}: quicker by {statistics.median(ratios):.2f} "
            f"({ratios[0]:.2f}–{ratios[-1]:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""How long onnxruntime and PyTorch take for the same batches, in turn."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from electra.data.tokenizer import special_tokens
from electra.export.onnx.check import sample_batch, torch_network
from electra.export.onnx.graph import MASK
from electra.export.onnx.model import OnnxModel, load_onnx
from electra.export.pretrained import Pretrained

PAUSE = 0.005
"""Seconds before each call: threads of the other library, which wait for work awake, then sleep."""


@dataclass(frozen=True)
class Timed:
    """Seconds of each of several networks for one batch, in turn, by their names."""

    rows: int
    tokens: int
    seconds: dict[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self, name: str) -> float:
        """How many times as quick as PyTorch: the median over the rounds."""
        pairs = zip(self.seconds["torch"], self.seconds[name], strict=True)
        return statistics.median(torch_seconds / seconds for torch_seconds, seconds in pairs)


def timed(
    pretrained: Pretrained, folders: Mapping[str, Path], batches: Sequence[Sequence[int]], *, rounds: int
) -> Iterator[Timed]:
    """Times of PyTorch, named `torch`, and of ONNX folders with the same inputs and outputs, on one thread.

    With more threads the waiting ones of one library slow the other down several times, within one process.

    Args:
        batches: tokens of each row of each batch, special ones included. PyTorch gets no mask where all are alike,
            as in `serving`.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        models = {name: load_onnx(folder) for name, folder in folders.items()}  # with as many as PyTorch
        for lengths in batches:
            yield _timed(pretrained, models, lengths, rounds=rounds)
    finally:
        torch.set_num_threads(threads)


def _timed(
    pretrained: Pretrained, models: Mapping[str, OnnxModel], lengths: Sequence[int], *, rounds: int
) -> Timed:
    inputs = sample_batch(pretrained, special_tokens(pretrained.tokenizer), lengths)
    if len({*lengths}) == 1:
        del inputs[MASK]
    first = next(iter(models.values())).metadata
    network = torch_network(pretrained, first.kind)
    works: dict[str, Callable[[], object]] = {"torch": lambda: network(inputs)}
    for name, model in models.items():
        works[name] = lambda model=model: model.run(model.metadata.outputs[:1], **inputs)  # type: ignore[misc]
    seconds: dict[str, list[float]] = {name: [] for name in works}
    with torch.inference_mode():
        for number in range(rounds + 1):
            for name, work in works.items():
                time.sleep(PAUSE)
                start = time.perf_counter()
                work()
                if number:  # the first call of each is slower
                    seconds[name].append(time.perf_counter() - start)
    return Timed(len(lengths), sum(lengths), seconds)

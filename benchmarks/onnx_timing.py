"""Time onnxruntime and PyTorch on the same batches, alternately."""

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
"""Seconds before each call, so that waiting threads of the other library go to sleep."""


@dataclass(frozen=True)
class BatchTimes:
    """Seconds of each round for one batch, by the name of the network."""

    rows: int
    tokens: int
    seconds: dict[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self, name: str) -> float:
        """The speed relative to PyTorch: the median over the rounds."""
        pairs = zip(self.seconds["torch"], self.seconds[name], strict=True)
        return statistics.median(torch_seconds / seconds for torch_seconds, seconds in pairs)


def time_batches(
    pretrained: Pretrained, folders: Mapping[str, Path], batches: Sequence[Sequence[int]], *, rounds: int
) -> Iterator[BatchTimes]:
    """Time PyTorch, named `torch`, and ONNX folders with the same inputs and outputs, on one thread.

    With more threads, the waiting threads of one library would slow down the other library several times.

    Args:
        batches: the number of tokens in each row of each batch, special tokens included. There is no mask if all
            rows of a batch have the same length, as in `serving`.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        models = {name: load_onnx(folder) for name, folder in folders.items()}  # with as many threads as PyTorch
        for lengths in batches:
            yield _time_batch(pretrained, models, lengths, rounds=rounds)
    finally:
        torch.set_num_threads(threads)


def _time_batch(
    pretrained: Pretrained, models: Mapping[str, OnnxModel], lengths: Sequence[int], *, rounds: int
) -> BatchTimes:
    inputs = sample_batch(pretrained, special_tokens(pretrained.tokenizer), lengths)
    if len({*lengths}) == 1:
        del inputs[MASK]
    kind = next(iter(models.values())).metadata.kind
    network = torch_network(pretrained, kind)
    calls: dict[str, Callable[[], object]] = {"torch": lambda: network(inputs)}
    for name, model in models.items():
        calls[name] = lambda model=model: model.run(model.metadata.outputs[:1], **inputs)  # type: ignore[misc]
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    with torch.inference_mode():
        for number in range(rounds + 1):
            for name, call in calls.items():
                time.sleep(PAUSE)
                start = time.perf_counter()
                call()
                if number:  # the first call of each is slower
                    seconds[name].append(time.perf_counter() - start)
    return BatchTimes(len(lengths), sum(lengths), seconds)

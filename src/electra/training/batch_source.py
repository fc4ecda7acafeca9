"""The batches of a run as a function of the step, and a thread that prepares the next ones."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from electra.data.collate import Batch
from electra.modeling.flops import Documents

MicroBatches = Callable[[int], Sequence[Batch]]


@dataclass(frozen=True)
class BatchSource:
    """The training data of a run.

    Attributes:
        micro_batches: the micro-batches of a step (counted from 0): a pure function of the step.
        epochs: the number of passes over the data in that many steps.
        sequence_length: tokens per row, to count FLOPs.
        documents: the documents of which rows consist; None: each row is one document.
        identity: fingerprints of the data by name. A run can only be resumed with the same ones.
        describe_rows: the rows of a step's batch in a form for people to read.
    """

    micro_batches: MicroBatches
    epochs: Callable[[int], float]
    sequence_length: int
    identity: dict[str, str]
    documents: Documents | None = None
    describe_rows: Callable[[int], list[dict[str, Any]]] = lambda _: []


def prefetch(micro_batches: MicroBatches, device: torch.device) -> MicroBatches:
    """Prepare batches in a thread while an accelerator computes. A CPU has no time to spare for that."""
    return micro_batches if device.type == "cpu" else Prefetcher(micro_batches)


class Prefetcher:
    """Returns the batches of `micro_batches`, and prepares those of the next step in a thread."""

    def __init__(self, micro_batches: MicroBatches) -> None:
        self.micro_batches = micro_batches
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: tuple[int, Future[Sequence[Batch]]] | None = None

    def __call__(self, step: int) -> Sequence[Batch]:
        """The batches of a step. An error while they were prepared is raised here."""
        if self._next is not None and self._next[0] == step:
            current = self._next[1]
        else:
            current = self._thread.submit(self.micro_batches, step)
        self._next = step + 1, self._thread.submit(self.micro_batches, step + 1)
        return current.result()

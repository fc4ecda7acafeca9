"""Batches made while the step before them is computed; what they are copied by stands in the device's queue."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from electra.data.collate import Batch

MicroBatches = Callable[[int], Sequence[Batch]]


class Prefetcher:
    """The same batches as `micro_batches` gives, those of the next step made in a thread meanwhile.

    Worth it where the host has time to spare, beside an accelerator.
    """

    def __init__(self, micro_batches: MicroBatches) -> None:
        self.micro_batches = micro_batches
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: tuple[int, Future[Sequence[Batch]]] | None = None

    def __call__(self, step: int) -> Sequence[Batch]:
        """The batches of a step; an error in making them is raised here."""
        if self._next is not None and self._next[0] == step:
            now = self._next[1]
        else:
            now = self._thread.submit(self.micro_batches, step)
        self._next = step + 1, self._thread.submit(self.micro_batches, step + 1)
        return now.result()

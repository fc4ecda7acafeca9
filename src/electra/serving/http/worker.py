"""One thread that runs the models, and the requests that wait for it.

A batch is what is waiting when the thread is free: what came while it was busy or, where it was idle, within a
short wait. Of a large request a part is taken at a time, and the rest goes behind the others, so that a small one
never waits for more than one batch of it.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from electra.serving.http.limits import APIError, Limits
from electra.serving.http.metrics import Metrics

logger = logging.getLogger(__name__)

BATCH_CHARACTERS = 16_384
"""Characters that are computed together: about two of the batches that a CPU computes at full speed."""
REMEMBERED = 0.8
"""Share of the speed so far in the one that the next wait is estimated by."""

Operation = Callable[[list[Any]], Sequence[Any]]
"""From items to as many results."""


@dataclass(eq=False)
class Job:
    """A request's items, of which some or all are being computed."""

    work: str
    items: Sequence[Any]
    sizes: Sequence[int]
    answer: "asyncio.Future[list[Any]]"
    results: list[Any] = field(init=False)
    begun: int = 0
    done: int = 0
    abandoned: bool = False

    def __post_init__(self) -> None:
        self.results = [None] * len(self.items)


Part = tuple[Job, int, int]
"""A job and which of its items: from, to."""


class Worker:
    """Runs works for requests, those of one work together.

    Args:
        works: by name. Whatever one of them raises is an error of the server, not of its client.
        wait: seconds that an idle worker waits for further requests when the first has come.
    """

    def __init__(self, works: Mapping[str, Operation], *, limits: Limits, wait: float, metrics: Metrics) -> None:
        self.works, self.limits, self.wait, self.metrics = works, limits, wait, metrics
        self.held = 0
        """Requests that were taken and not answered yet."""
        self.draining = False
        """Whether no more requests are taken."""
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._characters = 0  # of the items that wait
        self._speed = 0.0  # characters a second
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to work for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """End the thread behind the batch at hand."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    async def ask(self, work: str, items: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
        """The results of a request's items, in order.

        Args:
            sizes: characters of each item.

        Raises:
            Refusal: 429 where too many wait, 503 while the server stops or where the request's turn did not come
                in time, 504 where its result did not, 500 where the model failed.
        """
        if self.draining or self._loop is None:
            raise APIError(
                503, "the server is stopping; ask another one", {"Retry-After": "1", "Connection": "close"}
            )
        job = Job(work, items, sizes, self._loop.create_future())
        self._put(job)
        self.held += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await job.answer
        except TimeoutError:
            raise self._too_late(job) from None
        finally:
            job.abandoned = True  # also where the connection has gone
            self.held -= 1

    def _too_late(self, job: Job) -> APIError:
        seconds = f"{self.limits.seconds:g} seconds"
        if not job.begun:
            return APIError(503, f"the model had no time for this request within {seconds}", self._retry())
        return APIError(
            504, f"the model did not finish this request within {seconds}; ask for fewer or shorter texts"
        )

    def _retry(self) -> dict[str, str]:
        """When to come again: when what waits now will be done."""
        seconds = math.ceil(self._characters / self._speed) if self._speed else 1
        return {"Retry-After": str(min(max(seconds, 1), 60))}

    def _put(self, job: Job) -> None:
        with self._changed:
            if len(self._jobs) >= self.limits.waiting:
                self._forget()
            if len(self._jobs) >= self.limits.waiting:
                raise APIError(
                    429, f"{len(self._jobs)} requests are waiting already; try again later", self._retry()
                )
            self._jobs.append(job)
            self._characters += sum(job.sizes)
            self.metrics.waiting.set(len(self._jobs))
            self._changed.notify()

    def _forget(self) -> None:
        """Make room: drop the requests for which nobody waits any more."""
        self._characters -= sum(sum(job.sizes[job.begun :]) for job in self._jobs if job.abandoned)
        self._jobs = deque(job for job in self._jobs if not job.abandoned)

    def _run(self) -> None:
        while parts := self._next():
            began = time.perf_counter()
            self._compute(parts)
            size = sum(sum(job.sizes[start:end]) for job, start, end in parts)
            seconds = time.perf_counter() - began
            texts = sum(end - start for _, start, end in parts)
            self.metrics.computed(parts[0][0].work, texts=texts, characters=size, seconds=seconds)
            kept = REMEMBERED if self._speed else 0.0
            self._speed = kept * self._speed + (1 - kept) * (size + 1) / max(seconds, 1e-6)

    def _next(self) -> list[Part]:
        """What to compute now; nothing when it is time to stop."""
        with self._changed:
            while True:
                idle = not self._jobs
                while not self._jobs:
                    if self._stopped:
                        return []
                    self._changed.wait()
                until = time.monotonic() + (self.wait if idle else 0.0)
                while (left := until - time.monotonic()) > 0 and self._characters < BATCH_CHARACTERS:
                    self._changed.wait(left)
                if parts := self._take():
                    return parts

    def _take(self) -> list[Part]:
        """Items of the oldest job, and of others that want the same, until the batch is full."""
        parts: list[Part] = []
        others: deque[Job] = deque()
        halves: list[Job] = []
        size = 0
        for job in self._jobs:
            if job.abandoned:
                self._characters -= sum(job.sizes[job.begun :])
            elif size >= BATCH_CHARACTERS or (parts and job.work != parts[0][0].work):
                others.append(job)
            else:
                start = job.begun
                while job.begun < len(job.items) and (size < BATCH_CHARACTERS or job.begun == start):
                    size += job.sizes[job.begun] + 1
                    self._characters -= job.sizes[job.begun]
                    job.begun += 1
                parts.append((job, start, job.begun))
                if job.begun < len(job.items):
                    halves.append(job)
        self._jobs = others
        self._jobs.extend(halves)
        self.metrics.waiting.set(len(self._jobs))
        return parts

    def _compute(self, parts: Sequence[Part]) -> None:
        items = [item for job, start, end in parts for item in job.items[start:end]]
        try:
            results = iter(self.works[parts[0][0].work](items))
        except Exception:
            if len(parts) > 1:  # one request's trouble is not to be the others'
                for part in parts:
                    self._compute([part])
                return
            logger.exception("the model failed at a request")
            self._deliver([parts[0][0]], failed=True)
            return
        finished = []
        for job, start, end in parts:
            job.results[start:end] = [next(results) for _ in range(start, end)]
            job.done += end - start
            if job.done == len(job.items):
                finished.append(job)
        self._deliver(finished)

    def _deliver(self, jobs: list[Job], *, failed: bool = False) -> None:
        """Wake whoever waits for the jobs, all at once."""
        assert self._loop is not None
        if jobs and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_answer, jobs, failed)


def _answer(jobs: list[Job], failed: bool) -> None:
    for job in jobs:
        if job.answer.done():
            continue
        if failed:
            job.abandoned = True
            job.answer.set_exception(APIError(500, "the model failed at this request; the server's log says how"))
        else:
            job.answer.set_result(job.results)

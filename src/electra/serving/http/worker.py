"""One thread that runs the models, and the queue of requests for it (dynamic batching).

A batch consists of the requests that are in the queue when the thread is free: those that arrived while it was
busy or, if it was idle, within a short wait. A large request is split: one part is computed at a time, and the
rest goes to the end of the queue, so that a small request never waits for more than one batch of a large one.
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

from electra.errors import describe
from electra.serving.http.limits import APIError, Limits
from electra.serving.http.metrics import Metrics

logger = logging.getLogger(__name__)

BATCH_CHARACTERS = 16_384
"""Characters that are computed together: about two full batches of the network on a CPU."""
SPEED_DECAY = 0.8
"""Decay of the moving average of the speed, which estimates how long a refused client should wait."""

Operation = Callable[[list[Any]], Sequence[Any]]
"""A function from items to as many results."""


@dataclass(eq=False)
class Job:
    """The items of a request.

    Attributes:
        sizes: the number of characters of each item.
        response: gets the results when all items are computed.
        started: the number of items that are computed or being computed.
        finished: the number of items that are computed.
        abandoned: nobody waits for the results any more.
    """

    operation: str
    items: Sequence[Any]
    sizes: Sequence[int]
    response: "asyncio.Future[list[Any]]"
    results: list[Any] = field(init=False)
    started: int = 0
    finished: int = 0
    abandoned: bool = False

    def __post_init__(self) -> None:
        self.results = [None] * len(self.items)


Part = tuple[Job, int, int]
"""A job and a range of its items."""


class Worker:
    """Runs operations for requests, in batches of one operation.

    Args:
        operations: by name. Any exception of one of them is an error of the server, not of its client.
        wait: seconds that an idle worker waits for further requests after the first one.

    Attributes:
        in_flight: the number of accepted requests without a response.
        draining: no more requests are accepted.
    """

    def __init__(
        self, operations: Mapping[str, Operation], *, limits: Limits, wait: float, metrics: Metrics
    ) -> None:
        self.operations, self.limits, self.wait, self.metrics = operations, limits, wait, metrics
        self.in_flight = 0
        self.draining = False
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._queued_characters = 0
        self._speed = 0.0  # characters per second
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread. Results go to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the current batch."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    async def submit(self, operation: str, items: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
        """The results for the items of a request, in order.

        Args:
            sizes: the number of characters of each item.

        Raises:
            APIError: 429 if the queue is full; 503 if the server is stopping, or the request was not started in
                time; 504 if it was not finished in time; 500 if the model failed.
        """
        if self.draining or self._loop is None:
            raise APIError(
                503, "the server is stopping; use another server", {"Retry-After": "1", "Connection": "close"}
            )
        job = Job(operation, items, sizes, self._loop.create_future())
        self._enqueue(job)
        self.in_flight += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await job.response
        except TimeoutError:
            raise self._timeout_error(job) from None
        finally:
            job.abandoned = True  # also if the client has closed the connection
            self.in_flight -= 1

    def _timeout_error(self, job: Job) -> APIError:
        seconds = f"{self.limits.seconds:g} seconds"
        if not job.started:
            message = f"the model was too busy to start this request within {seconds}; try again later"
            return APIError(503, message, self._retry_after())
        return APIError(
            504, f"the model did not finish this request within {seconds}; send fewer or shorter texts"
        )

    def _retry_after(self) -> dict[str, str]:
        """The header with the estimated seconds until the current queue is finished."""
        seconds = math.ceil(self._queued_characters / self._speed) if self._speed else 1
        return {"Retry-After": str(min(max(seconds, 1), 60))}

    def _enqueue(self, job: Job) -> None:
        with self._changed:
            if len(self._queue) >= self.limits.waiting:
                self._drop_abandoned()
            if len(self._queue) >= self.limits.waiting:
                message = f"{len(self._queue)} requests are already waiting; try again later"
                raise APIError(429, message, self._retry_after())
            self._queue.append(job)
            self._queued_characters += sum(job.sizes)
            self.metrics.waiting.set(len(self._queue))
            self._changed.notify()

    def _drop_abandoned(self) -> None:
        """Remove the jobs from the queue that nobody waits for."""
        self._queued_characters -= sum(sum(job.sizes[job.started :]) for job in self._queue if job.abandoned)
        self._queue = deque(job for job in self._queue if not job.abandoned)

    def _run(self) -> None:
        while parts := self._next_batch():
            started = time.perf_counter()
            self._compute(parts)
            size = sum(sum(job.sizes[start:end]) for job, start, end in parts)
            seconds = time.perf_counter() - started
            texts = sum(end - start for _, start, end in parts)
            self.metrics.observe_batch(parts[0][0].operation, texts=texts, characters=size, seconds=seconds)
            decay = SPEED_DECAY if self._speed else 0.0
            self._speed = decay * self._speed + (1 - decay) * (size + 1) / max(seconds, 1e-6)

    def _next_batch(self) -> list[Part]:
        """Wait for the next batch. It is empty when the worker is stopped."""
        with self._changed:
            while True:
                idle = not self._queue
                while not self._queue:
                    if self._stopped:
                        return []
                    self._changed.wait()
                until = time.monotonic() + (self.wait if idle else 0.0)
                while (left := until - time.monotonic()) > 0 and self._queued_characters < BATCH_CHARACTERS:
                    self._changed.wait(left)
                if parts := self._take_batch():
                    return parts

    def _take_batch(self) -> list[Part]:
        """Take items of the oldest job, and of others with the same operation, until the batch is full."""
        parts: list[Part] = []
        others: deque[Job] = deque()
        unfinished: list[Job] = []
        size = 0
        for job in self._queue:
            if job.abandoned:
                self._queued_characters -= sum(job.sizes[job.started :])
            elif size >= BATCH_CHARACTERS or (parts and job.operation != parts[0][0].operation):
                others.append(job)
            else:
                start = job.started
                while job.started < len(job.items) and (size < BATCH_CHARACTERS or job.started == start):
                    size += job.sizes[job.started] + 1
                    self._queued_characters -= job.sizes[job.started]
                    job.started += 1
                parts.append((job, start, job.started))
                if job.started < len(job.items):
                    unfinished.append(job)
        self._queue = others
        self._queue.extend(unfinished)
        self.metrics.waiting.set(len(self._queue))
        return parts

    def _compute(self, parts: Sequence[Part]) -> None:
        items = [item for job, start, end in parts for item in job.items[start:end]]
        try:
            results = iter(self.operations[parts[0][0].operation](items))
        except BaseException as error:  # also a panic of a library in Rust, which is no Exception
            if len(parts) > 1:  # compute each request alone, so that the failure of one does not affect the others
                for part in parts:
                    self._compute([part])
                return
            logger.exception("the model failed on a request: %s", describe(error))
            self._respond([parts[0][0]], failed=True)
            return
        finished = []
        for job, start, end in parts:
            job.results[start:end] = [next(results) for _ in range(start, end)]
            job.finished += end - start
            if job.finished == len(job.items):
                finished.append(job)
        self._respond(finished)

    def _respond(self, jobs: list[Job], *, failed: bool = False) -> None:
        """Give the results of several jobs to the event loop in one call."""
        assert self._loop is not None
        if jobs and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_resolve, jobs, failed)


def _resolve(jobs: list[Job], failed: bool) -> None:
    for job in jobs:
        if job.response.done():
            continue
        if failed:
            job.abandoned = True
            job.response.set_exception(
                APIError(500, "the model failed on this request; the cause is in the log of the server")
            )
        else:
            job.response.set_result(job.results)

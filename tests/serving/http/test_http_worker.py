"""The worker computes waiting requests together, in order, within its limits."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import LIMIT, until

from electra.serving.http import worker as worker_module
from electra.serving.http.limits import APIError, Limits
from electra.serving.http.metrics import Metrics
from electra.serving.http.worker import BATCH_CHARACTERS, SPEED_DECAY, Worker


class Slow:
    """An operation that doubles numbers, records its batches, and waits for `may_go`."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_go = threading.Event()
        self.began = threading.Event()
        self.may_go.set()

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.began.set()
        assert self.may_go.wait(LIMIT)
        return self.results(items)

    def results(self, items: Sequence[int]) -> list[int]:
        return [2 * item for item in items]


class Dividing(Slow):
    """An operation that fails on 0."""

    def results(self, items: Sequence[int]) -> list[int]:
        return [10 // item for item in items]


class Panic(BaseException):
    """As `tokenizers` raises it, which is written in Rust."""


class Panicking(Dividing):
    """An operation whose library panics on 0."""

    def results(self, items: Sequence[int]) -> list[int]:
        try:
            return super().results(items)
        except ZeroDivisionError as error:
            raise Panic from error


def run(
    trial: Callable[[Worker, Slow], Awaitable[Any]],
    *,
    limits: Limits | None = None,
    wait: float = 0.0,
    operation: type[Slow] = Slow,
) -> list[list[int]]:
    """Run a trial with a worker and return the batches that it computed."""
    slow = operation()

    async def whole() -> None:
        worker = Worker({"slow": slow, "other": slow}, limits=limits or Limits(), wait=wait, metrics=Metrics())
        worker.start()
        try:
            await trial(worker, slow)
        finally:
            slow.may_go.set()
            worker.stop()
        assert worker.in_flight == 0

    asyncio.run(whole())
    return slow.batches


async def busy(worker: Worker, slow: Slow, number: int = 0) -> "asyncio.Task[list[Any]]":
    """A request that is being computed until `may_go` is set."""
    slow.may_go.clear()
    slow.began.clear()
    first = asyncio.create_task(worker.submit("slow", [number], [1]))
    assert await asyncio.to_thread(slow.began.wait, LIMIT)
    return first


async def accepted(worker: Worker, count: int) -> None:
    """Wait until the worker has this number of requests without a response."""
    await asyncio.to_thread(until, lambda: worker.in_flight == count)


async def ask(worker: Worker, numbers: Sequence[int], *, operation: str = "slow", size: int = 1) -> list[Any]:
    return await worker.submit(operation, numbers, [size] * len(numbers))


def test_requests_during_a_batch_form_the_next_batch_of_an_operation() -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        first = await busy(worker, slow)
        others = [asyncio.create_task(ask(worker, [n, n + 10])) for n in (1, 2)]
        others.append(asyncio.create_task(ask(worker, [5], operation="other")))
        others.append(asyncio.create_task(ask(worker, [3])))
        await accepted(worker, 5)
        slow.may_go.set()
        assert await asyncio.gather(first, *others) == [[0], [2, 22], [4, 24], [10], [6]]

    assert run(trial) == [[0], [1, 11, 2, 12, 3], [5]]


def test_an_idle_worker_waits_for_further_requests() -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        waits, wait = threading.Event(), worker._changed.wait

        def reports(seconds: float | None = None) -> bool:
            if seconds is not None:
                waits.set()
            return wait(seconds)

        worker._changed.wait = reports  # type: ignore[method-assign]
        first = asyncio.create_task(ask(worker, [1], size=BATCH_CHARACTERS // 2))
        assert await asyncio.to_thread(waits.wait, LIMIT)
        assert await asyncio.gather(first, ask(worker, [2], size=BATCH_CHARACTERS // 2)) == [[2], [4]]

    assert run(trial, wait=2 * Limits().seconds) == [[1, 2]]


def test_a_request_that_stays_alone_is_computed_after_the_wait() -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        assert await ask(worker, [1]) == [2]

    assert run(trial, wait=0.01) == [[1]]


def test_a_full_batch_does_not_wait() -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        await ask(worker, [1, 2], size=BATCH_CHARACTERS // 2)  # if it waited, this would be error 504

    assert run(trial, wait=2 * Limits().seconds) == [[1, 2]]


def test_a_large_request_lets_small_ones_pass() -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        first = await busy(worker, slow)
        large = asyncio.create_task(ask(worker, [1, 2, 3, 4], size=BATCH_CHARACTERS // 2))
        await accepted(worker, 2)
        small = asyncio.create_task(ask(worker, [9]))
        await accepted(worker, 3)
        slow.may_go.set()
        assert await asyncio.gather(first, large, small) == [[0], [2, 4, 6, 8], [18]]

    assert run(trial) == [[0], [1, 2], [9, 3, 4]]


def test_a_text_larger_than_a_batch_is_a_batch() -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        assert await ask(worker, [1, 2], size=3 * BATCH_CHARACTERS) == [2, 4]

    assert run(trial) == [[1], [2]]


def test_too_many_requests_are_refused() -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        first = await busy(worker, slow)
        waiting = [asyncio.create_task(ask(worker, [n])) for n in (1, 2)]
        await accepted(worker, 3)
        with pytest.raises(APIError) as caught:
            await ask(worker, [3])
        assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "1")
        slow.may_go.set()
        await asyncio.gather(first, *waiting)
        assert await ask(worker, [4]) == [8]

    assert run(trial, limits=Limits(waiting=2)) == [[0], [1, 2], [4]]


def test_refused_clients_should_wait_until_the_queue_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0])  # a batch of 2 seconds, then batches of 1 second
    monkeypatch.setattr(
        worker_module, "time", SimpleNamespace(perf_counter=clock.__next__, monotonic=time.monotonic)
    )

    async def trial(worker: Worker, slow: Slow) -> None:
        await ask(worker, [1], size=99)
        await ask(worker, [2], size=199)
        first = await busy(worker, slow)
        speed = SPEED_DECAY * 50 + (1 - SPEED_DECAY) * 200  # characters a second
        waiting = asyncio.create_task(ask(worker, [3], size=int(2.5 * speed)))
        await accepted(worker, 2)
        with pytest.raises(APIError) as caught:
            await ask(worker, [4])
        assert caught.value.headers["Retry-After"] == "3"
        slow.may_go.set()
        await asyncio.gather(first, waiting)

    run(trial, limits=Limits(waiting=1))


def test_a_request_after_its_timeout_is_not_computed() -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        first = await busy(worker, slow)
        late = asyncio.create_task(ask(worker, [1]))
        await accepted(worker, 2)
        loop = asyncio.get_running_loop()
        clock = loop.time
        loop.time = lambda: clock() + Limits().seconds  # type: ignore[method-assign]
        actual = await asyncio.gather(first, late, return_exceptions=True)
        assert [error.status for error in actual if isinstance(error, APIError)] == [504, 503]
        slow.may_go.set()
        assert await ask(worker, [2]) == [4]

    assert run(trial) == [[0], [2]]


def test_a_cancelled_request_is_not_computed() -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        first = await busy(worker, slow)
        gone = asyncio.create_task(ask(worker, [1]))
        await accepted(worker, 2)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        slow.may_go.set()
        await first
        assert await ask(worker, [2]) == [4]

    assert run(trial) == [[0], [2]]


def test_cancelled_requests_leave_the_queue() -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        first = await busy(worker, slow)
        gone = [asyncio.create_task(ask(worker, [n], size=9)) for n in (1, 2)]
        await accepted(worker, 3)
        for one in gone:
            one.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        taken = asyncio.create_task(ask(worker, [3]))
        await accepted(worker, 2)
        slow.may_go.set()
        assert await asyncio.gather(first, taken) == [[0], [6]]
        assert worker._queued_characters == 0

    assert run(trial, limits=Limits(waiting=2)) == [[0], [3]]


def test_draining_refuses_new_requests_and_finishes_accepted_ones() -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        first = await busy(worker, slow)
        second = asyncio.create_task(ask(worker, [1]))
        await accepted(worker, 2)
        worker.draining = True
        with pytest.raises(APIError) as caught:
            await ask(worker, [2])
        assert caught.value.status == 503
        slow.may_go.set()
        assert await asyncio.gather(first, second) == [[0], [2]]

    assert run(trial) == [[0], [1]]


@pytest.mark.parametrize(("operation", "failure"), [(Dividing, "ZeroDivisionError"), (Panicking, "Panic")])
def test_a_failing_request_does_not_affect_others(
    operation: type[Slow], failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def trial(worker: Worker, slow: Slow) -> None:
        first = await busy(worker, slow, 10)
        others = [asyncio.create_task(ask(worker, [n])) for n in (1, 0, 5)]
        await accepted(worker, 4)
        slow.may_go.set()
        actual = await asyncio.gather(first, *others, return_exceptions=True)
        assert actual[0] == [1] and actual[1] == [10] and actual[3] == [2]
        assert isinstance(actual[2], APIError) and actual[2].status == 500

    assert run(trial, operation=operation) == [[10], [1, 0, 5], [1], [0], [5]]
    assert any(f"failed on a request: {failure}" in message for message in caplog.messages)

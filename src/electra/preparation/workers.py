"""Worker processes that compute results in the order of their tasks, and whose death is an error, never a hang.

Each worker process has one thread in this process and one pipe between them. The thread sends a task and waits for
the reply. If the process dies, at whatever time, its end of the pipe is closed, so the thread gets an error at
once. (In the `ProcessPoolExecutor` of Python 3.11, a process that dies while another one is being started can end
the thread that manages the pool; then its results never come.)

Processes are spawned, not forked: a fork of a process with threads (torch, tokenizers) can hang.
"""

import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from electra.errors import DataError

Meta = TypeVar("Meta")
Task = TypeVar("Task")
Result = TypeVar("Result")

EXIT_SECONDS = 10.0
"""Time in which a process that has closed its pipe, or has been killed, ends."""


def usable_processors() -> int:
    """Return how many processors this process may use (a container often has fewer than the machine)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_order(
    build: Callable[[], Callable[[Task], Result]], tasks: Iterable[tuple[Meta, Task]], *, workers: int
) -> Generator[tuple[Meta, Result], None, None]:
    """Compute tasks in worker processes and yield the results in the order of the tasks.

    At most two tasks per worker are in progress, so memory is bounded by the largest ones. A worker gets its tasks
    in their order.

    Args:
        build: called once in each process; it returns the function that computes a task. It, the tasks and the
            results are pickled.
        tasks: each with something that comes back together with its result.

    Raises:
        DataError: a worker process dies.
    """
    pool = _Pool(build)
    executor = ThreadPoolExecutor(workers)
    pending: deque[tuple[Meta, Future[Result]]] = deque()
    try:
        for meta, task in tasks:
            pending.append((meta, executor.submit(pool, task)))
            if len(pending) >= 2 * workers:
                first, future = pending.popleft()
                yield first, future.result()
        while pending:
            first, future = pending.popleft()
            yield first, future.result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        pool.kill()
        executor.shutdown()
        pool.close()


class _Pool:
    """A worker for each thread that calls it, started at the thread's first task."""

    def __init__(self, build: Callable[[], Callable[[Any], Any]]) -> None:
        self.build = build
        self.mine = threading.local()
        self.workers: list[_Worker] = []
        self.killed = False
        self.lock = threading.Lock()

    def __call__(self, task: Any) -> Any:
        if not hasattr(self.mine, "worker"):
            with self.lock:
                if self.killed:
                    raise DataError("the work was stopped")
                self.mine.worker = _Worker()
                self.workers.append(self.mine.worker)
            self.mine.worker.send(self.build)
        self.mine.worker.send(task)
        return self.mine.worker.receive()

    def kill(self) -> None:
        """End all processes; threads that wait for one of them get an error."""
        with self.lock:
            self.killed = True
            for worker in self.workers:
                worker.process.kill()

    def close(self) -> None:
        for worker in self.workers:
            worker.process.join(EXIT_SECONDS)
            worker.connection.close()


class _Worker:
    """A process and the pipe to it."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self.connection, other_end = context.Pipe()
        # What the process works with is sent later: `start` would wait for ever for a process that dies before it
        # has read large arguments.
        self.process = context.Process(target=_serve, args=(other_end,), daemon=True)
        self.process.start()
        other_end.close()  # now the process alone has it, so its death closes the pipe

    def send(self, value: object) -> None:
        try:
            self.connection.send(value)
        except OSError as error:
            raise self._death() from error

    def receive(self) -> Any:
        try:
            reply = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _death(self) -> DataError:
        self.process.join(EXIT_SECONDS)
        return DataError(
            f"A worker process died (exit status {self.process.exitcode}). Run the same command again to "
            "resume; if memory ran out, use fewer --workers. A script of your own must call this below "
            "`if __name__ == '__main__':`"
        )


def _serve(connection: Connection) -> None:
    """Compute tasks until the other end of the pipe is closed, also by the death of the other process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
    try:
        compute = connection.recv()()
        while True:
            task = connection.recv()
            try:
                reply = compute(task)
            except Exception as error:
                error.add_note(f"In a worker process:\n{traceback.format_exc()}")
                reply = error
            connection.send(reply)
    except (EOFError, OSError):
        return

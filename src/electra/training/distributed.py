"""Training with several processes: ranks, broadcasts and sums, agreement on when to stop, and lost processes.

Every process computes the same run on its own part of each batch; gradients are summed in every update. Rank 0 is
the main process: only it writes the run's folder, and where processes could see different values (a clock, a
folder that is being created), its value is broadcast. A single process is the main process, and nothing is
broadcast.

Messages between processes use gloo, even if gradients use NCCL, so that they do not wait for the GPU.
"""

import contextlib
import datetime
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from electra.errors import ConfigError, ProcessError

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

POLL_SECONDS = 0.2
"""Seconds between two checks of whether all processes are done."""
ROLL_CALL_TIMEOUT = datetime.timedelta(seconds=5)
"""How long processes wait for answers after an error, to find out which process is lost."""


class _Groups:
    """Gloo process groups: for messages, and for a roll call after an error. None: a single process."""

    messages: dist.ProcessGroup | None = None
    roll_call: dist.ProcessGroup | None = None


def rank() -> int:
    """The number of this process; 0 is the main process."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """The number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def message_group() -> dist.ProcessGroup | None:
    """The gloo group of all processes; None: a single process."""
    return _Groups.messages


def is_main_process() -> bool:
    return rank() == 0


def is_local_main_process() -> bool:
    """Whether this is the first process on its machine, which does work that is needed once per machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) == 0


@contextlib.contextmanager
def init_distributed(*, minutes: float) -> Iterator[None]:
    """Join the processes that torchrun started; without torchrun, do nothing.

    Args:
        minutes: how long a process waits for the others before the run ends with an error.

    Raises:
        ProcessError: another process did not start, or within the block it died or did not answer for so long.
        ConfigError: there are more processes than GPUs.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    backend = "gloo"
    if torch.cuda.is_available():
        local, devices = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= devices:
            raise ConfigError(
                f"torchrun started {local + 1} processes or more on a machine with {devices} GPUs; give "
                f"`torchrun --nproc-per-node {devices}`"
            )
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    try:
        _join(backend, minutes=minutes)
        if is_main_process():
            logger.info(
                "%s processes; the run ends if one of them does not answer for %g minutes", world_size(), minutes
            )
        with name_lost_peers(minutes=minutes):
            yield
    finally:
        _Groups.messages = _Groups.roll_call = None
        if dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()


def _join(backend: str, *, minutes: float) -> None:
    """Create the process groups.

    Raises:
        ProcessError: another process did not come within this time.
    """
    timeout = datetime.timedelta(minutes=minutes)
    try:
        store, number, count = next(rendezvous("env://", timeout=timeout))
        # Each restart has a prefix of its own, because the store still has the addresses of the dead processes.
        prefix = f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        store = dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=number, world_size=count, timeout=timeout)
        _Groups.messages = dist.new_group(backend="gloo", timeout=timeout)
        _Groups.roll_call = dist.new_group(backend="gloo", timeout=ROLL_CALL_TIMEOUT)
    except RuntimeError as error:
        if not _is_communication_error(error):
            raise
        raise ProcessError(
            f"not all of the {os.environ['WORLD_SIZE']} processes have started within {minutes:g} minutes; see "
            f"the messages of the others, and check MASTER_ADDR and MASTER_PORT\n  {str(error).splitlines()[0]}"
        ) from error


@contextlib.contextmanager
def name_lost_peers(*, minutes: float) -> Iterator[None]:
    """Turn communication errors within the block into a `ProcessError` that names the process without an answer.

    It need not be the cause. A process that was stopped for too long finds, when it goes on, that the others gave
    up and ended.

    `init_distributed` does this, too. This one is for an inner block whose error is recorded (see events.py).

    Raises:
        ProcessError: within the block, another process died, or did not answer for so long.
    """
    try:
        yield
    except RuntimeError as error:
        if _Groups.roll_call is None or not _is_communication_error(error):
            raise
        missing = _missing_ranks(_Groups.roll_call)
        lost = "another process (the message of process 0 has its number) does not answer: it"
        if missing:
            listed = f"{', '.join(map(str, missing))} (of {world_size()}, counted from 0)"
            is_one = len(missing) == 1
            lost = f"process {listed} does not answer: it" if is_one else f"processes {listed} do not answer: they"
        raise ProcessError(
            f"{lost} ended, or did nothing for {minutes:g} minutes, or gave up because this "
            f"process, number {rank()}, did nothing for so long; see the messages of all processes. The same "
            f"command resumes from the last checkpoint\n  {str(error).splitlines()[0]}"
        ) from error


def _is_communication_error(error: RuntimeError) -> bool:
    words = ("gloo", "NCCL", "Connection", "Application timeout")  # gloo says the last one without its name
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


def _missing_ranks(group: dist.ProcessGroup) -> list[int]:
    """The ranks that do not answer the main process; in other processes, [0] if the main process does not answer.

    The group must not have been used before.
    """
    peers = list(range(1, world_size())) if is_main_process() else [0]
    transfer = dist.irecv if is_main_process() else dist.isend
    missing, pending = [], {}
    for peer in peers:  # start all at once, because operations that start after a failure fail, too
        with contextlib.suppress(RuntimeError):
            pending[peer] = transfer(torch.ones(1), peer, group=group)
    for peer in peers:
        try:
            work = pending[peer]
            assert work is not None
            work.wait()
        except (KeyError, RuntimeError):
            missing.append(peer)
    return missing


def broadcast_object(value: Value) -> Value:
    """Return the value of the main process in every process: anything that JSON can represent."""
    if world_size() == 1:
        return value
    message = torch.frombuffer(
        bytearray(json.dumps(value).encode() if is_main_process() else b" "), dtype=torch.uint8
    )
    length = torch.tensor([len(message)])
    dist.broadcast(length, src=0, group=_Groups.messages)
    if not is_main_process():
        message = torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(message, src=0, group=_Groups.messages)
    received: Value = json.loads(message.numpy().tobytes())
    return received


def run_and_wait(task: Callable[[], Value] | None) -> Value | None:
    """Run a task that may take longer than the timeout of `init_distributed`; return when all processes are done.

    Args:
        task: None: this process has nothing to do.

    Raises:
        Exception: any exception of the task, in its process.
    """
    if world_size() == 1:
        return task() if task else None
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(task) if task else None
        while True:  # regular messages, so that no process runs into the timeout
            done = torch.tensor([int(future is None or future.done())])
            dist.all_reduce(done, dist.ReduceOp.MIN, group=_Groups.messages)
            if done:
                return future.result() if future else None
            time.sleep(POLL_SECONDS)


def all_reduce_sum(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Sum scalars over all processes in float64, by name; all processes have the same names."""
    if world_size() == 1:
        return values
    packed = torch.stack([value.detach().double() for value in values.values()])
    dist.all_reduce(packed)
    return {name: total.to(values[name].dtype) for name, total in zip(values, packed, strict=True)}


def all_gather(values: Tensor, *, dim: int) -> Tensor:
    """Concatenate the tensors of all processes, which have the same shape, in the order of their ranks.

    With several processes, the result is on the CPU.
    """
    if world_size() == 1:
        return values
    local = values.detach().cpu().contiguous()
    parts = [torch.empty_like(local) for _ in range(world_size())]
    dist.all_gather(parts, local, group=_Groups.messages)
    return torch.cat(parts, dim)


class AgreedMaximum:
    """The maximum of a number over all processes, one call late.

    Each call returns the maximum of the call before, so that no process waits for the slowest one. A single
    process gets its own number at once.
    """

    def __init__(self) -> None:
        self._before: tuple[Tensor, Any] | None = None

    def __call__(self, number: int) -> int:
        if world_size() == 1:
            return number
        maximum = torch.tensor([number])
        work = dist.all_reduce(maximum, dist.ReduceOp.MAX, group=_Groups.messages, async_op=True)
        before, self._before = self._before, (maximum, work)
        if before is None:
            return 0
        before[1].wait()
        return int(before[0])

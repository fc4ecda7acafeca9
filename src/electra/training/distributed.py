"""Several processes that train one network: who leads, what all must know, when to stop, who is gone.

Every process computes the same run on its own part of each batch; gradients are summed where an update is made.
Rank 0 leads: it alone writes the run's folder, and where processes could find different things (a clock, a folder
that is just being made), it is asked and the others are told. A process that is alone leads, and is told nothing.

Messages go from host to host over gloo, also where gradients go over NCCL: no device is waited for.
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

PAUSE = 0.2
"""Seconds between two questions whether all are done."""
ROLL_CALL = datetime.timedelta(seconds=5)
"""How long those who are left wait for the others once something went wrong."""


class _Messages:
    """The group of processes that this one talks to, and the one for a roll call; None: it is alone."""

    group: dist.ProcessGroup | None = None
    last_call: dist.ProcessGroup | None = None


def rank() -> int:
    """The number of this process; 0 leads."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def message_group() -> dist.ProcessGroup | None:
    """The group of all processes that talks over gloo."""
    return _Messages.group


def is_main_process() -> bool:
    return rank() == 0


def is_local_main_process() -> bool:
    """Whether this is the first process of its machine, which does what one on each machine must do."""
    return int(os.environ.get("LOCAL_RANK", "0")) == 0


@contextlib.contextmanager
def init_distributed(*, minutes: float) -> Iterator[None]:
    """Be one of the processes that torchrun has started; without it, be alone.

    Args:
        minutes: how long a process waits for the others before it gives them up.

    Raises:
        ProcessError: within the block, another process was gone, or gave no answer for so long.
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
                f"--nproc-per-node {devices}"
            )
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    timeout = datetime.timedelta(minutes=minutes)
    try:
        store, number, count = next(rendezvous("env://", timeout=timeout))
        # A part of the store for each restart: else the addresses of the dead are found there.
        part = f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        store = dist.PrefixStore(part, store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=number, world_size=count, timeout=timeout)
        _Messages.group = dist.new_group(backend="gloo", timeout=timeout)
        _Messages.last_call = dist.new_group(backend="gloo", timeout=ROLL_CALL)
        if is_main_process():
            logger.info("%s processes; one that gives no answer for %g minutes is given up", world_size(), minutes)
        with name_lost_peers(minutes=minutes):
            yield
    finally:
        _Messages.group = _Messages.last_call = None
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


@contextlib.contextmanager
def name_lost_peers(*, minutes: float) -> Iterator[None]:
    """Say which process is gone where one is; for parts of what is `init_distributed` that keep what went wrong.

    Raises:
        ProcessError: within the block, another process was gone, or gave no answer for so long.
    """
    try:
        yield
    except RuntimeError as error:
        if _Messages.last_call is None or not _is_of_a_peer(error):
            raise
        missing = ", ".join(map(str, _missing(_Messages.last_call)))
        which = (
            f"process {missing} (of {world_size()}, counted from 0)"
            if missing
            else "a process that the leader's log names"
        )
        raise ProcessError(
            f"{which} is gone, or has given no answer for {minutes:g} minutes; its own log says more, and the "
            f"same command goes on from the last checkpoint\n  {str(error).splitlines()[0]}"
        ) from error


def _is_of_a_peer(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or any(word in str(error) for word in ("gloo", "NCCL", "Connection"))


def _missing(group: dist.ProcessGroup) -> list[int]:
    """Who does not answer the leader; to others, whether the leader does. The group is one that is new."""
    peers = list(range(1, world_size())) if is_main_process() else [0]
    move = dist.irecv if is_main_process() else dist.isend
    missing, waiting = [], {}
    for peer in peers:  # all at once, since the first that fails spoils what begins after it
        with contextlib.suppress(RuntimeError):
            waiting[peer] = move(torch.ones(1), peer, group=group)
    for peer in peers:
        try:
            work = waiting[peer]
            assert work is not None
            work.wait()
        except (KeyError, RuntimeError):
            missing.append(peer)
    return missing


def broadcast_object(value: Value) -> Value:
    """What the leader has, in every process: anything that JSON can hold."""
    if world_size() == 1:
        return value
    message = torch.frombuffer(
        bytearray(json.dumps(value).encode() if is_main_process() else b" "), dtype=torch.uint8
    )
    length = torch.tensor([len(message)])
    dist.broadcast(length, src=0, group=_Messages.group)
    if not is_main_process():
        message = torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(message, src=0, group=_Messages.group)
    found: Value = json.loads(message.numpy().tobytes())
    return found


def run_and_wait(task: Callable[[], Value] | None) -> Value | None:
    """Do something that may take longer than processes wait for each other; all go on when the last one is done.

    Args:
        task: None: this process has nothing to do.

    Raises:
        Exception: what the task raises, in its process.
    """
    if world_size() == 1:
        return task() if task else None
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(task) if task else None
        while True:  # they keep asking, so nobody seems to hang
            done = torch.tensor([int(future is None or future.done())])
            dist.all_reduce(done, dist.ReduceOp.MIN, group=_Messages.group)
            if done:
                return future.result() if future else None
            time.sleep(PAUSE)


def all_reduce_sum(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Scalars of all processes, added up in float64, by name; all processes have the same names."""
    if world_size() == 1:
        return values
    packed = torch.stack([value.detach().double() for value in values.values()])
    dist.all_reduce(packed)
    return {name: total.to(values[name].dtype) for name, total in zip(values, packed, strict=True)}


def all_gather(values: Tensor, *, dim: int) -> Tensor:
    """The tensors of all processes, which have one shape, joined along an axis in the order of their ranks: on
    the host, where there are several."""
    if world_size() == 1:
        return values
    mine = values.detach().cpu().contiguous()
    parts = [torch.empty_like(mine) for _ in range(world_size())]
    dist.all_gather(parts, mine, group=_Messages.group)
    return torch.cat(parts, dim)


class AgreedMaximum:
    """One number that all processes have at the same call: the largest that any of them gave at the call before.

    So nobody waits for the slowest, as they would for the largest of this call. One who is alone has its own at
    once.
    """

    def __init__(self) -> None:
        self._before: tuple[Tensor, Any] | None = None

    def __call__(self, number: int) -> int:
        if world_size() == 1:
            return number
        mine = torch.tensor([number])
        work = dist.all_reduce(mine, dist.ReduceOp.MAX, group=_Messages.group, async_op=True)
        before, self._before = self._before, (mine, work)
        if before is None:
            return 0
        before[1].wait()
        return int(before[0])

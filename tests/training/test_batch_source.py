"""Prefetched batches are the same batches; an error is raised at its step."""

import threading

import pytest
import torch
from waiting import LIMIT

from electra.data.collate import Batch
from electra.training.batch_source import Prefetcher


def batches(step: int) -> list[Batch]:
    if step == 5:
        raise OSError("the disk is gone")
    ids_BL = torch.full((1, 2), step)
    return [Batch(ids_BL, ids_BL, ids_BL[:, 0], seed=step)]


def test_in_order_from_anywhere_and_again() -> None:
    ahead = Prefetcher(batches)
    assert [ahead(step)[0].seed for step in (0, 1, 2, 0, 3, 4)] == [0, 1, 2, 0, 3, 4]


def test_the_next_step_is_made_while_this_one_is_computed() -> None:
    made: dict[int, threading.Event] = {step: threading.Event() for step in range(4)}

    def tells(step: int) -> list[Batch]:
        made[step].set()
        return batches(step)

    ahead = Prefetcher(tells)
    ahead(0)
    assert made[1].wait(timeout=LIMIT) and not made[2].is_set()


def test_an_error_is_raised_at_its_own_step() -> None:
    ahead = Prefetcher(batches)
    assert ahead(4)[0].seed == 4
    with pytest.raises(OSError, match="the disk is gone"):
        ahead(5)
    assert ahead(6)[0].seed == 6

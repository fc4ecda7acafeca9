"""What a process of several says when another one does not answer. tests/distributed/ has real processes."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist

from electra import cli
from electra.errors import ConfigError, DataError, ProcessError
from electra.training import distributed
from electra.training.distributed import init_distributed, name_lost_peers

LOST = (
    "Application timeout caused pair closure",
    "[/__w/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete",
    "[/__w/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1\nmore",
    "NCCL error",
)
"""Errors of torch when another process is stopped, killed, or has ended."""


@pytest.fixture
def three_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed._Groups, "roll_call", object())
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)


@pytest.mark.usefixtures("three_processes")
@pytest.mark.parametrize("error", LOST)
@pytest.mark.parametrize(
    ("rank", "missing", "which"),
    [
        (0, [1], "process 1 (of 3, counted from 0) does not answer: it"),
        (0, [1, 2], "processes 1, 2 (of 3, counted from 0) do not answer: they"),
        (1, [0], "process 0 (of 3, counted from 0) does not answer: it"),
        (2, [], "another process (the message of process 0 has its number) does not answer: it"),
    ],
)
def test_a_lost_process_is_named_and_not_blamed(
    rank: int, missing: list[int], which: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "get_rank", lambda: rank)
    monkeypatch.setattr(distributed, "_missing_ranks", lambda _: missing)
    with pytest.raises(ProcessError) as raised, name_lost_peers(minutes=0.5):
        raise RuntimeError(error)
    first, second = str(raised.value).split("\n")
    assert first.startswith(f"{which} ended, or did nothing for 0.5 minutes, or gave up because this")
    assert f"this process, number {rank}, did" in first and second.strip() == error.partition("\n")[0]


@pytest.mark.usefixtures("three_processes")
def test_other_errors_are_left_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes differ"), name_lost_peers(minutes=0.5):
        raise RuntimeError("shapes differ")


def test_too_many_processes_name_the_option_of_torchrun_also_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra.errors._command_line", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("LOCAL_RANK", "2")
    message = "a machine with 2 GPUs; give `torchrun --nproc-per-node 2`"
    with pytest.raises(ConfigError, match=message), init_distributed(minutes=0.5):
        raise AssertionError


def test_processes_that_do_not_start_are_an_error_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_other_process(*_: Any, **__: Any) -> None:
        raise dist.DistStoreError("wait timeout after 6000ms, keys: /default_pg/0//2//cpu//0/1")

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(distributed, "rendezvous", no_other_process)
    with (
        pytest.raises(ProcessError, match=r"not all of the 2 processes have started within 0\.1 minutes"),
        init_distributed(minutes=0.1),
    ):
        pass


@dataclass(frozen=True)
class Nothing:
    """A command line without options."""


def lose(config: Nothing) -> None:
    """Lose a process."""
    raise ProcessError("process 0 does not answer")


def refuse(config: Nothing) -> None:
    """Find a mistake that all processes find."""
    raise DataError("no such file")


@pytest.mark.parametrize(
    ("verb", "shown"), [(lose, "electra, process 1: process 0 does not answer\n"), (refuse, "")]
)
def test_every_process_says_that_another_one_is_lost(
    verb: Any, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The main process says everything else: here it may be the one that is lost."""
    monkeypatch.setitem(cli.VERBS, "verb", (f"{__name__}:{verb.__name__}", "fake"))
    monkeypatch.setattr(cli, "IS_MAIN_PROCESS", False)
    monkeypatch.setenv("RANK", "1")
    assert cli.main(["verb"]) == cli.USER_ERROR
    assert capsys.readouterr().err == shown

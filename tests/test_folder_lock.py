"""The lock of a run: one process at a time, and another one after its death."""

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import LIMIT

from electra import folder_lock
from electra.errors import CheckpointError
from electra.folder_lock import HEARTBEAT_SECONDS, STALE_SECONDS, acquire, is_locked, owner

ANOTHER = {"host": "another", "processes": [], "process": 1}


def abandoned(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (time.time() - 2 * STALE_SECONDS,) * 2)


def test_one_process_gets_the_lock_and_the_next_after_its_death(tmp_path: Path) -> None:
    with acquire(tmp_path / "run") as first, acquire(tmp_path / "run") as second:
        assert first and not second
    path = tmp_path / "run" / "taken.json"
    assert not path.exists()
    path.write_text(json.dumps(ANOTHER))
    with acquire(tmp_path / "run") as third:
        assert not third, "there was a sign of life"
    abandoned(path, json.dumps(ANOTHER))
    with acquire(tmp_path / "run") as fourth:
        assert fourth


@pytest.mark.parametrize("written", ["", '{"host": "an', "3", "[]"])
def test_a_damaged_lock_file_does_not_lock_forever(written: str, tmp_path: Path) -> None:
    path = tmp_path / "taken.json"
    path.write_text(written)
    assert is_locked(tmp_path)
    with acquire(tmp_path) as early:
        assert not early, "it may be just being written"
    abandoned(path, written)
    assert not is_locked(tmp_path)
    with acquire(tmp_path) as late:
        assert late


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_on_a_full_disk_nobody_gets_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def on_a_full_disk(path: Path, *args: Any, **options: Any) -> Any:
        file = opened(path, *args, **options)
        file.close()
        return opened(Path("/dev/full"), "w", encoding="utf-8")

    monkeypatch.setattr(Path, "open", on_a_full_disk)
    with pytest.raises(CheckpointError, match="No space left on device"), acquire(tmp_path / "run"):
        pass
    monkeypatch.undo()
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("later", [-2 * STALE_SECONDS, 2 * STALE_SECONDS])
def test_a_clock_that_was_set_back_does_not_lock_forever(tmp_path: Path, later: float) -> None:
    path = tmp_path / "taken.json"
    path.write_text(json.dumps(ANOTHER))
    assert is_locked(tmp_path)
    os.utime(path, (time.time() + later,) * 2)
    assert not is_locked(tmp_path)


def test_a_dead_process_of_this_machine_is_noticed_at_once(tmp_path: Path) -> None:
    with acquire(tmp_path):
        mine = json.loads((tmp_path / "taken.json").read_text())
    gone = {**mine, "process": 2**22 + 1}  # above the largest number of a process
    (tmp_path / "taken.json").write_text(json.dumps(gone))
    assert not is_locked(tmp_path)
    (tmp_path / "taken.json").write_text(json.dumps({**gone, "processes": ["another boot"]}))
    assert is_locked(tmp_path), "a machine of the same name, whose processes nobody here can see"


def test_one_of_many_processes_takes_over_an_abandoned_lock(tmp_path: Path) -> None:
    for _ in range(20):
        abandoned(tmp_path / "taken.json", json.dumps(ANOTHER))
        found, gate = [], threading.Barrier(6, timeout=LIMIT)

        def claim(found: list[bool] = found, gate: threading.Barrier = gate) -> None:
            gate.wait()
            with acquire(tmp_path) as mine:
                found.append(mine)
                gate.wait()

        threads = [threading.Thread(target=claim) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        assert sum(found) == 1 and len(found) == 6
        assert not list(tmp_path.iterdir())


def test_a_take_over_in_progress_is_respected_unless_its_process_died(tmp_path: Path) -> None:
    abandoned(tmp_path / "taken.json", json.dumps(ANOTHER))
    deciding = tmp_path / "taken.deciding"
    deciding.write_text(json.dumps({**ANOTHER, "since": 0}))
    with acquire(tmp_path) as second:
        assert not second
    abandoned(deciding, "")
    with acquire(tmp_path) as third:
        assert not third and not deciding.exists()
    with acquire(tmp_path) as fourth:
        assert fourth


def test_a_reused_process_id_is_another_process(tmp_path: Path) -> None:
    with acquire(tmp_path):
        mine = json.loads((tmp_path / "taken.json").read_text())
        assert owner(tmp_path) == mine
    (tmp_path / "taken.json").write_text(json.dumps({**mine, "started": mine["started"] - 1}))
    assert owner(tmp_path) is None


@pytest.mark.parametrize("lives", [False, True])
def test_a_lock_of_another_machine_needs_a_heartbeat(
    lives: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, slept = tmp_path / "taken.json", [0.0]
    path.write_text(json.dumps(ANOTHER))

    def sleep(seconds: float) -> None:
        slept.append(slept[-1] + seconds)
        if lives and slept[-2] < 2 * HEARTBEAT_SECONDS <= slept[-1]:
            os.utime(path, (time.time() + 1,) * 2)

    clock = SimpleNamespace(time=time.time, monotonic=lambda: slept[-1], sleep=sleep)
    monkeypatch.setattr(folder_lock, "time", clock)
    folder_lock.wait_for_heartbeat(tmp_path)
    assert slept[-1] == pytest.approx((2 if lives else 3.5) * HEARTBEAT_SECONDS, abs=1)
    with acquire(tmp_path) as mine:
        assert mine is not lives

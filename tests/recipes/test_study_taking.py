"""Who is at a run: one at a time, and whoever is alive after one who is not."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from electra.recipes.study_taking import DEAD, is_taken, taken

ANOTHER = {"host": "another", "processes": [], "process": 1}


def abandoned(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (time.time() - 2 * DEAD,) * 2)


def test_a_run_is_taken_by_one_and_a_dead_ones_by_the_next(tmp_path: Path) -> None:
    with taken(tmp_path / "run") as first, taken(tmp_path / "run") as second:
        assert first and not second
    path = tmp_path / "run" / "taken.json"
    assert not path.exists()
    path.write_text(json.dumps(ANOTHER))
    with taken(tmp_path / "run") as third:
        assert not third, "there was a sign of life"
    abandoned(path, json.dumps(ANOTHER))
    with taken(tmp_path / "run") as fourth:
        assert fourth


@pytest.mark.parametrize("written", ["", '{"host": "an'])
def test_a_claim_that_its_owner_died_over_is_no_claim_for_ever(written: str, tmp_path: Path) -> None:
    path = tmp_path / "taken.json"
    path.write_text(written)
    assert is_taken(tmp_path)
    with taken(tmp_path) as early:
        assert not early, "it may be just being written"
    abandoned(path, written)
    assert not is_taken(tmp_path)
    with taken(tmp_path) as late:
        assert late


def test_a_process_that_is_gone_is_known_at_once(tmp_path: Path) -> None:
    with taken(tmp_path):
        mine = json.loads((tmp_path / "taken.json").read_text())
    gone = {**mine, "process": 2**22 + 1}  # above the largest number of a process
    (tmp_path / "taken.json").write_text(json.dumps(gone))
    assert not is_taken(tmp_path)
    (tmp_path / "taken.json").write_text(json.dumps({**gone, "processes": ["another boot"]}))
    assert is_taken(tmp_path), "a machine of the same name, whose processes nobody here can see"


def test_of_many_that_find_a_run_abandoned_one_takes_it(tmp_path: Path) -> None:
    for _ in range(20):
        abandoned(tmp_path / "taken.json", json.dumps(ANOTHER))
        found, gate = [], threading.Barrier(6)

        def claim(found: list[bool] = found, gate: threading.Barrier = gate) -> None:
            gate.wait()
            with taken(tmp_path) as mine:
                found.append(mine)
                gate.wait()

        threads = [threading.Thread(target=claim) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sum(found) == 1 and len(found) == 6
        assert not list(tmp_path.iterdir())


def test_who_comes_while_another_decides_goes_on_and_a_decision_may_be_left_behind(tmp_path: Path) -> None:
    abandoned(tmp_path / "taken.json", json.dumps(ANOTHER))
    deciding = tmp_path / "taken.deciding"
    deciding.write_text(json.dumps({**ANOTHER, "since": 0}))
    with taken(tmp_path) as second:
        assert not second
    abandoned(deciding, "")
    with taken(tmp_path) as third:
        assert not third and not deciding.exists()
    with taken(tmp_path) as fourth:
        assert fourth

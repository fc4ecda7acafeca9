"""How many times less compute an arm needs for the score of its control."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import ttest_1samp

from electra.json_files import read_json, write_json
from electra.reports.compute_multiplier import ComputeMultiplier, multiplier
from electra.reports.study import read_study

FRACTIONS = [0.25, 0.5, 1.0]


def write_study(folder: Path, scores: dict[str, list[list[float]]], **others: Any) -> Path:
    """A study with the scores of each arm: for each seed those of the fractions of the budget."""
    arms = {name: {"says": name.upper(), "paper": None, "line": "", "x": None} for name in scores}
    folder.mkdir()
    write_json(
        folder / "study.json",
        {
            "study": "s", "title": "A study", "base": "nano", "control": "control", "paper": "", "axis": "",
            "shares": FRACTIONS, "tune": [], "budget": 1e9, "precision": "float32", "suite": ["a"], "reached": {},
            "flops": 1e9, "arms": arms, **others,
        },
    )  # fmt: skip
    for arm, seeds in scores.items():
        for seed, points in enumerate(seeds):
            for share, score in zip(FRACTIONS, points, strict=True):
                speed = 2.0 if arm == "control" else 1.0
                run = {
                    "arm": arm, "share": share, "seed": seed, "failed": None, "flops": 1e9 * share,
                    "seconds": 100 * share * speed, "evaluation": {"eval/unigram_auc": score}, "reached": {},
                    "tasks": {"a": {"metric": "accuracy", "values": [score], "failed": 0}},
                }  # fmt: skip
                place = folder / "runs" / arm / f"{share:g}" / f"seed-{seed}"
                place.mkdir(parents=True)
                write_json(place / "result.json", run)
    return folder


def test_it_is_the_inverse_of_the_fraction_where_the_mean_reaches_the_score() -> None:
    assert multiplier(FRACTIONS, [[-10.0, 0.0, 10.0]])[0] == pytest.approx(2.0)
    assert multiplier(FRACTIONS, [[-10.0, -5.0, 5.0]])[0] == pytest.approx(2**0.5, rel=0.01)
    assert multiplier(FRACTIONS, [[-30.0, -5.0, 10.0], [10.0, 5.0, 10.0]])[0] == pytest.approx(2.0)
    assert multiplier(FRACTIONS, [[1.0, 2.0, 3.0]])[0] == pytest.approx(4.0)
    assert multiplier(FRACTIONS, [[-3.0, -2.0, -1.0]])[0] is None


@pytest.mark.parametrize("smallest", [1 / 16, 0.05, 0.1, 0.2, 0.3])
def test_at_the_smallest_fraction_only_a_bound_is_known(smallest: float) -> None:
    value, interval = multiplier([smallest, 1.0], [[1.0, 2.0], [1.1, 2.0]])
    one = ComputeMultiplier("arm", "arm", "control", 2, 1 / smallest, value, interval, speed=1.0)
    assert one.describe() == f"≥ {1 / smallest:.2f} (≥ {1 / smallest:.2f} to ≥ {1 / smallest:.2f})"


def test_an_arm_that_is_worse_again_later_has_not_reached_the_score() -> None:
    assert multiplier(FRACTIONS, [[-10.0, 1.0, -1.0]])[0] is None
    value = multiplier(FRACTIONS, [[1.0, -1.0, 1.0]])[0]
    assert value is not None and value == pytest.approx(2**0.5, rel=0.01)


def test_the_interval_holds_the_fractions_where_a_t_test_sees_no_difference() -> None:
    rng = np.random.default_rng(0)
    differences_SF = np.array([-4.0, 0.5, 5.0]) + rng.normal(size=(5, 3))
    value, interval = multiplier(FRACTIONS, differences_SF.tolist())
    assert value is not None and interval is not None
    low, high = interval
    assert low is not None and high is not None and 1 < low < value < high < 4
    for end in (low, high):
        at_end = [np.interp(-np.log(end), np.log(FRACTIONS), one) for one in differences_SF]
        assert ttest_1samp(at_end, 0).pvalue == pytest.approx(0.05, abs=0.01)


def test_arms_that_do_not_differ_are_seldom_called_better_or_worse() -> None:
    """Of 400 arms with the curve of their control, about one in forty has an interval above 1."""
    rng, above = np.random.default_rng(0), 0
    for _ in range(400):
        arm_SF = np.array([-2.0, -1.0, 0.0]) + rng.normal(size=(3, 3))
        _, interval = multiplier(FRACTIONS, (arm_SF - rng.normal(size=(3, 1))).tolist())
        above += interval is not None and interval[0] is not None
    assert 2 <= above <= 20


def test_the_table_has_both_costs(tmp_path: Path) -> None:
    scores = {
        "control": [[0.5, 0.6, 0.7], [0.5, 0.6, 0.7], [0.5, 0.6, 0.7]],
        "better": [[0.6, 0.7, 0.8], [0.61, 0.69, 0.8], [0.59, 0.71, 0.8]],
        "at once": [[0.8, 0.8, 0.8], [0.81, 0.81, 0.81], [0.8, 0.81, 0.8]],
        "never": [[0.4, 0.5, 0.6], [0.4, 0.5, 0.61], [0.4, 0.5, 0.6]],
    }
    report = read_study(write_study(tmp_path / "study", scores)).write()
    better, at_once, never = report.multipliers
    assert better.value == pytest.approx(2.0) and better.seeds == 3 and better.speed == 2.0
    assert better.describe() == "2.00 (1.74 to 2.24)"
    assert better.describe(in_seconds=True) == "4.00 (3.48 to 4.49)"
    assert at_once.describe() == "≥ 4.00 (≥ 4.00 to ≥ 4.00)" and never.describe() == "< 1.00 (< 1.00 to < 1.00)"
    console = Console(width=160)
    with console.capture() as capture:
        console.print(report)
    assert "times less compute" in capture.get() and better.describe() in capture.get()
    written = read_json(report.folder / "results.json")["multipliers"]
    assert [one["value"] for one in written] == [pytest.approx(2.0), pytest.approx(4.0), None]


def test_only_seeds_with_all_fractions_count(tmp_path: Path) -> None:
    scores = {"control": [[0.5, 0.6, 0.7]] * 3, "other": [[0.6, 0.7, 0.8], [0.1, 0.1, 0.1], [0.1, 0.1, 0.1]]}
    folder = write_study(tmp_path / "study", scores)
    (folder / "runs/other/1/seed-1/result.json").unlink()
    (folder / "runs/control/1/seed-2/result.json").unlink()
    [one] = read_study(folder).multipliers
    assert one.seeds == 1 and one.describe() == "2.00"
    (folder / "runs/other/0.5/seed-0/result.json").unlink()
    assert not read_study(folder).multipliers


def test_there_is_none_where_less_is_better(tmp_path: Path) -> None:
    scores = {"control": [[0.5, 0.6, 0.7]], "other": [[0.6, 0.7, 0.8]]}
    auc = write_study(tmp_path / "auc", scores, suite=[], figure="eval/unigram_auc")
    assert [one.arm for one in read_study(auc).multipliers] == ["other"]
    loss = write_study(tmp_path / "loss", scores, suite=[], figure="eval/perplexity")
    assert not read_study(loss).multipliers

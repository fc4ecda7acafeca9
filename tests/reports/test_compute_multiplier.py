"""How much less compute an arm needs for the score of its control."""

import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy.stats import ttest_1samp

from electra.json_files import read_json, write_json
from electra.reports.compute_multiplier import cost_to_reach
from electra.reports.study import read_study

SHARES = [0.25, 0.5, 1.0]


def write_study(folder: Path, scores: dict[str, list[list[float]]], **others: Any) -> Path:
    """A study with the scores of each arm: for each seed those of the fractions of the budget."""
    arms = {name: {"says": name.upper(), "paper": None, "line": "", "x": None} for name in scores}
    folder.mkdir()
    write_json(
        folder / "study.json",
        {
            "study": "s", "title": "A study", "base": "nano", "control": "control", "paper": "", "axis": "",
            "shares": SHARES, "tune": [], "budget": 1e9, "precision": "float32", "suite": ["a"], "reached": {},
            "flops": 1e9, "arms": arms, **others,
        },
    )  # fmt: skip
    for arm, seeds in scores.items():
        for seed, points in enumerate(seeds):
            for share, score in zip(SHARES, points, strict=True):
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


def test_lines_are_straight_over_the_logarithm_of_the_cost() -> None:
    points = [(1.0, 10.0), (4.0, 30.0), (16.0, 20.0), (64.0, 50.0)]
    assert cost_to_reach(points, 20.0) == pytest.approx(2.0)
    assert cost_to_reach(points, 40.0) == pytest.approx(math.sqrt(16 * 64) * 4 ** (1 / 6))
    assert cost_to_reach(points, 5.0) == 1.0
    assert cost_to_reach(points, 51.0) is None


def test_the_interval_is_students_of_the_logarithms_of_the_seeds(tmp_path: Path) -> None:
    scores = {
        "control": [[0.5, 0.6, 0.7], [0.5, 0.6, 0.7], [0.5, 0.6, 0.7]],
        "better": [[0.6, 0.7, 0.8], [0.6, 0.68, 0.72], [0.65, 0.75, 0.8]],
    }
    report = read_study(write_study(tmp_path / "study", scores))
    [multiplier] = report.multipliers
    flops, seconds = multiplier.by_cost["flops"], multiplier.by_cost["seconds"]
    each = [2.0, math.sqrt(2), 2 * math.sqrt(2)]  # .70 at half of it; between .5 and 1; between .25 and .5
    expected = ttest_1samp([math.log(one) for one in each], 0).confidence_interval(0.95)
    assert flops.mean == pytest.approx(2.0) and flops.seeds == flops.reached == 3
    assert flops.interval == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert seconds.mean == pytest.approx(4.0), "a step of the control takes twice the time"
    console = Console(width=160)
    with console.capture() as capture:
        console.print(report)
    assert "times less compute" in capture.get() and str(flops) in capture.get()
    written = read_json(report.write().folder / "results.json")
    assert written["multipliers"][0]["flops"]["mean"] == pytest.approx(2.0)


def test_a_bound_and_a_score_that_is_not_reached_have_no_interval(tmp_path: Path) -> None:
    scores = {
        "control": [[0.5, 0.6, 0.7], [0.5, 0.6, 0.7]],
        "sometimes": [[0.6, 0.7, 0.8], [0.5, 0.6, 0.65]],
        "at once": [[0.7, 0.7, 0.8], [0.8, 0.8, 0.8]],
        "never": [[0.4, 0.5, 0.6], [0.4, 0.5, 0.6]],
    }
    report = read_study(write_study(tmp_path / "study", scores))
    texts = {one.arm: str(one.by_cost["flops"]) for one in report.multipliers}
    assert texts == {"sometimes": "2.00, 1 of 2 seeds", "at once": "≥ 4.00", "never": "not reached"}


def test_there_is_none_where_less_is_better_or_with_one_fraction(tmp_path: Path) -> None:
    scores = {"control": [[0.5, 0.6, 0.7]], "other": [[0.6, 0.7, 0.8]]}
    auc = write_study(tmp_path / "auc", scores, suite=[], figure="eval/unigram_auc")
    assert [one.arm for one in read_study(auc).multipliers] == ["other"]
    loss = write_study(tmp_path / "loss", scores, suite=[], figure="eval/perplexity")
    assert not read_study(loss).multipliers
    one = write_study(tmp_path / "one", scores)
    for share in SHARES[:2]:
        (one / "runs/other" / f"{share:g}" / "seed-0/result.json").unlink()
    assert not read_study(one).multipliers

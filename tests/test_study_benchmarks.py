"""What benchmarks/yardstick.py and benchmarks/compute_curve.py calculate from the archive of a study."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from electra.reports.study import StudyReport, read_study

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from compute_curve import scores_by_flops  # noqa: E402  (the folder of benchmarks is no package)
from yardstick import main, pooled_deviation, scores_by_arm, seeds_needed  # noqa: E402


@pytest.fixture(scope="module")
def report() -> StudyReport:
    return read_study(ROOT / "docs/studies/recipe-1e14")


def test_the_deviation_is_pooled_over_arms_and_has_no_distances_between_them() -> None:
    assert pooled_deviation([[1.0, 3.0], [101.0, 103.0, 105.0]]) == pytest.approx(math.sqrt((2 + 8) / (1 + 2)))
    assert pooled_deviation([[1.0, 3.0], [50.0]]) == pytest.approx(math.sqrt(2)), "an arm of one seed has none"


@pytest.mark.parametrize("deviation", [0.2, 0.5])
def test_so_many_seeds_find_a_point_in_four_of_five_studies(deviation: float) -> None:
    def found(seeds: int) -> float:
        arms = np.random.default_rng(0).normal(scale=deviation, size=(2, 20_000, seeds))
        differences = 1 + arms[0] - arms[1]
        half = stats.t.ppf(0.975, seeds - 1) * differences.std(axis=1, ddof=1) / math.sqrt(seeds)
        return float((differences.mean(axis=1) > half).mean())

    seeds = seeds_needed(deviation)
    assert found(seeds) > 0.79 and found(seeds - 1) < 0.8


def test_scores_of_arms_are_in_percent_and_of_the_whole_budget(report: StudyReport) -> None:
    scores = scores_by_arm(report, "chunking:0.1")
    assert set(scores) == {"plus", "masked-lm", "electra", "faithful", "unigram"}
    assert all(len(values) == 5 and 60 < min(values) <= max(values) < 100 for values in scores.values())


def test_the_last_study_counts_where_two_have_a_seed(report: StudyReport) -> None:
    tasks = ["chunking:0.1", "upos:0.1"]
    first = read_study(ROOT / "docs/studies/recipe-1e14-first-preset")
    alone, earlier = scores_by_flops([report], "plus", tasks), scores_by_flops([first], "plus", tasks)
    assert list(alone) == [2.5e13, 1e14]
    assert scores_by_flops([first, report], "plus", tasks) == alone
    assert scores_by_flops([report, first], "plus", tasks)[1e14][:3] == earlier[1e14]


def test_tasks_that_one_study_lacks_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    studies = [str(ROOT / "docs/studies" / name) for name in ("yardstick-floors", "recipe-1e13")]
    monkeypatch.setattr(sys, "argv", ["yardstick.py", *studies, "--without", "faithful"])
    main()
    printed, said = capsys.readouterr()
    assert [line.split()[1] for line in printed.splitlines()[2:]] == ["upos:0.1", "chunking:0.1"]
    assert "left out, because only one of the studies has them: probe-chunking" in said

"""Comparison of two fine-tunings: a clear difference is significant, and chance is not."""

import json
from pathlib import Path
from unittest.mock import ANY

import pytest
from small_finetuning import COUNT, write_finetuning, write_table

from electra.errors import CheckpointError, DataError
from electra.finetuning.compare import Difference, compare_finetunings


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "data")


def test_a_clear_difference_is_significant(table: Path, tmp_path: Path) -> None:
    worse = write_finetuning(tmp_path / "worse", table, range(80), range(60))
    actual = compare_finetunings(worse, write_finetuning(tmp_path / "better", table, range(20)))
    assert (actual.dev.first, actual.dev.second) == (pytest.approx(0.65), pytest.approx(0.9))
    assert actual.dev.interval[0] > 0.15 and actual.dev.interval[1] < 0.35 and actual.dev.probability < 0.01
    assert actual.seeds == (2, 1) and actual.dev.deviations == (pytest.approx(0.0707, abs=1e-4), None)


def test_no_probability_is_zero(table: Path, tmp_path: Path) -> None:
    worst, best = (write_finetuning(tmp_path / str(wrong), table, range(wrong)) for wrong in (190, 0))
    actual = compare_finetunings(worst, best, resamples=99)
    assert actual.dev.probability == 1 / 100


def test_a_small_difference_is_not_significant(table: Path, tmp_path: Path) -> None:
    one = write_finetuning(tmp_path / "one", table, range(40))
    actual = compare_finetunings(one, write_finetuning(tmp_path / "two", table, range(20, 56)))
    assert actual.dev.second - actual.dev.first == pytest.approx(0.02)
    assert actual.dev.interval[0] < 0 < actual.dev.interval[1] and actual.dev.probability > 0.3


def test_the_interval_is_that_of_the_paired_difference(table: Path, tmp_path: Path) -> None:
    """If the second is wrong in the same examples and in ten more, only those ten vary."""
    actual = compare_finetunings(
        write_finetuning(tmp_path / "one", table, range(90)), write_finetuning(tmp_path / "two", table, range(100))
    )
    deviation = (0.05 * 0.95 / COUNT) ** 0.5  # of the fraction 10 / 200
    assert actual.dev.interval == pytest.approx((-0.05 - 1.96 * deviation, -0.05 + 1.96 * deviation), abs=0.008)


def evaluate_on_test(folder: Path, *values: float) -> None:
    """Give each seed a metric on test, and the predictions for dev as those for test."""
    results = json.loads((folder / "results.json").read_text())
    for seed, value in zip(results["seeds"], values, strict=True):
        seed["others"] = {"test": {"accuracy": value, "macro_f1": 0.1}, "extra": {}}
        of_seed = folder / f"seed-{seed['seed']}"
        (of_seed / "test.jsonl").write_text((of_seed / "dev.jsonl").read_text())
    (folder / "results.json").write_text(json.dumps(results))


def test_other_splits_are_compared_as_dev_is(table: Path, tmp_path: Path) -> None:
    (table / "test.csv").write_text((table / "dev.csv").read_text())
    worse = write_finetuning(tmp_path / "a", table, range(80), range(60))
    better = write_finetuning(tmp_path / "b", table, range(20))
    evaluate_on_test(worse, 0.6, 0.7)
    evaluate_on_test(better, 0.9)
    actual = compare_finetunings(worse, better, resamples=50)
    assert actual.others == {"test": actual.dev} and actual.dev.interval is not None


@pytest.fixture
def tested(table: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two fine-tunings of two seeds that were also evaluated on test."""
    (table / "test.csv").write_text((table / "dev.csv").read_text())
    one, two = (write_finetuning(tmp_path / name, table, range(9), range(5)) for name in ("a", "b"))
    evaluate_on_test(one, 0.5, 0.7)
    evaluate_on_test(two, 0.8, 0.9)
    return one, two


def test_without_predictions_of_a_split_it_has_means_only(
    tested: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    one, two = tested
    (two / "seed-1" / "test.jsonl").unlink()
    actual = compare_finetunings(one, two, resamples=20)
    assert actual.dev.interval is not None
    assert actual.others == {"test": Difference(pytest.approx(0.6), pytest.approx(0.85), (ANY, ANY))}
    assert "the difference on test has no interval: " in caplog.text
    assert "seed-1/test.jsonl is missing; run the fine-tuning again with --fresh, which writes next" in caplog.text


def test_a_split_whose_data_has_changed_is_not_compared(
    table: Path, tested: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    (table / "test.csv").write_text((table / "dev.csv").read_text().replace("text 7,no", "text 7,yes"))
    actual = compare_finetunings(*tested, resamples=20)
    assert actual.dev.interval is not None and actual.others == {}
    assert "test is not compared: " in caplog.text and "the data has changed" in caplog.text


def test_failed_seeds_are_counted(table: Path, tmp_path: Path) -> None:
    one, two = (write_finetuning(tmp_path / name / "out", table, range(9), range(5)) for name in ("a", "b"))
    results = json.loads((two / "results.json").read_text())
    results["seeds"][0]["failed"] = "it predicts one label"
    (two / "results.json").write_text(json.dumps(results))
    actual = compare_finetunings(one, two, resamples=20)
    assert actual.names == ("a out", "b out") and actual.failed == (0, 1) and actual.others == {}


def test_the_same_seed_gives_the_same_result(table: Path, tmp_path: Path) -> None:
    one, two = (
        write_finetuning(tmp_path / "one", table, range(40)),
        write_finetuning(tmp_path / "two", table, range(30, 60)),
    )
    assert compare_finetunings(one, two, resamples=50) == compare_finetunings(one, two, resamples=50)
    assert compare_finetunings(one, two, resamples=50) != compare_finetunings(one, two, resamples=50, seed=1)


def test_incomparable_fine_tunings_are_refused(table: Path, tmp_path: Path) -> None:
    one = write_finetuning(tmp_path / "one", table, range(40))
    with pytest.raises(CheckpointError, match="no finished fine-tuning"):
        compare_finetunings(one, tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    for name in ("train", "dev"):
        (other / f"{name}.csv").write_text((table / f"{name}.csv").read_text().replace("text 7,", "text 8,"))
    with pytest.raises(CheckpointError, match="different data"):
        compare_finetunings(one, write_finetuning(tmp_path / "two", other, range(40)))
    (one / "seed-0" / "dev.jsonl").write_text('{"label": "yes"}\n')
    with pytest.raises(DataError, match="1 predictions for 200 examples"):
        compare_finetunings(one, one)


def test_moved_data_is_given_by_its_path(table: Path, tmp_path: Path) -> None:
    folders = [write_finetuning(tmp_path / name, table, range(20)) for name in ("one", "two")]
    moved = table.rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=r"does not exist; give its new place: --data PATH"):
        compare_finetunings(*folders)
    assert compare_finetunings(*folders, data=moved).dev.first == pytest.approx(0.9)


@pytest.mark.parametrize("change", [("text 7,no", "text 7,yes"), ("text 7,", "another text,")])
def test_changed_data_is_detected(table: Path, tmp_path: Path, change: tuple[str, str]) -> None:
    """Predictions belong to the old examples; evaluated on others, they would seem bad."""
    one, two = (
        write_finetuning(tmp_path / "one", table, range(9)),
        write_finetuning(tmp_path / "two", table, range(5)),
    )
    dev = table / "dev.csv"
    dev.write_text(dev.read_text().replace(*change))
    with pytest.raises(DataError, match=r"dev\.jsonl:8: .* the data has changed"):
        compare_finetunings(one, two)


def test_a_split_without_answers_is_not_compared(
    table: Path, tested: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    texts = [line.rpartition(",")[0] for line in (table / "dev.csv").read_text().splitlines()]
    (table / "test.csv").write_text("\n".join(texts))
    assert compare_finetunings(*tested, resamples=20).others == {}
    assert "test is not compared: " in caplog.text and "the data has changed" in caplog.text

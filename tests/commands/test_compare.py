"""`electra compare` from the command line; tests/finetuning/test_compare.py has the comparison itself."""

import json
from pathlib import Path

import pytest
from small_finetuning import write_finetuning, write_table

from electra.cli import main
from electra.commands.compare import ComparisonResult
from electra.finetuning.compare import Comparison, Difference


def test_json_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write_finetuning(tmp_path / "a-long-name-for-a-folder", write_table(tmp_path / "data"), range(40))
    assert main(["compare", str(one), str(one), "--resamples", "9", "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line)["difference"] == 0 and len(line) > 120


def test_bad_options_and_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(tmp_path), str(tmp_path), "--resamples", "0"]) == 2
    assert "--resamples: must be at least 1" in capsys.readouterr().err
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    assert "holds no finished fine-tuning" in capsys.readouterr().err


def test_the_table_says_whether_the_difference_is_significant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_table(tmp_path / "data")
    worse, better = (write_finetuning(tmp_path / str(wrong), table, range(wrong)) for wrong in (80, 20))
    assert main(["compare", str(worse), str(better), "--resamples", "99"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "second - first: +0.3000" in shown and "(significant for these networks; 200 examples)" in shown
    assert "with fewer than 3 seeds" in shown and "first: 80" in shown and "second: 20" in shown
    assert "failed" not in shown and " on test" not in shown


def test_the_table_has_the_test_part_and_failed_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_table(tmp_path / "data")
    folders = [
        write_finetuning(tmp_path / name, table, range(wrong)) for name, wrong in (("one", 80), ("two", 20))
    ]
    for folder, value in zip(folders, (0.5, 0.75), strict=True):
        seed = {"seed": 0, "failed": "it predicts one label", "others": {"test": {"accuracy": value}}}
        (folder / "results.json").write_text(json.dumps({"seeds": [seed]}))
    assert main(["compare", *map(str, folders), "--resamples", "9"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "on test: +0.2500 (means over the seeds, without an interval)" in shown and "0.5000" in shown
    assert "failed seeds are included in the means" in shown


def test_the_table_has_the_name_of_the_metric() -> None:
    comparison = Comparison("span_f1", Difference(0.5, 0.6, (None, None)), (1, 1), ("a", "b"), (0, 0), {})
    (table, *_) = ComparisonResult(comparison, is_json=False).__rich__().renderables  # type: ignore[union-attr]
    assert table.columns[1].header == "span F1 on dev"  # type: ignore[union-attr]


@pytest.mark.parametrize(("seeds", "limited"), [((1, 5), True), ((5, 1), True), ((3, 3), False)])
def test_few_seeds_of_one_side_limit_what_is_said(seeds: tuple[int, int], limited: bool) -> None:
    clear = Difference(0.5, 0.6, (None, None), interval=(0.05, 0.15), probability=0.01, examples=9)
    comparison = Comparison("accuracy", clear, seeds, ("a", "b"), (0, 0), {})
    shown = ComparisonResult(comparison, is_json=False).__rich__()
    _, line, *others = shown.renderables  # type: ignore[union-attr]
    assert ("significant for these networks;" in line) == limited == bool(others)  # type: ignore[operator]

"""Intervals and verdicts of a study, its picture, and its archive."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy.stats import ttest_rel

from electra.errors import CheckpointError
from electra.reports.sections import build_sections
from electra.reports.study import archive_study, read_study
from electra.reports.study_figure import study_figure
from electra.reports.study_results import run_score, t_interval

ARCHIVES = sorted(path.parent for path in (Path(__file__).parents[2] / "docs/studies").glob("*/runs.jsonl"))


def result(arm: str, seed: int, scores: dict[str, float], *, share: float = 1.0, failed: str | None = None) -> Any:
    return {
        "arm": arm, "share": share, "seed": seed, "steps": 10, "failed": failed, "flops": 1e9 * share,
        "seconds": 60 * share,
        "evaluation": {"eval/unigram_auc": 0.7}, "reached": {}, "blimp": None,
        "tasks": {task: {"metric": "accuracy", "values": [one] * 3, "failed": 0} for task, one in scores.items()},
    }  # fmt: skip


def study(folder: Path, results: list[Any], **others: Any) -> Path:
    arms = {
        name: {"says": name.upper(), "paper": paper, "line": "", "x": None}
        for name, paper in (("one", 80.0), ("two", 79.0), ("three", None))
    }
    study = {
        "study": "s", "title": "A study", "base": "nano", "control": "one", "paper": "p",
        "axis": "", "shares": [1.0],
        "tune": [], "budget": 15.0, "precision": "float32", "suite": ["a", "b"],
        "reached": {}, "flops": 1e9, "arms": arms, **others,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "study.json").write_text(json.dumps(study))
    for run in results:
        place = folder / "runs" / run["arm"] / f"{run['share']:g}" / f"seed-{run['seed']}"
        place.mkdir(parents=True)
        (place / "result.json").write_text(json.dumps(run))
    return folder


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    first, second = [70.0, 71.5, 69.0, 72.0], [68.0, 70.5, 69.5, 69.0]
    low, high = t_interval([a - b for a, b in zip(first, second, strict=True)])
    expected = ttest_rel(first, second).confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high))


def test_the_score_of_a_run_is_the_median_of_its_fine_tunings() -> None:
    """A fine-tuning that fails is an outlier."""
    assert run_score({"tasks": {"a": {"values": [0.1, 0.8, 0.9]}}}, "a") == pytest.approx(80)


def test_arms_without_a_place_on_the_axis_are_lines_of_different_colors(tmp_path: Path) -> None:
    arms = {name: {"says": name, "paper": None, "line": "a", "x": None} for name in ("two", "three")}
    arms["one"] = {"says": "one", "paper": None, "line": "a", "x": 0.5}
    results = [result(arm, 0, {"a": 0.6, "b": 0.7}) for arm in arms]
    actual = read_study(study(tmp_path, results, arms=arms, axis="width"))
    figure = study_figure(actual.study, actual.arms)
    assert figure is not None
    colors = {line.get_label(): line.get_color() for line in figure.axes[0].lines if line.get_linestyle() == ":"}
    assert set(colors) == {"two", "three"} and colors["two"] != colors["three"]


@pytest.mark.parametrize(
    ("shares", "label"), [((0.5, 1.0), "training FLOPs"), ((1.0, 1.0), "average of the tasks")]
)
def test_the_budget_is_an_axis_only_if_several_were_run(tmp_path: Path, shares: Any, label: str) -> None:
    results = [{**result("one", seed, {"a": 0.6, "b": 0.7}), "share": share} for seed, share in enumerate(shares)]
    actual = read_study(study(tmp_path, results, shares=[0.5, 1.0]))
    figure = study_figure(actual.study, actual.arms)
    assert figure is not None and figure.axes[0].get_xlabel() == label


def test_a_contrast_is_a_paired_test_of_sums_of_arms(tmp_path: Path) -> None:
    contrasts = {"gain": {"says": "gain", "plus": ["one", "three"], "minus": ["two", "one"]}}
    rows = {"one": [70.0, 71.0, 69.0], "two": [68.0, 70.5, 69.5], "three": [70.5, 72.0, 71.0]}
    results = [
        result(arm, seed, {"a": score / 100, "b": score / 100})
        for arm, scores in rows.items()
        for seed, score in enumerate(scores)
    ]
    results.append(result("three", 3, {"a": 0.9, "b": 0.9}))  # a seed that the other arms do not have
    report = read_study(study(tmp_path, results, contrasts=contrasts)).write()
    [gain] = report.contrasts
    expected = ttest_rel(rows["three"], rows["two"]).confidence_interval(0.95)
    assert gain.interval == pytest.approx((expected.low, expected.high)) and gain.seeds == 3
    assert gain.difference == pytest.approx(11.0 / 6) and gain.verdict == "higher"
    [written] = json.loads((tmp_path / "results.json").read_text())["contrasts"]
    assert written["difference"] == gain.difference and written["contrast"] == "gain"
    console = Console(file=io.StringIO(), width=200)
    console.print(report)
    assert "+1.8 (" in console.file.getvalue()  # type: ignore[attr-defined]
    archive_study(tmp_path, tmp_path / "archive")
    assert read_study(tmp_path / "archive").contrasts == report.contrasts


@pytest.mark.parametrize("shown", [True, False])
def test_costs_are_columns_of_a_study_that_shows_them(tmp_path: Path, shown: bool) -> None:
    costs = {"parameters": 1_500_000, "memory": 2**29, "tokens": 6_000}
    results = [{**result("one", seed, {"a": 0.6, "b": 0.7}), **costs} for seed in range(2)]
    (console := Console(file=io.StringIO(), width=200, record=True)).print(
        read_study(study(tmp_path, results, costs=shown))
    )
    text = console.export_text()
    for expected in ("parameters", "1.5M", "tokens/s", " 100 ", "memory, about", "0.5 GiB"):
        assert (expected in text) == shown, expected


def test_probes_are_shown_beside_the_average_of_the_fine_tuned_tasks(tmp_path: Path) -> None:
    scores = {"a": 0.6, "nonlinear-probe-upos": 0.2, "probe-chunking": 0.4}
    both = study(tmp_path / "both", [result("one", 0, scores)], suite=list(scores))
    probes = study(
        tmp_path / "probes", [result("one", 0, scores)], suite=["nonlinear-probe-upos", "probe-chunking"]
    )
    assert read_study(both).arms[0].mean == pytest.approx(60.0)
    assert read_study(probes).arms[0].mean == pytest.approx(30.0)
    for folder, expected in ((both, True), (probes, False)):
        (console := Console(file=io.StringIO(), width=300)).print(read_study(folder))
        assert ("average without probes" in console.file.getvalue()) is expected  # type: ignore[attr-defined]


def test_differences_are_taken_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    results = [result("one", seed, {"a": 0.6, "b": 0.8}) for seed in range(3)]
    results += [result("two", seed, {"a": 0.5 + seed / 1000, "b": 0.7}) for seed in range(3)]
    results += [result("three", 0, {"a": 0.6, "b": 0.9}), result("three", 1, {"a": 0.6})]
    rows = {row.arm: row for row in read_study(study(tmp_path, results)).arms}
    assert rows["two"].difference == pytest.approx(-9.95) and rows["two"].verdict == "lower"
    assert rows["two"].agrees is True and rows["one"].difference is None
    assert rows["three"].verdict == "one seed: not judged", "the other seed lacks a task"
    assert rows["three"].difference == pytest.approx(5.0) and rows["three"].agrees is None


def test_noise_is_not_distinguishable_and_failed_seeds_do_not_count(tmp_path: Path) -> None:
    results = [result("one", seed, {"a": 0.6, "b": 0.8}) for seed in range(3)]
    results += [result("two", 0, {"a": 0.5, "b": 0.8}), result("two", 1, {"a": 0.7, "b": 0.8})]
    results.append(result("two", 2, {}, failed="it diverged"))
    report = read_study(study(tmp_path, results)).write()
    two = report.arms[1]
    assert two.verdict == "not distinguishable" and two.failed == 1 and len(two.runs) == 2
    assert (
        two.agrees is None
        and "0 in the published order to the control, 0 in the opposite order, 1 not"
        in report.summarize_agreement()
    )
    assert (tmp_path / "study.png").stat().st_size > 5000
    assert len(report.csv().splitlines()) == 7 and "it diverged" in report.csv()


def test_a_seed_is_compared_with_the_same_seed_of_the_control(tmp_path: Path) -> None:
    """Seeds differ by far more than arms, and the control lacks one, another arm another."""
    results = [result("one", seed, {"a": 0.5 + seed / 10, "b": 0.5 + seed / 10}) for seed in (0, 1, 3)]
    results += [result("two", seed, {"a": 0.51 + seed / 10, "b": 0.511 + seed / 10}) for seed in (1, 2, 3)]
    two = {row.arm: row for row in read_study(study(tmp_path, results)).arms}["two"]
    assert two.difference == pytest.approx(1.05) and two.verdict == "higher" and two.agrees is False


def test_an_arm_may_have_another_control(tmp_path: Path) -> None:
    arms = {
        name: {"says": name, "paper": None, "line": "", "x": None, "control": control}
        for name, control in (("one", "one"), ("two", "one"), ("three", "two"))
    }
    results = [
        result(name, 0, {"a": score, "b": score}) for name, score in (("one", 0.5), ("two", 0.6), ("three", 0.4))
    ]
    rows = {row.arm: row for row in read_study(study(tmp_path, results, arms=arms)).arms}
    assert rows["one"].difference is None and rows["two"].difference == pytest.approx(10)
    assert rows["three"].difference == pytest.approx(-20)


def test_without_tasks_arms_are_compared_by_the_held_out_auc(tmp_path: Path) -> None:
    results = []
    for seed in range(3):
        for name, auc, tokens in (("one", 0.6, None), ("two", 0.8, 1_000_000), ("three", None, None)):
            one = result(name, seed, {})
            one["evaluation"] = {"eval/unigram_auc": auc and auc + seed / 100 + (name == "two") * seed / 1000}
            one["reached"] = {"eval/unigram_auc 0.65": tokens and seed and tokens * seed}
            results.append(one)
    report = read_study(study(tmp_path, results, suite=[], reached={"eval/unigram_auc": [0.65]}))
    rows = {row.arm: row for row in report.arms}
    assert rows["two"].verdict == "higher" and rows["two"].difference == pytest.approx(20.1)
    assert rows["three"].scores == () and rows["three"].verdict == ""
    assert rows["two"].tokens_to("eval/unigram_auc 0.65") == (0, 1_000_000, 2_000_000), "0 tokens count"
    (console := Console(file=io.StringIO(), width=200)).print(report)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1.00M (0.00–2.00M)" in shown and "80.1 ± 1.1" not in shown and "81.1 ± 1.1" in shown


@pytest.mark.parametrize("name", ["study.json", "runs/one/1/seed-0/result.json"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    path = study(tmp_path, [result("one", 0, {"a": 0.6, "b": 0.8})]) / name
    path.write_text(path.read_text()[:-9])
    with pytest.raises(CheckpointError, match=f"{name} is damaged"):
        read_study(tmp_path)


@pytest.mark.parametrize("suite", [["a", "b"], []])
def test_pictures_of_lines_and_of_points(tmp_path: Path, suite: list[str]) -> None:
    lines = {
        name: {"says": "alike", "paper": None, "line": "a line", "x": x}
        for name, x in (("one", 0.5), ("two", 0.5))
    }
    results = [result(arm, seed, {"a": 0.6, "b": 0.8}) for arm in ("one", "two") for seed in range(2)]
    for number, others in enumerate(({"arms": lines, "axis": "width"}, {"shares": [0.5, 1.0]}, {})):
        (folder := tmp_path / str(number)).mkdir()
        actual = [*results, *(result("two", seed, {"a": 0.5, "b": 0.5}, share=0.5) for seed in range(2))]
        report = read_study(study(folder, actual, suite=suite, **others)).write()
        assert "<svg" in (folder / "study.svg").read_text() and report.arms


def test_published_scores_may_be_by_share(tmp_path: Path) -> None:
    arms = {
        name: {"says": name, "paper": paper, "line": "", "x": None}
        for name, paper in (("one", {"0.5": 70.0, "1": 80.0}), ("two", 75.0))
    }
    results = [
        result(arm, seed, {"a": value, "b": value + seed / 1000}, share=share)
        for seed in range(2)
        for arm, value in (("one", 0.5), ("two", 0.6))
        for share in (0.5, 1.0)
    ]
    rows = read_study(study(tmp_path, results, arms=arms, shares=[0.5, 1.0])).arms
    assert [row.published for row in rows] == [70.0, None, 80.0, 75.0]
    assert [row.agrees for row in rows] == [None, None, None, False]


def test_an_archive_gives_the_same_report(tmp_path: Path) -> None:
    results = [result(arm, seed, {"a": 0.6, "b": 0.8}) for arm in ("one", "two") for seed in (10, 2)]
    results += [result("two", 3, {}, failed="it diverged"), result("two", 2, {"a": 0.5, "b": 0.5}, share=0.5)]
    results[0]["tuned"] = {"train.epochs=2": {"a": {"metric": "accuracy", "values": [0.7], "failed": 0}}}
    folder = study(tmp_path / "study", results, shares=[0.5, 1.0])
    environment = folder / "runs/one/1/seed-10/run/environment.json"
    environment.parent.mkdir()
    environment.write_text(json.dumps({"torch": "2", "processor": "AVX2", "data": {"statistics": {}}}))
    files = archive_study(folder, tmp_path / "archive")
    assert [file.name for file in files] == ["runs.jsonl", "study.png"] and all(file.is_file() for file in files)
    live, archived = read_study(folder), read_study(tmp_path / "archive")
    assert archived.arms[0].runs[0]["evaluation"] == live.arms[0].runs[0]["evaluation"]
    assert [arm.scores for arm in archived.arms] == [arm.scores for arm in live.arms]
    assert archived.csv() == live.csv() and archived.study == live.study
    lines = [json.loads(line) for line in files[0].read_text().splitlines()]
    assert lines[0] == json.loads((folder / "study.json").read_text()) and len(lines) == 7
    (first,) = (one for one in lines[1:] if one["arm"] == "one" and one["seed"] == 10)
    assert first["environment"] == {"torch": "2", "processor": "AVX2"} and first["tuned"] == results[0]["tuned"]
    again = archive_study(tmp_path / "archive", tmp_path / "again")
    assert again[0].read_bytes() == files[0].read_bytes()


def test_a_result_replaces_the_archived_one(tmp_path: Path) -> None:
    results = [result(arm, seed, {"a": 0.6, "b": 0.8}) for arm in ("one", "two") for seed in range(2)]
    archive = archive_study(study(tmp_path / "study", results), tmp_path / "archive")[0].parent
    study(archive, [result("two", 1, {"a": 0.8, "b": 0.8}), result("two", 2, {"a": 0.6, "b": 0.8})])
    two = read_study(archive).arms[1]
    assert two.scores == pytest.approx((70.0, 80.0, 70.0))


@pytest.mark.parametrize(("line", "text"), [(1, '{"study": "s"'), (2, "[]"), (3, '{"seed": 1}')])
def test_a_damaged_line_of_an_archive_is_named(tmp_path: Path, line: int, text: str) -> None:
    results = [result("one", seed, {"a": 0.6, "b": 0.8}) for seed in range(2)]
    path = archive_study(study(tmp_path / "study", results), tmp_path / "archive")[0]
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[: line - 1], text, *lines[line:]]))
    with pytest.raises(CheckpointError, match=rf"runs\.jsonl:{line} is damaged"):
        read_study(tmp_path / "archive")


@pytest.mark.parametrize("folder", ARCHIVES, ids=lambda folder: folder.name)
def test_the_archives_of_the_documentation_can_be_read(folder: Path) -> None:
    report = read_study(folder)
    assert report.tables() and report.csv() and all(arm.runs for arm in report.arms)
    assert [path.name for path in sorted(folder.iterdir())] == ["runs.jsonl", "study.png"]


def test_a_page_holds_the_table_and_the_picture(tmp_path: Path) -> None:
    results = [result(arm, seed, {"a": 0.6, "b": 0.8}) for arm in ("one", "two") for seed in range(2)]
    (section,) = build_sections([study(tmp_path, results, base="nano")])
    assert section.kind == "study" and section.tables[0].row_count == 2 and len(section.figures) == 1
    (empty,) = build_sections([study(tmp_path / "new", [], base="nano")])
    assert empty.notes == ["No run has finished yet."] and not empty.figures

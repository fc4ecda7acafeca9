"""Runs that are compared: their budgets, and which metrics are marked as the best."""

import json
from pathlib import Path

from rich.table import Table
from rich.text import Text

from electra.reports.comparison import compare_fine_tunings, compare_runs
from electra.reports.page import render_page


def run_folder(path: Path, *, at: int, steps: int, auc: float) -> Path:
    """A run that was last evaluated at a step."""
    path.mkdir()
    records = [
        {"step": at, "tokens": 900 * at, "loss": 3.0, "flops": 1e9 * at, "seconds": 6.0 * at},
        {"step": at, "tokens": 900 * at, "eval/unigram_auc": auc, "evaluation_seconds": 60.0},
    ]
    (path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    (path / "config.toml").write_text(f"[train]\nsteps = {steps}\n", encoding="utf-8")
    return path


def rows(table: Table) -> dict[str, list[str]]:
    """The cells of each row, by its first one."""
    lines = zip(*(column.cells for column in table.columns), strict=True)
    return {str(first): [str(cell) for cell in others] for first, *others in lines}


def bold(table: Table) -> list[str]:
    cells = [cell for column in table.columns for cell in column.cells]
    return [str(cell) for cell in cells if isinstance(cell, Text) and cell.style == "bold"]


def test_budgets_are_above_the_metrics(tmp_path: Path) -> None:
    runs = {
        "short": run_folder(tmp_path / "short", at=10, steps=10, auc=0.75),
        "long": run_folder(tmp_path / "long", at=1200, steps=2000, auc=0.85),
    }
    [table] = compare_runs(runs).tables
    assert rows(table) == {
        "steps": ["10", "1,200 of 2,000"],
        "tokens": ["9,000", "1,080,000"],
        "training FLOPs": ["1.000e+10", "1.200e+12"],
        "time": ["2.0 minutes", "2.0 hours"],
        "AUC on unigram fakes": ["0.7500", "0.8500"],
    }


def test_an_interim_evaluation_is_not_the_best(tmp_path: Path) -> None:
    runs = {
        name: run_folder(tmp_path / name, at=at, steps=20, auc=auc)
        for name, at, auc in (("a", 20, 0.75), ("b", 10, 0.95), ("c", 20, 0.85))
    }
    section = compare_runs(runs)
    assert bold(section.tables[0]) == ["0.8500"]
    assert any(note.startswith("Never bold: b, which is not evaluated at its end yet") for note in section.notes)
    runs["b"] = run_folder(tmp_path / "ended", at=20, steps=20, auc=0.95)
    section = compare_runs(runs)
    assert bold(section.tables[0]) == ["0.9500"]
    assert not any("Never bold" in note for note in section.notes)


def test_the_best_loss_is_the_lowest_and_what_each_run_draws_itself_has_no_best(tmp_path: Path) -> None:
    without_best = ("restored_loss", "discriminator_auc", "masked_lm_sample_accuracy", "generator_entropy")
    predictors = ("filled", "masked_lm", "encoder_masked_lm", "language_model", "permutation_lm")
    runs = {}
    for name, loss in (("a", 3.0), ("b", 2.5)):
        runs[name] = run_folder(tmp_path / name, at=20, steps=20, auc=0.8)
        values = {f"{key}_loss": loss for key in predictors} | {f"{key}_accuracy": 1 / loss for key in predictors}
        record = {"step": 20, "tokens": 18000} | {f"eval/{key}": value for key, value in values.items()}
        record |= {"eval/perplexity": loss} | {f"eval/{key}": loss for key in without_best}
        with (runs[name] / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(record))
    assert sorted(bold(compare_runs(runs).tables[0])) == ["0.4000"] * 5 + ["2.5000"] * 6


def test_one_ended_run_has_no_rivals(tmp_path: Path) -> None:
    runs = {name: run_folder(tmp_path / name, at=at, steps=20, auc=0.8) for name, at in (("a", 20), ("b", 10))}
    section = compare_runs(runs)
    assert not bold(section.tables[0]) and not any(note.startswith("Bold") for note in section.notes)


def test_the_time_of_early_runs_lacks_that_of_evaluations(tmp_path: Path) -> None:
    runs = {name: run_folder(tmp_path / name, at=20, steps=20, auc=0.8) for name in ("a", "b")}
    lines = (runs["a"] / "metrics.jsonl").read_text(encoding="utf-8")
    (runs["a"] / "metrics.jsonl").write_text(lines.replace("evaluation_seconds", "other"), encoding="utf-8")
    [table] = compare_runs(runs).tables
    assert rows(table)["time (of some runs without evaluations)"] == ["2.0 minutes", "3.0 minutes"]


def test_the_settings_that_were_left_out_are_named_behind_the_others(tmp_path: Path) -> None:
    runs = {name: run_folder(tmp_path / name, at=20, steps=20, auc=0.8) for name in ("a", "b")}
    for run, objective in zip(runs.values(), ('kind = "x"\ntop_k = 0', 'kind = "y"'), strict=True):
        (run / "config.toml").write_text(f"[objective]\n{objective}\n", encoding="utf-8")
    html = render_page("x", [compare_runs(runs)])
    assert html.index("objective.kind") < html.index("Left out: settings") < html.index("</details>")


def fine_tuning(path: Path, *, scores: list[float], failed: int = 0, dev: int = 4581) -> Path:
    path.mkdir()
    results = {
        "task": "ner", "metric": "span_f1", "median": scores[0], "mean": scores[-1], "failed": failed,
        "seeds": [{"seed": seed} for seed in range(len(scores))], "examples": {"dev": dev},
    }  # fmt: skip
    (path / "results.json").write_text(json.dumps(results), encoding="utf-8")
    return path


def test_fine_tunings_of_one_seed_have_one_score(tmp_path: Path) -> None:
    one, few = (
        fine_tuning(tmp_path / name, scores=[score], dev=dev)
        for name, score, dev in (("a", 0.5, 100), ("b", 0.6, 6))
    )
    [table] = compare_fine_tunings({"a": one, "b": few}).tables
    assert [str(column.header) for column in table.columns] == ["fine-tuning", "task", "metric on dev", "score"]
    assert rows(table) == {"a": ["ner", "span F1", "0.5000"], "b": ["ner", "span F1 (6 examples)", "0.6000"]}


def test_fine_tunings_of_several_seeds_have_their_counts(tmp_path: Path) -> None:
    several = fine_tuning(tmp_path / "a", scores=[0.5, 0.4], failed=1)
    [table] = compare_fine_tunings({"a": several, "b": fine_tuning(tmp_path / "b", scores=[0.6])}).tables
    assert rows(table) == {
        "a": ["ner", "span F1", "0.5000", "0.4000", "2", "1"],
        "b": ["ner", "span F1", "0.6000", "0.6000", "1", "0"],
    }

"""A self-contained page of runs, fine-tunings and studies."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from electra.errors import CheckpointError
from electra.reports.page import render_page
from electra.reports.sections import build_sections

VOID = {"meta", "img", "link", "br", "input", "wbr"}


class Reader(HTMLParser):
    """Collects cells and URLs; tags must be properly nested."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th", "dd", "p"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th", "dd", "p"} & set(self.open):
            self.cells[-1] += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert not reader.open
    return reader


def run_folder(path: Path, *, share: float, auc: float, steps: int = 10) -> Path:
    path.mkdir()
    records = [
        {"step": 0, "tokens": 0, "eval/unigram_auc": 0.5, "eval/masked_lm_accuracy": 0.0},
        {"step": 10, "tokens": 9000, "loss": 3.0, "generator_loss": 2.5, "flops": 1e9, "seconds": 60.0},
        {"step": 10, "tokens": 9000, "eval/unigram_auc": auc, "eval/masked_lm_accuracy": None},
        {"step": 10, "health": "loss spike", "message": "a loss of <b>9</b>", "remedy": ""},
    ]
    (path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    (path / "config.toml").write_text(f'out = "{path}"\n[masking]\nshare = {share}\n[train]\nsteps = {steps}\n')
    return path


def finetuned(path: Path) -> Path:
    path.mkdir()
    results = {
        "task": "cola", "metric": "matthews", "median": 0.25, "mean": 0.2, "standard_deviation": 0.05, "failed": 1,
        "seeds": [
            {"seed": 0, "metrics": {"matthews": 0.25}, "failed": None, "steps": 1200, "seconds": 9.0},
            {"seed": 1, "metrics": {}, "failed": "at the majority class", "steps": 1200, "seconds": 9.0},
        ],
        "pretrained": "RUN", "examples": {"train": 8551}, "notes": ["a note"],
    }  # fmt: skip
    (path / "results.json").write_text(json.dumps(results))
    return path


def test_runs_are_shown_alone_and_compared(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / "a", share=0.15, auc=0.75), run_folder(tmp_path / "b", share=0.4, auc=0.85)]
    html = render_page("Two shares", build_sections(runs))
    reader = read(html)
    beside = reader.cells.index("masking.share")
    assert reader.cells[beside + 1 : beside + 3] == ["0.15", "0.4"]
    assert not any(cell == "out" for cell in reader.cells), "where a run lies is no setting of interest"
    assert {"0.7500", "0.8500", "10", "60.0 s without evaluations; 150 tokens/s in training"} <= set(reader.cells)
    assert any("<b>9</b>" in cell for cell in reader.cells), "text from a run is text, not markup"


def write_fingerprint(run: Path, fingerprint: str) -> None:
    (run / "environment.json").write_text(json.dumps({"data": {"fingerprint": fingerprint}}))


def test_the_best_is_marked_only_within_a_corpus(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / "a", share=0.15, auc=0.75), run_folder(tmp_path / "b", share=0.4, auc=0.85)]
    html = render_page("Two", build_sections(runs))
    assert re.findall("<strong>(.*?)</strong>", html) == ["0.8500"], "equal and missing values have no best"
    write_fingerprint(runs[0], "one")
    write_fingerprint(runs[1], "two")
    html = render_page("Two", build_sections(runs))
    assert "<strong>" not in html and "different corpora (1: a; 2: b)" in html
    assert "so no best is marked" in " ".join(html.split())


def test_settings_are_folded_behind_the_figures(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / "a", share=0.15, auc=0.75), run_folder(tmp_path / "b", share=0.4, auc=0.85)]
    html = render_page("Two", build_sections(runs))
    assert html.index("AUC on unigram fakes</span>") < html.index("<img") < html.index("<details>")
    assert html.index("<details>") < html.index("masking.share") < html.index("</details>")


def test_losses_of_different_objectives_are_not_drawn_together(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / "a", share=0.15, auc=0.75), run_folder(tmp_path / "b", share=0.4, auc=0.85)]
    drawn = [figure.description for figure in build_sections(runs)[0].figures]
    assert "training loss of all runs" in drawn
    with (runs[0] / "config.toml").open("a") as stream:
        stream.write('[objective]\nkind = "masked-lm"\n')
    section = build_sections(runs)[0]
    assert "training loss of all runs" not in [figure.description for figure in section.figures]
    assert any("Training losses are not drawn" in note for note in section.notes)


def test_each_run_has_its_own_line(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / f"run-{one}", share=0.15, auc=0.75) for one in range(12)]
    legend = build_sections(runs)[0].legend
    assert len({(entry.color, entry.line) for entry in legend}) == len(legend) == 12


def test_time_includes_evaluations_and_findings_that_have_passed_are_marked(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "a", share=0.15, auc=0.75)
    later = [
        {"step": 20, "tokens": 18000, "eval/unigram_auc": 0.8, "evaluation_seconds": 30.0},
        {"step": 20, "tokens": 18000, "loss": 3.0, "flops": 2e9, "seconds": 120.0},
    ]
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write("".join("\n" + json.dumps(record) for record in later))
    (section,) = build_sections([run])
    assert dict(section.properties)["time"].startswith("2.5 minutes, of which evaluations 30.0 s;")
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('\n{"step": 15, "health": "not finite", "message": "skipped", "remedy": "lower the rate"}')
    (section,) = build_sections([run])
    assert section.notes[1] == "Step 15, has passed: not finite: skipped; lower the rate"
    assert section.notes[0].endswith("a loss of <b>9</b>"), "without a remedy"


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "a", share=0.15, auc=0.75)
    html = render_page("One", build_sections([run, finetuned(tmp_path / "f")]))
    assert all(re.match(r"data:image/svg\+xml;base64,|#section-\d", one) for one in read(html).addresses)
    assert "@import" not in html and "<script" not in html


def test_a_fine_tuning_shows_failed_seeds(tmp_path: Path) -> None:
    cells = read(render_page("One", build_sections([finetuned(tmp_path / "f")]))).cells
    assert "at the majority class" in cells and "a note" in cells and "median 0.2500, mean 0.2000" in cells
    assert cells[cells.index("seed") : cells.index("0")] == [
        "seed", "Matthews correlation", "failed", "steps", "seconds without evaluation",
    ]  # fmt: skip


def test_the_tasks_of_a_folder_are_shown_and_compared(tmp_path: Path) -> None:
    """A folder as `electra finetune --task glue` makes it."""
    for name, rate in (("cola", 1e-4), ("rte", 3e-4)):
        finetuned(tmp_path / name)
        (tmp_path / name / "config.toml").write_text(f'out = "{name}"\n[optimizer]\nlearning_rate = {rate}\n')
    (tmp_path / "results.json").write_text('{"tasks": {}}')
    actual = build_sections([tmp_path])
    assert [section.kind for section in actual] == ["2 fine-tunings", "fine-tuning", "fine-tuning"]
    cells = read(render_page("All", actual)).cells
    at = cells.index("optimizer.learning_rate")
    assert cells[at + 1 : at + 3] == ["0.0001", "0.0003"] and "1e-04" not in cells


def test_an_unfinished_fine_tuning_is_refused(tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    with pytest.raises(CheckpointError, match="has no results yet"):
        build_sections([tmp_path])


def test_a_folder_of_tasks_without_tasks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"average": 0.5}', encoding="utf-8")
    with pytest.raises(CheckpointError, match="the folders of the tasks are missing"):
        build_sections([tmp_path])


def test_a_run_without_reports_is_shown(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    (section,) = build_sections([tmp_path])
    assert not section.tables and read(render_page("Begun", [section])).cells


def test_an_unknown_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no run, fine-tuning, study or analysis"):
        build_sections([tmp_path])


def test_analyses_are_shown_and_damaged_files_are_named(tmp_path: Path) -> None:
    written = Path(__file__).parents[2] / "docs" / "studies" / "context" / "speed-64" / "context.json"
    (tmp_path / "context.json").write_text(text := written.read_text())
    (section,) = build_sections([tmp_path])
    assert section.title == "The gain from a longer memory" and section.kind.startswith("analysis")
    assert len(section.tables) == 2 and b"<svg" in section.figures[0].svg
    assert "1 held-out document," in section.notes[0]
    assert "speedup" in render_page("analyses", [section])
    (tmp_path / "context.json").write_text(text.replace('"readings"', '"reading"'))
    with pytest.raises(CheckpointError, match=r"a file is damaged \('readings'\)"):
        build_sections([tmp_path])


def finetuned_seeds(path: Path, *, labels: int) -> Path:
    """A fine-tuning with the folders of its two seeds, of which the second is the best."""
    folder = finetuned(path)
    results = json.loads((folder / "results.json").read_text())
    (folder / "results.json").write_text(json.dumps(results | {"best_seed": 1}))
    for seed in (0, 1):
        (folder / f"seed-{seed}").mkdir()
        records = [
            {"step": 1, "tokens": 90, "loss": 2.0 + seed},
            {"step": 1, "tokens": 90, "eval/matthews": 0.1},
            {"step": 2, "tokens": 180, "loss": 1.0},
            {"step": 2, "tokens": 180, "eval/matthews": 0.25},
        ]
        (folder / f"seed-{seed}/metrics.jsonl").write_text("\n".join(map(json.dumps, records)))
        predictions = [{"gold": f"label-{n}", "label": f"label-{n * seed}"} for n in range(labels)]
        (folder / f"seed-{seed}/dev.jsonl").write_text("\n".join(map(json.dumps, predictions)))
    return folder


def test_a_fine_tuning_has_curves_of_its_seeds_and_scores_of_its_labels(tmp_path: Path) -> None:
    [section] = build_sections([finetuned_seeds(tmp_path / "few", labels=3)])
    assert [one.description for one in section.figures] == [
        "training loss of each seed",
        "Matthews correlation on dev of each seed",
    ]
    assert [entry.name for entry in section.legend] == ["seed 0", "seed 1"]
    cells = read(render_page("x", [section])).cells
    start = cells.index("label-2")
    assert cells[start : start + 6] == ["label-2", "1.0000", "1.0000", "1.0000", "1", "1"], "of the best seed"
    assert section.folded == []


def test_the_seconds_of_a_seed_include_its_evaluations(tmp_path: Path) -> None:
    folder = finetuned_seeds(tmp_path / "timed", labels=2)
    for seed, seconds in ((0, 20.0), (1, 30.0)):
        record = {"step": 1, "tokens": 90, "eval/matthews": 0.1, "evaluation_seconds": seconds}
        (folder / f"seed-{seed}/metrics.jsonl").write_text("\n".join([json.dumps(record)] * 2))
    cells = read(render_page("x", build_sections([folder]))).cells
    start = cells.index("of which evaluation")
    assert cells[start - 1 : start + 1] == ["seconds", "of which evaluation"]
    assert [cells[cells.index(seed, start) :][:6][-2:] for seed in ("0", "1")] == [["49", "40"], ["69", "60"]]


def test_a_table_of_many_labels_is_folded(tmp_path: Path) -> None:
    sections = build_sections([finetuned_seeds(tmp_path / "many", labels=77)])
    html = render_page("x", sections)
    assert len(sections[0].tables) == 1
    assert html.index("<summary>77 labels on dev, seed 1</summary>") < html.index("label-<wbr>76")


def test_a_metric_that_was_measured_once_is_not_drawn(tmp_path: Path) -> None:
    folder = finetuned_seeds(tmp_path / "once", labels=2)
    for path in folder.glob("seed-*/metrics.jsonl"):
        path.write_text("\n".join(path.read_text().split("\n")[2:]))
    [section] = build_sections([folder])
    assert [one.description for one in section.figures] == ["training loss of each seed"]


def test_health_problems_of_a_seed_are_notes_of_its_fine_tuning(tmp_path: Path) -> None:
    folder = finetuned_seeds(tmp_path / "spike", labels=2)
    with (folder / "seed-1/metrics.jsonl").open("a") as stream:
        stream.write('\n{"step": 1, "health": "not finite", "message": "skipped", "remedy": "lower the rate"}')
        stream.write('\n{"step": 2, "health": "not finite", "message": "skipped"}')
    [section] = build_sections([folder])
    assert section.notes == [
        "a note",
        "Seed 1, step 1, has passed: not finite: skipped; lower the rate",
        "Seed 1, step 2: not finite: skipped",
    ]

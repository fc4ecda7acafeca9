"""Metrics are read by kind, and drawn."""

import json
from pathlib import Path

import pytest

from electra.errors import CheckpointError
from electra.reports.curves import plot_curves, run_figure
from electra.reports.metrics import read_metrics

RECORDS = [
    {"step": 0, "tokens": 0, "eval/unigram_auc": 0.5, "eval/discriminator_auc": None},
    {"step": 5, "health": "loss spike", "message": "", "remedy": ""},
    {"step": 10, "tokens": 1000, "loss": 3.0, "generator_loss": 2.5, "discriminator_loss": 0.5},
]


def run_folder(path: Path) -> Path:
    lines = [json.dumps(record) for record in RECORDS]
    (path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 20, "tok', encoding="utf-8")
    return path


def test_records_are_read_by_kind_without_an_incomplete_line(tmp_path: Path) -> None:
    metrics = read_metrics(run_folder(tmp_path))
    assert [len(part) for part in (metrics.evaluations, metrics.findings, metrics.reports)] == [1, 1, 1]
    assert metrics.reports[0]["generator_loss"] == 2.5


def test_curves_are_drawn_without_missing_values(tmp_path: Path) -> None:
    picture = plot_curves(run_folder(tmp_path), tmp_path / "new" / "curves.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_only_metrics_of_the_objective_are_drawn(tmp_path: Path) -> None:
    records = [
        {"step": 0, "tokens": 0, "eval/masked_lm_accuracy": 0.1, "eval/restored_accuracy": 0.2},
        {"step": 10, "tokens": 1000, "loss": -3.0, "encoder_loss": 2.5, "adversarial_loss": -1.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)))
    encoder, adversarial, filling = run_figure(tmp_path).axes
    assert [encoder.get_title(), adversarial.get_title()] == [
        "encoder loss, training",
        "adversarial loss, training",
    ]
    labels = [text.get_text() for text in filling.get_legend().get_texts()]
    assert labels == ["masked-LM accuracy", "accuracy at chosen positions"]


def test_each_loss_has_its_own_axis_and_the_figure_has_the_name_of_the_run(tmp_path: Path) -> None:
    run = tmp_path / ("a-long-name-" * 8 + "end")
    run.mkdir()
    figure = run_figure(run_folder(run))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:2] == ["generator loss, training", "discriminator loss, training"]
    generator, discriminator = figure.axes[:2]
    assert generator.lines[0].get_xdata() == [0.001], "million tokens"
    assert generator.lines[0].get_ydata() == [2.5] and discriminator.lines[0].get_ydata() == [0.5]
    name = figure.get_suptitle()
    assert name.startswith("a-long") and name.endswith("end") and "…" in name and len(name) == 60


@pytest.mark.parametrize(
    ("objective", "label"),
    [
        ('kind = "masked-lm"\ngenerator_weight = 1.0', "masked-LM loss"),
        ('kind = "two-stage"\ngenerator_weight = 1.0\ndiscriminator_weight = 50.0', "generator loss"),
    ],
)
def test_a_masked_language_model_is_no_generator(objective: str, label: str, tmp_path: Path) -> None:
    """Nor is the generator of the first of two stages, which has no other loss, a masked language model alone."""
    records = [{"step": n, "tokens": n, "loss": 3.0, "generator_loss": 2.5} for n in range(3)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "config.toml").write_text(f"[objective]\n{objective}\n")
    (axes,) = run_figure(tmp_path).axes
    assert axes.get_title() == f"{label}, training" and axes.lines[0].get_label() == label


def test_a_folder_without_metrics_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no metrics\.jsonl"):
        read_metrics(tmp_path)


def test_a_legend_covers_no_curve(tmp_path: Path) -> None:
    names = ["masked_lm_accuracy", "masked_lm_sample_accuracy", "restored_accuracy"]
    records = [
        {"step": n, "tokens": 1000 * n, **{f"eval/{name}": (n * k) % 7 / 7 for k, name in enumerate(names, 1)}}
        for n in range(30)
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)))
    figure = run_figure(tmp_path)
    figure.draw_without_rendering()
    [axes] = figure.axes
    legend, label = axes.get_legend().get_window_extent(), axes.xaxis.label.get_window_extent()
    assert not legend.overlaps(axes.get_window_extent()) and not legend.overlaps(label)
    assert legend.y0 >= 0 and legend.x0 >= 0 and legend.x1 <= figure.bbox.x1


def test_titles_do_not_touch_the_labels_of_the_panels_above(tmp_path: Path) -> None:
    names = ["generator_loss", "discriminator_loss", "sentence_loss", "correction_loss"]
    records = [{"step": n, "tokens": 1000 * n, **dict.fromkeys(names, 1.0 / n)} for n in range(1, 9)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)))
    figure = run_figure(tmp_path)
    figure.draw_without_rendering()
    above, _, below, _ = figure.axes
    label, title = above.xaxis.label.get_window_extent(), below.title.get_window_extent()
    assert label.y0 - title.y1 > 0.7 * title.height


def test_only_areas_under_a_curve_have_a_line_of_chance(tmp_path: Path) -> None:
    record = {"step": 0, "tokens": 0, "eval/unigram_auc": 0.6, "eval/masked_lm_accuracy": 0.1}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record))
    detection, prediction = run_figure(tmp_path).axes
    assert [text.get_text() for text in detection.texts] == ["chance"] and not prediction.texts

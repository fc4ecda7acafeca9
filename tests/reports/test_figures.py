"""Figures of analyses and studies: markers are not cut off, lines have labels, labels keep a margin."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from electra.reports.analyses import parts_of_speech, rescore
from electra.reports.figures import new_figure
from electra.reports.study_figure import study_figure
from electra.reports.study_results import ArmResult


def value(share: float) -> dict[str, Any]:
    return {"value": share, "interval": [share, share], "low": share, "high": share}


def a_rescoring() -> Any:
    rates = {name: value(0.4) for name in ("first_best", "random", "oracle")}
    model = {"model": "nano", "score": "pll", "alone": value(0.4), "rescored": value(0.4)}
    curve = [{"strength": 1, "rate": 0.4}, {"strength": 2, "rate": 0.5}]
    return rescore.draw({**rates, "length_alone": {"rescored": value(0.4)}, "models": [{**model, "curve": curve}]})


def a_study() -> Any:
    row = ArmResult("base", "as it is", 1.0, (), 0, 0, (80.0, 81.0), None, None, "", None, None)
    settings = {"shares": [1.0], "control": "base", "suite": [], "title": "", "flops": 1}
    return study_figure({"arms": {"base": {"x": None}}, **settings}, [row])


def test_markers_at_zero_are_not_cut_off() -> None:
    names = ("clean_suspected", "untouched_suspected", "missed")
    group = {name: value(0.0) for name in names} | {
        f"{name}_at_equal_difficulty": None for name in ("clean_suspected", "missed")
    }
    titles = ("all tokens", "tag", "position")
    results = {"groups": {title: [{**group, "name": "one"}] for title in titles}}
    figure = parts_of_speech.draw({**results, "model": "nano", "data": "text", "threshold": 0.5})
    assert all(axes.get_xlim()[0] < 0 for axes in figure.axes)


def test_the_line_of_the_first_best_has_a_label_and_titles_have_one_size() -> None:
    left, right = a_rescoring().axes
    assert "first best" in [text.get_text() for text in right.get_legend().get_texts()]
    assert left.title.get_fontsize() == right.title.get_fontsize()


def test_the_line_of_a_study_has_a_label() -> None:
    [axes] = a_study().axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["the control: as it is"]
    [line] = [line for line in axes.lines if line.get_label() == "the control: as it is"]
    assert set(line.get_xdata()) == {80.5}, "its mean"


@pytest.mark.parametrize("draw", [a_rescoring, a_study])
def test_no_legend_warns_on_a_slow_machine(draw: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    hours = itertools.count()
    monkeypatch.setattr("matplotlib.legend.time", SimpleNamespace(perf_counter=lambda: 3600 * next(hours)))
    draw().canvas.draw()  # a warning is an error
    assert next(hours) > 0, "the clock was read"


def test_labels_do_not_touch_the_edge() -> None:
    drawing = new_figure(4, 3)
    axes = drawing.subplots()
    axes.set_yticks([0], ["a_long_name_of_a_paradigm"])
    drawing.canvas.draw()
    assert axes.get_tightbbox().x0 >= 0.09 * drawing.dpi

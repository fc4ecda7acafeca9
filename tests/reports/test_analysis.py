"""Tables of analyses: numbers are not broken on any console, and have one notation."""

import io
from typing import Any

from rich.console import Console

from electra.reports.analysis import AnalysisReport


def page(name: str, results: dict[str, Any], width: int = 80) -> str:
    written = io.StringIO()
    console = Console(file=written, width=width, markup=False, emoji=False, highlight=False)
    console.print(AnalysisReport(name, results))
    return written.getvalue()


def value(value: float, low: float, high: float) -> dict[str, Any]:
    return {"value": value, "interval": [low, high], "low": low, "high": high}


def detected() -> dict[str, Any]:
    names = ("precision", "recall", "f0.5", "average_precision", "auc")
    metrics = {name: value(0.25, 0.125, 0.5) for name in names}
    more: dict[str, Any] = {"long": 0, "unseen": 0, "curve": []}
    bucket = {"bucket": "up to 10 %", "sentences": 3, "words": 30, "errors": 3}
    in_buckets = {"buckets": [{**metrics, "flagged": value(0.5, 0.5, 0.5), "bucket": "up to 10 %"}]}
    models = [
        {"model": "nano", "kind": "discriminator", "pooling": "max", "threshold": -0.001},
        {"model": "rare words", "kind": "baseline", "pooling": "", "threshold": -1.3862943611},
        {"model": "every word", "kind": "baseline", "pooling": "", "threshold": 0.0},
    ]
    part = {"sentences": 1, "words": 30, "errors": 3}
    return {
        "data": "text.tsv", "tune": None, "parts": {"tune": part, "scored": part}, "resamples": 20,
        "references": 0, "models": [{**one, **metrics, **more, **in_buckets} for one in models],
        "buckets": [bucket],
        "differences": [
            {"model": "rare words", "than": "nano"}
            | {name: value(-0.25, -0.5, -0.00001) for name in ("f0.5", "average_precision", "auc")}
        ],
    }  # fmt: skip


def test_numbers_of_detect_are_not_broken_and_have_one_notation() -> None:
    shown = page("detect", detected())
    assert "…" not in shown
    assert shown.count("(0.125–0.500)") == 15
    assert shown.count("(-0.500 to") == 3 and "-0.000" not in shown
    assert " ." not in shown.replace(" .src", "")


def test_the_threshold_of_rare_words_is_shown_as_a_count() -> None:
    shown = page("detect", detected(), width=200)
    row = next(line for line in shown.splitlines() if "rare words" in line)
    assert "-1.39" in row
    assert "rare words: flags words that occur at most 3 times in the sentences for thresholds" in shown
    results = detected()
    results["models"][1]["threshold"] = 0.0
    assert "flags words that do not occur in the sentences" in page("detect", results, width=200)


def of_generator() -> dict[str, Any]:
    band = {"name": "top 10,000", "tokens": 1234, "loss": 6.5, "entropy": 5.25, "original": 0.125}
    band |= {f"top_{k}": 0.25 for k in (1, 5, 10, 50)} | {"share_of_fakes": 0.5, "share_of_replaced": 0.5}
    reading: dict[str, Any] = {
        "share": 0.15, "temperature": 1.0, "loss": value(5.37, 5.15, 5.56), "perplexity": 214.9,
        "entropy": value(5.26, 5, 6), "original": value(0.25, 0, 1), "calibration": {"error": 0.032, "bins": []},
        "special": 0.0008, "alike": [{"name": "first letter", "fakes": 0.5, "chance": 0.25}], "bands": [band],
        "diversity": {"distinct_fakes": 358, "distinct_text": 335, "entropy_fakes": 5.5, "entropy_text": 5.4},
    }  # fmt: skip
    reading |= {f"top_{k}": value(0.125, 0, 1) for k in (1, 5, 10, 50)}
    model = {"model": "nano-run", "step": 10852, "readings": [reading], "examples": []}
    return {
        "models": [model], "texts": 1, "data": "data", "tokens": 1, "length": 126, "resamples": 20, "tags": True,
    }  # fmt: skip


def test_numbers_of_a_generator_are_not_broken() -> None:
    for width in (80, 120, 200):
        shown = page("generator", of_generator(), width)
        assert "…" not in shown
        for figure in ("5.37 (5.15–5.56)", "12.5%", "0.032", "0.08%", "358 (335)", "5.50 (5.40)", "6.50"):
            assert figure in shown, (figure, width)


def of_words(missed: float) -> dict[str, Any]:
    names = ("clean_suspected", "untouched_suspected", "clean_suspected_at_equal_difficulty")
    group = {"name": "all tokens", "tokens": 1000, "fakes": 360, "places": 450} | dict.fromkeys(names)
    others = ("auc", "clean_logit", "untouched_logit", "fake_logit", "original_probability", "entropy", "same")
    group |= dict.fromkeys((*others, "original_log_probability", "fake_log_probability"))
    group |= {"missed": value(missed, missed - 0.01, missed), "missed_at_equal_difficulty": value(1.0, 1.0, 1.0)}
    return {
        "model": "nano", "data": "dev.conllu", "sentences": 1, "words": 900, "draws": 3, "share": 0.15,
        "temperature": 1.0, "resamples": 20, "threshold": 0.5, "frequencies": None, "rebuilt": 0, "suspects": [],
        "objective": "replaced-token", "groups": {"all tokens": [group]}, "effects": {"missed": None},
    }  # fmt: skip


def test_a_lower_threshold_is_suggested_if_hardly_anything_is_flagged() -> None:
    assert "--threshold 0.12" in page("parts-of-speech", of_words(0.94))
    assert "--threshold" not in page("parts-of-speech", of_words(0.6))


def test_an_interval_without_width_is_left_out_with_a_note() -> None:
    shown = " ".join(page("parts-of-speech", of_words(0.94), width=160).split())
    assert "94.0 (93.0–94.0)" in shown and "100.0 " in shown and "100.0 (" not in shown
    assert (
        "a number without an interval is the same in all resamples" in shown and "1 sentence, 900 words" in shown
    )


def of_rescoring() -> dict[str, Any]:
    rate, lists = value(0.25, 0.125, 0.5), ("weights", "strengths", "length_penalties")
    rescored = {"rescored": rate, "to_first_best": rate, "better": 12, "worse": 3} | dict.fromkeys(lists, (1.0,))
    model = rescored | {"model": "nano", "score": "pll", "alone": rate, "to_length_alone": rate}
    return {
        "scale": "log", "utterances": 20, "reference_words": 200, "hypotheses": 60, "folds": 5, "resamples": 20,
        "normalisation": "as they are", "left_out": {}, "first_best_added": 0, "meanings": {}, "models": [model],
        "length_alone": rescored | {"better": 4, "worse": 5},
    } | dict.fromkeys(("first_best", "random", "oracle"), rate)  # fmt: skip


def test_utterances_that_rescoring_makes_better_are_told_from_those_that_it_makes_worse() -> None:
    lines = page("rescore", of_rescoring(), width=160).splitlines()
    start = next(number for number, line in enumerate(lines) if "better" in line and "worse" in line)
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines[start + 2 : start + 4]]
    assert [(name, better, worse) for name, *_, better, worse in cells] == [
        ("length penalty alone", "4", "5"), ("pll", "12", "3"),
    ]  # fmt: skip

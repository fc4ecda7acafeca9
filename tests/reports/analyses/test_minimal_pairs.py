"""The tables of minimal pairs: numbers are not broken on a narrow console."""

import io

from rich.console import Console

from electra.reports.analyses.minimal_pairs import build_tables


def test_numbers_are_not_broken_with_long_names_and_many_scores() -> None:
    names = ["determiner_noun_agreement_with_adj_irregular_1", "wh_vs_that_with_gap_long_distance"]
    figure = {"value": 0.25, "interval": [0.125, 1.0], "pairs": 1000}
    score = {
        "score": "log-original-sum",
        "model": "my-run",
        "overall": figure,
        "fields": {"syntax_semantics": figure},
        "lengths": dict.fromkeys(("shorter", "equal", "longer"), figure),
        "paradigms": dict.fromkeys(names, figure),
    }
    paradigms = [{"name": name, "field": "syntax_semantics", "pairs": 1000} for name in names]
    results = {"scores": [score] * 8, "paradigms": paradigms, "differences": []}
    written = io.StringIO()
    for table in build_tables(results):
        Console(file=written, width=120).print(table)
    shown = written.getvalue()
    assert "…" not in shown
    assert shown.count(" 25.0 ") >= 16

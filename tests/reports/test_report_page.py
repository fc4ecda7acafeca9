"""The page's tables: figures stay in one piece, sentences may be broken."""

from rich.table import Table

from electra.reports.page import Section, page


def test_figures_are_not_broken_and_sentences_are() -> None:
    table = Table("group", "missed %", "proposed")
    table.add_row("  NOUN", "86.9\n84.9-88.7", "the 0.24, a 0.07, in 0.04")
    html = page("a page", [Section("a section", "an analysis", tables=[table])])
    assert '<td class="figures">86.9\n84.9-88.7</td>' in html
    assert "<td>  NOUN</td>" in html and "<td>the 0.24, a 0.07, in 0.04</td>" in html

"""The page's tables and figures: numbers are right-aligned and not wrapped, figures zoom on a click."""

from rich.table import Table

from electra.reports.page import Figure, Section, render_page


def test_numbers_are_not_wrapped_and_sentences_are() -> None:
    table = Table("group", "missed %", "proposed")
    table.add_row("  NOUN", "0.8690 (0.8490–0.8870)", "the 0.24, a 0.07, in 0.04")
    table.add_row("  VERB", "–", "a 0.5")
    html = render_page("a page", [Section("a section", "an analysis", tables=[table])])
    assert '<th scope="col" class="numeric"><span>missed %</span></th>' in html
    assert '<td class="numeric">0.8690 (0.8490–0.8870)</td>' in html and '<td class="numeric">–</td>' in html
    assert "<td><span>  NOUN</span></td>" in html and "<td>the 0.24, a 0.07, in 0.04</td>" in html


def test_wide_tables_scroll_by_keyboard_and_figures_zoom_without_a_script() -> None:
    table = Table("group", "figure")
    html = render_page(
        "a page", [Section("one", "kind", tables=[table], figures=[Figure("what it shows", b"<svg/>")])]
    )
    assert '<div class="wide" tabindex="0"><table>' in html
    assert '<input type="checkbox" aria-label="enlarge the figure"><img' in html and 'alt="what it shows"' in html
    assert "<script" not in html


def test_names_and_texts_mark_up_nothing() -> None:
    """A picture in an img element runs no script."""
    markup = "<script>alert(1)</script>'\"><img src=x onerror=alert(1)>{{ 7 * 7 }}"
    table = Table(markup)
    table.add_row(markup)
    figure = Figure(markup, b"<svg onload='alert(1)'/>")
    html = render_page(markup, [Section(markup, markup, [(markup, markup)], [markup], [table], [figure])])
    assert (
        "<script" not in html and "<img src=x" not in html and "49" not in html and html.count("&lt;script") >= 9
    )
    assert "onload" not in html and 'src="data:image/svg+xml;base64,' in html


def test_names_are_broken_at_separators_and_never_inside_a_number() -> None:
    table = Table("run", "masked-lm-2.8e+14-0", "lr_1e-05/last")
    table.add_row("a-1", "0.5", "0.6")
    table.add_row("-0.5", "0.5", "0.6")
    table.add_row("x, -1 (-2)", "0.5", "0.6")
    html = render_page("a page", [Section("a section", "a run", tables=[table])])
    assert "<span>masked-<wbr>lm-<wbr>2.8e+14-<wbr>0</span>" in html
    assert "<span>lr_<wbr>1e-05/<wbr>last</span>" in html and "<td><span>a-<wbr>1</span></td>" in html
    assert "<span>-0.5</span>" in html and "<span>x, -1 (-2)</span>" in html, "no break behind a sign"

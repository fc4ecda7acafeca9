"""Tables on narrow consoles, and the notation of numbers."""

import io

import pytest
from rich.console import Console

from electra.reports.tables import NumericTable, format_interval, format_number, format_with_interval


def shown(table: NumericTable, width: int) -> str:
    written = io.StringIO()
    Console(file=written, width=width).print(table)
    return written.getvalue()


def wide() -> NumericTable:
    columns = [f"average number {one}" for one in range(8)]
    table = NumericTable("what", *columns, title="a title")
    table.add_row("a first row", *(f"0.{one}00 (0.100–0.900)" for one in range(8)))
    table.add_row("supercalifragilistic words", *("+1.00 (-2.00 to +3.00)" for _ in range(8)))
    return table


@pytest.mark.parametrize("width", [80, 120, 300])
def test_nothing_is_truncated_at_any_width(width: int) -> None:
    page = shown(wide(), width)
    assert "…" not in page and max(map(len, page.splitlines())) <= width
    for one in range(8):
        assert f"0.{one}00" in page
    assert page.count("(0.100–0.900)") == page.count("(-2.00 to +3.00)") == 8
    assert page.count("a title") == 1


def test_a_wide_table_is_split_and_each_part_has_the_keys() -> None:
    parts = shown(wide(), 80).count("┏")
    assert parts > 1
    assert shown(wide(), 80).count("a first row") == parts
    assert shown(wide(), 300).count("┏") == 1


def test_headers_wrap_before_a_table_is_split() -> None:
    table = NumericTable("", "a long header of words", "another long header", title="")
    table.add_row("name", "1.0", "2.0")
    lines = shown(table, 34).splitlines()
    assert sum("┏" in line for line in lines) == 1
    assert any("a long" in line and "of words" not in line for line in lines)


def test_all_key_columns_start_each_part() -> None:
    table = NumericTable("model", "step", "one", "two", title="", keys=2)
    table.add_row("nano", "1,000", "1" * 20, "2" * 20)
    page = shown(table, 45)
    assert page.count("nano") == page.count("1,000") == 2


def test_sections_and_line_breaks_are_kept() -> None:
    table = NumericTable("", "figure", title="")
    table.add_row("first", "1.0", end_section=True)
    table.add_row("second", "2.0")
    assert "├" in shown(table, 80)


def test_numbers_have_one_notation_and_zero_has_no_minus() -> None:
    assert format_number(0.1661, 3) == "0.166"
    assert format_number(-0.000001, 5) == "0.00000"
    assert format_number(-0.001, 2, sign=True) == "+0.00"
    assert format_interval([0.25, 0.5], 1) == "0.2–0.5"
    assert format_interval([-0.3667, -0.0001], 2, sign=True) == "-0.37 to +0.00"
    assert format_with_interval(0.091, [0.066, 0.148], 3) == "0.091 (0.066–0.148)"


def test_an_interval_without_width_is_left_out() -> None:
    assert format_with_interval(100.0, [100.0, 100.0], 1) == "100.0"
    assert format_with_interval(0.0, [0.0, 2.3], 1) == "0.0 (0.0–2.3)"

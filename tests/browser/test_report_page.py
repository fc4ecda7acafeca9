"""The page of `electra report` in a browser: a wide table scrolls beside its first column, and shows it."""

from pathlib import Path
from typing import Any

import pytest
from contrast import CONTRASTS
from rich.table import Table

from electra.reports.page import Section, render_page


@pytest.fixture
def wide(page: Any, tmp_path: Path) -> Any:
    """A page with a table of 14 runs."""
    table = Table("held-out metric", *(f"continue-2.8e+14-{number}" for number in range(14)))
    table.add_row("steps", *["5,238 of 5,814"] * 14)
    table.add_row("discriminator precision at 0.5", *["0.8338"] * 14)
    file = tmp_path / "page.html"
    file.write_text(render_page("wide", [Section("a section", "14 runs", tables=[table])]), encoding="utf-8")
    page.set_viewport_size({"width": 1600, "height": 900})
    page.goto(file.as_uri())
    return page


def test_a_wide_table_does_not_squeeze_its_first_column(wide: Any) -> None:
    lines = """all => all.map(
        one => Math.round(one.offsetHeight / parseFloat(getComputedStyle(one).lineHeight)))"""
    assert wide.locator("td:first-child span").evaluate_all(lines) == [1, 1]
    assert wide.evaluate("document.documentElement.scrollWidth") == 1600, "only the table scrolls"


def test_the_first_column_stays_when_the_table_is_scrolled(wide: Any) -> None:
    label, number = wide.locator("td").nth(0), wide.locator("td").nth(1)
    before = label.bounding_box()["x"], number.bounding_box()["x"]
    scrolled = wide.locator(".wide").evaluate("table => { table.scrollLeft = 200; return table.scrollLeft; }")
    assert scrolled > 50
    assert label.bounding_box()["x"] == before[0]
    assert number.bounding_box()["x"] == pytest.approx(before[1] - scrolled)


def test_a_shadow_shows_that_there_is_more_to_the_right(wide: Any) -> None:
    def right_edge() -> bytes:
        box = wide.locator(".wide").bounding_box()
        clip = {"x": box["x"] + box["width"] - 12, "y": box["y"] + box["height"] - 12, "width": 12, "height": 2}
        picture: bytes = wide.screenshot(clip=clip)
        return picture

    there_is_more = right_edge()
    wide.locator(".wide").evaluate("table => { table.scrollLeft = table.scrollWidth; }")
    assert right_edge() != there_is_more
    at_end = right_edge()
    wide.locator(".wide").evaluate("table => { table.style.background = 'none'; }")
    assert right_edge() == at_end, "no shadow at the end of the table"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_and_links_have_contrast(page: Any, tmp_path: Path, scheme: str) -> None:
    table = Table("metric", "a run")
    table.add_row("steps", "10")
    section = Section("a run", "pre-training", notes=["a note"], tables=[table], folded=[table])
    (tmp_path / "page.html").write_text(render_page("a report", [section] * 2), encoding="utf-8")
    page.emulate_media(color_scheme=scheme)
    page.goto((tmp_path / "page.html").as_uri())
    contrasts = page.evaluate(CONTRASTS)
    assert any(name.startswith("A ") for name, _ in contrasts)
    assert not {name: contrast for name, contrast in contrasts if contrast < 4.5}

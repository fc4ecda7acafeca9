"""Language codes and names."""

from pathlib import Path

import pytest

from electra.preparation.languages import NAMES, find_language_code


def test_the_codes_are_those_of_the_library() -> None:
    py3langid = pytest.importorskip("py3langid")
    assert set(NAMES) == {code for code, _ in py3langid.rank("")}


def test_the_page_lists_them() -> None:
    page = (Path(__file__).parents[2] / "docs/guides/data-preparation.md").read_text(encoding="utf-8")
    listed = " ".join(page.split())
    assert all(f"`{code}` {name}" in listed for code, name in NAMES.items())


@pytest.mark.parametrize(
    ("word", "code"),
    [("English", "en"), ("englisch", "en"), ("german", "de"), ("EN", "en"), ("deutsch", None), ("xx", None)],
)
def test_the_name_of_a_language_gives_its_code(word: str, code: str | None) -> None:
    assert find_language_code(word) == code

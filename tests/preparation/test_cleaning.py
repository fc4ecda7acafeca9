"""Which documents are kept."""

import pytest

from electra.preparation.cleaning import DocumentFilter

GERMAN = "Die Fähre verlässt die Insel um sieben und kommt am Mittag zurück."
ENGLISH = "The ferry leaves the island at seven and comes back at noon."


def test_lengths() -> None:
    document_filter = DocumentFilter(least_characters=10, most_characters=20)
    assert (
        document_filter.exclusion_reason("a" * 9) == "too short"
        and document_filter.exclusion_reason("a" * 21) == "too long"
    )
    assert (
        document_filter.exclusion_reason("a" * 10) is None and document_filter.exclusion_reason("a" * 20) is None
    )
    [problem] = DocumentFilter(30, 20).problems()
    assert problem == "--most-characters: must be at least --least-characters (30), got 20"


def test_languages() -> None:
    pytest.importorskip("py3langid")
    document_filter = DocumentFilter(languages=("de", "fr"))
    assert (
        document_filter.exclusion_reason(GERMAN) is None
        and document_filter.exclusion_reason(ENGLISH) == "another language"
    )
    assert document_filter.exclusion_reason("1234 " * 400 + GERMAN * 20 + "5678 " * 400) is None, (
        "its middle decides"
    )
    assert not list(document_filter.problems())
    [problem] = DocumentFilter(languages=("en", "german")).problems()
    assert problem == "--language: 'german' is not a known language code; did you mean 'de'?"
    [problem] = DocumentFilter(languages=("xx",)).problems()
    assert problem == "--language: 'xx' is not a known language code; docs/guides/data-preparation.md lists them"

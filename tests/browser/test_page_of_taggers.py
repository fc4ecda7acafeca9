"""The page of `electra serve` for a model that tags words."""

from typing import Any

import httpx
import pytest
from contrast import CONTRASTS
from waiting import LIMIT

NAMES = ["Ann", "Lee", "met", "Bo", "in", "New", "York", "Rio"]


def tagged(page: Any, address: str, words: list[str], tags: list[str], scheme: str) -> None:
    """Open the page of a tagger, whose model predicts these tags."""
    models = httpx.get(f"{address}/models", timeout=LIMIT).json()
    models["models"][0]["scheme"] = scheme
    one = {"words": words, "tags": tags, "scores": [(90 + n) / 100 for n in range(len(tags))]}
    page.route("**/models", lambda route: route.fulfill(json=models))
    answer = {"model": "tags", "task": "tagging", "predictions": [one]}
    page.route("**/predict", lambda route: route.fulfill(json=answer))
    page.goto(address)
    page.locator(".prediction").wait_for()


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        ("bio", "B-PER I-PER O B-PER O B-LOC I-LOC B-LOC"),
        ("iob1", "I-PER I-PER O I-PER O I-LOC I-LOC B-LOC"),
        ("bioes", "B-PER E-PER O S-PER O B-LOC E-LOC S-LOC"),
        ("bmes", "B-PER E-PER O S-PER O B-LOC E-LOC S-LOC"),
        ("bilou", "B-PER L-PER O U-PER O B-LOC L-LOC U-LOC"),
    ],
)
def test_entities_are_marked_as_their_scheme_joins_words(
    page: Any, addresses: dict[str, str], scheme: str, tags: str
) -> None:
    tagged(page, addresses["tags"], NAMES, tags.split(), scheme)
    assert page.locator(".entity").all_inner_texts() == [
        "Ann Lee\u00a0PER",
        "Bo\u00a0PER",
        "New York\u00a0LOC",
        "Rio\u00a0LOC",
    ]
    titles = page.locator(".entity").evaluate_all("all => all.map(one => one.title)")
    assert titles == ["PER .90, .91", "PER .93", "LOC .95, .96", "LOC .97"]
    colors = page.locator(".entity").evaluate_all("all => all.map(one => getComputedStyle(one).backgroundColor)")
    assert colors[0] == colors[1] != colors[2] == colors[3]
    assert (
        page.locator(".prediction").text_content()
        == "Ann Lee\u00a0PER met Bo\u00a0PER in New York\u00a0LOC Rio\u00a0LOC "
    )
    assert "PER Ann Lee, PER Bo, LOC New York" in page.get_by_role("status").text_content()


def test_tags_without_a_scheme_are_of_one_word(page: Any, addresses: dict[str, str]) -> None:
    tagged(page, addresses["tags"], ["the", "old", "cat"], ["DET", "ADJ", "ADJ"], "none")
    assert page.locator(".entity").all_inner_texts() == ["the\u00a0DET", "old\u00a0ADJ", "cat\u00a0ADJ"]
    page.get_by_text("Words are what is between spaces.").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_entities_have_contrast(page: Any, addresses: dict[str, str], scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    tagged(page, addresses["tags"], ["Ann", "in", "Rio"], ["B-PER", "O", "B-LOC"], "bio")
    page.locator(".entity").first.wait_for()
    for hue in range(0, 360, 45):
        page.locator(".entity").evaluate_all(
            "(all, hue) => all.forEach(e => e.style.setProperty('--hue', hue))", hue
        )
        assert not {name: contrast for name, contrast in page.evaluate(CONTRASTS) if contrast < 4.5}, hue


def test_a_taggers_own_words_and_tags_are_shown(page: Any, addresses: dict[str, str]) -> None:
    page.goto(addresses["tags"])
    page.locator(".prediction").wait_for()
    assert page.get_by_label("Text", exact=True).input_value().endswith("in the city .")
    shown = page.locator(".prediction").evaluate(
        "box => { box.querySelectorAll('small').forEach(one => one.remove()); return box.textContent; }"
    )
    assert shown.split() == page.get_by_label("Text", exact=True).input_value().split()

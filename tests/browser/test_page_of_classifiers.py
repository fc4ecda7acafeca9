"""The page of `electra serve` for a model that predicts labels."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from waiting import LIMIT


def classified(page: Any, address: str, scores: Mapping[str, float], **answer: Any) -> None:
    """Open the page of a classifier, whose model predicts these scores."""
    body = {"model": "labels", "task": "x", "predictions": [{**answer, "scores": scores}]}
    page.route("**/predict", lambda route: route.fulfill(json=body))
    page.goto(address)
    page.locator(".prediction").wait_for()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"label": "label 1"}, "10 more labels: 1.6% together"),
        ({"labels": ["label 1"]}, "10 more labels: each at most 0.2%"),
    ],
)
def test_labels_beyond_the_twentieth_are_counted_and_shown_on_demand(
    page: Any, addresses: dict[str, str], answer: dict[str, Any], said: str
) -> None:
    scores = {f"label {n}": 0.04 if n <= 20 else 0.0016 for n in range(30, 0, -1)}
    classified(page, addresses["labels"], scores, **answer)
    rows = page.locator("#panels tr")
    assert rows.count() == 30 and sum(row.is_visible() for row in rows.all()) == 20
    page.get_by_text(said).focus()
    page.keyboard.press("Enter")
    assert all(row.is_visible() for row in rows.all())
    classified(page, addresses["labels"], {"a": 0.75, "b": 0.25}, **answer)
    assert page.locator("details").count() == 0


def test_a_share_is_not_rounded_to_all(page: Any, addresses: dict[str, str]) -> None:
    classified(page, addresses["labels"], {"a": 0.9954, "b": 0.99996, "c": 1.0, "d": 0.0046}, label="a")
    assert page.locator("#panels .figure").all_inner_texts() == ["100%", ">99.9%", "99.5%", "0.5%"]


def test_both_texts_of_a_pair_are_named(page: Any, addresses: dict[str, str]) -> None:
    models = httpx.get(f"{addresses['labels']}/models", timeout=LIMIT).json()
    models["models"][0] |= {"pairs": True, "examples": [["a dog", "the mat"]]}
    page.route("**/models", lambda route: route.fulfill(json=models))
    classified(page, addresses["labels"], {"a": 0.75, "b": 0.25}, label="a")
    assert page.get_by_label("First text").input_value() == "a dog"
    assert page.get_by_label("Second text").input_value() == "the mat"

"""The page of `electra serve` in a browser: with a mouse, with a keyboard, and for a screen reader."""

import json
import re
from typing import Any

import httpx
import pytest
from contrast import CONTRASTS
from waiting import LIMIT

TEXT = "The cat sat on the mat."


def score(page: Any, address: str, text: str = TEXT, *, pieces: bool = True) -> None:
    """Open the page and score a text on it; show its tokens, or its words."""
    page.goto(address)
    page.locator(".token").first.wait_for()  # the first example
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Score").click()
    page.wait_for_function("text => currentText === text", arg=text)
    if pieces and page.get_by_label("Show the pieces of words").is_visible():
        page.get_by_label("Show the pieces of words").check()


def slide(page: Any, to: float) -> None:
    page.get_by_label("Threshold for flagging").fill(str(to))


def expected(address: str, text: str = TEXT, model: int = 1) -> dict[str, Any]:
    body = {"texts": [text], "model": model}
    return httpx.post(f"{address}/score", json=body, timeout=LIMIT).json()["results"][0]


def middle(probabilities: list[float]) -> float:
    """A threshold with probabilities on both sides."""
    actual = round(sorted(probabilities)[len(probabilities) // 2] - 0.005, 2)
    assert min(probabilities) < actual <= max(probabilities)
    return actual


def test_every_token_is_a_button_that_says_its_probability(page: Any, addresses: dict[str, str]) -> None:
    score(page, addresses["one"])
    right = expected(addresses["one"])
    tokens = page.locator(".token")
    assert tokens.all_text_contents() == right["tokens"]
    assert page.locator(".tokens").text_content() == TEXT
    for number, p in enumerate(right["probabilities"]):
        assert float(tokens.nth(number).evaluate("token => token.style.getPropertyValue('--p')")) == p
    labels = [tokens.nth(number).get_attribute("aria-label") for number in range(len(right["tokens"]))]
    assert all(
        re.fullmatch(re.escape(token) + r", (<0\.1|\d+(\.\d)?)% likely replaced(, flagged)?", label)
        for token, label in zip(right["tokens"], labels, strict=True)
    )


@pytest.mark.parametrize("given", [0.0, None, 0.9])
def test_the_slider_flags_what_is_at_or_above_it(
    page: Any, addresses: dict[str, str], given: float | None
) -> None:
    score(page, addresses["one"])
    probabilities = expected(addresses["one"])["probabilities"]
    threshold = middle(probabilities) if given is None else given
    slide(page, threshold)
    over = [p >= threshold for p in probabilities]
    tokens = page.locator(".token")
    assert [name.endswith(" over") for name in tokens.evaluate_all("all => all.map(t => t.className)")] == over
    assert [label.endswith("flagged") for label in tokens.evaluate_all("all => all.map(t => t.ariaLabel)")] == over
    assert page.locator("#counts").text_content() == f"{sum(over)} of {len(over)} words flagged"
    assert page.locator(".flagged button").count() == sum(over)
    assert f"{sum(over)} of" in page.get_by_label("Threshold for flagging").get_attribute("aria-valuetext")
    if any(over):  # color is not the only sign
        style = tokens.nth(over.index(True)).evaluate(
            "t => [getComputedStyle(t).fontWeight, getComputedStyle(t).borderBottomColor,"
            " getComputedStyle(t, '::after').content]"
        )
        assert int(style[0]) >= 600 and style[1] != "rgba(0, 0, 0, 0)" and re.search(r"\d\.\d\d|\.\d\d", style[2])


def test_a_click_shows_the_generators_proposals_and_puts_one_in(page: Any, addresses: dict[str, str]) -> None:
    score(page, addresses["one"])
    page.locator(".token").nth(1).click()
    rows = page.locator(".details tbody tr")
    rows.first.wait_for()
    body = {"text": TEXT, "tokens": [1], "count": 8}
    right = httpx.post(f"{addresses['one']}/proposals", json=body, timeout=LIMIT).json()
    proposed = [one["token"] for one in right["places"][0]["proposals"]]
    assert page.locator(".details tbody button").all_text_contents() == proposed
    assert page.locator(".token").nth(1).get_attribute("aria-expanded") == "true"
    assert proposed[0] in page.get_by_role("status").text_content()
    page.locator(".details tbody button").first.click()
    new = f"The {proposed[0].removeprefix('##')} sat on the mat."
    page.wait_for_function("text => currentText === text", arg=new)
    assert page.get_by_label("Text", exact=True).input_value() == new


def test_unknown_words_have_no_figure(page: Any, addresses: dict[str, str]) -> None:
    score(page, addresses["one"], "the 좋은 cat")
    slide(page, 0)
    unknown = page.locator(".token.unknown")
    assert unknown.all_text_contents() == ["좋은"]
    assert unknown.get_attribute("aria-label") == "좋은, not in the vocabulary"
    assert unknown.get_attribute("title") == "좋은: not in the vocabulary"
    assert page.locator(".token.over").all_text_contents() == ["the", "cat"], "the others are flagged"
    assert page.locator("#counts").text_content() == "2 of 3 words flagged"
    assert page.locator(".flagged button").count() == 2 and "좋은" not in page.locator(".flagged").text_content()
    page.get_by_text(
        "1 of 3 tokens is not in the vocabulary of this model: its figure says nothing, "
        "and its word (dotted line) is not flagged."
    ).wait_for()
    page.locator(".token").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "cat", "the next flagged word"
    page.locator(".flagged button").first.wait_for()
    unknown.click()
    page.locator(".details tbody tr").first.wait_for()
    shown = page.locator(".details").text_content()
    assert shown.startswith("“좋은”: not in the vocabulary") and "It gives" not in shown
    score(page, addresses["one"])
    assert not page.get_by_text("not in the vocabulary of this model").is_visible()


def test_a_word_with_an_unknown_piece_is_unknown(page: Any, addresses: dict[str, str]) -> None:
    scores = {
        "offsets": [[0, 3], [4, 6], [6, 8], [8, 9], [9, 10]],
        "probabilities": [0.3, 0.1, 0.9, 0.5, 0.8],
        "continues": [False, False, True, True, True],
        "unknown": [False, False, False, True, True],
    }
    answer = {"model": "my-run", "objective": "replaced-token", "results": [scores]}
    page.route("**/score", lambda route: route.fulfill(json=answer))
    places = [{"token": 3, "probability": 0.2, "proposals": []}]
    page.route("**/proposals", lambda route: route.fulfill(json={"places": places}))
    score(page, addresses["one"], "the cats좋은", pieces=False)
    assert page.locator(".token.unknown").all_text_contents() == ["cats좋은"]
    assert page.locator("#counts").text_content() == "0 of 2 words flagged"
    bars = page.locator("#histogram i").evaluate_all("all => all.map(bar => parseFloat(bar.style.height))")
    assert [at for at, height in enumerate(bars) if height] == [7], "only the known word, .3 of 25 bars"
    page.get_by_text("2 of 5 tokens are not in the vocabulary of this model: their figures say nothing").wait_for()
    page.locator(".token.unknown").click()
    heading = page.locator(".details h3").text_content()
    assert heading == "“cats좋은”: not in the vocabulary, because of its piece “좋”"
    page.get_by_label("Show the pieces of words").check()
    assert page.locator(".token.over").all_text_contents() == ["ts"]


def test_a_word_of_several_tokens_is_one_by_default(page: Any, addresses: dict[str, str]) -> None:
    text = "A homeworkish cat"
    score(page, addresses["one"], text, pieces=False)
    right = expected(addresses["one"], text)
    assert any(right["continues"]), "the vocabulary must split the word"
    words = page.locator(".token")
    assert words.all_text_contents() == ["A", "homeworkish", "cat"]
    of_word = [n for n, (start, end) in enumerate(right["offsets"]) if start >= 2 and end <= 13]
    highest = max(of_word, key=right["probabilities"].__getitem__)
    shown = float(words.nth(1).evaluate("token => token.style.getPropertyValue('--p')"))
    assert shown == right["probabilities"][highest]
    words.nth(1).click()
    rows = page.locator(".details tbody tr")
    rows.first.wait_for()
    assert f"by its piece “{right['tokens'][highest]}”" in page.locator(".details h3").text_content()
    body = {"text": text, "tokens": [highest], "count": 8}
    proposed = httpx.post(f"{addresses['one']}/proposals", json=body, timeout=LIMIT).json()["places"][0]
    widths = page.locator(".details .bar").evaluate_all("all => all.map(b => b.style.getPropertyValue('--p'))")
    assert [*map(float, widths)] == [one["probability"] for one in proposed["proposals"]], "on a fixed scale"
    page.get_by_label("Show the pieces of words").check()
    assert words.all_text_contents() == right["tokens"]


def test_a_word_has_the_marks_that_the_tokenizer_drops(page: Any, addresses: dict[str, str]) -> None:
    text = "A ho\u0301me\u0301wo\u200crkish ca\u0301t\u0301"
    score(page, addresses["one"], text, pieces=False)
    assert page.locator(".token").all_text_contents() == text.split()


def test_on_a_narrow_screen_the_result_is_scrolled_to(page: Any, addresses: dict[str, str]) -> None:
    score(page, addresses["one"])
    assert page.evaluate("scrollY") == 0 and page.locator(".keys").first.is_visible()
    page.set_viewport_size({"width": 390, "height": 600})
    score(page, addresses["one"])
    page.wait_for_function("() => scrollY > 0")
    assert page.evaluate("document.getElementById('panels').getBoundingClientRect().top < innerHeight * .75")
    assert page.locator(".keys").first.is_hidden(), "there is no keyboard"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_histogram_has_an_axis(page: Any, addresses: dict[str, str]) -> None:
    score(page, addresses["one"])
    assert page.locator("#axis span").all_text_contents() == ["0", ".25", ".50", ".75", "1"]


def test_the_next_example_is_one_of_the_models(page: Any, addresses: dict[str, str]) -> None:
    [first, second, *_] = httpx.get(f"{addresses['one']}/models", timeout=LIMIT).json()["models"][0]["examples"]
    page.goto(addresses["one"])
    page.wait_for_function("text => currentText === text", arg=first[0])
    page.get_by_role("button", name="Another example").click()
    page.wait_for_function("text => currentText === text", arg=second[0])


@pytest.mark.parametrize("task", ["labels", "answers"])
def test_a_fine_tuned_models_page_opens_with_a_prediction(page: Any, addresses: dict[str, str], task: str) -> None:
    page.goto(addresses[task])
    page.locator(".prediction").wait_for()
    if task == "answers":
        assert page.get_by_label("Question").input_value().endswith("?")
        assert "1873" in page.get_by_label("Passage").input_value()
        assert page.get_by_role("button", name="Another example").is_hidden()
    else:
        assert page.locator(".prediction").text_content() in ("good", "bad")


def test_the_mark_of_continuations_is_explained(page: Any, addresses: dict[str, str]) -> None:
    proposed = [{"token": "a", "probability": 0.5}]

    def answer(route: Any) -> None:
        place = {"token": 0, "probability": 0.1, "proposals": proposed}
        route.fulfill(json={"model": "a", "generator": "a", "places": [place]})

    page.route("**/proposals", answer)
    score(page, addresses["one"])
    page.locator(".token").nth(0).click()
    page.locator(".details tbody tr").first.wait_for()
    assert "##" not in page.locator(".details").text_content()
    proposed.append({"token": "##o", "probability": 0.4})
    page.locator(".token").nth(1).click()
    page.get_by_text("## continues the word before.").wait_for()


def test_a_model_that_only_proposes_says_so(page: Any, addresses: dict[str, str]) -> None:
    score(page, addresses["masked"])
    shown = page.locator("#panels section").nth(1).text_content()
    assert 'This model can only embed texts and propose tokens: POST /embed, /proposals with "model": 2.' in shown
    assert "electra serve RUN --generator MODEL" in shown


def test_it_is_used_by_keyboard_alone(page: Any, addresses: dict[str, str]) -> None:
    score(page, addresses["one"])
    probabilities = expected(addresses["one"])["probabilities"]
    threshold = middle(probabilities)
    slide(page, threshold)
    over = [n for n, p in enumerate(probabilities) if p >= threshold]
    focused = "document.activeElement === document.querySelectorAll('.token')[{}]"
    page.get_by_label("Threshold for flagging").focus()
    page.keyboard.press("Tab")
    assert page.evaluate(focused.format(0)), "one Tab leads from the slider to the first token"
    for key, at in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 6), ("Home", 0)):
        page.keyboard.press(key)
        assert page.evaluate(focused.format(at)), key
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is seen"
    later = next(n for n in over if n > 0)
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused.format(later))
    page.keyboard.press("Enter")
    page.locator(".details tbody tr").first.wait_for()
    assert page.evaluate(focused.format(later)), "the focus stays where it was"
    page.keyboard.press("Escape")
    assert page.locator(".details").is_hidden()
    page.get_by_label("Text", exact=True).focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("A dog ate")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("() => currentText === 'A dog ate'")
    assert "words flagged" in page.get_by_role("status").text_content()


def test_two_models_stand_side_by_side(page: Any, addresses: dict[str, str]) -> None:
    score(page, addresses["two"])
    threshold = middle(expected(addresses["two"])["probabilities"])
    slide(page, threshold)
    panels = page.locator("#panels > section")
    assert [panels.nth(n).locator("h2").text_content() for n in (0, 1)] == ["my-run", "other"]
    boxes = [panels.nth(n).bounding_box() for n in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[1]["x"] > boxes[0]["x"]
    for model in (1, 2):
        right = expected(addresses["two"], model=model)
        tokens = panels.nth(model - 1).locator(".token")
        assert tokens.all_text_contents() == right["tokens"]
        assert panels.nth(model - 1).locator(".token.over").count() == sum(
            p >= threshold for p in right["probabilities"]
        )
    assert page.locator("#counts").text_content().endswith("flagged by both")
    page.set_viewport_size({"width": 400, "height": 800})
    boxes = [panels.nth(n).bounding_box() for n in (0, 1)]
    assert boxes[1]["y"] > boxes[0]["y"], "one below the other on a narrow screen"
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    panels.nth(1).locator(".token").first.click()
    assert "--generator" in panels.nth(1).locator(".details").text_content()


def test_the_results_are_copied_as_json(page: Any, addresses: dict[str, str]) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    score(page, addresses["two"])
    threshold = middle(expected(addresses["two"])["probabilities"])
    slide(page, threshold)
    page.get_by_role("button", name="Copy as JSON").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert copied["text"] == TEXT and copied["threshold"] == threshold
    assert [one["model"] for one in copied["models"]] == ["my-run", "other"]
    right = expected(addresses["two"])
    assert copied["models"][0]["probabilities"] == right["probabilities"]
    assert copied["models"][0]["flagged"] == [n for n, p in enumerate(right["probabilities"]) if p >= threshold]


def test_texts_are_never_html(page: Any, addresses: dict[str, str]) -> None:
    evil = (
        """<img src=x onerror="document.title='x'"><script>document.title='y'</script> & "the" 'cat' </textarea>"""
    )
    score(page, addresses["one"], evil)
    assert page.locator(".tokens").text_content() == evil
    assert page.locator("img").count() == 0 and page.locator("main script").count() == 0
    page.locator(".token").nth(1).click()
    page.locator(".details tbody tr").first.wait_for()
    assert page.title().startswith("electra")


@pytest.mark.parametrize("server", ["named", "named labels"])
def test_names_of_models_and_labels_are_never_html(page: Any, addresses: dict[str, str], server: str) -> None:
    [model] = httpx.get(f"{addresses[server]}/models", timeout=LIMIT).json()["models"]
    assert model["name"].startswith("<img src=x onerror=")
    page.goto(addresses[server])
    if server == "named":
        page.locator(".token").first.click()
        page.locator(".details tbody tr").first.wait_for()
    else:
        assert "<script>" in model["labels"][1]
        page.locator(".prediction").wait_for()
        assert page.locator(".prediction").text_content() in model["labels"]
        assert sorted(page.locator("#panels th").all_text_contents()) == sorted(model["labels"])
    assert page.locator("#panels h2").text_content() == model["name"]
    assert page.locator("#panels section").get_attribute("aria-label") == model["name"]
    assert model["name"] in page.locator("#footer").text_content()
    assert page.title() == f"electra · {model['name']}"
    assert page.locator("img, b, main script").count() == 0


def test_characters_beyond_the_first_plane_are_counted_as_one(page: Any, addresses: dict[str, str]) -> None:
    text = "🙂🙂 the cat 👩‍👩‍👧 sat\n\n  on Zürich 中文"
    score(page, addresses["one"], text)
    assert page.locator(".tokens").text_content() == text
    assert page.locator(".token", has_text=re.compile("^cat$")).count() == 1


def test_the_access_token_stays_in_the_page(page: Any, addresses: dict[str, str]) -> None:
    page.goto(addresses["closed"])
    field = page.get_by_label("This server needs an access token")
    field.fill("wrong")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").text_content() == "Wrong access token."
    field.fill("s3cret")
    field.press("Enter")
    page.locator(".token").first.wait_for()
    assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0


def test_errors_are_shown(page: Any, addresses: dict[str, str]) -> None:
    score(page, addresses["one"])
    page.get_by_label("Text", exact=True).fill("   ")
    page.get_by_role("button", name="Score").click()
    assert page.get_by_role("alert").text_content() == "Enter a text first."
    page.get_by_label("Text", exact=True).fill("x " * 15_000)
    page.get_by_role("button", name="Score").click()
    page.wait_for_function("() => document.getElementById('alert').textContent.includes('at most 20,000')")
    page.errors.clear()  # the browser's own line about the status 422


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_have_contrast(page: Any, addresses: dict[str, str], scheme: str) -> None:
    """WCAG's contrast of 4.5 for all text, and for the letters of a token of any probability."""
    page.emulate_media(color_scheme=scheme)
    score(page, addresses["one"])
    slide(page, 0)
    page.locator(".token").evaluate_all(
        "all => all.forEach((t, n) => t.style.setProperty('--p', n / (all.length - 1)))"
    )
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 20
    low = {name: contrast for name, contrast in contrasts if contrast < 4.5}
    assert not low

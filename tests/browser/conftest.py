"""A real browser. Without one these tests are skipped, unless REQUIRE_BROWSER is set, as .ci/run does."""

import importlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_model import write_model
from small_server import serving, write_run
from waiting import LIMIT

from electra.modeling.heads import MaskedLanguageModelHead
from electra.serving.http.hosted_model import HostedModel
from electra.tasks.classification import Classification
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.tagging import Tagging

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
REQUIRED = bool(os.environ.get("REQUIRE_BROWSER"))
HERE = Path(__file__).parent
LABELS = Classification(("accuracy",), labels=("bad", "good"))
ANSWERS = QuestionAnswering(max_question=8, stride=4)
TAGS = Tagging(("O", "S-PER", "S-LOC"), scheme="bio", metric="span_f1", fallback="O")
MARKUP = """<img src=x onerror="document.title='x'"><b>bold<br> &amp; 'quoted'"""
"""A name of a folder or of a label, which is text."""
NAMED = Classification(("accuracy",), labels=(MARKUP, f"{MARKUP}</b><script>document.title='y'</script>"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None and not REQUIRED:
        skipped = pytest.mark.skip(reason="Chromium is not installed; `make test-browser` installs it")
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(skipped)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Closed at the end of the module: while it is open an event loop runs, and other tests cannot start one."""
    if REQUIRED:
        assert CHROMIUM, "Chromium is not installed; run scripts/install-chromium"
        playwright = importlib.import_module("playwright.sync_api")
    else:
        playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Servers of one model, of two, of one and a masked language model, one that needs an access token, three of
    fine-tuned models, and two of models whose names have markup."""
    folder = tmp_path_factory.mktemp("browser")
    one = HostedModel(str(write_run(folder / "my-run")), device="cpu")
    other = HostedModel(str(write_model(folder / "other")), device="cpu")
    masked = HostedModel(str(write_model(folder / "masked", head=MaskedLanguageModelHead)), device="cpu")
    tags = HostedModel(str(write_model(folder / "tags", problem=TAGS)), device="cpu")
    labels = HostedModel(str(write_model(folder / "labels", problem=LABELS)), device="cpu")
    answers = HostedModel(str(write_model(folder / "answers", problem=ANSWERS)), device="cpu")
    named = HostedModel(str(write_run(folder / MARKUP)), device="cpu")
    named_labels = HostedModel(str(write_model(folder / f"{MARKUP} labels", problem=NAMED)), device="cpu")
    with (
        serving(named) as (naming, _),
        serving(named_labels) as (naming_labels, _),
        serving(labels) as (labeling, _),
        serving(tags) as (tagging, _),
        serving(answers) as (answering, _),
        serving(one) as (single, _),
        serving(one, other) as (both, _),
        serving(one, masked) as (proposing, _),
        serving(one, token="s3cret") as (closed, _),
    ):
        yield {
            "one": single, "two": both, "masked": proposing, "closed": closed, "labels": labeling,
            "tags": tagging,
            "answers": answering, "named": naming, "named labels": naming_labels,
        }  # fmt: skip


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page. An error or warning on its console, also of the Content-Security-Policy, fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(1000 * LIMIT)
    page = context.new_page()
    errors: list[str] = []
    page.on(
        "console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.errors = errors
    yield page
    context.close()
    assert not [line for line in errors if "status of 401" not in line]

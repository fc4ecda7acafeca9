"""Names of others mark up nothing in the cards that electra writes."""

import re

import pytest
from small_model import TEXTS

from electra.config import read_toml
from electra.export.markdown import code_span, escaped
from electra.export.model_card import model_card
from electra.finetuning.task_card import TaskCard
from electra.tasks.classification import Classification

MARKUP = [
    "<script>alert(1)</script>", "`</code><img src=x onerror=alert(1)>`", "[a](javascript:alert(1))",
    "![a](http://b/c.png)",
    "line\n\n# heading", "a | b", "---\nlicense: mit", "*bold*",
]  # fmt: skip


@pytest.mark.parametrize("name", MARKUP)
def test_a_name_is_one_line_without_a_meaning(name: str) -> None:
    span, text = code_span(name), escaped(name)
    assert "\n" not in span + text and span[0] == span[-1] == "`" and "`" not in span[1:-1]
    assert not re.search(r"(?<!\\)[`*\[\]<>|]", text)


def test_plain_names_stay_as_they_are() -> None:
    assert code_span("my_run-2") == "`my_run-2`" and escaped("my_task-2, café") == "my_task-2, café"


def test_a_card_shows_names_and_labels_as_text() -> None:
    problem = Classification(("accuracy",), labels=tuple(MARKUP))
    for name in MARKUP:
        card = str(TaskCard(name, problem, 16, name, 0, {"accuracy": 0.5}, name, {"train": len(TEXTS)}, "", True))
        outside = re.sub(r"`[^`\n]*`", "", re.sub(r"```python\n.*?```", "", card, flags=re.S))
        assert not re.search(r"(?<!\\)<(script|img)|(?<!\\)\]\(", outside), outside
        assert card.count("\n---\n") == 1 and "\n# heading" not in card


@pytest.mark.parametrize("start", ["from", "discriminator"])
@pytest.mark.parametrize("name", MARKUP)
def test_the_card_of_a_run_shows_names_as_text(name: str, start: str) -> None:
    yaml = pytest.importorskip("yaml")
    config = read_toml("electra-tiny")
    config["model"]["vocabulary_size"] = 150
    config["init"] = {start: name, "generator": name}
    data = {
        "made": {"options": {"sources": [{"name": name}, {"name": f"hub:{name}"}]}},
        "tokenizer": {"kind": name, "vocabulary_size": 150}, "statistics": {"documents": 3},
    }  # fmt: skip
    card = model_card(
        "discriminator", config=config, trained_length=128, progress={"step": 5},
        evaluation={"step": 5, "eval/discriminator_auc": 0.7, f"eval/{name}": 0.5},
        environment={"processor": name, "data": data},
    )  # fmt: skip
    empty, front, body = re.split(r"^---\n", card, maxsplit=2, flags=re.MULTILINE)
    fields = yaml.safe_load(front)
    assert (
        empty == "" and fields["datasets"] == [name] and fields.keys() >= {"library_name", "tags", "model-index"}
    )
    assert "license" not in fields
    outside = re.sub(r"`[^`\n]*`", "", re.sub(r"```(python|sh|toml)\n.*?\n```", "", body, flags=re.S))
    text = outside.replace("](https://arxiv.org/", "")
    assert not re.search(r"(?<!\\)(<script|<img|\]\(|\*bold|(?<=a )\| b)", text), text
    assert "\n# heading" not in text and "\n---\n" not in text

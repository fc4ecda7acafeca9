"""Zero-shot classification by the word that looks least replaced."""

from pathlib import Path

import numpy as np
import pytest

from electra.errors import CheckpointError, ConfigError
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.preparation.tokenizer_training import train_tokenizer
from electra.serving.prompt_classifier import PromptClassifier
from electra.serving.scorer import Scorer

WORDS = {"bad": ["awful", "dull"], "good": ["splendid"]}
TEMPLATE = "{text} It was {word}."
TEXTS = ["The boat left at noon.", "Nobody came, and the bread was cold.", ""]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("prompting"), ReplacedTokenHead)


def written(folder: Path, head: type) -> Path:
    train_tokenizer([*TEXTS, "It was awful dull splendid"] * 5, vocabulary_size=120).save(str(folder / "t.json"))
    config = BertConfig(
        layers=2, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, max_positions=64,
        vocabulary_size=200, initializer_range=0.4, linear_initializer_range=0.4,
    )  # fmt: skip
    huggingface.save(
        folder / "model", encoder=BertEncoder(config), head=head(config), tokenizer_json=folder / "t.json", card=""
    )
    return folder / "model"


def plain(model: Path, text: str, word: str) -> float:
    """The logit that the word is original, found in the scored sentence by the offsets of the word."""
    [scored] = Scorer(model, device="cpu")([f"{text} It was {word}."])
    last = len(scored.text) - 1 - len(word)
    return -float(
        np.mean(
            [z for (a, _), z in zip(scored.offsets, scored.logits, strict=True) if last <= a < last + len(word)]
        )
    )


def test_scores_are_those_of_the_label_words(model: Path) -> None:
    for actual, text in zip(
        PromptClassifier(model, template=TEMPLATE, label_words=WORDS)(TEXTS), TEXTS, strict=True
    ):
        expected = {label: np.mean([plain(model, text, word) for word in words]) for label, words in WORDS.items()}
        assert actual.scores == pytest.approx(expected, abs=1e-3)
        assert actual.label == max(expected, key=expected.__getitem__)


def test_the_word_can_be_before_the_text(model: Path) -> None:
    [one] = PromptClassifier(model, template="{word}: {text}", label_words={"a": ["awful"], "b": ["dull"]})(
        TEXTS[:1]
    )
    [scored] = Scorer(model, device="cpu")([f"awful: {TEXTS[0]}"])
    inside = [z for (a, _), z in zip(scored.offsets, scored.logits, strict=True) if a < len("awful")]
    assert one.scores["a"] == pytest.approx(-np.mean(inside), abs=1e-3)


def test_tokens_that_touch_the_word_are_not_part_of_it(model: Path) -> None:
    [one] = PromptClassifier(model, template="{text} ({word})", label_words={"a": ["awful"], "b": ["dull"]})(
        TEXTS[:1]
    )
    [scored] = Scorer(model, device="cpu")([f"{TEXTS[0]} (awful)"])
    first = scored.text.index("awful")
    inside = [z for (a, b), z in zip(scored.offsets, scored.logits, strict=True) if a >= first and b <= first + 5]
    assert one.scores["a"] == pytest.approx(-np.mean(inside), abs=1e-3)


@pytest.mark.parametrize(
    ("template", "words", "message"),
    [
        ("{text} It was.", WORDS, "once each"),
        ("It was {word}.", WORDS, "once each"),
        (TEMPLATE, {"good": ["splendid"]}, "two labels"),
        (TEMPLATE, {"good": ["splendid"], "bad": []}, "each with a word"),
    ],
)
def test_bad_templates_and_words_are_refused(
    model: Path, template: str, words: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        PromptClassifier(model, template=template, label_words=words)


def test_only_a_discriminator_can_classify(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="masked language model"):
        PromptClassifier(written(tmp_path, MaskedLanguageModelHead), template=TEMPLATE, label_words=WORDS)

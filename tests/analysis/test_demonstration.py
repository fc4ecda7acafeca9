"""Which sentences are shown to a new user."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_model import write_model

from electra.analysis import demonstration
from electra.analysis.demonstration import Demonstration, demonstrate, is_prose
from electra.data.tokenizer import special_tokens
from electra.export.loading import load_pretrained
from electra.modeling.heads import MaskedLanguageModelHead


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the cat sat on the mat , and then it sl ##ept .", True),
        ("is it true ?", True),
        ("return self . _ items [ key ]", False),
        ("> > > import sys", False),
        ("new in version 3 . 11", False),
        ("the first of the words of a list :", False),
    ],
)
def test_prose_is_words_and_ends_as_a_sentence(text: str, expected: bool) -> None:
    assert is_prose(text.split()) == expected


def shown(text: str, originals: dict[int, str]) -> Demonstration:
    tokens = text.split()
    return Demonstration(tokens, originals, [0.5] * len(tokens))


def test_only_whole_words_can_be_judged() -> None:
    text = "the cat sat on the math , and then it sl ##ept ."
    assert shown(text, {5: "mat", 1: "dog"}).can_be_judged
    assert not shown(text, {5: "mat", 6: "and"}).can_be_judged, "a comma came in"
    assert not shown(text, {5: "mat", 11: "##eep"}).can_be_judged, "the end of a word"
    assert not shown(text, {5: "mat", 10: "w"}).can_be_judged, "the beginning of a word"
    assert not shown("x = f ( math ) .", {4: "mat"}).can_be_judged


def test_sentences_that_can_be_judged_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    code = shown("x = f ( math ) .", {0: "y", 4: "mat"})
    prose = shown("the cat sat on the math , and then it sl ##ept .", {5: "mat", 1: "dog"})
    made = iter([code, prose, shown("a cat sat .", {1: "dog"}), code])
    monkeypatch.setattr(demonstration, "load_pretrained", lambda _: None)
    monkeypatch.setattr(demonstration, "_sample_sentences", lambda _: [[]] * 4)
    monkeypatch.setattr(demonstration, "_corrupt_and_score", lambda *_, seed: next(made))
    data: Any = None
    assert demonstrate(Path("export"), data, count=2) == [prose, code]


def test_the_generator_does_not_see_the_tokens_that_it_replaces(tmp_path: Path) -> None:
    discriminator = load_pretrained(write_model(tmp_path / "discriminator"))
    generator = load_pretrained(write_model(tmp_path / "generator", head=MaskedLanguageModelHead))
    special = special_tokens(generator.tokenizer)
    data: Any = SimpleNamespace(special=special)
    inputs: list[torch.Tensor] = []
    generator.encoder.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    ids = generator.tokenizer.encode("the cat sat on the mat a dog ate", add_special_tokens=False).ids
    for seed in range(9):
        shown = demonstration._corrupt_and_score(ids, discriminator, generator, data, seed=seed)
        masked = (inputs[-1][0, 1:-1] == special.mask).nonzero()[:, 0].tolist()
        assert len(masked) == round(0.2 * len(ids)) and {*shown.originals} <= {*masked}

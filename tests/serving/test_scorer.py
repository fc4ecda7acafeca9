"""Scores of batched and windowed texts, their offsets, and their colors."""

import re
import shutil
import unicodedata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from small_model import LENGTH, TEXTS, write_model

import electra
from electra.errors import CheckpointError
from electra.modeling.heads import MaskedLanguageModelHead
from electra.serving.batching import overlapping_windows
from electra.serving.coloring import background_style, color_tokens
from electra.serving.scorer import ScoredText, Scorer, with_following_marks


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("scorer") / "wordpiece")


@pytest.fixture(scope="module")
def scorer(model: Path) -> Scorer:
    return Scorer(model, device="cpu")


def direct(scorer: Scorer, ids: list[int]) -> np.ndarray:
    """The same probabilities, one text at a time and without windows."""
    special = scorer.batcher.special
    ids_BL = torch.tensor([[special.classify, *ids, special.separate]])
    with torch.no_grad():
        logits_BL = scorer.backend.head(scorer.backend.encoder(ids_BL))
    return torch.sigmoid(logits_BL)[0, 1:-1].numpy()


def ids_of(scorer: Scorer, text: str) -> list[int]:
    return scorer.tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("batch_tokens", [1, 20, None])
def test_probabilities_are_those_of_the_network_in_the_order_of_the_texts(scorer, batch_tokens) -> None:  # type: ignore[no-untyped-def]
    texts = ["the mat", "a", *TEXTS, "", "the cat sat", "   "]
    results = scorer(texts, batch_tokens=batch_tokens)
    assert [result.text for result in results] == texts
    for result in results:
        ids = ids_of(scorer, result.text)
        assert len(result.tokens) == len(result.offsets) == len(ids)
        assert result.probabilities.dtype == np.float32 and result.probabilities.shape == (len(ids),)
        if 0 < len(ids) <= LENGTH - 2:
            np.testing.assert_allclose(result.probabilities, direct(scorer, ids), atol=1e-6)
    assert np.std(np.concatenate([result.probabilities for result in results])) > 0.05


def test_no_text_no_result(scorer) -> None:  # type: ignore[no-untyped-def]
    assert scorer([]) == []


def test_a_long_text_is_read_in_windows(scorer) -> None:  # type: ignore[no-untyped-def]
    text = " ".join(["the cat sat on the mat . a dog ate my homework"] * 8)
    ids = ids_of(scorer, text)
    assert len(ids) > 5 * LENGTH
    [result] = scorer([text])
    size = LENGTH - 2
    expected = np.full(len(ids), np.nan)
    for window in overlapping_windows(0, len(ids), size):
        scores = direct(scorer, ids[window.start : window.end])
        kept = slice(window.keep_start, window.keep_end)
        expected[kept] = scores[window.keep_start - window.start : window.keep_end - window.start]
    assert not np.isnan(expected).any()
    np.testing.assert_allclose(result.probabilities, expected, atol=1e-6)


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_tokens_are_pieces_of_the_text(tmp_path, kind, pieces) -> None:  # type: ignore[no-untyped-def]
    scorer = Scorer(write_model(tmp_path / kind, kind=kind), device="cpu")
    text = "The  CAT naïves\tCafé 中文 😀 sat"
    [result] = scorer([text])
    assert result.tokens == [text[start:end] for start, end in result.offsets]
    assert all(first <= second for (first, _), (second, _) in pairwise(result.offsets))
    visible = {i for start, end in result.offsets for i in range(start, end)}
    assert {i for i, c in enumerate(text) if not c.isspace()} <= visible
    assert not any(token != token.lstrip() for token in result.tokens if not token.isspace())
    without_marks = re.sub(
        r"\[(\S+) (?:\.\d\d|1\.00)\]", r"\1", result.render(pieces=pieces).plain.splitlines()[0]
    )
    assert without_marks == text, "blanks are kept, and a character of several tokens is there once"


def test_the_name_of_a_special_token_is_plain_text(scorer) -> None:  # type: ignore[no-untyped-def]
    [result] = scorer(["a [MASK] b"])
    assert len(result.tokens) > 3 and "[MASK]" not in result.tokens


def test_one_text_instead_of_a_list_is_refused(scorer) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TypeError, match="give a list of texts"):
        scorer("a text")


def test_only_a_discriminator_with_its_head_can_score(model, tmp_path) -> None:  # type: ignore[no-untyped-def]
    generator = write_model(tmp_path / "generator", head=MaskedLanguageModelHead)
    with pytest.raises(CheckpointError, match="is a masked language model; this needs a discriminator"):
        Scorer(generator)
    bare = shutil.copytree(model, tmp_path / "bare")
    tensors = load_file(bare / "model.safetensors")
    encoder = {name: tensor for name, tensor in tensors.items() if name.startswith("electra.")}
    save_file(encoder, bare / "model.safetensors")
    with pytest.raises(CheckpointError, match="is an encoder without a head"):
        Scorer(bare)


def test_likely_tokens_are_in_brackets() -> None:
    text = color_tokens(["the", "un", "##believ", "##able", "cat", "##"], [0.02, 0.3, 0.934, 0.2, 0.5, 1.0])
    assert text.plain == "the un[believ .93]able [cat .50][## 1.00]"
    assert color_tokens([], []).plain == ""


def test_color_grows_with_the_probability() -> None:
    assert background_style(0.05) is None and background_style(float("nan")) is None
    greens = [shade.bgcolor.triplet.green for p in (0.1, 0.4, 0.7, 1.0) if (shade := background_style(p))]
    assert greens == sorted(greens, reverse=True) and len(set(greens)) == 4
    text = color_tokens(["a", "b", "c"], [0.0, 0.2, 0.9])
    assert [(text.plain[span.start : span.end]) for span in text.spans] == ["b", "[c .90]"]


def test_a_word_of_several_tokens_has_their_highest_probability() -> None:
    probabilities = np.array([0.37, 0.96, 0.41, 0.02, 0.6, 0.1], "f4")
    logits = np.log(probabilities / (1 - probabilities))
    text = "banana on b c"
    spans = [(0, 1), (1, 3), (3, 6), (7, 9), (10, 11), (12, 13)]
    tokens = [text[start:end] for start, end in spans]
    scored = ScoredText(text, tokens, spans, logits, [0, 0, 0, 1, 2, 2])
    assert scored.render().plain.splitlines()[0] == "[banana .96] on [b .60] c", "a blank ends a word"
    assert scored.render(pieces=True).plain.splitlines()[0] == "b[an .96]ana on [b .60] c"


def test_a_word_with_an_unknown_token_has_no_figure() -> None:
    logits = np.array([3.0, 2.0, 4.0, -4.0], "f4")
    text = "sat 좋은cat mat"
    spans = [(0, 3), (4, 6), (6, 9), (10, 13)]
    tokens = [text[start:end] for start, end in spans]
    scored = ScoredText(text, tokens, spans, logits, [0, 1, 1, 2], [False, True, False, False])
    assert str(scored) == "[sat .95] 좋은cat mat\n  most likely replaced: sat .95, mat .02"
    assert scored.render(pieces=True).plain.startswith("[sat .95] 좋은[cat .98] mat\n")
    assert [np.isnan(probability) for _, _, probability in scored.words()] == [False, True, False]
    assert not np.isnan(scored.probabilities).any()
    swapped = ScoredText(text, tokens, spans, logits, [0, 1, 1, 2], [False, False, True, False])
    assert str(swapped) == str(scored), "whichever of its tokens is unknown"


def test_listed_words_are_whole_and_punctuation_is_quoted() -> None:
    probabilities = np.array([0.2, 0.1, 0.4, 0.05, 0.3], "f4")
    logits = np.log(probabilities / (1 - probabilities))
    spans = [(0, 1), (2, 5), (5, 7), (7, 8), (8, 9)]
    text = "A banana."
    tokens = [text[start:end] for start, end in spans]
    named = str(ScoredText(text, tokens, spans, logits, [0, 1, 1, 1, 2])).splitlines()[-1]
    assert named == '  most likely replaced: banana .40, "." .30, A .20'


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_listed_words_are_words_of_the_text(kind, tmp_path) -> None:  # type: ignore[no-untyped-def]
    scorer = Scorer(write_model(tmp_path / kind, kind=kind))
    for text in ("homely catlike, dogs", "naïvest Cafés! yes"):
        [scored] = scorer([text])
        assert len(scored.tokens) > len(re.findall(r"\w+|[^\w\s]", text))
        named = re.findall(r"(\S+) \.\d\d", str(scored).splitlines()[-1])
        assert len(named) == 3 and set(named) < {*re.findall(r"\w+", text), '","', '"!"'}


def test_printed_with_and_without_color() -> None:
    probabilities = np.array([0.1, 0.31, 0.96], "f4")
    logits = np.log(probabilities / (1 - probabilities))
    scored = ScoredText("A [b] cat", ["A", "[b]", "cat"], [(0, 1), (2, 5), (6, 9)], logits)
    expected = "A [b] [cat .96]\n  most likely replaced: cat .96, [b] .31, A .10"
    assert str(scored) == expected
    with (piped := Console(width=100, force_terminal=False)).capture() as captured:
        piped.print(scored)
    assert captured.get() == expected + "\n"
    with (terminal := Console(width=100, force_terminal=True, color_system="truecolor")).capture() as captured:
        terminal.print(scored)
    assert "\x1b[30;48;2;" in captured.get()
    assert str(ScoredText("  ", [], [], np.zeros(0, "f4"))) == "  "


@pytest.mark.parametrize(
    "text",
    [
        unicodedata.normalize("NFD", "Tiếng Việt Düsseldorferstraße naïveté"),  # as macOS names files
        "co\u00adoper\u00adation zero\u200bwidth",
    ],
)
def test_marks_that_the_tokenizer_drops_divide_no_word(text: str) -> None:
    """BERT's tokenizers drop accents and invisible characters."""
    model = electra.load("wiki-tiny")
    (scored,), (surprisal,) = model.score([text]), model.surprisal([text])
    assert [text[start:end] for start, end, _ in scored.words()] == surprisal.words == text.split()
    assert "".join(scored.tokens) == "".join(text.split()), "each mark belongs to the token before it"


def test_marks_belong_to_the_letter_before_them() -> None:
    text = "नमस्ते में e\u0301 \u0301a"
    assert with_following_marks(text, [(0, 3), (4, 5), (7, 8), (11, 12), (15, 16)]) == [
        (0, 4), (4, 6), (7, 10), (11, 13), (15, 16),
    ]  # fmt: skip
    assert with_following_marks("e\u0301", [(0, 1), (0, 1)]) == [(0, 1), (0, 2)], "tokens of one character"
    assert with_following_marks("", []) == []

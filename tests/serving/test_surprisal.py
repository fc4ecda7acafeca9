"""The surprisal of words, compared with a plain loop over transformers' network."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_model import TEXTS, write_model

import electra
from electra.cli import main
from electra.errors import CheckpointError
from electra.modeling.heads import MaskedLanguageModelHead
from electra.preparation.config import TokenizerKind
from electra.serving.coloring import background_style
from electra.serving.likelihood import load_likelihood_scorer
from electra.serving.surprisal import STRONGEST, SurprisalScorer

SAMPLES = ["The caton sates, twice!", "", "doge  on the matte.", TEXTS[2]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A discriminator with a masked language model beside it."""
    folder = tmp_path_factory.mktemp("surprisal")
    for name, head in {"discriminator": {}, "encoder": {"head": MaskedLanguageModelHead}}.items():
        shutil.copytree(write_model(folder / name, **head), folder / "run/export" / name)
    return folder / "run"


def test_a_word_has_the_sum_of_its_tokens(run: Path) -> None:
    from transformers import AutoModelForMaskedLM

    scorer = SurprisalScorer(run, device="cpu")
    network = AutoModelForMaskedLM.from_pretrained(run / "export/encoder").eval()
    tokenizer, special = scorer.tokenizer, scorer.likelihoods.predictor.batcher.special
    several = 0
    for text, scored in zip(SAMPLES, scorer(SAMPLES), strict=True):
        encoding = tokenizer.encode(text, add_special_tokens=False)
        expected: dict[int | None, float] = {}
        for place, word in enumerate(encoding.word_ids):
            ids = [
                special.mask if later >= place and encoding.word_ids[later] == word else token
                for later, token in enumerate(encoding.ids)
            ]
            with torch.no_grad():
                logits_LV = network(torch.tensor([[special.classify, *ids, special.separate]])).logits[0]
            surprisal = -logits_LV[place + 1].log_softmax(-1)[encoding.ids[place]].item()
            expected[word] = expected.get(word, 0.0) + surprisal
        np.testing.assert_allclose(scored.surprisals, list(expected.values()), rtol=1e-4)
        assert scored.words == [text[start:end] for start, end in scored.offsets]
        assert "".join(scored.words) == "".join(text.split())
        several += len(encoding.ids) > len(expected)
    assert several >= 2, "words of several tokens"


def test_their_sum_is_the_pseudo_log_likelihood(run: Path) -> None:
    expected = load_likelihood_scorer(run / "export/encoder", device="cpu")(SAMPLES).scores["pll-word-l2r"]
    actual = [-one.surprisals.sum() for one in electra.load(run, device="cpu").surprisal(SAMPLES)]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("wordpiece", " (the cat)  sat ", ["(", "the", "cat", ")", "sat"]),
        ("bpe", "the ☃ cat", ["the", "☃", "cat"]),
        ("bpe", "a\n\nb  c ", ["a", "b", "c"]),
        ("bpe", "   ", []),
        ("unigram", "the (cat) x…", None),
        ("wordpiece", "", []),
    ],
)
def test_words_are_those_of_the_text(
    tmp_path: Path, kind: TokenizerKind, text: str, words: list[str] | None
) -> None:
    """Blanks belong to no word, no two words share a character, and no token is left out."""
    model = write_model(tmp_path / "masked", kind=kind, head=MaskedLanguageModelHead)
    (scored,) = SurprisalScorer(model)([text])
    ends = [0, *(end for _, end in scored.offsets)]
    assert all(start >= end for (start, _), end in zip(scored.offsets, ends, strict=False))
    assert "".join(scored.words) == "".join(text.split()) and not any(
        word != word.strip() for word in scored.words
    )
    assert words is None or scored.words == words
    expected = load_likelihood_scorer(model)([text]).scores["pll-word-l2r"]
    if words != []:
        assert -scored.surprisals.sum() == pytest.approx(float(expected[0]), rel=1e-5)


def test_a_word_with_an_unknown_token_has_no_figure(run: Path) -> None:
    (scored,) = SurprisalScorer(run)(["the 좋은 cat"])
    assert scored.unknown == [False, True, False] and (scored.token_count, scored.unknown_count) == (3, 1)
    surprising = replace(scored, surprisals=np.array([1, 30, 12], np.float32))
    assert str(surprising) == "the 좋은 [cat 12.0]\n  most surprising: cat 12.0, the 1.0"


def test_a_long_text_is_read_in_windows(run: Path) -> None:
    text = " ".join(TEXTS * 3)
    (scored,) = SurprisalScorer(run)([text])
    (limited,) = electra.load(run, max_length=8).surprisal([text])
    assert scored.words == limited.words and not np.allclose(scored.surprisals, limited.surprisals)
    expected = load_likelihood_scorer(run / "export/encoder")([text]).scores["pll-word-l2r"]
    assert -scored.surprisals.sum() == pytest.approx(float(expected[0]), rel=1e-5)


def test_on_the_command_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "The cat sat on the matte."
    assert main(["score", str(run), "--surprisal", text]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "matte" in lines[0] and lines[1].startswith("  most surprising: ")
    assert main(["score", str(run), "--surprisal", "--json", text]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == ["text", "words", "offsets", "surprisals", "unknown"]
    assert printed["words"] == ["The", "cat", "sat", "on", "the", "matte", "."]
    out = tmp_path / "out.jsonl"
    assert main(["score", str(run), "--surprisal", "--json", text, "--output", str(out)]) == 0
    assert json.loads(out.read_text()) == printed
    table = out.with_suffix(".csv")
    assert main(["score", str(run), "--surprisal", text, "--output", str(table)]) == 0
    fields, (header, *rows) = json.loads(out.read_text()), csv.reader(table.read_text().splitlines())
    assert header == ["text_number", "start", "end", "word", "surprisal"]
    assert [row[3] for row in rows] == fields["words"] and {row[0] for row in rows} == {"1"}
    assert [float(row[4] or "nan") for row in rows] == pytest.approx(
        [np.nan if unknown else x for x, unknown in zip(fields["surprisals"], fields["unknown"], strict=True)],
        abs=1e-6, nan_ok=True,
    )  # fmt: skip
    assert main(["score", str(run), "--surprisal", "--calibrated", text]) == 2
    assert "--surprisal: is not possible with --calibrated" in capsys.readouterr().err


def test_a_masked_language_model_is_needed(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "export/discriminator", tmp_path / "alone")
    with pytest.raises(CheckpointError, match="predicts no masked tokens; give a masked language model"):
        SurprisalScorer(tmp_path / "alone")
    with pytest.raises(
        CheckpointError, match="to score words by a masked language model: electra score --surprisal"
    ):
        electra.Scorer(run / "export/encoder")
    with pytest.raises(TypeError, match="list of texts"):
        SurprisalScorer(run / "export/encoder")("one text")


@pytest.mark.parametrize("surprisal", [STRONGEST, 5 * STRONGEST])
def test_very_surprising_words_have_the_strongest_color(run: Path, surprisal: float) -> None:
    (one,) = SurprisalScorer(run, device="cpu")(["a dog"])
    shown = replace(one, surprisals=np.array([0.0, surprisal])).render()
    assert [str(span.style) for span in shown.spans if span.start == shown.plain.index("[dog")] == [
        str(background_style(1.0))
    ]

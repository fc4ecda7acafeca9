"""The models that are part of the package: found by name, small, and visibly working."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import electra
from electra.analysis.calibrate import check_accepts_correction
from electra.cli import main
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError
from electra.export.included_models import included_models, model_path
from electra.export.loading import find_masked_lm, find_model, is_hub_id
from electra.serving.surprisal import SurprisalScorer

SENTENCES = Path(__file__).parents[2] / "benchmarks/odd_words.txt"
MEGABYTES = 16


def odd_sentences() -> list[tuple[str, int, int]]:
    """Sentences with one word of another kind, the first character of this word, and the one after its last."""
    lines = SENTENCES.read_text().splitlines()
    return [(re.sub(r"[\[\]]", "", line), line.index("["), line.index("]") - 1) for line in lines]


def test_a_name_stands_for_its_folder_unless_there_is_such_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = included_models()["wiki-tiny"]
    assert find_model("wiki-tiny") == folder / "discriminator" == model_path("wiki-tiny/discriminator")
    assert find_masked_lm("wiki-tiny") == folder / "encoder" == find_model("wiki-tiny/encoder")
    assert model_path("./wiki-tiny") == Path("./wiki-tiny") and model_path("wiki-tiny/x") == Path("wiki-tiny/x")
    assert not is_hub_id("wiki-tiny/encoder") and is_hub_id("owner/encoder")
    with pytest.raises(CheckpointError, match=r"there is no folder wiki-large; give .*, or wiki-tiny"):
        find_model("wiki-large")
    with pytest.raises(CheckpointError, match=r"there is no folder wiki-tinyy; did you mean 'wiki-tiny'\?$"):
        find_model("wiki-tinyy")
    with pytest.raises(CheckpointError, match="wiki-tiny is part of electra, so no correction can be stored"):
        check_accepts_correction("wiki-tiny")
    (tmp_path / "wiki-tiny").mkdir()
    assert model_path("wiki-tiny") == Path("wiki-tiny")
    assert model_path("wiki-tiny/encoder") == Path("wiki-tiny/encoder"), "of the folder"


def test_what_a_copy_leaves_out_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = included_models()["wiki-tiny"]
    electra.load("wiki-tiny").save(tmp_path / "saved")
    [warning] = caplog.messages
    assert "has the discriminator alone" in warning and str(folder / "encoder") in warning
    assert main(["export", "wiki-tiny", "--out", str(tmp_path / "out")]) == 2
    assert f"{folder / 'discriminator'} is a Hugging Face or ONNX folder already" in capsys.readouterr().err


def test_its_weights_are_small_and_load_in_float32() -> None:
    transformers = pytest.importorskip("transformers")
    folder = included_models()["wiki-tiny"]
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) <= MEGABYTES * 1_000_000
    for network in ("discriminator", "encoder"):
        stored = load_file(folder / network / "model.safetensors")
        assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    assert transformers.AutoModelForMaskedLM.from_pretrained(folder / "encoder").dtype == torch.float32


def test_its_cards_are_complete() -> None:
    folder = included_models()["wiki-tiny"]
    card = (folder / "README.md").read_text()
    assert all(
        f"## {part}" in card for part in ("Use", "Training data", "Compute", "Figures", "Limits", "License")
    )
    for network in ("discriminator", "encoder"):
        card = (folder / network / "README.md").read_text()
        assert "not stated" not in card and "# license" not in card and "\nlicense: " in card


def test_it_finds_most_words_that_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "wiki-tiny", "The film was directed by a British banana."]) == 0
    assert "most likely replaced: banana" in capsys.readouterr().out
    sentences, found, surprising = odd_sentences(), 0, 0
    texts = [text for text, _, _ in sentences]
    for scored, (_, start, end) in zip(electra.load("wiki-tiny").score(texts), sentences, strict=True):
        first, _ = scored.offsets[int(scored.probabilities.argmax())]
        found += start <= first < end
    assert found >= 0.4 * len(sentences)
    for words, (_, start, _) in zip(SurprisalScorer("wiki-tiny")(texts), sentences, strict=True):
        surprising += words.offsets[int(words.surprisals.argmax())][0] == start
    assert surprising >= 0.8 * len(sentences)


@pytest.mark.parametrize("surprisal", [[], ["--surprisal"]])
def test_words_outside_its_vocabulary_are_reported(surprisal: list[str], caplog: pytest.LogCaptureFixture) -> None:
    assert main(["score", "wiki-tiny", *surprisal, "I like \U0001f355 .", "A plain sentence."]) == 0
    assert (
        "1 of 8 tokens is not in the vocabulary of the model and was read as unknown; its score says"
        in caplog.text
    )
    caplog.clear()
    assert main(["score", "wiki-tiny", *surprisal, "I like \U0001f355 and \U0001f355 ."]) == 0
    assert "2 of 6 tokens are not in the vocabulary of the model and were read as unknown; their sc" in caplog.text
    caplog.clear()
    assert main(["score", "wiki-tiny", *surprisal, "A plain sentence."]) == 0
    assert "vocabulary" not in caplog.text


def test_its_tokenizer_prepares_data_on_which_it_is_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"The cat sat on mat {i} and looked at the dog.\n\n" for i in range(400)))
    data = tmp_path / "data"
    assert main(["prepare", str(text), "--tokenizer", "wiki-tiny", "--out", str(data)]) == 0
    expected = find_model("wiki-tiny") / "tokenizer.json"
    assert load_tokenizer(data / "tokenizer.json").get_vocab() == load_tokenizer(expected).get_vocab()
    options = ["electra-plus-mini", "--data", str(data), "--out", str(tmp_path / "run")]
    assert main(["pretrain", *options, "--init.discriminator", "wiki-tiny", "--dry-run"]) == 0
    capsys.readouterr()
    assert main(["pretrain", *options, "--init.from", "wiki-tiny"]) == 2
    assert "continue it with init.discriminator wiki-tiny" in " ".join(capsys.readouterr().err.split())


def test_an_onnx_export_says_which_network_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("onnxruntime")
    assert main(["export", "wiki-tiny", "--to", "onnx", "--out", str(tmp_path / "one")]) == 0
    assert "the discriminator alone was exported; beside it is" in caplog.text
    caplog.clear()
    assert main(["export", "wiki-tiny/encoder", "--to", "onnx", "--out", str(tmp_path / "two")]) == 0
    assert "(masked language model, " in capsys.readouterr().out
    whole = str(find_model("wiki-tiny").parent)
    assert main(["export", whole, "--to", "onnx", "--part", "encoder", "--out", str(tmp_path / "three")]) == 0
    assert "alone" not in caplog.text

"""`electra analyze calibrate` and `electra score --calibrated` from the command line."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from electra.analysis.calibrate import word_scores
from electra.analysis.detectors import token_scores
from electra.analysis.error_corpora import LabeledSentence
from electra.cli import main
from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.serving.calibration import Calibration
from electra.serving.scorer import Scorer

TEXT = "The gardener watches the long road."


@pytest.fixture(scope="module")
def trained(held_out_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The networks of a run, with random weights."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    size = tokenizers.vocabulary_size(load_tokenizer(held_out_data / "tokenizer.json"))
    for tower, head in (("discriminator", ReplacedTokenHead), ("generator", MaskedLanguageModelHead)):
        torch.manual_seed(0)
        config = BertConfig(
            layers=1, hidden_size=16, embedding_size=16, feed_forward_size=24, heads=2, max_positions=32,
            vocabulary_size=size, initializer_range=0.4, linear_initializer_range=0.4,
        )  # fmt: skip
        huggingface.save(
            folder / "export" / tower, encoder=BertEncoder(config), head=head(config), card="",
            tokenizer_json=held_out_data / "tokenizer.json", objective="replaced-token",
        )  # fmt: skip
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def errors(tmp_path: Path) -> Path:
    sentence = "the\tc\ngardener\tc\nwatch\ti\nthe\tc\nroad\tc\n\n"
    other = "a\tc\nfox\tc\nfollows\tc\n\n"
    (tmp_path / "errors.tsv").write_text((sentence + other * 2) * 14)
    return tmp_path / "errors.tsv"


def command(run: Path, data: Path, *more: str) -> list[str]:
    return ["analyze", "calibrate", str(run), "--data", str(data), "--resamples", "20", *more]


def test_tables_a_figure_and_a_correction_that_score_uses(
    run: Path, held_out_data: Path, errors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found"
    options = ("--errors", str(errors), "--prior", ".05", "--store", "--correction", "isotonic", "--out", str(out))
    before = Scorer(str(run), device="cpu")([TEXT])[0]
    assert main(command(run, held_out_data, *options)) == 0
    shown = capsys.readouterr().out
    assert "isotonic is stored in the model's folder" in shown and " given " in shown and "log loss" in shown
    text = (out / "calibrate.json").read_text()
    assert str(tmp_path.parent) not in text and "NaN" not in text
    results = json.loads(text)
    assert results["replaced"]["share"] != results["replaced"]["fitted_share"]  # of two halves
    assert sum(one["count"] for one in results["replaced"]["rows"][0]["equal_width"]) < 0.7 * results["tokens"]
    assert results["errors"]["sentences"] == results["errors"]["fitted_sentences"] == 21
    [true, _] = [row["expected"] for row in results["errors"]["rows"] if row["prior"] == "true"]
    assert true != results["errors"]["share"]  # of two halves, too
    rows = results["replaced"]["rows"]
    assert [row["correction"] for row in rows] == ["none", "temperature", "platt", "isotonic"]
    assert [row["chosen"] for row in rows] == [False, False, False, True]
    assert [(row["correction"], row["prior"]) for row in results["errors"]["rows"]] == [
        *(
            (kind, prior)
            for kind in ("none", "isotonic")
            for prior in ("as trained", "estimated", "given", "true")
        ),
        ("platt", "fitted to real errors"),
    ]
    for row in [*rows, *results["errors"]["rows"]]:
        low, high = row["brier"]["interval"]
        assert low <= row["brier"]["value"] <= high
    assert (out / "calibrate.png").is_file() and (out / "calibrate.svg").is_file()

    stored = Calibration.load(run)
    assert main(["score", str(run), TEXT, "--calibrated", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["calibration"] == {"kind": "isotonic", "prior": stored.prior}
    expected = np.interp(before.logits, stored.knots, stored.heights)
    np.testing.assert_allclose(said["probabilities"], expected, atol=1e-5)
    assert main(["score", str(run), TEXT, "--calibrated", "--prior", ".01", "--json"]) == 0
    less = json.loads(capsys.readouterr().out)
    assert less["calibration"]["prior"] == 0.01 and max(less["probabilities"]) < max(said["probabilities"])
    assert main(["score", str(run), TEXT, "--json"]) == 0
    assert "calibration" not in json.loads(capsys.readouterr().out)


def test_the_line_fitted_to_real_errors_is_stored(run: Path, held_out_data: Path, tmp_path: Path) -> None:
    words = ["the", "gardener", "watches", "the", "long", "road"]
    sentence = LabeledSentence(tuple(words), (False,) * len(words))
    odds_W = word_scores([sentence], token_scores(Scorer(str(run), device="cpu"), [words])).log_odds_N
    lines = [f"{word}\t{'i' if odds > odds_W.mean() else 'c'}" for word, odds in zip(words, odds_W, strict=True)]
    (tmp_path / "errors.tsv").write_text(("\n".join(lines) + "\n\n") * 20)
    errors = ("--errors", str(tmp_path / "errors.tsv"), "--store-errors")
    assert main(command(run, held_out_data, *errors)) == 0
    stored = Calibration.load(run)
    assert stored.kind == "platt" and stored.slope > 0
    assert stored.prior == pytest.approx((odds_W > odds_W.mean()).mean())


def test_refusals(
    run: Path, small_model: str, held_out_data: Path, data_folder: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def refused(*arguments: str) -> str:
        assert main([*arguments]) == 2
        return capsys.readouterr().err

    def calibrate(*more: str) -> str:
        return refused(*command(run, held_out_data, *more))

    problems = calibrate("--prior", "0", "--share", "1", "--documents", "5")
    assert "--prior: must be above 0 and below 1" in problems and "--documents: must be at least 20" in problems
    assert "--share: must be above 0" in problems
    assert "nothing to store" in calibrate("--store", "--correction", "none")
    assert "--errors FILE" in calibrate("--store-errors")
    assert "owner/name is not a folder" in refused(*command(Path("owner/name"), held_out_data, "--store"))
    assert "held-out documents are too few for two halves" in refused(*command(run, data_folder))
    assert "another vocabulary" in refused(*command(Path(small_model), held_out_data))
    assert "no such file or folder" in calibrate("--errors", str(tmp_path / "nothing"))
    few = tmp_path / "few.tsv"
    few.write_text("a\tc\nb\ti\n\n" * 9)
    assert "9 sentences are too few for two halves of 10" in calibrate("--errors", str(few))
    assert "has no calibration.json" in refused("score", str(run), TEXT, "--calibrated")
    assert "give --calibrated, too" in refused("score", str(run), TEXT, "--prior", ".1")
    assert "--prior: must be above 0 and below 1" in refused(
        "score", str(run), TEXT, "--calibrated", "--prior", "1"
    )
    assert "leave one of them out" in refused("score", str(run), TEXT, "--calibrated", "--electric")
    shutil.move(run / "export" / "generator", tmp_path / "elsewhere")
    assert "has no generator next to it" in calibrate()
    assert "is a masked language model" in refused(*command(tmp_path / "elsewhere", held_out_data))


def test_a_correction_that_reverses_the_order_is_not_stored(
    run: Path, held_out_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Words that look original are labeled wrong; every sentence is longer than the input."""
    words = ["the", "gardener", "watches", "the", "long", "road"] * 6
    sentence = LabeledSentence(tuple(words), (False,) * len(words))
    odds_W = word_scores([sentence], token_scores(Scorer(str(run), device="cpu"), [words])).log_odds_N
    lines = [f"{word}\t{'i' if odds < odds_W.mean() else 'c'}" for word, odds in zip(words, odds_W, strict=True)]
    (tmp_path / "errors.tsv").write_text(("\n".join(lines) + "\n\n") * 20)
    options = ("--errors", str(tmp_path / "errors.tsv"), "--store-errors", "--out", str(tmp_path / "found"))
    assert main(command(run, held_out_data, "--store", "--out", str(tmp_path / "errors.tsv" / "found"))) == 2
    assert "errors.tsv" in capsys.readouterr().err and not list(run.rglob("calibration.json")), (
        "nothing is computed"
    )
    assert main(command(run, held_out_data, *options)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no correction is stored: tokens that look replaced to the model are replaced less often" in shown
    assert "run: sentences longer than its input, read in windows: 20" in shown
    results = json.loads((tmp_path / "found" / "calibrate.json").read_text())
    assert results["stored"] is None and results["errors"]["rows"][-1]["slope"] < 0
    assert not list(run.rglob("calibration.json"))

    def full(*_: Any) -> Path:
        raise OSError(28, "No space left on device")

    assert main(command(run, held_out_data, "--store", "--correction", "isotonic")) == 0
    monkeypatch.setattr(Calibration, "save", full)
    capsys.readouterr()
    assert main(command(run, held_out_data, "--store", "--correction", "isotonic")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "cannot be written to (No space left on device); the earlier correction stays" in shown
        and "log loss" in shown
    )

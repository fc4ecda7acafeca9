"""`electra analyze rescore` from the command line."""

import json
import sys
from pathlib import Path

import pytest
from small_model import write_model

from electra.cli import main

REFERENCES = ["the cat sat on the mat", "a dog ate my homework", "the dog sat", "my mat", "twice a cat"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("rescore") / "recogniser"))


def lists(path: Path, *, heading: str = "transcription") -> Path:
    """Lists of three hypotheses, of which the second is correct."""
    rows = [f"{heading},hypothesis,score"]
    for said in REFERENCES:
        wrong = said.replace("the", "a").replace("my", "why")
        rows += [f"{said},{wrong} <unk>,0.5", f"{said},{said},0.3", f"{said},[noise] {wrong},0.2"]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_rates_weights_and_a_figure(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found"
    command = ["analyze", "rescore", model, "--data", str(lists(tmp_path / "lists.csv")), "--folds", "2"]
    assert main([*command, "--resamples", "30", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "5 utterances, 19 words, 15 hypotheses" in shown and "apostrophes" in shown
    text = (out / "rescore.json").read_text()
    assert str(tmp_path.parent) not in text and "NaN" not in text
    results = json.loads(text)
    assert [one["score"] for one in results["models"]] == list(results["meanings"])
    assert results["oracle"] == {"value": 0, "interval": [0, 0]} and results["resamples"] == 30
    errors = [3, 2, 2, 2, 1]  # the:a, my:why and <unk> of each first best
    assert results["first_best"]["value"] == pytest.approx(sum(errors) / 19)
    assert all(len(one["weights"]) == 2 for one in results["models"])
    assert (out / "rescore.png").read_bytes().startswith(b"\x89PNG")
    assert main(["report", str(out), "--out", str(tmp_path / "page.html")]) == 0
    assert "rescored" in (tmp_path / "page.html").read_text()


def test_separate_references(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lists' transcription is then the recognizer's first best."""
    references = tmp_path / "said.csv"
    said = [*REFERENCES[:3], "her mat"]
    rows = [f"{one},{first}" for one, first in zip(said, REFERENCES[:4], strict=True)]
    references.write_text("\n".join(["transcription,hypothesis", *rows]) + "\n")
    command = ["analyze", "rescore", model, "--data", str(lists(tmp_path / "lists.csv")), "--folds", "2"]
    assert main([*command, "--references", str(references), "--resamples", "30", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "left out: 1 list without a reference" in shown and "the first best of 4 lists has no score" in shown
    results = json.loads((tmp_path / "rescore.json").read_text())
    assert results["first_best"]["value"] == pytest.approx(1 / 16) and results["hypotheses"] == 16


def test_empty_hypotheses_are_counted_and_wrong_in_each_word(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = lists(tmp_path / "lists.csv")
    data.write_text(data.read_text() + "a mat,,.9\na mat,a mat,.1\nno dog,[noise],.9\nno dog,no dog,.1\n")
    command = ["analyze", "rescore", model, "--data", str(data), "--folds", "2", "--resamples", "20"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert "2 hypotheses are empty: " in capsys.readouterr().out
    results = json.loads((tmp_path / "rescore.json").read_text())
    assert results["empty_hypotheses"] == 2
    assert results["first_best"]["value"] == pytest.approx((10 + 4) / (19 + 4))


def test_hypotheses_read_in_windows_are_counted(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = lists(tmp_path / "lists.csv")
    long = "a dog " * 100
    data.write_text(data.read_text() + f"{long},{long},.5\n{long},a dog,.4\n")
    assert main(["analyze", "rescore", model, "--data", str(data), "--folds", "2", "--resamples", "20"]) == 0
    assert ": hypotheses longer than its input, read in windows: 1" in capsys.readouterr().out


def test_refusals(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: str) -> str:
        assert main(["analyze", "rescore", *arguments]) == 2
        return capsys.readouterr().err

    data = str(lists(tmp_path / "lists.csv"))
    assert "name at least one model" in refused("--data", data)
    assert "--folds: must be at least 2, got 1" in refused(model, "--data", data, "--folds", "1")
    assert "--seed: must be at least 0, got -1" in refused(model, "--data", data, "--seed", "-1")
    assert "9 folds are too many for 5 distinct references" in refused(model, "--data", data, "--folds", "9")
    assert "there is no folder" in refused("nowhere", "--data", data)
    (tmp_path / "odd.csv").write_text("transcription,hypothesis,score\na,b,high\n")
    assert "odd.csv:2: score is 'high'" in refused(model, "--data", str(tmp_path / "odd.csv"))
    monkeypatch.setitem(sys.modules, "jiwer", None)
    assert 'pip install "electra[speech]"' in refused(model, "--data", data)

"""`electra analyze minimal-pairs` from the command line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_model import write_model

from electra.analysis.minimal_pairs import paradigm_accuracies
from electra.cli import main
from electra.modeling.heads import MaskedLanguageModelHead
from electra.serving.likelihood import load_likelihood_scorer

PAIRS = [
    ("The cat sat.", "The cat sat sat."),
    ("A dog ate.", "A dog eat."),
    ("the mat", "mat the"),
    ("on it", "it on"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The discriminator and the generator of a run."""
    run = tmp_path_factory.mktemp("pairs") / "my-run"
    (run / "export").mkdir(parents=True)
    for tower, head in (("discriminator", None), ("generator", MaskedLanguageModelHead)):
        there = write_model(run / tower, **({"head": head} if head else {}))
        shutil.copytree(there, run / "export" / tower)
        shutil.rmtree(run / tower)
    return [str(run), str(run / "export" / "generator")]


@pytest.fixture(scope="module")
def blimp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blimp")
    for name, field, pairs in (("one", "syntax", PAIRS), ("two", "semantics", PAIRS[:3])):
        records = [{"sentence_good": g, "sentence_bad": b, "field": field, "UID": name} for g, b in pairs]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return folder


def test_all_scores_of_both_networks(
    models: list[str], blimp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found"
    command = ["analyze", "minimal-pairs", *models, "--data", str(blimp), "--resamples", "50", "--out", str(out)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "log-original-sum" in shown and "my-run generator" in shown and "7 pairs of 2 paradigms" in shown
    text = (out / "minimal-pairs.json").read_text()
    assert str(tmp_path.parent) not in text and "NaN" not in text
    results = json.loads(text)
    names = [(one["model"], one["score"]) for one in results["scores"]]
    kinds = ["log-odds-sum", "log-odds-mean", "log-odds-max", "log-original-sum"]
    assert names == [
        *(("my-run", kind) for kind in kinds),
        *(("my-run generator", k) for k in ("pll", "pll-word-l2r")),
    ]
    assert len(results["differences"]) == 15 and list(results["meanings"]) == [score for _, score in names]
    expected = paradigm_accuracies(
        load_likelihood_scorer(models[0], device="cpu"), blimp, score="log-original-sum", pairs=99
    )
    actual = {name: one["value"] for name, one in results["scores"][3]["paradigms"].items()}
    assert actual == expected
    lengths = {name: one["pairs"] for name, one in results["scores"][0]["lengths"].items()}
    assert lengths["shorter"] >= 2 and lengths["longer"] == 0, "the bad one of the first pair is longer"
    assert np.mean(list(expected.values())) == pytest.approx(results["scores"][3]["overall"]["value"])
    assert (out / "minimal-pairs.png").read_bytes().startswith(b"\x89PNG")
    assert main(["report", str(out), "--out", str(tmp_path / "page.html")]) == 0
    assert "Minimal pairs of good and bad sentences" in (tmp_path / "page.html").read_text()


def test_two_columns_of_a_table(models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("right,wrong\n" + "".join(f"{good},{bad}\n" for good, bad in PAIRS))
    command = ["analyze", "minimal-pairs", models[1], "--data", str(file), "--good-column", "right"]
    assert main(command) == 2
    assert "there is no column 'sentence_bad', the columns are 'right', 'wrong'" in capsys.readouterr().err
    command += ["--bad-column", "wrong", "--pairs", "3", "--resamples", "20", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    assert "3 pairs of 1 paradigm;" in capsys.readouterr().out


def test_sentences_read_in_windows_are_counted(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("good,bad\n" + f"{'a dog ' * 100},{'a cat ' * 100}\n" + "a dog,a cat\n" * 3)
    assert main(["analyze", "minimal-pairs", *models, "--data", str(file), "--resamples", "20"]) == 0
    shown = capsys.readouterr().out
    assert shown.count(": sentences longer than its input, read in windows: 2") == len(models)


def test_refusals(models: list[str], blimp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: str) -> str:
        assert main(["analyze", "minimal-pairs", *arguments]) == 2
        return capsys.readouterr().err

    assert "name at least one model" in refused("--data", str(blimp))
    problems = refused("--data", str(blimp), "--pairs", "0", "--resamples", "0", "--seed", "-1")
    assert "--pairs: must be at least 1" in problems
    assert "--resamples: must be at least 1" in problems and "--seed: must be at least 0" in problems
    assert "the folder has no .jsonl file" in refused(models[0], "--data", str(tmp_path))
    assert "there is no such file" in refused(models[0], "--data", str(tmp_path / "no.csv"))
    assert "there is no folder" in refused("nowhere", "--data", str(blimp))

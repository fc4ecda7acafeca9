"""`electra analyze compare` from the command line."""

import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_model import write_model

from electra.cli import main
from electra.commands.analyze.encoders import AnalyzeCompareConfig, run
from electra.reports.analyses.compare import build_notes, build_tables

NOUNS, VERBS = ["cat", "dog", "mat", "homework"], ["sat", "ate"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two models with different vocabularies."""
    folder = tmp_path_factory.mktemp("models")
    return str(write_model(folder / "words")), str(write_model(folder / "bytes", kind="bpe"))


def lines(*, tags: bool = True, heads: bool = True) -> str:
    """A treebank in which every sentence has five words or more."""
    draw, actual = random.Random(0), ""
    for _ in range(60):
        words = [("the", "DET", 2), (draw.choice(NOUNS), "NOUN", 3), (draw.choice(VERBS), "VERB", 0)]
        words += [("the", "DET", 5), (draw.choice(NOUNS), "NOUN", 3), (".", "PUNCT", 3)][: draw.randint(2, 3)]
        for number, (word, tag, head) in enumerate(words, 1):
            of_word = (tag if tags else "_"), (head if heads else "_")
            actual += f"{number}\t{word}\t_\t{of_word[0]}\t_\t_\t{of_word[1]}\t_\t_\t_\n"
        actual += "\n"
    return actual


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "trees.conllu"
    path.write_text(lines())
    return path


def compared(*models: str, text: Path, chunks: Path | None = None) -> dict[str, Any]:
    """The results, without a figure, because drawing takes longer than everything else."""
    return run(AnalyzeCompareConfig(models, text=text, chunks=chunks, resamples=50, neighbours=3)).results


def test_two_encoders_are_compared(
    models: tuple[str, str], text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chunks, out = tmp_path / "chunks.txt", tmp_path / "found" / "compare"
    chunks.write_text("the DT B-NP\ncat NN I-NP\nsat VBD B-VP\n\n" * 40)
    options = ["--chunks", str(chunks), "--queries", "Dog", "--sentences", "The dog sat.", "--out", str(out)]
    few = ["--resamples", "50", "--neighbours", "3"]
    assert main(["analyze", "compare", *models, "--text", str(text), *options, *few]) == 0
    shown = capsys.readouterr().out
    assert "linear probes" in shown and "[dog]" in shown and "The dog sat ." in shown and "\\" not in shown
    assert (out / "compare.png").read_bytes().startswith(b"\x89PNG") and (out / "compare.svg").is_file()
    written = (out / "compare.json").read_text()
    assert str(tmp_path.parent) not in written
    results = json.loads(written)
    assert results["sentences"] == 60 and results["words"] > 300 and results["without_tokens"] == 0
    assert [probe["name"] for probe in results["probes"]] == ["part of speech", "depth in the tree", "chunk"]
    part = results["probes"][0]
    assert part["sentences"] == 20 and part["majority"] < 0.5
    for model in part["models"]:
        assert len(model["scores"]) == 3 and model["scores"][0] == 1.0  # each word has one tag in this text
        for score, (low, high) in zip(model["scores"], model["intervals"], strict=True):
            assert low <= score <= high
    assert np.array(results["alignment"]["values"]).shape == (6, 6)
    assert [model["model"] for model in results["models"]] == ["words", "bytes"]
    assert [len(model["attention"]["entropy"]) for model in results["models"]] == [2, 2]
    [dog] = results["neighbours"]["of_words"]
    assert "dog" not in dog["first"] and len(dog["first"]) == 3


def test_sentences_read_in_windows_are_counted(models: tuple[str, str], text: Path) -> None:
    results = compared(*models, text=text)
    assert results["in_windows"] == {"words": 0, "bytes": 60}  # its tokens are bytes
    assert not any(note.startswith("words: sentences longer") for note in build_notes(results))
    text.write_text(lines() + "".join(f"{i}\tcat\t_\tNOUN\t_\t_\t{i - 1}\t_\t_\t_\n" for i in range(1, 80)))
    results = compared(*models, text=text)
    assert results["in_windows"] == {"words": 1, "bytes": 61}
    assert any(
        note == "bytes: sentences longer than its input, read in windows: 61" for note in build_notes(results)
    )
    (chunks := text.with_suffix(".txt")).write_text("the DT B-NP\ncat NN I-NP\n\n" * 40 + "cat NN B-NP\n" * 80)
    assert compared(*models, text=text, chunks=chunks)["in_windows"] == {"words": 2, "bytes": 62}


def test_the_documented_command_prints_the_documented_tables(
    models: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs/guides/analysis-compare.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```console\n\$ electra (.*?)```", page, re.DOTALL)
    words = shlex.split(re.sub(r"\\\n", " ", block).splitlines()[0])
    assert words[-2:] == ["--out", "compare"]
    monkeypatch.chdir(tmp_path)
    for place, model in zip(words[2:4], models, strict=True):
        Path(place).symlink_to(model)
    Path("dev.conllu").write_text(lines().replace("homework", "day").replace("mat", "service"))
    Path("chunks.txt").write_text("the DT B-NP\ncat NN I-NP\nsat VBD B-VP\n\n" * 40)
    assert main(words[:-2]) == 0  # without the figure, because drawing takes longer than everything else
    shown = capsys.readouterr().out
    titles = re.findall(r"^(?:last layers: iso|linear|nearest).*", page, re.MULTILINE)
    assert len(titles) == 4 and all(title in shown for title in titles)
    assert "nearest in electra" in shown and "nearest in bert" in shown and "last layers: CKA" in shown


def test_a_model_compared_with_itself_agrees(models: tuple[str, str], text: Path) -> None:
    results = compared(models[0], models[0], text=text)
    values = np.array(results["alignment"]["values"])
    np.testing.assert_allclose(np.diagonal(values), 1, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(values[:3, 3:]), 1, atol=1e-6)
    np.testing.assert_allclose(values[:3, 3:], values[:3, :3], atol=1e-9)
    assert [one["overlap"] for one in results["neighbours"]["words"]] == [1.0] * 3
    for probe in results["probes"]:
        assert probe["difference"] == 0 and probe["interval"] == (0, 0)
    assert [model["model"] for model in results["models"]] == ["words (1)", "words (2)"]


def test_missing_annotations_are_left_out_and_named(models: tuple[str, str], tmp_path: Path) -> None:
    bare, plain = tmp_path / "bare.conllu", tmp_path / "plain.txt"
    bare.write_text(lines(tags=False, heads=False))
    plain.write_text("The cat sat on the mat.\nA dog ate my homework, twice!\n" * 20)
    for path in (bare, plain):
        results = compared(*models, text=path)
        assert results["probes"] == [] and len(build_tables(results)) == 3
        said = " ".join(build_notes(results))
        assert f"not probed: parts of speech: {path.name}" in said and "not probed: depth in the tree" in said
    tagged = tmp_path / "tagged.conllu"
    tagged.write_text(lines(heads=False))
    assert [probe["name"] for probe in compared(*models, text=tagged)["probes"]] == ["part of speech"]
    short = tmp_path / "short.conllu"
    short.write_text("1\tcats\t_\tNOUN\t_\t_\t2\t_\t_\t_\n2\tsat\t_\tVERB\t_\t_\t0\t_\t_\t_\n\n" * 60)
    results = compared(*models, text=short)
    assert [probe["name"] for probe in results["probes"]] == ["part of speech"]
    assert "too few sentences of 5 words or more" in " ".join(build_notes(results))
    once = tmp_path / "once.conllu"  # a tag of a single sentence is in the training or the test half, not in both
    words = ["the", "cat", "sat", "the", "dog"]
    once.write_text(
        "".join(f"{i}\t{w}\t_\t{w.upper()}\t_\t_\t{i - 1}\t_\t_\t_\n" for i, w in enumerate(words, 1)) + "\n"
        + lines(tags=False, heads=False)
    )  # fmt: skip
    alike = tmp_path / "alike.txt"
    alike.write_text("the DT O\ncat NN O\n\n" * 40)
    results = compared(*models, text=once, chunks=alike)
    assert results["probes"] == []
    assert [one.partition(":")[0] for one in results["left_out"]] == [
        "parts of speech",
        "depth in the tree",
        "chunks",
    ]


def test_refusals(models: tuple[str, str], text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: str, text: Path = text) -> str:
        assert main(["analyze", "compare", *arguments, "--text", str(text)]) == 2
        return capsys.readouterr().err

    assert "name two encoders (the same one twice is allowed), got 1" in refused(models[0])
    said = refused(*models, "--words", "5", "--neighbours", "0")
    assert "--words: must be at least 100, got 5" in said and "--neighbours: must be" in said
    assert "trees.conllu is a file; name a folder" in refused(*models, "--out", str(text))
    assert "there is no folder nowhere" in refused(models[0], "nowhere")
    assert "'unicorn' is not among the" in refused(*models, "--queries", "dog", "unicorn")
    nothing = tmp_path / "nothing.txt"  # a word without a token
    nothing.write_text("\u200d the cat\n" * 40)
    assert "for which both networks have tokens" in refused(*models, "--queries", "\u200d", text=nothing)
    assert "--neighbours: 60 is too many for 60 sentences" in refused(*models, "--neighbours", "60")
    assert "--sentences: one of them is empty" in refused(*models, "--sentences", " ")
    assert "no token for" in refused(*models, "--sentences", "\u200d")
    same = tmp_path / "same.txt"  # twenty words of other types than the one with three spellings
    same.write_text("the The THE\n" * 20 + "the The cat\n" * 20)
    assert "--neighbours: 30 is too many for 40 sentences" in refused(*models, "--neighbours", "30", text=same)
    short = tmp_path / "short.conllu"
    short.write_text("\n\n".join(lines().split("\n\n")[:19]))
    assert "19 sentences, but at least 20 are needed" in refused(*models, text=short)
    broken = tmp_path / "broken.conllu"
    broken.write_text(lines().replace("\t3\t", "\t33\t", 1))
    assert "broken.conllu:1: in the sentence that starts here, the head of" in refused(*models, text=broken)
    assert "missing.conllu" in refused(*models, text=tmp_path / "missing.conllu")

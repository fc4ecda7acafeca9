"""`electra score`: every kind of input, and results for people and for programs."""

import csv
import gzip
import io
import json
import logging
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from electra.cli import main
from electra.commands.score import ScoreConfig, ScoredTexts, run
from electra.config import check
from electra.errors import CheckpointError, ConfigError, DataError
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import ReplacedTokenHead
from electra.preparation.tokenizer_training import train_tokenizer
from electra.serving import scorer
from electra.serving.scorer import Scorer
from electra.serving.text_files import Lines, WrittenFile
from electra.tasks.classification import Classification


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("score")
    tokenizer = train_tokenizer(["the cat sat on the mat", "a dog ate my homework"] * 5, vocabulary_size=90)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = BertConfig(
        layers=1, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, max_positions=40,
        vocabulary_size=90, initializer_range=0.4, linear_initializer_range=0.4,
    )  # fmt: skip
    huggingface.save(
        folder / "run/export/discriminator", encoder=BertEncoder(config), head=ReplacedTokenHead(config),
        tokenizer_json=folder / "tokenizer.json", card="",
    )  # fmt: skip
    return str(folder / "run")


def texts(result: object) -> list[str]:
    if isinstance(result, Lines):
        return [json.loads(line)["text"] for line in result.lines]
    assert isinstance(result, ScoredTexts)
    return [scored.text for scored in result.texts]


def test_texts_are_printed_for_people(model, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["score", model, "the cat sat", "a dog"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[1].startswith("  most likely replaced: ")


def test_json_is_one_object_per_line(model, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["score", model, "the  Cat [MASK] é", "a dog", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert list(first) == ["text", "tokens", "offsets", "probabilities", "continues", "unknown"]
    assert first["unknown"] == [token in "[]" for token in first["tokens"]] and not any(second["unknown"])
    assert first["text"] == "the  Cat [MASK] é" and second["tokens"] == ["a", "dog"]
    assert first["tokens"] == [first["text"][start:end] for start, end in first["offsets"]]
    assert len(first["tokens"]) == len(first["probabilities"])
    assert all(0 < probability < 1 for probability in first["probabilities"])


def test_electric_gives_the_sum_of_negative_energies(model, tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["score", model, "the cat sat", "--electric"]) == 2
    assert "was trained with objective.kind replaced-token; leave --electric out" in capsys.readouterr().err
    shutil.copytree(Path(model) / "export/discriminator", tmp_path / "electric")
    fields = json.loads((tmp_path / "electric/config.json").read_text())
    (tmp_path / "electric/config.json").write_text(json.dumps(fields | {"electra_objective": "electric"}))
    model = str(tmp_path / "electric")
    assert main(["score", model, "the cat sat"]) == 2
    assert "give --electric" in capsys.readouterr().err
    pretrained = huggingface.load(Path(model))
    assert isinstance(pretrained.head, ReplacedTokenHead)
    ids = pretrained.tokenizer.encode("the cat sat").ids
    energies_L = pretrained.head(pretrained.encoder(torch.tensor([ids])))[0, 1:-1].detach()
    assert main(["score", model, "the cat sat", "a dog", "--electric", "--json"]) == 0
    first, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["log_probabilities"] == pytest.approx((-energies_L).tolist(), abs=1e-5)
    assert first["pseudo_log_likelihood"] == pytest.approx(-float(energies_L.sum()), abs=1e-5)
    assert main(["score", model, "the cat sat", "a dog", "--electric"]) == 0
    shown = capsys.readouterr().out
    total, a_token, text = shown.splitlines()[0].split("\t")
    assert float(total) == pytest.approx(-float(energies_L.sum()), abs=1e-3) and text == "the cat sat"
    assert float(a_token) == pytest.approx(-float(energies_L.mean()), abs=1e-3)
    assert main(["score", model, "the cat sat", "a dog", "--electric", "--output", str(tmp_path / "a.tsv")]) == 0
    assert (tmp_path / "a.tsv").read_text() == f"pseudo_log_likelihood\tper_token\ttext\n{shown}"


def test_every_kind_of_file(model, tmp_path) -> None:  # type: ignore[no-untyped-def]
    lines = ["the cat", "a dog ate", "on the mat"]
    (tmp_path / "a.txt").write_text("the cat\n\na dog ate\r\non the mat")
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"id": 1, "text": line}) + "\n" for line in lines))
    (tmp_path / "c.csv").write_text("number,sentence\n" + "".join(f"1,{line}\n" for line in lines))
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    for file in sorted(tmp_path.iterdir()):
        assert texts(run(ScoreConfig(model, input=str(file)))) == lines, file.name
    (tmp_path / "e.jsonl").write_text('{"title": "the cat", "text": "a dog"}\n')
    assert texts(run(ScoreConfig(model, input=str(tmp_path / "e.jsonl"), text_column="title"))) == ["the cat"]
    both = run(ScoreConfig(model, ("first",), input=str(tmp_path / "a.txt")))
    assert texts(both) == ["first", *lines]


def test_the_name_of_a_file_need_not_be_utf8(model, tmp_path) -> None:  # type: ignore[no-untyped-def]
    file, out = (tmp_path / os.fsdecode(name) for name in (b"caf\xe9.txt", b"\xe9.txt"))
    try:
        file.write_text("the cat\n")
    except OSError:
        pytest.skip("this file system has only names in UTF-8")
    assert main(["score", model, "--input", str(file), "--output", str(out)]) == 0
    assert "the" in out.read_text()
    assert main(["score", model, "--input", str(tmp_path / os.fsdecode(b"\xe9.none"))]) == 2


def test_standard_input(model, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    stream = io.BytesIO("the cat\n  \nÜber\n".encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    assert texts(run(ScoreConfig(model, input="-", json=True))) == ["the cat", "Über"]


def test_a_bad_line_is_named_and_skipped(model, tmp_path, caplog) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "the cat"}\n{"text": \n{"text": 3}\n{"text": "a dog"}\n')
    (tmp_path / "b.txt").write_bytes(b"the cat\n\xff\xfe!\na dog\n")
    with caplog.at_level(logging.WARNING, logger="electra"):
        for name in ("a.jsonl", "b.txt"):
            assert texts(run(ScoreConfig(model, input=str(tmp_path / name)))) == ["the cat", "a dog"]
    messages = [record.getMessage() for record in caplog.records]
    assert [message.partition(" is skipped")[0] for message in messages] == [
        f"{tmp_path}/a.jsonl:2", f"{tmp_path}/a.jsonl:3", f"{tmp_path}/b.txt:2",
    ]  # fmt: skip
    assert "broken JSON" in messages[0] and "broken UTF-8" in messages[2]


def test_a_file_of_any_size_is_scored_in_chunks(model, tmp_path, monkeypatch, caplog) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(scorer, "CHUNK_CHARACTERS", 60)
    lines = [f"the cat {'sat ' * (i % 5)}{i}" for i in range(10)]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    out = tmp_path / "out.jsonl"
    with caplog.at_level(logging.INFO, logger="electra"):
        result = run(ScoreConfig(model, input=str(tmp_path / "in.txt"), json=True, output=out))
    assert result == WrittenFile(10, "scored text", out) and str(result) == f"10 scored texts: {out}"
    assert str(WrittenFile(1, "scored text", out)) == f"1 scored text: {out}"
    assert [json.loads(line)["text"] for line in out.read_text().splitlines()] == lines
    assert [record.progress for record in caplog.records if hasattr(record, "progress")] == [(4, None), (8, None)]
    run(ScoreConfig(model, ("the cat",), output=tmp_path / "out.txt"))
    assert "most likely replaced: " in (tmp_path / "out.txt").read_text()
    assert not list(tmp_path.glob(".*"))


def test_the_ending_of_the_file_decides_its_form(model, tmp_path) -> None:  # type: ignore[no-untyped-def]
    given = ("the cat sat", "a dog [x]")
    scored = Scorer(model)(given)
    for name, options in (("a.tsv", {}), ("b.csv", {}), ("c.tsv", {"pieces": True})):
        result = run(ScoreConfig(model, given, output=tmp_path / name, **options))
        rows = list(
            csv.reader((tmp_path / name).read_text().splitlines(), delimiter="\t" if "tsv" in name else ",")
        )
        expected = [
            [str(number), str(start), str(end), one.text[start:end], "" if np.isnan(value) else f"{value:.6f}"]
            for number, one in enumerate(scored, start=1)
            for start, end, value in one.spans(pieces="pieces" in options)
        ]
        unit = "token" if options else "word"
        assert rows == [["text_number", "start", "end", unit, "probability"], *expected] and result.count == len(
            expected
        )
        assert "" in [row[4] for row in rows], "[ is not in the vocabulary"
    run(ScoreConfig(model, given, output=tmp_path / "d.jsonl"))
    assert [json.loads(line)["text"] for line in (tmp_path / "d.jsonl").read_text().splitlines()] == list(given)
    run(ScoreConfig(model, given, output=tmp_path / "e.txt"))
    assert (tmp_path / "e.txt").read_text() == "".join(f"{one.render().plain}\n" for one in scored)
    for name, in_json in (("f.tsv", True), ("f.md", False), ("f", False)):
        with pytest.raises(ConfigError, match=f"--output: {name} must end in "):
            run(ScoreConfig(model, given, json=in_json, output=tmp_path / name))
    with pytest.raises(ConfigError, match="--pieces: is about what is shown"):
        check(ScoreConfig(model, given, pieces=True, output=tmp_path / "d.jsonl"))


def test_a_failure_keeps_the_old_file(model, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "out.txt"
    out.write_text("before")

    def broken(scorer: object, texts: list[str]) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Scorer, "__call__", broken)
    with pytest.raises(RuntimeError):
        run(ScoreConfig(model, ("the cat",), output=out))
    assert out.read_text() == "before" and [file.name for file in tmp_path.iterdir()] == ["out.txt"]


def test_mistakes_are_explained(model, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "a.doc").write_text("x")
    (tmp_path / "b.txt").write_bytes(b"\0\1\2")
    (tmp_path / "c.csv").write_text("a,b\n1,text\n")
    (tmp_path / "d.csv").write_text("review,b\n1,text\n")
    for config, error, message in (
        (ScoreConfig(model), ConfigError, "give a text to score, or --input FILE"),
        (ScoreConfig(model, input=str(tmp_path / "none.txt")), DataError, "there is no such file"),
        (ScoreConfig(model, input=str(tmp_path)), DataError, "it is a folder; give one of its files"),
        (ScoreConfig(model, input=str(tmp_path / "a.doc")), DataError, "unknown file format"),
        (ScoreConfig(model, input=str(tmp_path / "b.txt")), DataError, "a binary file"),
        (
            ScoreConfig(model, input=str(tmp_path / "c.csv"), text_column="c"),
            DataError,
            "'b'; name another one; or, if the first",
        ),
        (ScoreConfig(model, input=str(tmp_path / "d.csv"), text_column="reviw"), DataError, "mean 'review'?"),
        (ScoreConfig(str(tmp_path), ("a",)), CheckpointError, "is not a model"),
        (ScoreConfig(model, ("a",), output=tmp_path / f"{'long' * 99}.txt"), DataError, "cannot be written"),
        (ScoreConfig(model, ("a",), output=tmp_path), ConfigError, "is a folder; give a file"),
        (ScoreConfig(model, ("a",), output=tmp_path / "no/a.txt"), ConfigError, f"no folder {tmp_path / 'no'};"),
    ):
        with pytest.raises(error) as caught:
            check(config)
            run(config)
        assert message in str(caught.value)


def test_texts_that_are_read_in_windows_are_counted(model, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["score", model, "the cat sat", "the cat sat " * 20]) == 0
    assert re.search(r"1 of 2 texts have more than \d+ tokens and were read in windows", capsys.readouterr().err)
    assert main(["score", model, "the cat sat"]) == 0
    assert "windows" not in capsys.readouterr().err


def test_a_path_among_the_texts_gets_a_warning(model, tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    for path in (tmp_path / "wiki.txt", tmp_path / "more.txt"):
        path.write_text("the cat\n")
    warning = "wiki.txt is a file, but is read as a text; to read what is in it, give --input"
    paths = [str(tmp_path / "wiki.txt"), str(tmp_path / "more.txt")]
    assert main(["score", model, "the cat " * 99, *paths, "--json"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3 and shown.err.replace("\n", " ").count("--input") == 1
    assert warning in shown.err.replace("\n", " ")
    assert main(["score", model, "the cat", str(tmp_path)]) == 0  # a folder is no file of texts
    assert "--input" not in capsys.readouterr().err


def test_a_fine_tuned_model_is_for_predict(model, tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    problem = Classification(("accuracy",), labels=("bad", "good"))
    torch.manual_seed(0)
    encoder = huggingface.load(Path(model) / "export/discriminator").encoder
    huggingface.save(
        tmp_path / "tuned/model", encoder=encoder, head=problem.build_head(encoder.config), card="",
        task=problem.to_dict(), tokenizer_json=Path(model) / "export/discriminator/tokenizer.json",
    )  # fmt: skip
    assert main(["score", str(tmp_path / "tuned"), "the cat"]) == 2
    shown = capsys.readouterr().err
    assert "is fine-tuned for a task: classification (bad, good); this needs a discriminator" in shown
    assert "electra predict" in shown


@pytest.mark.parametrize("content", ["", "\n  \n"])
def test_an_input_without_any_text_is_an_error(model, tmp_path, capsys, content) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "empty.txt").write_text(content)
    assert main(["score", model, "--input", str(tmp_path / "empty.txt")]) == 2
    assert "empty.txt; give a text" in capsys.readouterr().err
    assert main(["score", model, content, "--json", "--output", str(tmp_path / "out.jsonl")]) == 2
    assert "there is no text in the command line; give a text" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
    assert main(["score", model, "", "the cat", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["text"] == "the cat" and "the text is empty" in shown.err


def test_a_mistake_ends_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(tmp_path), "a text"]) == 2
    assert "is not a model" in capsys.readouterr().err

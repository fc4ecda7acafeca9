"""`electra analyze generator` from the command line."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import small_run

from electra.cli import main
from electra.data.tags import TagTable
from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import MaskedLanguageModelHead
from electra.preparation.tokenizer_training import train_tokenizer

TAGS = {"the": "DET", "fox": "NOUN", "river": "NOUN", "follows": "VERB"}


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["analyze", "generator", *map(str, arguments)]) == 2
    return capsys.readouterr().err


def generated(out: Path, models: Sequence[object], data: Path, *options: str) -> dict[str, object]:
    some = ["--texts", "12", "--resamples", "9", "--out", str(out)]
    assert main(["analyze", "generator", *map(str, models), "--data", str(data), *some, *options]) == 0
    text = (out / "generator.json").read_text()
    assert str(out.parent) not in text and "NaN" not in text
    assert (out / "generator.png").read_bytes().startswith(b"\x89PNG")
    results: dict[str, object] = json.loads(text)
    return results


def test_proposals_by_share_and_temperature_with_tags(
    exported_run: Path, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tagged = shutil.copytree(data_folder, tmp_path / "tagged")
    tokenizer = load_tokenizer(tagged / "tokenizer.json")
    TagTable.count([([*TAGS], [*TAGS.values()])], tokenizer).write(tagged)
    options = ["--share", "0.2", "0.5", "--temperature", "1", "0.5", "--length", "16", "--examples", "1"]
    results = generated(tmp_path / "out", [exported_run, exported_run / "export" / "generator"], tagged, *options)
    shown = capsys.readouterr().out
    assert "[MASK]" in shown and "same tag" in shown and "data has no tags" not in shown
    first, second = results["models"]  # type: ignore[misc]
    assert [one.pop("model") for one in (first, second)] == ["run", "run generator"]
    assert first == second  # the same generator, found through its run or given directly
    assert [(one["share"], one["temperature"]) for one in first["readings"]] == [
        (0.2, 1.0), (0.2, 0.5), (0.5, 1.0), (0.5, 0.5),
    ]  # fmt: skip
    for warm, cold in (first["readings"][:2], first["readings"][2:]):
        assert cold["entropy"]["value"] < warm["entropy"]["value"] and cold["tokens"] == warm["tokens"]
        assert cold["top_5"] == warm["top_5"]  # the order of tokens is the same
        assert sum(band["tokens"] for band in warm["bands"]) == warm["tokens"]
    assert len(first["examples"]) == 1 and results["length"] == 16


def test_runs_with_the_same_name_are_distinguished(exported_run: Path, data_folder: Path, tmp_path: Path) -> None:
    """As for two seeds; their results are not mixed up."""
    models = [shutil.copytree(exported_run, tmp_path / seed / "run") for seed in ("one", "two")]
    results = generated(tmp_path / "out", models, data_folder, "--examples", "1")
    assert [one["model"] for one in results["models"]] == ["one run", "two run"]  # type: ignore[attr-defined]


def test_over_training(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], without_transformers: None
) -> None:
    """Each checkpoint is measured; the last one has the results of the export."""
    run = tmp_path / "run"
    steps = ["--train.steps", "20", "--checkpoint.every", "10", "--evaluation.every", "0"]
    assert main(small_run.command(data_folder, run, *steps)) == 0
    results = generated(tmp_path / "over", [run], data_folder, "--checkpoints")
    models: list[dict[str, object]] = results["models"]  # type: ignore[assignment]
    assert [one["step"] for one in models] == [10, 20]
    exported: list[dict[str, object]] = generated(tmp_path / "last", [run], data_folder)["models"]  # type: ignore[assignment]
    last, of_export = (one[-1]["readings"][0] for one in (models, exported))  # type: ignore[index]
    assert last["loss"] == pytest.approx(of_export["loss"], abs=1e-4) and last["tokens"] == of_export["tokens"]
    capsys.readouterr()
    shutil.rmtree(run / "checkpoints" / "step-00000010")
    generated(tmp_path / "one", [run], data_folder, "--checkpoints")
    assert "only one checkpoint, so training cannot be shown" in capsys.readouterr().out
    shutil.rmtree(run / "checkpoints")
    none = refused(capsys, run, "--data", data_folder, "--checkpoints")
    assert "holds no checkpoint" in none and "leave --checkpoints out" in none


def test_models_without_proposals_are_refused(
    exported_run: Path, small_model: str, data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data", data_folder)
    assert "predicts no masked tokens" in refused(capsys, small_model, *data)
    assert "name at least one model" in refused(capsys, *data)
    problems = refused(capsys, exported_run, *data, "--share", 0, "--temperature", 1, 1)
    assert all(f"--{name}: " in problems for name in ("share", "temperature"))
    assert "--texts: " in refused(capsys, exported_run, *data, "--texts", 0)


def test_a_generator_of_another_vocabulary_is_refused(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_tokenizer(["one two three"] * 9, vocabulary_size=60).save(str(tmp_path / "tokenizer.json"))
    config = BertConfig(
        layers=1, hidden_size=16, embedding_size=16, feed_forward_size=24, heads=2, vocabulary_size=60
    )
    huggingface.save(
        tmp_path / "other", encoder=BertEncoder(config), head=MaskedLanguageModelHead(config), card="",
        tokenizer_json=tmp_path / "tokenizer.json",
    )  # fmt: skip
    assert "another vocabulary" in refused(capsys, tmp_path / "other", "--data", data_folder)

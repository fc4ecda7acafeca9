"""`--device` of every verb that computes with a network."""

import dataclasses
import importlib
import json
from pathlib import Path

import pytest
import torch
from small_finetuning import write_table
from small_model import write_model
from small_run import SMALL, command

from electra.cli import VERBS, main
from electra.config_fields import refuse_contradictions
from electra.errors import ConfigError
from electra.export.included_models import find_included
from electra.help import config_type
from electra.modeling.encoders.relative import RelativeConfig
from electra.modeling.heads import LanguageModelHead
from electra.preparation.config import PrepareConfig
from electra.preparation.run import prepare
from electra.tasks.classification import Classification

WITHOUT_NETWORK = {
    "prepare", "data inspect", "data stats", "data verify", "data fetch", "data merge", "status", "compare",
    "report", "export", "flops",
}  # fmt: skip
"""Verbs that compute with no network, or always on the CPU."""
WORDS = "The\tDET\ncat\tNOUN\nsat\tVERB\n\n" * 30


@pytest.fixture(scope="module")
def files(corpus_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of all verbs, with the vocabulary of wiki-tiny, and models for verbs that need another one."""
    folder = tmp_path_factory.mktemp("files")
    prepare(PrepareConfig((str(corpus_file),), folder / "DATA", tokenizer="wiki-tiny", workers=1))
    write_table(folder / "TABLE")
    write_model(folder / "STARS", problem=Classification(("accuracy",), labels=("bad", "good")))
    write_model(
        folder / "CAUSAL", head=LanguageModelHead, encoder=RelativeConfig, direction="left", type_vocabulary_size=1
    )
    (folder / "wiki-tiny").symlink_to(find_included("wiki-tiny") or "")
    (folder / "pairs.jsonl").write_text(json.dumps({"good": "The cat sat.", "bad": "The cat sit."}) + "\n")
    (folder / "words.txt").write_text("The c\ncat c\nsit i\n\n" * 30)
    rows = ("\n".join(f"{i}\t{w}\t_\tNOUN\t_\t_\t0\troot\t_\t_" for i, w in enumerate(["a", "b", "c"], 1)),)
    (folder / "bank.conllu").write_text("\n\n".join(rows * 30) + "\n\n")
    hypotheses = [{"text": "the cat sat", "score": -1.0}, {"text": "the cat sad", "score": -2.0}]
    lists = json.dumps({"reference": "the cat sat", "hypotheses": hypotheses}) + "\n"
    (folder / "nbest.jsonl").write_text("".join(lists.replace("the cat", name) for name in "abcdef"))
    return folder


COMMANDS = {
    "quickstart": "--out RUN",
    "data tags": "DATA --tagger STARS",
    "score": "wiki-tiny text",
    "score --surprisal": "wiki-tiny text",
    "prompt": "wiki-tiny text --words bad=terrible good=great",
    "similarity": "wiki-tiny one two",
    "predict": "STARS text",
    "serve": "wiki-tiny --port 0",
    "pretrain": "electra-tiny --data DATA --out RUN --train.steps 2",
    "finetune": "wiki-tiny --kind classification --data TABLE --out RUN",
    "study": "masking --data DATA --out RUN",
    "analyze minimal-pairs": "wiki-tiny --data pairs.jsonl",
    "analyze rescore": "wiki-tiny --data nbest.jsonl",
    "analyze detect": "wiki-tiny --data words.txt",
    "analyze parts-of-speech": "wiki-tiny --data bank.conllu",
    "analyze compare": "wiki-tiny wiki-tiny --text bank.conllu",
    "analyze context": "CAUSAL/model --data DATA --no-speed",
    "analyze calibrate": "wiki-tiny --data DATA",
    "analyze generator": "wiki-tiny/encoder --data DATA",
    "analyze long-inputs": "wiki-tiny --data DATA --length 64",
}


def test_every_verb_that_computes_has_the_option() -> None:
    for verb, (target, _) in VERBS.items():
        module, _, name = target.partition(":")
        config = config_type(getattr(importlib.import_module(module), name))
        has_option = "device" in {field.name for field in dataclasses.fields(config)}
        assert has_option == (verb not in WITHOUT_NETWORK), verb
        assert has_option == (verb in COMMANDS), verb


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_device_that_is_missing_is_refused(
    verb: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.chdir(files)
    settings = [part for setting in SMALL for part in f"--{setting}".split("=")] if verb == "pretrain" else []
    assert main([*verb.split(), *COMMANDS[verb].split(), *settings, "--device", "mps"]) == 2
    assert "electra: --device mps: torch finds no Apple GPU" in capsys.readouterr().err
    assert not (files / "RUN").exists()


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_two_devices_are_refused(
    verb: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    arguments = [*verb.split(), *COMMANDS[verb].split(), "--device", "cpu"]
    assert main([*arguments, "--train.device", "mps"]) == 2
    message = "--device cpu and --train.device mps are two values of one setting; leave --train.device out"
    assert message in capsys.readouterr().err
    assert main([*arguments, "--train.device", "cpu", "--train.steps", "x"]) == 2
    assert "two values" not in capsys.readouterr().err
    assert verb == "pretrain" or main([*arguments, "--data.path", "OTHER"]) == 2
    assert verb == "pretrain" or "--data TABLE and --data.path OTHER are two values" in capsys.readouterr().err


def test_a_number_may_be_written_in_two_ways() -> None:
    for text in ["0.5", ".5", "5e-1"]:
        refuse_contradictions({"data.fraction": ("fraction", 0.5)}, [f"data.fraction={text}"])
    with pytest.raises(ConfigError, match=r"--fraction 0\.5 and --data\.fraction \.25 are two values"):
        refuse_contradictions({"data.fraction": ("fraction", 0.5)}, ["data.fraction=.25"])


def test_a_run_may_be_resumed_on_another_device(data_folder: Path, tmp_path: Path) -> None:
    start = command(data_folder, tmp_path / "run", "--train.steps", "2")
    assert main([*start, "--device", "auto"]) == 0
    assert main([*start, "--device", "cpu"]) == 0
    assert 'device = "cpu"' in (tmp_path / "run" / "config.toml").read_text()

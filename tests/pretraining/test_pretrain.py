"""A run from the command line: killed, resumed, refused, exported."""

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loop import metrics
from safetensors.torch import load_file
from small_run import command, config

from electra.cli import main
from electra.config import flat, load_config
from electra.data.collate import Batch
from electra.data.shards import TokenData
from electra.data.tokenizer import SpecialTokens
from electra.errors import CheckpointError, ConfigError, DataError
from electra.pretraining.build import build_batches
from electra.pretraining.config import PretrainConfig, build_objective
from electra.pretraining.run import PretrainResult, pretrain
from electra.training.batch_source import BatchSource
from electra.training.update import compile_encoders

KILLED = """
import os, signal, sys
from electra.cli import main
from electra.training.trainer import Trainer

def step(trainer, made=Trainer._step):
    if trainer.progress.step == 14:
        os.kill(os.getpid(), signal.SIGKILL)
    made(trainer)

Trainer._step = step
main(sys.argv[1:])
"""


def final_weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(max((run / "checkpoints").iterdir()) / "model.safetensors")


def contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> PretrainResult:
    """A run of 40 steps."""
    return pretrain(config(data_folder, tmp_path_factory.mktemp("runs") / "run", "train.steps=40"))


def test_a_run_leaves_all_that_the_contract_names(finished: PretrainResult) -> None:
    run = finished.run
    for name in ("config.toml", "environment.json", "metrics.jsonl", "log.txt", "README.md", "checkpoints"):
        assert (run / name).exists(), name
    checkpoint = run / "checkpoints" / "step-00000040"
    assert {file.name for file in checkpoint.iterdir()} == {
        "model.safetensors", "optimizer.safetensors", "state.json", "state.sha256", "config.toml",
        "tokenizer.json",
    }  # fmt: skip
    stored = load_config(PretrainConfig, checkpoint / "config.toml")
    assert stored.train.steps == 40 and stored.train.precision == "float32" and stored.model.vocabulary_size > 0
    environment = json.loads((run / "environment.json").read_text())
    assert environment["threads"] == torch.get_num_threads() and environment["data"]["fingerprint"]


def test_the_exports_load_in_transformers(finished: PretrainResult) -> None:
    transformers = pytest.importorskip("transformers")
    assert finished.exported is not None
    for name, difference in finished.exported.differences.items():
        assert difference is not None and difference < 1e-5, name
    folders = finished.exported.folders
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["discriminator"])
    batch = tokenizer("The river follows a wooden boat.", return_tensors="pt")
    discriminator = transformers.ElectraForPreTraining.from_pretrained(folders["discriminator"])
    generator = transformers.ElectraForMaskedLM.from_pretrained(folders["generator"])
    assert discriminator(**batch).logits.shape == batch["input_ids"].shape
    assert generator(**batch).logits.shape == (*batch["input_ids"].shape, len(tokenizer))
    assert type(transformers.AutoModel.from_pretrained(folders["discriminator"])).__name__ == "ElectraModel"


def test_a_stopped_run_shows_the_step_of_its_metrics(finished: PretrainResult) -> None:
    stopped = dataclasses.replace(finished.outcome, step=43, stopped_by=2)
    table, *lines = dataclasses.replace(finished, outcome=stopped).__rich__().renderables  # type: ignore[union-attr]
    assert table.title == "evaluated at step 40; stopped at step 43"
    resume = f"give the same command with --out {finished.run}, without --fresh"
    assert lines[0].endswith(f"(stopped; to resume it, {resume})")


def test_a_finished_run_given_again_does_nothing_new(finished: PretrainResult, data_folder: Path) -> None:
    before = metrics(finished.run)
    again = pretrain(config(data_folder, finished.run, "train.steps=40"))
    assert again.outcome == finished.outcome and metrics(finished.run) == before


def test_a_run_whose_warm_up_has_no_maximum_can_be_resumed(
    finished: PretrainResult, data_folder: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(finished.run, tmp_path / "run")
    stored = (run / "config.toml").read_text()
    assert "max_warmup_steps = 10000\n" in stored
    (run / "config.toml").write_text(stored.replace("max_warmup_steps = 10000\n", ""))  # before 2026-11-28
    assert pretrain(config(data_folder, run, "train.steps=40", "optimizer.warmup_steps=0")).outcome.step == 40


def test_sigkill_and_the_same_command_end_the_same(
    finished: PretrainResult, data_folder: Path, tmp_path: Path
) -> None:
    """A real process, killed while it works; what it left behind goes on bit for bit."""
    out = tmp_path / "killed"
    arguments = command(data_folder, out, "--train.steps", "40")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert max((out / "checkpoints").iterdir()).name == "step-00000012"
    assert main(arguments) == 0
    whole, resumed = final_weights(finished.run), final_weights(out)
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert metrics(finished.run) == metrics(out)


def test_fresh_starts_beside(finished: PretrainResult, data_folder: Path) -> None:
    before = (finished.run / "metrics.jsonl").read_bytes()
    other = pretrain(config(data_folder, finished.run, "train.steps=2"), fresh=True)
    assert other.run.name == "run-2" and other.outcome.step == 2
    assert (finished.run / "metrics.jsonl").read_bytes() == before


def test_another_config_is_refused(finished: PretrainResult, data_folder: Path) -> None:
    before = contents(finished.run)
    with pytest.raises(CheckpointError, match=r"optimizer.learning_rate: the run has 0.001, asked for 0.5"):
        pretrain(config(data_folder, finished.run, "train.steps=40", "optimizer.learning_rate=0.5"))
    assert contents(finished.run) == before, "it stays as it is, finished"


def test_a_damaged_config_has_a_copy_in_the_checkpoint(
    finished: PretrainResult, data_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished.run, tmp_path / "run")
    (tmp_path / "run/config.toml").write_text("[[[")
    copy = tmp_path / "run/checkpoints/step-00000040/config.toml"
    with pytest.raises(CheckpointError, match=rf"not valid TOML(.|\n)*cp {copy} "):
        pretrain(config(data_folder, tmp_path / "run", "train.steps=40"))


def test_data_made_with_another_tokenizer_is_refused(
    finished: PretrainResult, corpus_file: Path, tmp_path: Path
) -> None:
    from electra.preparation.config import PrepareConfig
    from electra.preparation.run import prepare

    options = {"corpus": (str(corpus_file),), "lowercase": False, "strip_accents": False, "workers": 1}
    prepare(PrepareConfig(**options, vocabulary_size=600, out=tmp_path / "same size"))  # type: ignore[arg-type]
    prepare(PrepareConfig(**options, vocabulary_size=550, out=tmp_path / "other size"))  # type: ignore[arg-type]
    before = contents(finished.run)
    for name in ("same size", "other size"):
        with pytest.raises((CheckpointError, ConfigError), match="other data"):
            pretrain(config(tmp_path / name, finished.run, "train.steps=40"))
    assert contents(finished.run) == before


def test_a_shard_cut_short_is_named(data_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(data_folder, tmp_path / "data")
    shard = tmp_path / "data" / "train-00000.tokens"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train-00000\.tokens"):
        pretrain(config(tmp_path / "data", tmp_path / "run", "train.steps=2"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train.stps", "5"], "did you mean --train.steps?"),
        (["--train.steps", "many"], "train.steps: must be a whole number"),
        (["--packing.sequence_length", "4096"], "packing.sequence_length: 4096 is more than model.max_positions"),
        (["--objective.sharing", "all"], "objective.sharing: all needs a generator of the discriminator's shape"),
        (["--model.vocabulary_size", "77"], "model.vocabulary_size is 77, but the tokenizer"),
        (["--train.device", "cuda"], "--train.device cuda: torch finds no GPU"),
        (["--objective.fakes", "same-tag"], "has no part-of-speech tags"),
    ],
)
def test_mistakes_end_with_exit_2_and_what_to_do(
    arguments: list[str], message: str, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(data_folder, tmp_path / "run", *arguments)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_data_and_out_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "electra-tiny"]) == 2
    assert "--data" in capsys.readouterr().err


def test_minutes_take_the_place_of_the_presets_steps(data_folder: Path, tmp_path: Path) -> None:
    wanted = config(data_folder, tmp_path / "run", "train.minutes=0.02")
    assert wanted.train.steps == 20_000
    outcome = pretrain(wanted).outcome
    assert outcome.steps is not None and outcome.steps != 20_000 and outcome.step == outcome.steps
    assert pretrain(wanted).outcome == outcome


def test_a_run_that_dies_before_its_length_is_known_can_be_resumed(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(data_folder, tmp_path / "run", "train.minutes=0.02")

    def dies(*arguments: Any) -> BatchSource:
        whole = build_batches(*arguments)

        def micro_batches(step: int) -> Sequence[Batch]:
            if step == 1:
                raise RuntimeError("the machine is gone")
            return whole.micro_batches(step)

        return dataclasses.replace(whole, micro_batches=micro_batches)

    with monkeypatch.context() as patched:
        patched.setattr("electra.pretraining.build.build_batches", dies)
        with pytest.raises(RuntimeError):
            pretrain(settings)
    outcome = pretrain(settings).outcome
    assert outcome.steps is not None and outcome.step == outcome.steps


def test_accumulation_gives_nearly_the_same_run(data_folder: Path, tmp_path: Path) -> None:
    """Masks are drawn per micro-batch, so losses differ, but no more than between two seeds."""
    losses = []
    for name, size in (("whole", 0), ("parts", 4)):
        pretrain(config(data_folder, tmp_path / name, "train.steps=10", f"train.micro_batch_size={size}"))
        losses.append([record["loss"] for record in metrics(tmp_path / name) if "loss" in record])
    assert losses[0] == pytest.approx(losses[1], rel=0.1) and losses[0] != losses[1]


def test_the_first_prediction_is_the_unigram_distribution(data_folder: Path, tmp_path: Path) -> None:
    """All weights at 0 but the bias: what is left of the loss is the text's cross-entropy with its frequencies."""
    at_start = []
    for name in ("zero", "unigram"):
        settings = [f"init.output_bias={name}", "model.initializer_range=1e-6", "train.steps=1"]
        pretrain(config(data_folder, tmp_path / name, *settings, "init.token_table=random"))
        records = [record for record in metrics(tmp_path / name) if "eval/masked_lm_loss" in record]
        at_start.append(records[0]["eval/masked_lm_loss"])
    data = TokenData.open(data_folder)
    counts = data.unigram_counts + 1.0
    entropy = -float((counts / counts.sum() * np.log(counts / counts.sum())).sum())
    assert at_start[0] == pytest.approx(math.log(data.vocabulary_size), abs=0.01)
    assert at_start[1] == pytest.approx(entropy, abs=0.4)  # on a few held-out tokens


@pytest.mark.parametrize(
    ("preset", "millions"), [("electra-small", 13.5), ("electra-base", 109), ("electra-large", 334)]
)
def test_presets_have_the_parameters_of_the_paper(preset: str, millions: float) -> None:
    loaded = load_config(PretrainConfig, preset)
    loaded = dataclasses.replace(loaded, model=dataclasses.replace(loaded.model, vocabulary_size=30_522))
    with torch.device("meta"):
        objective = build_objective(loaded, SpecialTokens(0, 1, 2, 3, 4))
    assert sum(p.numel() for p in objective.encoder.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize(
    ("faithful", "clean"),
    [
        ("faithful", "electra-small"),
        ("faithful-base", "electra-base"),
        ("faithful-large", "electra-large"),
        ("faithful-tiny", "electra-tiny"),
    ],
)
def test_faithful_presets_are_their_size_and_the_quirks(faithful: str, clean: str) -> None:
    here, there = (flat(load_config(PretrainConfig, preset)) for preset in (faithful, clean))
    assert {name: value for name, value in here.items() if value != there[name]} == {
        "masking.replacement": True,
        "masking.count_special": True,
        "masking.average_repeats": True,
        "masking.spare_first_position": True,
        "objective.share_norm": True,
        "objective.discriminator_positions": "all",
        "optimizer.bias_correction": False,
        "optimizer.warmup_over_decay": True,
        "packing.builder": "original",
    }


def test_compiled_encoders_train_and_are_evaluated(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The graphs, without the minute that generating code for them takes.
    compiled = partial(compile_encoders, backend="eager")
    monkeypatch.setattr("electra.pretraining.build.compile_encoders", compiled)
    evaluations = []
    for name in ("off", "on"):
        pretrain(config(data_folder, tmp_path / name, "train.steps=10", f"train.compile={name}"))
        evaluations.append([r for r in metrics(tmp_path / name) if "eval/unigram_auc" in r])
    assert evaluations[0][0] == pytest.approx(evaluations[1][0])  # before the first step
    losses = [record["eval/masked_lm_loss"] for record in evaluations[1]]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("builder", "matrices"), [("contiguous", "adamw"), ("packed", "muon")])
def test_with_dropout_and_micro_batches_a_resumed_run_ends_the_same(
    data_folder: Path, tmp_path: Path, builder: str, matrices: str
) -> None:
    settings = [
        f"packing.builder={builder}", f"optimizer.matrices={matrices}",
        "model.dropout=0.1", "model.attention_dropout=0.1", "train.micro_batch_size=4", "train.steps=12",
        "checkpoint.every=5",
    ]  # fmt: skip
    whole = pretrain(config(data_folder, tmp_path / "whole", *settings)).run
    shutil.copytree(whole, tmp_path / "resumed")
    resumed = tmp_path / "resumed"
    shutil.rmtree(resumed / "export")
    for name in ("step-00000010", "step-00000012"):
        shutil.rmtree(resumed / "checkpoints" / name)
    pretrain(config(data_folder, resumed, *settings))
    for name, tensor in final_weights(whole).items():
        assert torch.equal(tensor, final_weights(resumed)[name]), name


def test_whether_to_compile_may_change_in_a_run(data_folder: Path, tmp_path: Path) -> None:
    settings = ("train.steps=2",), ("train.steps=2", "train.compile=off")
    results = [pretrain(config(data_folder, tmp_path / "run", *each)) for each in settings]
    assert [result.outcome.step for result in results] == [2, 2]


def test_an_objective_alone_is_no_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "objectives/electra-15", "--data", "D", "--out", "O"]) == 2
    assert 'extends = ["electra-base", "objectives/electra-15"]' in capsys.readouterr().err

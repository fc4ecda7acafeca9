"""Transformer-XL, XLNet and streams on the command line: what cannot go together is said at once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_corpus import config as corpus_config
from small_corpus import write_corpus
from small_run import SMALL

from electra.cli import main
from electra.config import load_config
from electra.errors import CheckpointError, ConfigError
from electra.preparation.merge import merge_data
from electra.preparation.run import prepare
from electra.pretraining.config import PretrainConfig
from electra.pretraining.dry_run import dry_run
from electra.pretraining.run import pretrain

MEMORY = 'extends = ["electra-tiny", "objectives/electra-memory"]\n'
OPTIONS = [
    part
    for override in SMALL
    if not override.startswith("generator.")
    for part in ("--" + override.partition("=")[0], override.partition("=")[2])
]
Refused = Callable[..., str]


@pytest.fixture
def preset(tmp_path: Path) -> Callable[[str], str]:
    """The name of a preset, or the path of a file with ELECTRA and a memory."""
    (file := tmp_path / "electra-memory.toml").write_text(MEMORY)
    return lambda name: str(file) if name == "electra-memory" else name


@pytest.fixture
def refused(
    data_folder: Path, tmp_path: Path, preset: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> Refused:
    """What a command says that ends with exit status 2, without a run's folder."""

    def found(name: str, *arguments: str, data: Path = data_folder, sizes: bool = True) -> str:
        run = tmp_path / "run"
        options = ["--train.steps", "1", *(OPTIONS if sizes else [])]
        assert main(["pretrain", preset(name), "--data", str(data), "--out", str(run), *options, *arguments]) == 2
        assert not run.exists()
        return capsys.readouterr().err

    return found


@pytest.mark.parametrize(
    ("name", "settings", "problem"),
    [
        (
            "xlnet-tiny",
            ["model.memory_length=16"],
            "contiguous are shuffled, .*set packing.builder stream, or model.mem",
        ),
        ("txl-tiny", ["packing.builder=full-sentences"], "of packing.builder full-sentences are shuffled"),
        ("electra-tiny", ["model.memory_length=16"], "memory_length: needs kind relative"),
        ("electra-tiny", ["model.direction=left"], "direction: needs kind relative"),
        (
            "bert-tiny",
            ["packing.builder=stream"],
            "next needs two segments, but rows of packing.builder stream",
        ),
        ("electra-memory", ["objective.sentence_loss=order"], "order needs two segments, but rows of packing"),
        (
            "txl-tiny",
            ["objective.sentence_loss=next"],
            "sentence_loss: is for .* the objective is causal-lm; leave",
        ),
        ("xlnet-tiny", ["packing.builder=stream"], "rows of a stream have one segment; set it to 1"),
        ("txl-tiny", ["train.batch_ramp_steps=4"], "same number of rows; set it to 0"),
        ("txl-tiny", ["model.direction=both"], "causal-lm needs .* left-to-right.*; set .* model.direction left"),
        ("xlnet-tiny", ["model.direction=left"], "needs .* bidirectional.*; set model.direction both"),
        ("txl-tiny", ["objective.kind=masked-lm"], "needs .* bidirectional.*; set model.direction both"),
        ("xlnet-tiny", ["model.positions=learnt"], "needs .* two-streams.*; encoders that have it: relative"),
        ("electra-tiny", ["objective.kind=causal-lm"], "needs .* left-to-right.*; set model.kind relative"),
        ("electra-memory", ["objective.sharing=embeddings"], "the generator may share tokens, or none"),
        ("electra-memory", ["objective.share_norm=true"], "needs objective.sharing embeddings or all"),
        *(
            (
                "electra-memory",
                [f"objective.kind={kind}"],
                f"model.memory_length: {kind} has no memory; set it to 0",
            )
            for kind in ("two-stage", "adversarial", "replace-mlm", "all-tokens-mlm")
        ),
        (
            "electra-memory",
            ["objective.kind=electric", "objective.sharing=none"],
            "electric needs .* pair-mask, shared-tables, .*; encoders that have it: bert",
        ),
        ("xlnet-tiny", ["init.attention=neighbours"], "does not support neighbours; set it to random"),
        (
            "electra-memory",
            ["generator.positions=relative", "objective.sharing=none", "init.attention=neighbours"],
            "does not support neighbours; set it to random",
        ),
        (
            "electra-memory",
            ["packing.sequence_length=600"],
            r"more than model.max_positions, 512 \(of the generator\)",
        ),
        ("xlnet-tiny", ["evaluation.memory_length=64"], "set it to 0, or set model.memory_length"),
        ("txl-tiny", ["model.memory_length=-1"], "memory_length: must be at least 0, got -1"),
        ("txl-tiny", ["objective.fakes=unigram"], "fakes: is for .* the objective is causal-lm"),
        (
            "xlnet-tiny",
            ["masking.replacement=true", "masking.kind=uniform"],
            "a target has one place in the order",
        ),
        ("xlnet-tiny", ["objective.discriminator_positions=masked"], "is for .* objective is permutation-lm"),
        ("xlnet-tiny", ["model.share_layers=all"], "share_layers: needs kind bert, got 'all'"),
        ("xlnet-tiny", ["model.embedding_size=64"], "it must equal hidden_size, 128; got 64"),
        ("xlnet-tiny", ["model.hidden_size=33", "model.embedding_size=33", "model.heads=3"], "must be even"),
        ("txl-tiny", ["packing.builder=streams"], "did you mean 'stream'"),
        ("txl-tny", [], "did you mean 'txl-tiny'"),
    ],
)
def test_settings_that_cannot_go_together(
    name: str, settings: list[str], problem: str, preset: Callable[[str], str]
) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_config(PretrainConfig, preset(name), settings)


def test_settings_that_an_objective_never_looks_at(refused: Refused) -> None:
    message = refused("txl-tiny", "--masking.share", "0.3", "--generator.layers", "2")
    assert "generator.layers, masking.share: causal-lm has no generator and no masks; leave it out" in message
    message = refused("xlnet-tiny", "--generator.width", "0.5", "--masking.mask_share", "0.8")
    assert "generator.width, masking.mask_share: permutation-lm has no generator; leave it out" in message


def test_text_that_is_no_stream_of_this_batch(
    refused: Refused, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is packed or written; a dry run and `data inspect` say so, too."""
    small = load_config(PretrainConfig, "txl-tiny", [f"data={data_folder}", "train.batch_size=4096"])
    with pytest.raises(ConfigError, match=r"windows, fewer than the 4,096 rows .* a smaller train\.batch_size"):
        dry_run(small)
    assert "fewer than the 4,096 rows of a batch" in refused("txl-tiny", "--train.batch_size", "4096", sizes=False)
    few = corpus_config(write_corpus(tmp_path / "few.jsonl", 12), tmp_path / "few")
    prepare(replace(few, tokenizer=data_folder / "tokenizer.json"))
    merge_data((data_folder, few.out), tmp_path / "mixture", weights=(3.0, 1.0))
    message = "are sampled by weight and not read from beginning to end; choose another builder"
    assert message in refused("txl-tiny", data=tmp_path / "mixture")
    assert main(["data", "inspect", str(tmp_path / "mixture"), "--preset", "txl-tiny"]) == 2
    assert message in capsys.readouterr().err
    found = refused("txl-tiny", "--train.batch_size", "1", "--packing.sequence_length", "512", data=few.out)
    assert (
        "is shorter than a window of 512 tokens and the token after it; prepare it with a larger --heldout"
        in found
    )


@pytest.fixture
def trained(data_folder: Path, tmp_path: Path, without_transformers: None) -> Callable[..., Path]:
    def run(name: str, *settings: str, out: str = "") -> Path:
        small = [*SMALL, "train.steps=2", f"data={data_folder}", f"out={tmp_path / (out or name)}"]
        # The shapes of what is continued are its own.
        fresh = not any(setting.startswith("init.discriminator") for setting in settings)
        small = [one for one in small if fresh or not one.startswith("model.")]
        return pretrain(load_config(PretrainConfig, name, [*small, *settings])).run

    return run


def test_networks_of_another_kind_of_positions(
    trained: Callable[..., Path], refused: Refused, preset: Callable[[str], str]
) -> None:
    xlnet, bert = trained("xlnet-tiny"), trained("bert-tiny")
    found = refused("xlnet-tiny", "--init.discriminator", str(bert), sizes=False)
    assert f"{bert} is of kind bert, and objective.kind permutation-lm needs two-streams" in found
    found = refused("electra-memory", "--init.discriminator", str(bert), sizes=False)
    assert "and model.memory_length 128 needs kind relative; start from a folder of that kind" in found
    found = refused("electra-tiny", "--init.discriminator", str(xlnet), sizes=False)
    assert "next to kind relative, the generator may share tokens, or none" in found and "attention" not in found
    found = refused(
        "electra-tiny", "--init.discriminator", str(xlnet), "--objective.kind", "electric", sizes=False
    )
    assert f"{xlnet} is of kind relative, and objective.kind electric needs pair-mask" in found
    found = refused(
        "electra-memory", "--init.generator", str(xlnet / "export/encoder"), "--init.discriminator", str(xlnet),
        sizes=False,
    )  # fmt: skip
    assert "is a causal or permutation language model; a generator is a masked language model" in found
    # An XLNet of pairs goes on as a left-to-right one on a stream, and as a discriminator.
    for name in ("txl-tiny", "electra-tiny"):
        sharing = ["objective.sharing=tokens"] if name == "electra-tiny" else []
        assert (trained(name, f"init.discriminator={xlnet}", *sharing, out=f"from-{name}") / "export").is_dir()


def test_a_run_goes_on_with_its_memory(trained: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = trained("txl-tiny")
    for setting in ("model.memory_length=64", "evaluation.memory_length=64"):
        name = setting.partition("=")[0]
        with pytest.raises(CheckpointError, match=rf"{name}: the run has \d+, asked for 64"):
            trained("txl-tiny", setting)
    assert main(["score", str(run), "the fox"]) == 2
    assert "is a language model; this needs a discriminator" in capsys.readouterr().err
    assert main(["status", str(run)]) == 0
    assert "perplexity per token" in capsys.readouterr().out

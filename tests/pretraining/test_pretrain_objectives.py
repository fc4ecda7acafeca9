"""Every objective as a whole run: killed, resumed, exported, and what it takes in the data."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from electra.cli import main
from electra.config import PRESETS, load_config
from electra.data.sampling import Rows, Sampler
from electra.data.shards import TokenData
from electra.data.tags import TagTable
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError, ConfigError, DataError
from electra.export.loading import load_pretrained
from electra.finetuning.config import load_task_config
from electra.finetuning.run import finetune
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import PretrainResult, pretrain
from electra.reports.metrics import read_metrics

SMALL = """
[model]
hidden_size = 32
embedding_size = 32
feed_forward_size = 64
heads = 2
layers = 1
dropout = 0.1

[generator]
layers = 1
hidden_size = 16
feed_forward_size = 32
heads = 1

[packing]
sequence_length = 32

[train]
batch_size = 8
steps = 12
precision = "float32"

[optimizer]
warmup_steps = 3

[evaluation]
every = 6
examples = 8

[checkpoint]
every = 4

[tracking]
tensorboard = false
"""
OVERLAYS = sorted(path.stem for path in (PRESETS / "objectives").glob("*.toml") if path.stem != "same-tag-fakes")
MORE = {
    "words": ["masking.kind=words", "objective.sentence_loss=order"],
    "spans": [
        "masking.kind=spans",
        "masking.share=0.5",
        "objective.sentence_loss=next",
        "objective.kind=masked-lm",
    ],
    "rare": ["masking.kind=frequency", "masking.copies=2", "objective.sharing=disentangled"],
    "one block": [
        "model.share_layers=all",
        "model.layers=2",
        "model.embedding_size=16",
        "objective.kind=masked-lm",
        "objective.sentence_loss=order",
        "masking.kind=ngrams",
        "packing.builder=sentence-pairs",
    ],
    "one attention": ["model.share_layers=attention", "model.layers=2", "packing.builder=doc-sentences"],
    "both remember": [
        "model.positions=relative",
        "model.memory_length=24",
        "model.type_vocabulary_size=1",
        "generator.positions=relative",
        "objective.sharing=none",
        "init.attention=random",
        "packing.builder=stream",
        "train.micro_batch_size=4",
    ],
    "growing": ["train.batch_ramp_steps=8", "train.micro_batch_size=4"],
    "bold": ["objective.temperature=2.0", "objective.final_temperature=0.5", "objective.sharing=detached"],
}


@pytest.fixture
def tried(data_folder: Path, tmp_path: Path) -> Callable[..., PretrainResult]:
    """Run an overlay or some settings in a folder of this name."""
    (tmp_path / "small.toml").write_text(SMALL)

    def run(out: str, overlay: str | None = None, *settings: str, data: Path = data_folder) -> PretrainResult:
        files = ["electra-tiny", str(tmp_path / "small.toml"), *([f"objectives/{overlay}"] if overlay else [])]
        (file := tmp_path / f"{out}.toml").write_text(f"extends = {files}\n")
        places = [f"data={data}", f"out={tmp_path / out}"]
        return pretrain(load_config(PretrainConfig, file, [*places, *settings]))

    return run


def weights(result: PretrainResult) -> dict[str, torch.Tensor]:
    return load_file(max((result.run / "checkpoints").iterdir()) / "model.safetensors")


@pytest.mark.parametrize("name", [*OVERLAYS, *MORE])
def test_a_run_that_died_ends_as_if_it_had_not_and_goes_out(
    name: str, tried: Callable[..., PretrainResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay, settings = (name, []) if name in OVERLAYS else (None, MORE[name])
    whole = tried("whole", overlay, *settings)

    rows = Sampler.rows

    def die(sampler: Sampler, step: int) -> Rows:
        if step == 11:
            raise RuntimeError("the machine is gone")
        return rows(sampler, step)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(Sampler, "rows", die)
        tried("died", overlay, *settings)
    resumed = tried("died", overlay, *settings)
    expected, found = weights(whole), weights(resumed)
    assert expected.keys() == found.keys() and all(torch.equal(expected[key], found[key]) for key in expected)
    assert whole.exported is not None
    for tower, folder in whole.exported.folders.items():
        loaded = load_pretrained(folder)
        assert loaded.head is not None and loaded.encoder.config.hidden_size in (16, 32)
        difference = whole.exported.differences[tower]
        assert difference is None or difference < 1e-5
        assert "# " in (folder / "README.md").read_text()


def test_same_tag_replacements_need_tags(
    tried: Callable[..., PretrainResult], data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError, match="has no part-of-speech tags; run `electra data tags"):
        tried("without", "same-tag-fakes")
    data = tmp_path / "data"
    shutil.copytree(data_folder, data)
    treebank = tmp_path / "words.conllu"
    lines = [("the", "DET"), ("fox", "NOUN"), ("paints", "VERB"), ("the", "DET"), ("window", "NOUN")]
    treebank.write_text(
        "".join(f"{i}\t{w}\t_\t{t}\t_\t_\t_\t_\t_\t_\n" for i, (w, t) in enumerate(lines, start=1)) + "\n"
    )
    assert main(["data", "tags", str(data), "--conllu", str(treebank)]) == 0
    assert "a tag is known for" in " ".join(capsys.readouterr().out.split())
    table, tokenizer = TagTable.read(data), load_tokenizer(data / "tokenizer.json")
    assert table is not None
    tags = {word: table.names[table.tags_V[tokenizer.token_to_id(word)]] for word in ("the", "fox", "window")}
    assert tags == {"the": "DET", "fox": "NOUN", "window": "NOUN"}
    assert tried("with", "same-tag-fakes", data=data).exported is not None
    other = replace(table, tags_V=np.where(table.tags_V == 1, 2, table.tags_V))
    other.write(data)
    with pytest.raises(CheckpointError, match="other tags"):
        tried("with", "same-tag-fakes", data=data)
    (data / "tags.json").write_text("{}")
    with pytest.raises(DataError, match="cannot be read"):
        tried("broken", "same-tag-fakes", data=data)
    assert main(["data", "tags", str(data)]) == 2


def test_a_tagger_of_ones_own_tags_the_data(
    tried: Callable[..., PretrainResult], data_folder: Path, tmp_path: Path
) -> None:
    made = tried("run")
    (tmp_path / "train.txt").write_text("the\tDET\nfox\tNOUN\npaints\tVERB\n\n" * 20)
    finetune(
        load_task_config({
            "model": made.run, "kind": "tagging", "data.path": tmp_path / "train.txt", "out": tmp_path / "tagger",
            "train.epochs": 1, "tracking.tensorboard": False,
        })
    )  # fmt: skip
    data = tmp_path / "data"
    shutil.copytree(data_folder, data)
    assert main(["data", "tags", str(data), "--tagger", str(tmp_path / "tagger"), "--sentences", "50"]) == 0
    table = TagTable.read(data)
    assert table is not None and table.tags_V.any()
    assert len(table.tags_V) == TokenData.open(data).vocabulary_size


@pytest.mark.parametrize("both", [True, False], ids=["beside its discriminator", "beside a fresh one"])
def test_a_frozen_pretrained_generator(both: bool, tried: Callable[..., PretrainResult]) -> None:
    before = tried("before", None, "objective.sharing=none", "generator.hidden_size=24")
    start = [f"init.generator={before.run}", *([f"init.discriminator={before.run}"] if both else [])]
    after = tried("after", None, "objective.fakes=frozen", "objective.sharing=none", *start)
    again = tried("after", None, "objective.fakes=frozen", "objective.sharing=none", *start)
    assert again.outcome.step == 12, "a finished run is known as such"
    assert before.exported is not None and after.exported is not None
    theirs, ours = (load_pretrained(one.exported.folders["generator"]) for one in (before, after))
    for name, tensor in theirs.encoder.state_dict().items():
        assert torch.equal(tensor, ours.encoder.state_dict()[name])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["objective.fakes=frozen", "objective.sharing=none"], "set init.generator"),
        (["objective.fakes=frozen"], "cannot share weights; set it to none"),
        (["objective.kind=two-stage", "objective.sharing=none"], "needs a generator of the discriminator's shape"),
        (["objective.kind=two-stage", "objective.hand_over=false"], "is frozen in the second stage"),
        (
            ["objective.kind=adversarial", "objective.fakes=uniform"],
            "trains its own generator",
        ),
        (["objective.kind=electric", "objective.sharing=tokens"], "must be one of none, embeddings"),
        (["objective.kind=replace-mlm", "objective.discriminator_positions=masked"], "is for replaced-token"),
        (["objective.discriminator_positions=masked", "masking.replacement=true"], "masking.replacement"),
        (["objective.sentence_loss=order", "packing.one_segment_share=1"], "leaves no pair of segments"),
        (["masking.random_share=0.5"], "must lie between 0 and 1 - mask_share"),
        (["masking.kind=word"], "did you mean 'words'"),
        (["objective.hand_over=false"], "hand_over: is for two-stage, and the objective is replaced-token"),
        (["objective.anneal=linear"], "anneal: is for adversarial"),
        (
            ["objective.unigram_power=0.5"],
            "unigram_power: is for fakes unigram, bigram, trigram, same-tag, not generator",
        ),
        (["objective.kind=two-stage", "objective.first_share=1"], "first_share: must be above 0 and below 1"),
    ],
)
def test_contradictory_settings_are_refused_before_training(settings: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_config(PretrainConfig, "electra-tiny", settings)


def test_each_of_two_stages_has_its_own_schedule_and_metrics(tried: Callable[..., PretrainResult]) -> None:
    result = tried("two", "two-stage", "train.report_every=1")
    reports = read_metrics(result.run).reports
    rates = [one["learning_rate"] for one in reports]
    assert rates[:6] == rates[6:] and rates[0] < max(rates) > rates[5], "up and down, and the same again"
    assert [set(one) & {"generator_loss", "discriminator_loss"} for one in reports] == (
        [{"generator_loss"}] * 6 + [{"discriminator_loss"}] * 6
    )
    assert " · generator " in (result.run / "log.txt").read_text(), "although it has no other loss beside it"
    result = tried("once", "two-stage", "train.report_every=8")
    first, _ = read_metrics(result.run).reports
    for name, mine in (("generator_loss", reports[:6]), ("discriminator_loss", reports[6:8])):
        assert first[name] == pytest.approx(sum(one[name] for one in mine) / len(mine)), "no step counts as 0"
    result = tried("encoder", "two-stage", "train.report_every=1", "objective.first_stage=encoder")
    assert [set(one) & {"encoder_loss", "generator_loss"} for one in read_metrics(result.run).reports] == (
        [{"encoder_loss"}] * 6 + [{"generator_loss"}] * 6
    ), "the encoder is no generator"
    first_line = next(line for line in (result.run / "log.txt").read_text().splitlines() if "step 1/" in line)
    assert " · encoder " in first_line and "generator" not in first_line

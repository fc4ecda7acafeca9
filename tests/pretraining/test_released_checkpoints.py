"""Released checkpoints continued: folders of all types, with the tokenizers that they have."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.released_folders import FOLDERS, write_released
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from electra.config import load_config
from electra.data.shards import TokenData
from electra.data.tokenizer import continuation_mask, load_tokenizer
from electra.errors import CheckpointError, DataError
from electra.export.loading import load_pretrained
from electra.export.parity import parity
from electra.preparation.config import PrepareConfig
from electra.preparation.run import prepare
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import pretrain

transformers: Any = pytest.importorskip("transformers")

RUN = [
    "generator.layers=1", "generator.hidden_size=16", "generator.feed_forward_size=24", "generator.heads=1",
    "packing.sequence_length=24", "train.batch_size=2", "train.steps=50", "evaluation.examples=8",
    "evaluation.every=50", "checkpoint.every=50", "train.precision=float32", "tracking.tensorboard=false",
    "optimizer.weight_decay=0", "optimizer.warmup_steps=5",
]  # fmt: skip


@pytest.fixture(scope="module")
def texts(corpus_file: Path) -> list[str]:
    return [json.loads(line)["text"] for line in corpus_file.read_text().splitlines()][:60]


def prepared(folder: Path, corpus_file: Path, out: Path) -> Path:
    prepare(PrepareConfig(corpus=(str(corpus_file),), out=out, tokenizer=folder, workers=1, heldout=0.1))
    return out


def settings(data: Path, out: Path, *overrides: str) -> PretrainConfig:
    return load_config(PretrainConfig, "electra-tiny", [*RUN, f"data={data}", f"out={out}", *overrides])


@pytest.mark.parametrize("form", FOLDERS)
def test_a_released_checkpoint_is_trained_and_goes_back(
    texts: list[str], corpus_file: Path, tmp_path: Path, form: str
) -> None:
    """Load, prepare with its tokenizer, 50 steps with masked whole words, export, and transformers loads it."""
    released = tmp_path / "released"
    model = write_released(released, form, texts)
    data = prepared(released, corpus_file, tmp_path / "data")
    given = load_tokenizer(released)
    text = "The fox sat by the river."
    assert load_tokenizer(TokenData.open(data).tokenizer_path).encode(text).ids == given.encode(text).ids
    assert 0.05 < continuation_mask(given).mean() < 0.99
    chosen = f"init.discriminator={released}", "masking.kind=words", "objective.sharing=none"
    run = pretrain(settings(data, tmp_path / "run", *chosen)).run
    stored, before = load_pretrained(run), load_pretrained(released)
    assert stored.encoder.config.shape() == before.encoder.config.shape()
    rows, old_rows = (one.encoder.token_table.weight for one in (stored, before))
    behind = len(old_rows) - 13
    assert torch.equal(rows[behind:], old_rows[behind:])  # no token has these rows
    assert not torch.equal(rows[:behind], old_rows[:behind])
    export = run / "export/discriminator"
    loaded, report = transformers.AutoModel.from_pretrained(export, output_loading_info=True)
    assert not report["missing_keys"] and loaded.config.vocab_size == model.config.vocab_size
    ids_BL = torch.randint(len(old_rows), (2, 20), generator=torch.Generator().manual_seed(0))
    assert stored.head is not None
    mask_BL = torch.arange(20) < torch.tensor([20, 13])[:, None]
    assert (parity(export, stored.encoder, stored.head, ids_BL, None, mask_BL) or 0.0) < 1e-5
    log = (run / "log.txt").read_text()
    if form == "bert":
        assert f"not used of {released}: its head (generator), its head for pairs of segments" in log
    if form == "deberta-v2":
        assert "its head (generator)" in log


@pytest.mark.parametrize("form", ["bert", "modernbert", "deberta-v2"])
def test_a_frozen_generator_keeps_its_bits(texts: list[str], corpus_file: Path, tmp_path: Path, form: str) -> None:
    """The weights of a smaller sibling come out as they went in, under the same names."""
    write_released(tmp_path / "large", form, texts)
    sibling = write_released(tmp_path / "small", form, texts, num_hidden_layers=2, hidden_size=24)
    data = prepared(tmp_path / "large", corpus_file, tmp_path / "data")
    towers = f"init.discriminator={tmp_path / 'large'}", f"init.generator={tmp_path / 'small'}"
    frozen = "objective.sharing=none", "objective.fakes=frozen", "train.steps=3"
    run = pretrain(settings(data, tmp_path / "run", *towers, *frozen)).run
    pretrained = load_pretrained(run / "export/generator")
    before = load_pretrained(tmp_path / "small")
    assert pretrained.head is not None and before.head is not None
    for one, other in ((pretrained.encoder, before.encoder), (pretrained.head, before.head)):
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())
    if form != "bert":  # generators of kind bert are exported as ElectraForMaskedLM
        loaded = type(sibling).from_pretrained(run / "export/generator").state_dict()
        assert all(torch.equal(value, loaded[name]) for name, value in sibling.state_dict().items())


def test_rows_behind_the_vocabulary_stay_in_later_runs(
    texts: list[str], corpus_file: Path, tmp_path: Path
) -> None:
    """DeBERTaV3 has 128,100 rows for 128,001 entries: a second stage has them, too, and is resumed."""
    released = tmp_path / "released"
    write_released(released, "deberta-v2", texts)
    data, short = prepared(released, corpus_file, tmp_path / "data"), "train.steps=3"
    tower = f"init.discriminator={released}", "objective.sharing=none"
    first = pretrain(settings(data, tmp_path / "first", short, *tower)).run
    config = load_config(
        PretrainConfig, first / "config.toml", [f"init.from={first}", f"out={tmp_path / 'second'}", short]
    )
    second = pretrain(config).run
    assert pretrain(config).run == second  # the same command again resumes the run
    unset = replace(config, model=replace(config.model, vocabulary_size=0))
    assert pretrain(unset).run == second
    rows = len(load_pretrained(released).encoder.token_table.weight)
    assert TokenData.open(data).vocabulary_size == rows - 13
    assert all(len(load_pretrained(run).encoder.token_table.weight) == rows for run in (first, second))


def test_a_frozen_generator_gives_a_new_discriminator_its_rows(
    texts: list[str], corpus_file: Path, tmp_path: Path
) -> None:
    released = tmp_path / "released"
    write_released(released, "bert", texts)
    data = prepared(released, corpus_file, tmp_path / "data")
    frozen = f"init.generator={released}", "objective.fakes=frozen", "objective.sharing=none"
    config = settings(data, tmp_path / "run", *frozen, "model.max_positions=40", "train.steps=3")
    run = pretrain(config).run
    assert pretrain(config).run == run  # the same command again resumes the run
    rows = len(load_pretrained(released).encoder.token_table.weight)
    assert (
        len(load_pretrained(run).encoder.token_table.weight) == rows == TokenData.open(data).vocabulary_size + 13
    )


@pytest.mark.parametrize("form", ["bert", "modernbert", "deberta-v2"])
def test_a_generator_of_the_first_layers(texts: list[str], corpus_file: Path, tmp_path: Path, form: str) -> None:
    write_released(tmp_path / "released", form, texts)
    data = prepared(tmp_path / "released", corpus_file, tmp_path / "data")
    chosen = f"init.discriminator={tmp_path / 'released'}", "init.generator_layers=1", "train.steps=3"
    run = pretrain(settings(data, tmp_path / "run", *chosen)).run
    generator = transformers.AutoModelForMaskedLM.from_pretrained(run / "export/generator")
    assert generator.config.num_hidden_layers == 1
    log = (run / "log.txt").read_text()
    assert "cut to the first 1 of 3 blocks" in log and "starting from the generator, 1 layers of 32; the head is pre-trained" in log  # fmt: skip  # noqa: E501


def test_what_cannot_be_continued_is_refused_in_one_line(
    texts: list[str], corpus_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "released"
    write_released(folder, "modernbert", texts)
    path = folder / "config.json"
    fields = json.loads(path.read_text())
    types = ["full_attention", "sliding_attention", "full_attention"]
    for change, message in (
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; electra reads electra, bert"),
        ({"model_type": "deberta"}, "model_type is 'deberta'; the first DeBERTa has another attention"),
        ({"layer_types": [*types[1:], types[1]]}, "layer_types: in electra the first layer and every n-th one"),
        ({"layer_types": types[:2]}, "layer_types: in electra the first layer and every n-th one"),
    ):
        path.write_text(json.dumps(fields | change))
        with pytest.raises(CheckpointError, match=message):
            load_pretrained(folder)
    path.write_text(json.dumps(fields))
    vocabulary = {name: number for number, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([AddedToken("[CLS]", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    for error in (lambda: load_pretrained(folder), lambda: prepared(folder, corpus_file, tmp_path / "data")):
        with pytest.raises(DataError, match=r"has no \[MASK\] or <mask>, and ELECTRA needs all five"):
            error()

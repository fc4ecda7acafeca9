"""Runs that start from pre-trained networks: both networks, a BERT, and networks that do not fit."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from electra.cli import main
from electra.config import load_config
from electra.data.shards import TokenData
from electra.errors import CheckpointError, ConfigError, DataError
from electra.export.loading import load_pretrained
from electra.modeling.evaluation_mode import evaluation_mode
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.sharing import DetachedEmbedding
from electra.preparation.config import PrepareConfig
from electra.preparation.run import prepare
from electra.pretraining.config import PretrainConfig, build_objective, with_vocabulary
from electra.pretraining.dry_run import dry_run
from electra.pretraining.run import pretrain
from electra.pretraining.warm_start import initialize, load_warm_start, with_shapes

SMALL = [
    "model.hidden_size=32", "model.embedding_size=16", "model.feed_forward_size=64", "model.heads=2",
    "model.layers=1", "generator.layers=1", "generator.hidden_size=24", "generator.feed_forward_size=40",
    "packing.sequence_length=32", "train.batch_size=8", "train.report_every=5", "evaluation.examples=16",
    "train.precision=float32", "tracking.tensorboard=false", "optimizer.warmup_steps=2", "train.steps=4",
]  # fmt: skip


def config(data: Path, out: Path, *overrides: str) -> PretrainConfig:
    return load_config(PretrainConfig, "electra-tiny", [*SMALL, f"data={data}", f"out={out}", *overrides])


@pytest.fixture(scope="module")
def first(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exports of a short run."""
    return pretrain(config(data_folder, tmp_path_factory.mktemp("runs") / "first")).run / "export"


def started(settings: PretrainConfig) -> Any:
    """The objective of a config before its first step."""
    assert settings.data is not None
    data, start = TokenData.open(settings.data), load_warm_start(settings)
    settings = with_vocabulary(with_shapes(settings, start), len(data.unigram_counts))
    objective = build_objective(settings, data.special)
    initialize(objective, settings, data, start)
    return objective


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_both_networks_continue_with_their_shapes_and_heads(
    first: Path, data_folder: Path, tmp_path: Path
) -> None:
    # The preset asks for other sizes; the networks decide.
    towers = [f"init.discriminator={first / 'discriminator'}", f"init.generator={first / 'generator'}"]
    settings = load_config(PretrainConfig, "electra-tiny", [f"data={data_folder}", *towers])
    objective = started(settings)
    for tower, name in ((objective.exportable_networks()[name], name) for name in ("discriminator", "generator")):
        loaded = load_pretrained(first / name)
        assert loaded.head is not None
        assert same(tower.encoder, loaded.encoder) and same(tower.head, loaded.head)
    assert objective.generator.encoder.embeddings.token is objective.encoder.embeddings.token
    result = pretrain(config(data_folder, tmp_path / "second", *towers))
    stored = load_config(PretrainConfig, result.run / "config.toml")
    assert (stored.model.hidden_size, stored.generator.hidden_size) == (32, 24)
    card = (result.run / "README.md").read_text()
    assert "Continued from `discriminator`." in card and str(first) not in card


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints/step-00000004/model.safetensors")


def test_it_resumes_where_the_first_networks_are_gone(first: Path, data_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(first / "discriminator", copy)
    options = (
        f"init.discriminator={copy}",
        "model.hidden_size=128",
        "checkpoint.every=2",
        "optimizer.steps_before=9",
    )
    run = pretrain(config(data_folder, tmp_path / "run", *options)).run
    expected = weights(run)
    shutil.rmtree(run / "checkpoints/step-00000004")
    shutil.rmtree(copy)
    pretrain(config(data_folder, tmp_path / "run", *options))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(run).items())
    rates = [json.loads(line).get("learning_rate") for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert next(filter(None, rates)) == pytest.approx(1e-3 * 0.25)  # at the fourth step of four
    assert "the learning-rate schedule is that of a run after 9 steps" in (run / "README.md").read_text()


def test_networks_that_changed_before_the_first_checkpoint_are_named(
    first: Path, data_folder: Path, tmp_path: Path
) -> None:
    settings = config(data_folder, tmp_path / "run", f"init.discriminator={first / 'discriminator'}")
    run = pretrain(settings).run
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    stored = (run / "config.toml").read_text()
    (run / "config.toml").write_text(stored.replace("hidden_size = 32", "hidden_size = 64"))
    with pytest.raises(CheckpointError, match=r"model.hidden_size: the run has 64, asked for 32"):
        pretrain(settings)


@pytest.mark.parametrize("sharing", ["embeddings", "all"])
def test_faithful_runs_and_tied_ones_go_on_with_their_heads(
    data_folder: Path, tmp_path: Path, sharing: str
) -> None:
    """The LayerNorm of the embeddings shared too, or everything."""
    settings = [f"objective.sharing={sharing}", "objective.share_norm=true"]
    if sharing == "all":
        settings += ["generator.hidden_size=32", "generator.feed_forward_size=64", "generator.heads=2"]
    made = pretrain(config(data_folder, tmp_path / "made", *settings)).run / "export"
    towers = f"init.discriminator={made / 'discriminator'}", f"init.generator={made / 'generator'}"
    objective = started(
        load_config(
            PretrainConfig,
            "electra-tiny",
            [f"data={data_folder}", *settings[:2], *towers, "packing.sequence_length=32"],
        )
    )
    for name, tower in objective.exportable_networks().items():
        loaded = load_pretrained(made / name)
        assert loaded.head is not None
        assert same(tower.encoder, loaded.encoder) and same(tower.head, loaded.head)


def test_a_bert_becomes_a_discriminator_with_a_fresh_generator(data_folder: Path, tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    rows = TokenData.open(data_folder).vocabulary_size + 5  # more than the tokenizer has entries, as some have
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=rows, hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=56,
            max_position_embeddings=40, hidden_act="relu",
        )
    )  # fmt: skip
    model.save_pretrained(tmp_path / "bert")
    shutil.copy(data_folder / "tokenizer.json", tmp_path / "bert")
    settings = config(data_folder, tmp_path / "run", f"init.discriminator={tmp_path / 'bert'}")
    objective = started(settings)
    assert same(objective.encoder, load_pretrained(tmp_path / "bert").encoder)
    assert (
        objective.generator.encoder.config.hidden_size == 24
        and objective.generator.encoder.config.embedding_size == 48
    )
    result = pretrain(settings)
    assert result.exported is not None
    assert all(difference is not None and difference < 1e-5 for difference in result.exported.differences.values())
    back = load_pretrained(result.run / "export/discriminator")
    assert back.encoder.config.vocabulary_size == rows and back.encoder.config.activation == "relu"
    # And as what it was: a masked language model, with its head, out as a Bert again.
    masked = config(
        data_folder, tmp_path / "masked", f"init.discriminator={tmp_path / 'bert'}", "objective.kind=masked-lm"
    )
    head = started(masked).head
    assert isinstance(head, MaskedLanguageModelHead)
    assert torch.equal(head.bias, model.cls.predictions.bias)
    exported = pretrain(masked).exported
    assert exported is not None and exported.folders.keys() == {"encoder"}
    assert json.loads((exported.folders["encoder"] / "config.json").read_text())["model_type"] == "bert"
    assert transformers.BertForMaskedLM.from_pretrained(exported.folders["encoder"]).config.hidden_act == "relu"


def test_settings_that_the_networks_decide_are_refused_by_name(
    first: Path, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["pretrain", "electra-tiny", "--data", str(data_folder), "--out", str(tmp_path / "run"), "--dry-run"]
    command += ["--init.discriminator", str(first), "--packing.sequence_length", "32"]
    assert main([*command, "--model.layers", "3", "--init.token_table", "random"]) == 2
    assert "init.token_table, model.layers: decided by the networks" in capsys.readouterr().err
    assert main([*command, "--model.dropout", "0.2", "--generator.layers", "3"]) == 0
    generator = ["--init.generator", str(first)]
    assert main([*command, *generator, "--generator.layers", "3", "--init.output_bias", "unigram"]) == 2
    assert "generator.layers, init.output_bias: decided by" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_energy_head_is_not_a_replaced_token_head(
    first: Path, data_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = pretrain(config(data_folder, tmp_path / "made", "objective.kind=electric")).run
    assert json.loads((made / "export/discriminator/config.json").read_text())["electra_objective"] == "electric"
    for kind, kept in (("replaced-token", False), ("electric", True)):
        settings = config(data_folder, tmp_path, f"init.discriminator={made}", f"objective.kind={kind}")
        loaded = load_pretrained(made).head
        assert loaded is not None and same(started(settings).head, loaded) is kept


def test_a_dry_run_shows_the_shape_that_is_taken(first: Path) -> None:
    settings = load_config(
        PretrainConfig, "electra-small", [f"init.discriminator={first}", "packing.sequence_length=32"]
    )
    plan = dry_run(settings)
    assert (plan.config.model.hidden_size, plan.config.model.layers) == (32, 1)


@pytest.mark.parametrize("preset", ["electra-tiny", "modern-tiny", "deberta-tiny"])
def test_both_networks_continue_with_disentangled_tables(data_folder: Path, tmp_path: Path, preset: str) -> None:
    """DeBERTaV3's recipe. The difference starts at that of their tables, so both compute what they did."""

    def settings(out: str, *overrides: str) -> PretrainConfig:
        places = f"data={data_folder}", f"out={tmp_path / out}"
        return load_config(PretrainConfig, preset, [*SMALL, "train.steps=2", *places, *overrides])

    export = pretrain(settings("first", "objective.sharing=none")).run / "export"
    both = f"init.discriminator={export / 'discriminator'}", f"init.generator={export / 'generator'}"
    networks = started(settings("next", *both, "objective.sharing=disentangled")).exportable_networks()
    ids_BL = torch.arange(5, 37).view(2, 16)
    for name, network in networks.items():
        before = load_pretrained(export / name)
        with evaluation_mode(network.encoder):
            torch.testing.assert_close(network.encoder(ids_BL), before.encoder(ids_BL), rtol=0, atol=1e-5)
        assert before.head is not None and same(network.head, before.head)
    generator, discriminator = networks["generator"].encoder, networks["discriminator"].encoder
    table = discriminator.embeddings.token
    assert isinstance(table, DetachedEmbedding) and table.table is generator.embeddings.token
    assert same(generator, load_pretrained(export / "generator").encoder)
    assert table.difference is not None and table.difference.abs().max() > 0
    assert pretrain(settings("next", *both, "objective.sharing=disentangled")).outcome.step == 2
    with pytest.raises(ConfigError, match=r"its embeddings\.token\.weight differs .*sharing detached shares it"):
        pretrain(settings("detached", *both, "objective.sharing=detached"))


@pytest.mark.parametrize("sharing", ["detached", "disentangled"])
def test_a_new_generator_owns_the_tables_that_the_discriminator_had(
    first: Path, data_folder: Path, tmp_path: Path, sharing: str
) -> None:
    start = f"init.discriminator={first / 'discriminator'}", f"objective.sharing={sharing}"
    networks = started(config(data_folder, tmp_path, *start)).exportable_networks()
    before = load_pretrained(first / "discriminator").encoder
    assert torch.equal(networks["generator"].encoder.token_table.weight, before.token_table.weight)
    ids_BL = torch.arange(5, 37).view(2, 16)
    with evaluation_mode(networks["discriminator"].encoder):
        assert torch.equal(networks["discriminator"].encoder(ids_BL), before(ids_BL))


def test_plans_without_data_say_that_they_count_the_old_vocabulary(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "transfer.toml"
    start = f'[init]\ndiscriminator = "{first}"\nvocabulary = "transfer"\n[packing]\nsequence_length = 32\n'
    file.write_text(f'extends = "electra-tiny"\n{start}')
    for command in (["flops", str(file)], ["pretrain", str(file), "--dry-run"]):
        assert main(command) == 0
        assert "FLOPs are those of the old vocabulary" in capsys.readouterr().err
    assert main(["flops", "electra-tiny"]) == 0
    assert "old vocabulary" not in capsys.readouterr().err


def test_networks_that_do_not_fit_are_refused(
    first: Path, data_folder: Path, corpus_file: Path, tmp_path: Path
) -> None:  # the vocabulary, the kind, the tables, the shapes, the objective
    discriminator, generator = first / "discriminator", first / "generator"
    run = tmp_path / "run"

    def refused(error: type[Exception], message: str, *overrides: str, data: Path = data_folder) -> None:
        with pytest.raises(error, match=message):
            pretrain(config(data, run, *overrides))
        assert not run.exists()

    other = tmp_path / "other"
    prepare(PrepareConfig(corpus=(str(corpus_file),), out=other, vocabulary_size=512, lowercase=False, workers=1))
    refused(DataError, r"another vocabulary .* entries differ", f"init.discriminator={discriminator}", data=other)
    refused(ConfigError, "needs init.discriminator", f"init.generator={generator}")
    towers = f"init.discriminator={discriminator}", f"init.generator={discriminator}"
    refused(CheckpointError, "is a discriminator; a generator is a masked language model", *towers)
    refused(CheckpointError, "there is no folder", "init.discriminator=/nowhere/at/all")
    towers = f"init.discriminator={discriminator}", f"init.generator={generator}"
    refused(ConfigError, "this objective has no separate generator", *towers, "objective.kind=electric")
    long = f"init.discriminator={discriminator}", "packing.sequence_length=600", "model.max_positions=600"
    refused(ConfigError, "600 is more than model.max_positions, 512", *long)

    changed = tmp_path / "changed"
    shutil.copytree(generator, changed)
    tensors = load_file(changed / "model.safetensors")
    tensors["electra.embeddings.word_embeddings.weight"][7] += 0.5
    save_file(tensors, changed / "model.safetensors")
    towers = f"init.discriminator={discriminator}", f"init.generator={changed}"
    refused(ConfigError, r"embeddings.token.weight differs from the discriminator's \(by up to 0.5\)", *towers)
    pretrain(config(data_folder, tmp_path / "apart", *towers, "objective.sharing=none"))
    facts = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps(facts | {"hidden_act": "relu"}))
    refused(ConfigError, "its activation is relu, but must be gelu", *towers)
    bert = tmp_path / "bert"
    masked = config(data_folder, tmp_path / "made", "objective.kind=masked-lm", "model.embedding_size=32")
    exported = pretrain(replace(masked, model=replace(masked.model, activation="relu"))).exported
    assert exported is not None
    shutil.copytree(exported.folders["encoder"], bert)
    towers = f"init.discriminator={bert}", f"init.generator={bert}"
    refused(CheckpointError, "has another activation than GELU", *towers)


@pytest.mark.parametrize("kind", ["replaced-token", "masked-lm"])
def test_shared_blocks_stay_shared(data_folder: Path, tmp_path: Path, kind: str) -> None:
    shape = "model.share_layers=all", "model.layers=2", "model.embedding_size=16", f"objective.kind={kind}"
    made = pretrain(config(data_folder, tmp_path / "made", *shape)).run / "export"
    tower = made / ("discriminator" if kind == "replaced-token" else "encoder")
    objective = started(
        config(data_folder, tmp_path / "run", f"objective.kind={kind}", f"init.discriminator={tower}")
    )
    assert objective.encoder.config.share_layers == "all"
    assert objective.encoder.blocks[0].feed_forward is objective.encoder.blocks[1].feed_forward
    assert same(objective.encoder, load_pretrained(tower).encoder)


def test_one_row_of_segments_stands_for_both(data_folder: Path, tmp_path: Path) -> None:
    result = pretrain(config(data_folder, tmp_path / "run", "model.type_vocabulary_size=1"))
    assert result.outcome.step == 4 and result.exported is not None
    assert max(difference or 0.0 for difference in result.exported.differences.values()) < 1e-5


def test_the_schedule_that_goes_on_needs_steps(data_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"give train.steps, not train.minutes"):
        config(data_folder, tmp_path, "optimizer.steps_before=100", "train.minutes=1")


def test_beside_relative_positions_the_generator_begins_at_its_neighbours(
    data_folder: Path, tmp_path: Path
) -> None:
    (preset := tmp_path / "memory.toml").write_text('extends = ["electra-tiny", "objectives/electra-memory"]\n')
    objectives = []
    for attention in ("random", "neighbours"):
        torch.manual_seed(0)
        settings = [f"data={data_folder}", f"init.attention={attention}"]
        objectives.append(started(load_config(PretrainConfig, str(preset), settings)).exportable_networks())
    plain, neighbours = objectives
    assert same(plain["discriminator"].encoder, neighbours["discriminator"].encoder)
    assert not same(plain["generator"].encoder.blocks[0], neighbours["generator"].encoder.blocks[0])
    table_LE = neighbours["generator"].encoder.embeddings.position.weight
    assert torch.allclose(table_LE.norm(dim=-1), table_LE[0].norm(), rtol=1e-3)  # sines and cosines of one angle


def test_the_generator_is_a_copy_of_the_first_blocks(data_folder: Path, tmp_path: Path) -> None:
    """Of a masked language model with its head, of a discriminator without."""
    shape = "model.layers=3", "model.embedding_size=32", "objective.kind=masked-lm"
    masked = pretrain(config(data_folder, tmp_path / "masked", *shape)).run / "export/encoder"
    copied = f"init.discriminator={masked}", "init.generator_layers=2"
    objective = started(config(data_folder, tmp_path / "run", *copied))
    source, networks = load_pretrained(masked), objective.exportable_networks()
    generator, head = networks["generator"].encoder, networks["generator"].head
    assert source.head is not None and same(head, source.head) and len(generator.blocks) == 2
    assert all(same(generator.blocks[layer], source.encoder.blocks[layer]) for layer in range(2))
    assert same(networks["discriminator"].encoder, source.encoder)
    assert generator.token_table is networks["discriminator"].encoder.token_table
    start = load_warm_start(config(data_folder, tmp_path / "run", *copied))
    assert start.discriminator is not None and start.generator is not None
    assert start.discriminator.head is not start.generator.head  # a transfer to another vocabulary changes both
    run = pretrain(config(data_folder, tmp_path / "run", *copied)).run
    assert "cut to the first 2 of 3 blocks" in (run / "log.txt").read_text()
    assert load_config(PretrainConfig, run / "config.toml").generator.layers == 2
    assert pretrain(config(data_folder, tmp_path / "run", *copied)).outcome.step == 4  # finished
    again = config(data_folder, tmp_path, f"init.discriminator={run}", "init.generator_layers=1")
    assert len(started(again).exportable_networks()["generator"].encoder.blocks) == 1
    frozen = "objective.fakes=frozen", "objective.sharing=none", "init.generator_layers=1"
    with pytest.raises(
        ConfigError, match=r"has no masked-LM head, and objective\.fakes frozen does not train one"
    ):
        started(config(data_folder, tmp_path, f"init.discriminator={run}", *frozen))
    with pytest.raises(ConfigError, match=r"generator_layers: is 3, but .* has 3 blocks; take fewer"):
        started(config(data_folder, tmp_path, *copied, "init.generator_layers=3"))
    for message, overrides in {
        "generator_layers: copies the network of init.discriminator": ["init.generator_layers=1"],
        "generator_layers: init.generator is the generator already": [*copied, f"init.generator={run}"],
        "init.generator_layers: this objective has no separate generator": [*copied, "objective.kind=masked-lm"],
    }.items():
        with pytest.raises(ConfigError, match=message):
            config(data_folder, tmp_path, *overrides)

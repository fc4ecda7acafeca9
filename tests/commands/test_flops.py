"""`electra flops`: the original's integers, PyTorch's own count, and the paper's table."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from electra.commands.flops import Flops, FlopsConfig, run
from electra.config import load_config, preset_names
from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.errors import ConfigError
from electra.modeling.encoders.relative import Memory
from electra.modeling.flops import training_flops
from electra.modeling.kernels import relative_attention
from electra.objectives.causal_lm import CausalLanguageModel
from electra.objectives.generator_objective import GeneratorObjectiveConfig
from electra.objectives.masked_lm import MaskedLanguageModel
from electra.objectives.masking import max_predictions
from electra.objectives.permutation_lm import PermutationLanguageModel
from electra.objectives.replaced_token import ReplacedToken
from electra.objectives.sentences import with_cls_position
from electra.pretraining.config import PretrainConfig, build_objective, with_vocabulary
from electra.pretraining.count_flops import count_flops, paper_rows
from electra.pretraining.dry_run import dry_run

SPECIAL = SpecialTokens(0, 1, 2, 3, 4)
ORIGINAL = {
    "gpt": 3.968752230785352e19,
    "bert_small": 1.4187399146496e18,
    "bert_base": 6.428335104e19,
    "bert_large": 1.91720905883648e20,
    "electra_small": 1.293743798272e18,
    "electra_base": 6.424541834277683e19,
    "electra_400k": 7.117606040895488e20,
    "electra_1.75M": 3.113952642891776e21,
    "roberta": 3.187221435776e21,
    "albert": 3.113923955392512e22,
    "t5_11b": 4.581900124212429e22,
}
"""What the original's script prints."""


@pytest.mark.parametrize("model", ORIGINAL)
def test_the_papers_models_have_the_originals_integers(model: str) -> None:
    assert count_flops(model, "paper").training == ORIGINAL[model]


@pytest.mark.parametrize(
    ("preset", "model"),
    [("electra-small", "electra_small"), ("electra-base", "electra_base"), ("electra-large", "electra_400k")],
)
def test_our_presets_cost_what_the_originals_cost(preset: str, model: str) -> None:
    assert count_flops(preset, "paper").training == ORIGINAL[model]


ROWS = 64
"""Many, since the vectors of relative positions are made once for all of them."""


ON_META = [name for name in preset_names() if not name.startswith("deberta")]
"""DeBERTa's kernel for a CPU needs tensors; tests/modeling/encoders/test_deberta.py compares its FLOPs."""


@pytest.mark.parametrize("preset", ON_META)
def test_the_modern_convention_is_what_torch_counts(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, where nothing is computed: all networks of one sequence, forwards and backwards."""

    def plainly(*arguments: Any) -> Tensor:
        return relative_attention.attend_plain(*arguments[:-1], 1.0)

    # Another way makes products for distances that no pair has.
    monkeypatch.setattr(relative_attention, "attend_fused", plainly)
    config = with_vocabulary(load_config(PretrainConfig, preset))
    length = config.packing.sequence_length
    with torch.device("meta"):
        objective = build_objective(config, SPECIAL)
        ids_BL = torch.zeros(ROWS, length, dtype=torch.long)
        positions_BN = torch.zeros(ROWS, max_predictions(length, config.masking.share), dtype=torch.long)
    # Attention as plain products: the counter does not look into the fused kernel of a CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        if isinstance(objective, MaskedLanguageModel):
            if objective.sentences is not None:
                positions_BN = with_cls_position(positions_BN)
            states = objective.encoder(ids_BL, ids_BL, None, positions_BN=positions_BN)
            words = states[:, : max_predictions(length, config.masking.share)].flatten(0, 1)
            loss = objective.head.logits(words, objective.encoder.embeddings.token.weight).sum()
            if objective.sentences is not None:
                loss = loss + objective.sentences.head(states[:, -1]).sum()
        elif isinstance(objective, CausalLanguageModel | PermutationLanguageModel):
            shape = config.model.layers, ROWS, config.model.memory_length, config.model.hidden_size
            memory = Memory(shape[2], torch.zeros(shape, device="meta")) if shape[2] else None
            chosen = {"positions_BN": positions_BN[:, :0], "targets_BN": positions_BN}
            given = chosen if isinstance(objective, PermutationLanguageModel) else {}
            states = objective.encoder(ids_BL, ids_BL, None, memory=memory, **given).flatten(0, 1)
            loss = objective.head.logits(states, objective.encoder.embeddings.token.weight).sum()
        else:
            assert isinstance(objective, ReplacedToken)
            states = objective.encoder(ids_BL, ids_BL, None)
            loss = objective.head(states).sum()
            if (generator := objective.generator) is not None:
                masked = generator.encoder(ids_BL, ids_BL, None, positions_BN=positions_BN)
                loss = loss + generator.head.logits(masked.flatten(0, 1), generator.table_VE).sum()
            if (correction := objective.correction) is not None:  # the target and the negatives of a row
                words = correction.head(states[:, : positions_BN.shape[1]])
                table_VE = objective.encoder.embeddings.token.weight[: correction.negatives + 1]
                loss = loss + (words @ table_VE.T).sum()
        loss.backward()
    expected = counter.get_total_flops() / ROWS
    assert training_flops(objective.networks(length), length) == pytest.approx(expected, rel=0.01)


SETTINGS: dict[str, list[str]] = {
    "electra": [],
    "electra-15": ["objective.discriminator_positions=masked"],
    "all shared": ["objective.sharing=all", "generator.width=1"],
    "uniform fakes": ["objective.fakes=uniform"],
    "masked-lm": ["objective.kind=masked-lm"],
    "electric": ["objective.kind=electric"],
    "replace-mlm": ["objective.kind=replace-mlm"],
    "all-tokens-mlm": ["objective.kind=all-tokens-mlm"],
    "reinforce": ["objective.kind=adversarial"],
    "annealed": ["objective.kind=adversarial", "objective.anneal=linear"],
    "gumbel": ["objective.kind=adversarial", "objective.adversary=gumbel"],
    "gumbel-straight": ["objective.kind=adversarial", "objective.adversary=gumbel-straight"],
    "two-stage": ["objective.kind=two-stage", "objective.sharing=none", "generator.width=1"],
    "bert first": ["objective.kind=two-stage", "objective.first_stage=encoder"],
}


WITHOUT_DROPOUT = [name for name, settings in SETTINGS.items() if "objective.kind=adversarial" not in settings]
"""Whose samples may come from a pass of their own; those of adversarial ones may not."""


def test_the_update_of_muon_counts_once_a_step(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = 'extends = "modern-nano"\n[train]\nsteps = 10\nbatch_size = 8\nbatch_ramp_steps = 4\n[optimizer]\n'
    file.write_text(text)
    adamw = count_flops(str(file), "modern")
    file.write_text(text + 'matrices = "muon"\n')
    muon, paper = (count_flops(str(file), convention) for convention in ("modern", "paper"))
    assert adamw.training is not None and muon.training is not None
    assert adamw.update == paper.update == 0 < muon.update
    assert muon.training == pytest.approx(adamw.training + 10 * muon.update)
    assert dry_run(load_config(PretrainConfig, str(file)), fresh=True).cost.flops == pytest.approx(muon.training)
    (console := Console(file=io.StringIO(), width=150, record=True)).print(Flops([muon]))
    assert f" {8 * muon.training_sequence + muon.update:.4g} " in console.export_text(), "one step"


@pytest.mark.parametrize(
    ("name", "sampling_dropout"),
    [*((name, True) for name in SETTINGS), *((name, False) for name in WITHOUT_DROPOUT)],
)
@pytest.mark.parametrize("step", [2, 8])
def test_a_whole_step_costs_what_torch_counts(name: str, step: int, sampling_dropout: bool) -> None:
    """In each stage, where there are two. The baseline of REINFORCE is no more than a vector."""
    settings = [*SETTINGS[name], "model.dropout=0.1"]
    config = with_vocabulary(load_config(PretrainConfig, "electra-tiny", settings), 3000)
    if isinstance(config.objective, GeneratorObjectiveConfig):
        config = replace(config, objective=replace(config.objective, sampling_dropout=sampling_dropout))
    objective = build_objective(config, SPECIAL, {"counts_V": torch.ones(3000, dtype=torch.long)})
    objective.begin_step(step, 10)
    ids_BL = torch.randint(5, 3000, (4, 128), generator=torch.Generator().manual_seed(0))
    batch = Batch(ids_BL, torch.zeros_like(ids_BL), torch.full((4,), 128), seed=0)

    def added(onto: torch.Size, a: torch.Size, b: torch.Size, **others: object) -> int:
        return 2 * a[0] * a[1] * b[1]

    in_place = {torch.ops.aten.addmm_: added}  # how the kernel adds up blocks; the counter does not know it
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        objective(batch).loss.backward()
    counted = training_flops(objective.networks(128), 128) * 4
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.01)


PUBLISHED = {
    "bert-base": 109e6, "bert-large": 334e6, "albert-base": 12e6, "albert-large": 18e6, "albert-xlarge": 59e6,
    "albert-xxlarge": 223e6,
}  # fmt: skip
"""Parameters with a vocabulary of 30,000, BERT's pooler included: those of table 1 of Lan et al. (2020), but for
xlarge and xxlarge, of which it says 60M and 235M; the released networks have these."""


@pytest.mark.parametrize("preset", PUBLISHED)
def test_parameters_are_the_published_ones(preset: str, tmp_path: Path) -> None:
    (file := tmp_path / "model.toml").write_text(f'extends = "{preset}"\n[model]\nvocabulary_size = 30_000\n')
    counted = count_flops(str(file), "modern")
    actual = counted.parameters["encoder"]
    assert abs(actual - PUBLISHED[preset]) <= 0.7e6
    (console := Console(file=io.StringIO(), width=150, record=True)).print(Flops([counted]))
    assert f"{actual / 1e6:.1f}M" in console.export_text()


XLNETS = {"xlnet-base": 116_750_336, "xlnet-large": 360_300_800}
"""Parameters with a vocabulary of 32,000, the bias of the words included: transformers' own count."""


@pytest.mark.parametrize("preset", XLNETS)
def test_an_xlnet_has_as_many_parameters_as_transformers(preset: str) -> None:
    config = load_config(PretrainConfig, preset, ["model.vocabulary_size=32000"])
    model = config.model
    with torch.device("meta"):
        ours = build_objective(config, SPECIAL)
    assert sum(parameter.numel() for parameter in ours.parameters()) == XLNETS[preset]
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        theirs = transformers.XLNetLMHeadModel(
            transformers.XLNetConfig(
                vocab_size=32_000, d_model=model.hidden_size, n_layer=model.layers, n_head=model.heads,
                d_inner=model.feed_forward_size,
            )
        )  # fmt: skip
    assert sum(parameter.numel() for parameter in theirs.parameters()) == XLNETS[preset]


def test_transformer_xl_has_the_published_parameters() -> None:
    """151M with the words of WikiText-103 (Dai et al. 2019, table 1)."""
    config = load_config(PretrainConfig, "txl-base", ["model.vocabulary_size=267735"])
    with torch.device("meta"):
        objective = build_objective(config, SPECIAL)
    assert round(sum(parameter.numel() for parameter in objective.parameters()) / 1e6) == 151


def test_terms_that_cost_nothing_are_not_shown() -> None:
    (console := Console(file=io.StringIO(), width=150, record=True)).print(
        Flops([count_flops("xlnet-tiny", "modern")])
    )
    assert "of the memory" not in (text := console.export_text()) and "scores of segments" in text
    console.print(Flops([count_flops("txl-tiny", "modern")]))
    assert "keys and values of the memory" in console.export_text()


def test_sharing_blocks_saves_memory_and_no_time(tmp_path: Path) -> None:
    (file := tmp_path / "apart.toml").write_text('extends = "albert-base"\n[model]\nshare_layers = "none"\n')
    apart, shared = count_flops(str(file), "modern"), count_flops("albert-base", "modern")
    assert apart.training == shared.training and apart.inference == shared.inference
    assert apart.parameters["encoder"] > 7 * shared.parameters["encoder"]


def test_inference_is_the_encoder_alone() -> None:
    counted = count_flops("electra-small", "modern")
    objective = build_objective(with_vocabulary(load_config(PretrainConfig, "electra-small")), SPECIAL)
    assert isinstance(objective, ReplacedToken)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        objective.encoder(torch.zeros(1, 128, dtype=torch.long))
    assert counted.inference["discriminator"] == pytest.approx(counter.get_total_flops(), rel=1e-6)
    assert (
        counted.inference["generator"]
        > sum(counted.terms["generator"].values()) - counted.terms["generator"]["head vocabulary"]
    )


def test_the_papers_table_has_the_printed_ratios() -> None:
    def rounded(ratio: float, printed: str) -> str:
        digits = len(printed.removesuffix("x").partition(".")[2])
        return f"{ratio:.{digits}f}x"

    rows = {row.model: row for row in paper_rows()}
    for row in rows.values():
        for ratio, printed in ((row.to_bert, row.printed["dev"]), (row.to_electra, row.printed["test"])):
            if printed is not None and (row.model, printed) != ("XLNet", "1.26x"):
                assert rounded(ratio, printed) == printed
    assert f"{3.9e21 / 3.1e21:.2f}x" == rows["XLNet"].printed["test"]  # the ratio of the rounded figures
    assert {row.model for row in rows.values() if row.source == "cited"} == {"ELMo", "XLNet"}


def test_a_file_of_ones_own_and_json(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "electra-small"\n[train]\nsteps = 10\nbatch_size = 2\n')
    shown = run(FlopsConfig((str(file), "bert_small"), json=True))
    assert isinstance(shown, str)
    mine, bert = json.loads(shown)["models"]
    assert mine["training"] == mine["training_sequence"] * 20
    assert (mine["name"], bert["steps"]) == ("mine", 1_450_000)
    assert set(mine["terms"]) == {"generator", "discriminator"}
    tables = run(FlopsConfig(("electra-tiny",)))
    assert isinstance(tables, Flops) and tables.models[0].steps == 20_000


def test_trainings_are_one_table_with_a_row_each(tmp_path: Path) -> None:
    (file := tmp_path / "timed.toml").write_text('extends = "electra-tiny"\n[train]\nminutes = 5\n')
    models = [count_flops(name, "modern") for name in ("electra-tiny", "electra-mini", str(file))]
    (console := Console(file=io.StringIO(), width=200, record=True)).print(Flops(models))
    *_, header, _, tiny, mini, timed, _ = console.export_text().splitlines()
    for column in ("parameters", "sequences per step", "one step", "steps", "whole training", "x electra-tiny"):
        assert column in header
    assert "20,000" in tiny and f"{models[0].training:.4g}" in tiny and tiny.rstrip(" │").endswith(" 1")
    assert mini.rstrip(" │").endswith(f"{models[1].training / models[0].training:.3g}")
    assert "by the clock" in timed


def test_terms_are_those_of_most_steps_and_the_training_is_that_of_all() -> None:
    model = count_flops("electra-plus-tiny", "modern")  # its last tenth predicts over the whole vocabulary
    head = model.terms["correction head"]["head vocabulary"]
    assert head == 2 * 32 * 128 * (1024 + 1), "32 of 128 positions, 128 dimensions, 1,024 negatives and the target"
    most = 3 * sum(sum(terms.values()) for terms in model.terms.values())
    last_tenth = most + 3 * head * (30_522 / 1025 - 1)
    assert model.training_sequence == pytest.approx(0.9 * most + 0.1 * last_tenth)


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name a preset"):
        run(FlopsConfig())
    with pytest.raises(ConfigError, match="is not a preset, a model of the paper, or a file"):
        run(FlopsConfig(("bert_huge",)))
    with pytest.raises(ConfigError, match=r"did you mean 'bert-base'"):
        run(FlopsConfig(("bert-bse",)))
    with pytest.raises(ConfigError, match="leave bert_base out"):
        run(FlopsConfig(("bert_base",), table="paper"))
    file = tmp_path / "empty.toml"
    file.write_text("length = 1\nbatch_size = 1\nsteps = 1\n")
    with pytest.raises(ConfigError, match="no network has layers"):
        run(FlopsConfig((str(file),)))

"""One of each kind of objective, on a toy language: what contract tests are asked of."""

from dataclasses import replace

import torch
from configs import make_objective_config

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.encoders.bert import BertConfig
from electra.objectives.base import Objective
from electra.objectives.config import GeneratorConfig, ObjectiveConfig
from electra.objectives.masking_config import MaskingConfig
from electra.pretraining.config import PretrainConfig, build_objective

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
WORDS = 12
MODEL = BertConfig(
    layers=2, hidden_size=32, embedding_size=16, feed_forward_size=64, heads=2, vocabulary_size=5 + WORDS,
    max_positions=32, dropout=0.0, attention_dropout=0.0, initializer_range=0.1, linear_initializer_range=0.0,
)  # fmt: skip
SMALLER = GeneratorConfig(hidden_size=16, feed_forward_size=32, heads=2)
ALIKE = GeneratorConfig(hidden_size=32, feed_forward_size=64, heads=2)


def trigrams(size: int) -> torch.Tensor:
    """Any three words, the first word of the vocabulary most often between two others."""
    first, last, middle = torch.cartesian_prod(*3 * [torch.arange(5, 5 + WORDS)]).T
    middle = torch.where((first + last + middle) % 2 == 0, 5, middle)
    return ((first * size + last) * size + middle).sort().values


TABLES = {
    "counts_V": torch.cat([torch.zeros(5), torch.arange(WORDS, 0, -1)]).long(),
    "continues_V": torch.arange(5 + WORDS) % 5 == 4,
    "tags_V": torch.cat([torch.zeros(5), 1 + torch.arange(WORDS) % 3]).long(),
    "trigrams_M": trigrams(MODEL.vocabulary_size),
}
KINDS: dict[str, tuple[ObjectiveConfig, GeneratorConfig]] = {
    name: (make_objective_config(discriminator_weight=weight, **settings), shape)  # type: ignore[arg-type]
    for name, weight, shape, settings in (
        ("replaced-token", 5.0, SMALLER, {}),
        ("tokens shared", 5.0, SMALLER, {"sharing": "tokens"}),
        ("tables detached", 5.0, SMALLER, {"sharing": "detached"}),
        ("tables disentangled", 5.0, SMALLER, {"sharing": "disentangled"}),
        ("all shared", 5.0, ALIKE, {"sharing": "all"}),
        ("masked positions", 5.0, SMALLER, {"discriminator_positions": "masked"}),
        ("random positions", 5.0, SMALLER, {"discriminator_positions": "random"}),
        ("uniform fakes", 5.0, SMALLER, {"fakes": "uniform"}),
        ("unigram fakes", 5.0, SMALLER, {"fakes": "unigram", "unigram_power": 0.5}),
        ("same-tag fakes", 5.0, SMALLER, {"fakes": "same-tag"}),
        ("bigram fakes", 5.0, SMALLER, {"fakes": "bigram"}),
        ("trigram fakes", 5.0, SMALLER, {"fakes": "trigram", "unigram_power": 0.5}),
        ("frozen generator", 5.0, SMALLER, {"fakes": "frozen", "sharing": "none"}),
        ("top 3", 5.0, SMALLER, {"top_k": 3, "final_temperature": 0.5}),
        ("frequency first", 5.0, SMALLER, {"frequency_share": 0.5, "unigram_power": 0.5}),
        (
            "frequency first, trigram",
            5.0,
            SMALLER,
            {"fakes": "trigram", "frequency_share": 0.5, "unigram_power": 0.5},
        ),
        ("correction", 5.0, SMALLER, {"correction_weight": 2.0}),
        ("correction, negatives", 5.0, SMALLER, {"correction_weight": 2.0, "correction_negatives": 6}),
        (
            "correction, negatives first",
            5.0,
            SMALLER,
            {"correction_weight": 2.0, "correction_negatives": 6, "correction_negatives_share": 0.5},
        ),
        ("some [MASK] kept", 5.0, SMALLER, {"correction_weight": 2.0, "keep_masked_share": 0.5}),
        (
            "generator first, correction",
            5.0,
            ALIKE,
            {"kind": "two-stage", "sharing": "none", "correction_weight": 2.0},
        ),
        ("masked-lm", 1.0, SMALLER, {"kind": "masked-lm"}),
        ("one block", 5.0, SMALLER, {}),
        ("one block, masked-lm", 1.0, SMALLER, {"kind": "masked-lm"}),
        ("electric", 5.0, SMALLER, {"kind": "electric"}),
        ("replace-mlm", 1.0, SMALLER, {"kind": "replace-mlm"}),
        ("all-tokens-mlm", 1.0, SMALLER, {"kind": "all-tokens-mlm"}),
        ("reinforce", 5.0, SMALLER, {"kind": "adversarial"}),
        ("annealed", 5.0, SMALLER, {"kind": "adversarial", "anneal": "cosine"}),
        ("gumbel", 5.0, SMALLER, {"kind": "adversarial", "adversary": "gumbel", "anneal": "linear"}),
        ("gumbel-straight", 5.0, SMALLER, {"kind": "adversarial", "adversary": "gumbel-straight"}),
        ("generator first", 5.0, ALIKE, {"kind": "two-stage", "sharing": "none"}),
        ("encoder first", 5.0, SMALLER, {"kind": "two-stage", "first_stage": "encoder"}),
        ("causal-lm", 1.0, SMALLER, {"kind": "causal-lm"}),
        ("permutation-lm", 1.0, SMALLER, {"kind": "permutation-lm"}),
        ("relative, masked-lm", 1.0, SMALLER, {"kind": "masked-lm"}),
        ("relative, replaced-token", 5.0, SMALLER, {"sharing": "tokens"}),
        ("both relative", 5.0, replace(SMALLER, kind="relative"), {"sharing": "none"}),
        ("relative, replace-mlm", 1.0, SMALLER, {"kind": "replace-mlm", "sharing": "tokens"}),
        ("relative, all-tokens-mlm", 1.0, SMALLER, {"kind": "all-tokens-mlm", "sharing": "none"}),
        ("relative, reinforce", 5.0, SMALLER, {"kind": "adversarial", "sharing": "tokens"}),
        ("relative, gumbel", 5.0, SMALLER, {"kind": "adversarial", "adversary": "gumbel", "sharing": "none"}),
        (
            "relative, encoder first",
            5.0,
            SMALLER,
            {"kind": "two-stage", "first_stage": "encoder", "sharing": "none"},
        ),
        ("modern, replaced-token", 5.0, SMALLER, {}),
        ("modern, tables disentangled", 5.0, SMALLER, {"sharing": "disentangled"}),
        ("modern, unigram fakes", 5.0, SMALLER, {"fakes": "unigram"}),
        ("modern, fakes and correction", 5.0, SMALLER, {"fakes": "unigram", "correction_weight": 2.0}),
        (
            "modern, some [MASK] kept",
            5.0,
            SMALLER,
            {"fakes": "unigram", "correction_weight": 2.0, "keep_masked_share": 0.5},
        ),
        ("modern, masked-lm", 1.0, SMALLER, {"kind": "masked-lm"}),
        ("modern, electric", 5.0, SMALLER, {"kind": "electric"}),
        ("modern, replace-mlm", 1.0, SMALLER, {"kind": "replace-mlm"}),
        ("modern, all-tokens-mlm", 1.0, SMALLER, {"kind": "all-tokens-mlm"}),
        ("modern, reinforce", 5.0, SMALLER, {"kind": "adversarial"}),
        ("modern, gumbel", 5.0, SMALLER, {"kind": "adversarial", "adversary": "gumbel"}),
        ("modern, generator first", 5.0, ALIKE, {"kind": "two-stage", "sharing": "none"}),
        ("modern, bert generator", 5.0, replace(SMALLER, kind="bert"), {"sharing": "tokens"}),
        ("deberta, replaced-token", 5.0, SMALLER, {}),
        ("deberta, tables disentangled", 5.0, SMALLER, {"sharing": "disentangled"}),
        ("deberta, unigram fakes", 5.0, SMALLER, {"fakes": "unigram"}),
        ("deberta, masked-lm", 1.0, SMALLER, {"kind": "masked-lm"}),
        ("deberta, electric", 5.0, SMALLER, {"kind": "electric"}),
        ("deberta, replace-mlm", 1.0, SMALLER, {"kind": "replace-mlm"}),
        ("deberta, all-tokens-mlm", 1.0, SMALLER, {"kind": "all-tokens-mlm"}),
        ("deberta, reinforce", 5.0, SMALLER, {"kind": "adversarial"}),
        ("deberta, gumbel", 5.0, SMALLER, {"kind": "adversarial", "adversary": "gumbel"}),
        ("deberta, generator first", 5.0, ALIKE, {"kind": "two-stage", "sharing": "none"}),
        ("deberta, bert generator", 5.0, replace(SMALLER, kind="bert"), {"sharing": "tokens"}),
    )
}


RELATIVE: dict[str, object] = {"kind": "relative", "embedding_size": 32, "memory_length": 16}
WITHOUT_MEMORY: dict[str, object] = {**RELATIVE, "memory_length": 0}
SHAPES: dict[str, dict[str, object]] = {
    "causal-lm": {**RELATIVE, "direction": "left"},
    "permutation-lm": RELATIVE,
    "relative, masked-lm": {**RELATIVE, "type_vocabulary_size": 1},
    "relative, replaced-token": {**RELATIVE, "type_vocabulary_size": 1},
    "both relative": {**RELATIVE, "type_vocabulary_size": 1},
    **{
        f"relative, {name}": WITHOUT_MEMORY
        for name in ("replace-mlm", "all-tokens-mlm", "reinforce", "gumbel", "encoder first")
    },
    **{
        name: {"kind": "modernbert", "local_window": 8, "global_every": 2, "type_vocabulary_size": 1}
        for name in KINDS
        if name.startswith("modern, ")
    },
    **{
        name: {"kind": "deberta", "position_buckets": 8, "type_vocabulary_size": 0}
        for name in KINDS
        if name.startswith("deberta, ")
    },
    "one block": {"share_layers": "all"},
    "one block, masked-lm": {"share_layers": "all", "type_vocabulary_size": 1},
}
"""Of kinds whose network has another shape."""


def _shaped(model: EncoderConfig, changes: dict[str, object]) -> EncoderConfig:
    return model.with_kind(str(changes.pop("kind", model.kind)), **changes)


def objective(name: str, *, masking: MaskingConfig | None = None, model: EncoderConfig = MODEL) -> Objective:
    config, generator = KINDS[name]
    torch.manual_seed(0)
    settings = PretrainConfig(
        model=_shaped(model, dict(SHAPES.get(name, {}))), generator=generator, objective=config,
        masking=masking or MaskingConfig(share=0.25),
    )  # fmt: skip
    objective = build_objective(settings, SPECIAL, TABLES)
    networks = objective.exportable_networks().values()
    for encoder in {id(network.encoder): network.encoder for network in networks}.values():
        if "neighbor-start" in encoder.config.capabilities:
            encoder.attend_to_neighbors()  # which would take most of the steps to find
    return objective


def batch(rows: int, *, seed: int) -> Batch:
    """Text of a toy language: each word is the one after that before it, and a row may end early."""
    random = torch.Generator().manual_seed(seed)
    ids_BL = 5 + (torch.randint(WORDS, (rows, 1), generator=random) + torch.arange(16)) % WORDS
    lengths_B = torch.randint(12, 17, (rows,), generator=random)
    lengths_B[0] = 16
    ids_BL[:, 0] = SPECIAL.classify
    ids_BL[torch.arange(rows), lengths_B - 1] = SPECIAL.separate
    ids_BL[torch.arange(16) >= lengths_B[:, None]] = SPECIAL.pad
    seeds_B = seed * 1000 + torch.arange(rows)
    return Batch(ids_BL, torch.zeros_like(ids_BL), lengths_B, seed=seed, seeds_B=seeds_B)


def rows(whole: Batch, indices: slice) -> Batch:
    assert whole.seeds_B is not None
    return Batch(
        whole.input_ids_BL[indices], whole.segment_ids_BL[indices], whole.lengths_B[indices], whole.seed,
        seeds_B=whole.seeds_B[indices],
    )  # fmt: skip

"""A token table with more rows than the tokenizer has entries: no objective samples the rows behind them."""

from dataclasses import replace

import pytest
import torch
from contract import KINDS, MODEL, SPECIAL, TABLES, WORDS, batch, trigrams
from torch.nn import functional as F

from electra.objectives.masking_config import MaskingConfig
from electra.pretraining.config import PretrainConfig, build_objective

PADDING = 40
NAMES = (
    "replaced-token", "top 3", "uniform fakes", "unigram fakes", "trigram fakes", "same-tag fakes",
    "electric", "gumbel", "reinforce",
)  # fmt: skip


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_rows_behind_the_tokenizer_are_not_sampled(name: str, padded: bool) -> None:
    torch.manual_seed(0)
    config, generator = KINDS[name]
    model, entries = replace(MODEL, vocabulary_size=MODEL.vocabulary_size + PADDING), 5 + WORDS
    masking = MaskingConfig(share=0.25, mask_share=0.5, random_share=0.5)
    settings = PretrainConfig(model=model, generator=generator, objective=config, masking=masking)
    tables = {key: F.pad(table, (0, PADDING)) for key, table in TABLES.items() if key != "trigrams_M"}
    tables["trigrams_M"] = trigrams(model.vocabulary_size)
    ours = build_objective(settings, SPECIAL, tables, entries=entries if padded else None)
    whole, found = batch(16, seed=1), []
    found.append(ours(whole).debug["corrupted_ids"])
    found.append(ours.draw_masks(whole).input_ids_BL)  # type: ignore[operator]
    largest = max(int(ids_BL.max()) for ids_BL in found)
    assert (largest < entries) == padded
    assert ours.evaluate([(whole, whole)])

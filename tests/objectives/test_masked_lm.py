"""The masked language model against the plain loss."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoders.bert import BertConfig
from electra.objectives.config import GeneratorConfig, ObjectiveParts
from electra.objectives.masked_lm import MaskedLanguageModel, MaskedLanguageModelConfig
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.vocabulary import Vocabulary

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
MODEL = BertConfig(
    layers=2, hidden_size=32, embedding_size=16, feed_forward_size=64, heads=2, vocabulary_size=300,
    dropout=0.0, attention_dropout=0.0, initializer_range=0.3, linear_initializer_range=0.2,
)  # fmt: skip


def batch(lengths: list[int]) -> Batch:
    L = max(lengths)
    ids_BL = torch.randint(5, 300, (len(lengths), L), generator=torch.Generator().manual_seed(1))
    for row, length in enumerate(lengths):
        ids_BL[row, 0], ids_BL[row, length - 1], ids_BL[row, length:] = 2, 3, 0
    return Batch(ids_BL, torch.zeros_like(ids_BL), torch.tensor(lengths), seed=7)


def model(masking: MaskingConfig | None = None, *, shape: BertConfig = MODEL) -> MaskedLanguageModel:
    torch.manual_seed(0)
    parts = ObjectiveParts(shape, GeneratorConfig(), masking or MaskingConfig(), Vocabulary(SPECIAL, 300))
    return MaskedLanguageModel(parts, MaskedLanguageModelConfig())


def test_its_loss_is_the_mean_over_the_chosen_positions() -> None:
    ours, one = model(), batch([20, 14, 9])
    masking = ours.draw_masks(one)
    mask_BL = torch.arange(20) < one.lengths_B[:, None]
    states_BLD = ours.encoder(masking.input_ids_BL, one.segment_ids_BL, mask_BL)
    logits_NV = ours.head.logits(masking.gather(states_BLD), ours.encoder.embeddings.token.weight)
    used_n = masking.used_BN.flatten()
    expected = F.cross_entropy(logits_NV[used_n], masking.gather(one.input_ids_BL)[used_n])
    torch.testing.assert_close(ours(one).loss, expected, rtol=1e-5, atol=1e-6)
    ours.config = replace(ours.config, generator_weight=0.3)
    torch.testing.assert_close(ours(one).loss, 0.3 * expected, rtol=1e-5, atol=1e-6)


def test_held_out_metrics_are_without_dropout() -> None:
    ours, one = model(shape=replace(MODEL, dropout=0.5)).train(), batch([20, 14, 9])
    assert ours.evaluate([(one, one)]) == ours.evaluate([(one, one)])
    assert ours.training


@torch.no_grad()
def test_held_out_metrics_are_of_the_tokens_that_are_not_visible() -> None:
    ours, one = model(MaskingConfig(share=0.3, mask_share=0.5)), batch([20, 14, 9])
    masking, mask_BL = ours.draw_masks(one), torch.arange(20) < one.lengths_B[:, None]
    hidden_n = masking.masked_BN.flatten()
    assert 0 < hidden_n.sum() < masking.used_BN.sum()
    states_BLD = ours.encoder(masking.input_ids_BL, one.segment_ids_BL, mask_BL)
    logits_nV = ours.head.logits(masking.gather(states_BLD), ours.encoder.embeddings.token.weight)[hidden_n]
    expected = F.cross_entropy(logits_nV, masking.gather(one.input_ids_BL)[hidden_n])
    found = ours.evaluate([(one, one)])
    assert found["eval/masked_lm_loss"] == pytest.approx(float(expected), rel=1e-5)
    entropy = -(logits_nV.softmax(-1) * logits_nV.log_softmax(-1)).sum(-1).mean()
    assert found["eval/generator_entropy"] == pytest.approx(float(entropy), rel=1e-4)


def test_it_learns_and_has_one_encoder() -> None:
    ours = model()
    optimizer = torch.optim.AdamW(ours.parameters(), lr=3e-3)
    losses = []
    for step in range(100):
        output = ours(replace(batch([20, 14]), seed=step))
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(output.loss.detach()))
    assert sum(losses[-4:]) < 0.6 * sum(losses[:4])
    assert set(ours.exportable_networks()) == {"encoder"}
    assert ours.evaluate([(batch([20, 14]), batch([20, 14]))])["eval/masked_lm_loss"] < losses[0]

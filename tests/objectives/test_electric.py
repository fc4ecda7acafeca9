"""Electric: what its towers may see, its noise-contrastive logit, and where gradients flow."""

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoders.bert import BertConfig
from electra.objectives.config import GeneratorConfig, ObjectiveParts
from electra.objectives.electric import Electric, ElectricConfig
from electra.objectives.masking import attention_mask_of, text_mask
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.vocabulary import Vocabulary

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
MODEL = BertConfig(
    layers=2, hidden_size=32, embedding_size=16, feed_forward_size=64, heads=2, vocabulary_size=300,
    max_positions=64, dropout=0.0, attention_dropout=0.0, initializer_range=0.3, linear_initializer_range=0.2,
)  # fmt: skip


@pytest.fixture
def electric() -> Electric:
    torch.manual_seed(0)
    generator = GeneratorConfig(hidden_size=16, heads=2, feed_forward_size=32)
    parts = ObjectiveParts(MODEL, generator, MaskingConfig(), Vocabulary(SPECIAL, 300))
    return Electric(parts, ElectricConfig(share_norm=True))


def batch(lengths: list[int]) -> Batch:
    L = max(lengths)
    ids_BL = torch.randint(5, 300, (len(lengths), L), generator=torch.Generator().manual_seed(1))
    for row, length in enumerate(lengths):
        ids_BL[row, 0], ids_BL[row, length - 1], ids_BL[row, length:] = 2, 3, 0
    return Batch(ids_BL, torch.zeros_like(ids_BL), torch.tensor(lengths), seed=7)


def test_the_cloze_model_sees_all_tokens_but_the_one_it_predicts(electric: Electric) -> None:
    one = batch([20, 14])
    before_BLE = electric.cloze(one, attention_mask_of(one))
    for position in (1, 6, 12):
        changed = one.input_ids_BL.clone()
        changed[:, position] = 299
        after_BLE = electric.cloze(replace(one, input_ids_BL=changed), attention_mask_of(one))
        moved_BL = (after_BLE - before_BLE).abs().amax(-1) > 1e-6
        text_BL = text_mask(one.input_ids_BL, SPECIAL)
        assert not moved_BL[:, position].any()
        others_BL = text_BL & (torch.arange(20) != position)
        assert moved_BL[others_BL].all()


@pytest.mark.parametrize("positions", ["text", "all"])
def test_the_loss_equals_the_formula_of_the_paper(electric: Electric, positions: Literal["text", "all"]) -> None:
    electric.config = replace(electric.config, discriminator_positions=positions)
    one = batch([20, 14])
    masking = electric.draw_masks(one)
    samples_n = torch.randint(5, 300, (masking.used_BN.numel(),))
    samples_n[::2] = masking.gather(one.input_ids_BL)[::2]  # these are sampled, too
    output = electric(one, masking=masking, samples_n=samples_n)

    corrupted_BL, sampled_BL = one.input_ids_BL.clone(), torch.zeros(2, 20, dtype=torch.bool)
    for row, slot in masking.used_BN.nonzero().tolist():
        position = masking.positions_BN[row, slot]
        corrupted_BL[row, position] = samples_n.view_as(masking.used_BN)[row, slot]
        sampled_BL[row, position] = True
    logits_BLV = (
        electric.cloze(one, attention_mask_of(one)) @ electric.left.embeddings.token.weight.T
        + electric.cloze_head.bias
    )
    text_BL = text_mask(one.input_ids_BL, SPECIAL)
    cloze_loss = F.cross_entropy(logits_BLV[text_BL], one.input_ids_BL[text_BL])
    log_q_BL = logits_BLV.log_softmax(-1).gather(-1, corrupted_BL[..., None]).squeeze(-1)
    z_BL = electric.energies(corrupted_BL, one, attention_mask_of(one)) + log_q_BL + math.log(0.15 / 0.85)
    judged_BL = text_BL if positions == "text" else one.input_ids_BL != SPECIAL.pad
    noise_loss = F.binary_cross_entropy_with_logits(z_BL[judged_BL], sampled_BL[judged_BL].float())
    torch.testing.assert_close(output.parts["generator_loss"], cloze_loss.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(output.loss, cloze_loss + 50 * noise_loss, rtol=1e-5, atol=1e-5)


def test_a_sample_that_is_the_original_still_counts_as_sampled(electric: Electric) -> None:
    one = batch([20])
    masking = electric.draw_masks(one)
    output = electric(one, masking=masking, samples_n=masking.gather(one.input_ids_BL))
    assert torch.equal(output.debug["corrupted_ids"], one.input_ids_BL)
    assert int(output.debug["replaced"].sum()) == int(masking.used_BN.sum()) > 0


def test_the_discriminators_loss_has_no_gradient_in_the_towers(electric: Electric) -> None:
    electric.config = replace(electric.config, generator_weight=0.0)
    electric(batch([20, 14])).loss.backward()
    for name, parameter in [*electric.left.blocks.named_parameters(), *electric.cloze_head.named_parameters()]:
        assert parameter.grad is None or not parameter.grad.any(), name
    assert electric.head.dense.weight.grad.abs().sum() > 0


def test_it_learns_and_its_metrics_are_finite(electric: Electric) -> None:
    optimizer = torch.optim.AdamW(electric.parameters(), lr=3e-3)
    rows = [batch([20, 14]), batch([18, 20])]
    losses = []
    for step in range(40):
        output = electric(replace(rows[step % 2], seed=step))
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(output.parts["generator_loss"]))
    assert sum(losses[-4:]) < 0.6 * sum(losses[:4])
    figures = electric.evaluate([(rows[0], rows[1])])
    assert {"eval/masked_lm_accuracy", "eval/discriminator_auc", "eval/unigram_auc"} <= figures.keys()
    assert math.isfinite(figures["eval/masked_lm_loss"])


def test_evaluation_judges_its_samples_with_log_q(electric: Electric, monkeypatch: pytest.MonkeyPatch) -> None:
    one = batch([20, 14])

    def log_odds(ids_BL: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.where(ids_BL != one.input_ids_BL, 100.0, -100.0)

    monkeypatch.setattr(electric, "_noise_log_odds", log_odds)
    assert electric.evaluate([(one, batch([18, 20]))])["eval/discriminator_auc"] == 1

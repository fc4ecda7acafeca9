"""Replace MLM and All-Tokens MLM, whole, against their formulas."""

from typing import Any

import pytest
import torch
from configs import make_objective_config
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoders.bert import BertConfig
from electra.objectives.config import GeneratorConfig, ObjectiveParts
from electra.objectives.generator_objective import CorruptedBatch, GeneratorObjective
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.vocabulary import Vocabulary

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
V, WEIGHT = 40, 3.0
MODEL = BertConfig(
    layers=1, hidden_size=16, embedding_size=8, feed_forward_size=32, heads=2, vocabulary_size=V,
    max_positions=32, dropout=0.0, attention_dropout=0.0, initializer_range=0.3, linear_initializer_range=0.3,
)  # fmt: skip


def objective(kind: Any) -> GeneratorObjective:
    torch.manual_seed(0)
    generator, masking = (
        GeneratorConfig(hidden_size=16, feed_forward_size=32, heads=2),
        MaskingConfig(share=0.25, mask_share=0.85),
    )
    config = make_objective_config(kind, discriminator_weight=WEIGHT, generator_weight=0.7)
    ours = config.build(ObjectiveParts(MODEL, generator, masking, Vocabulary(SPECIAL, V)))
    assert isinstance(ours, GeneratorObjective)
    return ours


def batch() -> Batch:
    ids_BL = torch.randint(5, V, (6, 20), generator=torch.Generator().manual_seed(3))
    ids_BL[:, 0], ids_BL[:, -1] = SPECIAL.classify, SPECIAL.separate
    return Batch(ids_BL, torch.zeros_like(ids_BL), torch.full((6,), 20), seed=3)


def parts(ours: GeneratorObjective, one: Batch) -> tuple[CorruptedBatch, torch.Tensor, torch.Tensor]:
    """The corrupted text, the generator's loss, and the encoder's states of that text."""
    corrupted = ours.corrupt(one)
    masking, used_n = corrupted.masking, corrupted.masking.used_BN.flatten()
    assert ours.generator is not None
    masked_BL = one.input_ids_BL.clone()
    masked_BL[torch.arange(6)[:, None], masking.positions_BN] = masking.input_ids_BL.gather(
        1, masking.positions_BN
    )
    states_nD = ours.generator.encoder(masked_BL, one.segment_ids_BL, None, positions_BN=masking.positions_BN)
    logits_nV = ours.generator.head.logits(states_nD.flatten(0, 1), ours.generator.table_VE)
    of_generator = F.cross_entropy(logits_nV[used_n], masking.gather(one.input_ids_BL)[used_n])
    assert not torch.equal(corrupted.ids_BL, one.input_ids_BL) and not torch.equal(corrupted.ids_BL, masked_BL)
    return corrupted, of_generator, ours.encoder(corrupted.ids_BL, one.segment_ids_BL, None)


def test_replace_mlm_predicts_the_chosen_positions_of_a_corrupted_text() -> None:
    ours, one = objective("replace-mlm"), batch()
    corrupted, of_generator, x_BLD = parts(ours, one)
    masking, used_n = corrupted.masking, corrupted.masking.used_BN.flatten()
    logits_nV = ours.head.logits(masking.gather(x_BLD), ours.encoder.embeddings.token.weight)
    of_encoder = F.cross_entropy(logits_nV[used_n], masking.gather(one.input_ids_BL)[used_n])
    torch.testing.assert_close(ours(one).loss, 0.7 * of_generator + WEIGHT * of_encoder, rtol=1e-5, atol=1e-5)


def test_all_tokens_mlm_predicts_every_token_and_can_copy() -> None:
    ours, one = objective("all-tokens-mlm"), batch()
    corrupted, of_generator, x_BLD = parts(ours, one)
    softmax_BLV = ours.head.words.logits(x_BLD, ours.encoder.embeddings.token.weight).softmax(-1)
    copy_BL = ours.head.gate(x_BLD).squeeze(-1).sigmoid()
    right_BL = (corrupted.ids_BL == one.input_ids_BL).float()
    said_BL = softmax_BLV.gather(2, one.input_ids_BL[..., None]).squeeze(2)
    p_BL = copy_BL * right_BL + (1 - copy_BL) * said_BL
    text_BL = (one.input_ids_BL != SPECIAL.classify) & (one.input_ids_BL != SPECIAL.separate)
    of_encoder = -p_BL.log()[text_BL].mean()
    torch.testing.assert_close(ours(one).loss, 0.7 * of_generator + WEIGHT * of_encoder, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["replace-mlm", "all-tokens-mlm"])
def test_restored_tokens_are_those_of_all_chosen_positions(kind: str) -> None:
    ours, one = objective(kind), batch()
    corrupted, _, x_BLD = parts(ours, one)
    masking, used_n = corrupted.masking, corrupted.masking.used_BN.flatten()
    assert masking.masked_BN.sum() < used_n.sum(), "some show their own token"
    head = ours.head if kind == "replace-mlm" else ours.head.words
    logits_nV = head.logits(masking.gather(x_BLD), ours.encoder.embeddings.token.weight)[used_n]
    targets_n = masking.gather(one.input_ids_BL)[used_n]
    found = ours.evaluate([(one, one)])
    assert found["eval/restored_loss"] == pytest.approx(float(F.cross_entropy(logits_nV, targets_n)), rel=1e-4)
    assert found["eval/restored_accuracy"] == pytest.approx(
        float((logits_nV.argmax(1) == targets_n).float().mean())
    )

"""The loss for restoring tokens, against its formula."""

import math
from dataclasses import replace

import pytest
import torch
from contract import MODEL, TABLES, WORDS, batch, objective
from torch.nn import functional as F

from electra.errors import ConfigError
from electra.modeling.flops import training_flops
from electra.objectives.masking import max_predictions, text_mask
from electra.objectives.replaced_token import ReplacedToken
from electra.objectives.row_rng import Purpose, uniforms
from electra.pretraining.config import load_config


def networks(name: str, weight: float) -> tuple[ReplacedToken, ReplacedToken]:
    """An objective with the loss, and one with the same weights without it."""
    ours, without = objective(name), objective(name)
    assert isinstance(ours, ReplacedToken) and isinstance(without, ReplacedToken) and ours.correction is not None
    ours.correction.weight = weight
    without.correction = None
    return ours, without


@pytest.mark.parametrize("name", ["correction", "modern, fakes and correction"])
def test_the_loss_is_the_mean_cross_entropy_at_the_chosen_positions(name: str) -> None:
    (ours, without), one = networks(name, 0.7), batch(8, seed=4)
    corrupted = ours.corrupt(one)
    masking = corrupted.masking
    used_n = masking.used_BN.flatten()
    x_BLD = ours.encoder(corrupted.ids_BL, one.segment_ids_BL, corrupted.mask)
    assert ours.correction is not None
    logits_nV = ours.correction.head.logits(masking.gather(x_BLD), ours.encoder.embeddings.token.weight)
    expected = F.cross_entropy(logits_nV[used_n], masking.gather(one.input_ids_BL)[used_n])
    output, plain = ours(one), without(one)
    torch.testing.assert_close(output.parts["correction_loss"], expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(output.loss, plain.loss + 0.7 * expected, rtol=1e-5, atol=1e-6)
    other = replace(one, input_ids_BL=torch.where(one.input_ids_BL > 4, 5, one.input_ids_BL))
    heldout = ours.evaluate([(one, other)])
    assert heldout["eval/restored_loss"] == pytest.approx(expected.item(), rel=1e-4), "of the samples"
    right = (logits_nV.argmax(-1) == masking.gather(one.input_ids_BL))[used_n].float().mean()
    assert heldout["eval/restored_accuracy"] == pytest.approx(right.item())


def test_with_negatives_it_is_the_softmax_over_the_target_and_the_tokens_drawn_for_the_row() -> None:
    ours, one = objective("correction, negatives"), batch(8, seed=4)
    assert isinstance(ours, ReplacedToken) and ours.correction is not None and ours.correction.sampler is not None
    torch.nn.init.normal_(ours.correction.head.bias)
    corrupted = ours.corrupt(one)
    masking, x_BLD = corrupted.masking, ours.encoder(corrupted.ids_BL, one.segment_ids_BL, corrupted.mask)
    head, table_VE = ours.correction.head, ours.encoder.embeddings.token.weight
    ids_V = torch.tensor([1, *range(5, MODEL.vocabulary_size)])  # [UNK] and the words
    counts_V = TABLES["counts_V"].double() + 1
    draws_V = 6 * counts_V / counts_V[ids_V].sum()
    losses = []
    for row, seed in enumerate(one.row_seeds):
        uniforms_K = uniforms(seed[None], Purpose.NEGATIVES, 6)[0]
        shares_V = counts_V[ids_V].cumsum(0) / counts_V[ids_V].sum()
        negatives = ids_V[torch.searchsorted(shares_V, uniforms_K.double(), right=True)]
        for position, used in zip(masking.positions_BN[row], masking.used_BN[row], strict=True):
            target = int(one.input_ids_BL[row, position])
            logits_V = head.logits(x_BLD[row, position], table_VE) - draws_V.log()
            choices = torch.tensor([target, *(token for token in negatives.tolist() if token != target)])
            if used:
                losses.append(-logits_V[choices].log_softmax(0)[0])
    output = ours(one)
    torch.testing.assert_close(
        output.parts["correction_loss"], torch.stack(losses).mean().float(), rtol=1e-5, atol=1e-6
    )


def test_each_token_that_can_be_a_target_can_be_a_negative() -> None:
    """Otherwise nothing lowers its logit, and it gets the whole softmax over the vocabulary."""
    ours = objective("correction, negatives")
    assert isinstance(ours, ReplacedToken) and ours.correction is not None and ours.correction.sampler is not None
    ids_V = torch.arange(MODEL.vocabulary_size)
    targets = ids_V[text_mask(ids_V[None], ours.vocabulary.special)[0]]
    uniforms_n = (torch.arange(200_000) + 0.5) / 200_000
    drawn = ours.correction.sampler.sample(torch.zeros(200_000, dtype=torch.long), uniforms_n)
    assert torch.equal(drawn.unique(), targets) and ours.vocabulary.special.unknown in targets


@pytest.mark.parametrize(("step", "steps", "same"), [
    (0, None, "correction, negatives"), (4, 10, "correction, negatives"), (5, 10, "correction"),
    (9, 10, "correction"),
])  # fmt: skip
def test_negatives_are_used_for_a_share_of_the_run(step: int, steps: int | None, same: str) -> None:
    """None: the number of steps is still being computed from train.minutes."""
    (ours, _), (other, _) = networks("correction, negatives first", 0.7), networks(same, 0.7)
    other.load_state_dict(ours.state_dict())
    ours.begin_step(step, steps)
    one = batch(8, seed=4)
    assert torch.equal(ours(one).loss, other(one).loss)
    assert training_flops(ours.networks(16), 16) == training_flops(other.networks(16), 16)


def test_with_negatives_it_teaches_to_predict_over_the_whole_vocabulary() -> None:
    """Words of the toy language follow from their neighbors."""
    torch.manual_seed(0)
    ours = objective("correction, negatives")
    optimizer = torch.optim.AdamW(ours.parameters(), lr=5e-3)
    for seed in range(200):
        optimizer.zero_grad()
        ours(batch(16, seed=seed)).loss.backward()
        optimizer.step()
    one = batch(64, seed=1000)
    assert ours.evaluate([(one, one)])["eval/restored_loss"] < 0.5 * math.log(WORDS)


def test_the_generator_gets_no_gradient_from_it_but_for_the_shared_tables() -> None:
    (ours, _), one = networks("correction", 1.0), batch(8, seed=4)
    ours.config = replace(ours.config, generator_weight=0.0, discriminator_weight=0.0)
    ours(one).loss.backward()
    found = {name for name, p in ours.named_parameters() if p.grad is not None and bool(p.grad.any())}
    assert any(name.startswith("encoder.blocks") for name in found)
    assert not any(name.startswith(("generator.encoder.blocks", "generator.head", "head")) for name in found)


def test_the_head_with_negatives_costs_as_much_as_so_small_a_vocabulary() -> None:
    ours, without = objective("correction, negatives"), objective("replaced-token")
    assert isinstance(ours, ReplacedToken) and isinstance(without, ReplacedToken)
    more = training_flops(ours.networks(16), 16) - training_flops(without.networks(16), 16)
    model, predictions = MODEL, max_predictions(16, ours.masking.share)
    assert more == 3 * 2 * predictions * model.embedding_size * (model.hidden_size + 7)


@pytest.mark.parametrize("name", ["some [MASK] kept", "modern, some [MASK] kept"])
def test_kept_masks_are_restored_and_have_no_label(name: str) -> None:
    """Half of the chosen positions show [MASK]; the loss of labels is that of all other tokens of text."""
    ours, one = objective(name), batch(64, seed=4)
    assert isinstance(ours, ReplacedToken) and ours.correction is not None
    corrupted = ours.corrupt(one)
    masking, shown_BL = corrupted.masking, corrupted.ids_BL
    chosen_BL = torch.zeros_like(shown_BL).scatter_add_(1, masking.positions_BN, masking.used_BN.long()) > 0
    places_BN = uniforms(one.row_seeds, Purpose.KEEP_MASKED, masking.positions_BN.shape[1]) < 0.5
    kept_BN = (masking.used_BN & places_BN).long()
    kept_BL = torch.zeros_like(shown_BL).scatter_add_(1, masking.positions_BN, kept_BN) > 0
    assert (shown_BL[kept_BL] == ours.vocabulary.special.mask).all()
    assert not (kept_BL & ~chosen_BL).any(), "only chosen positions show it"
    assert 0.4 < kept_BL.sum() / chosen_BL.sum() < 0.6
    assert ((shown_BL != one.input_ids_BL) & chosen_BL & ~kept_BL).any(), "the others show samples"
    counted_BL = (one.input_ids_BL > 4) & ~kept_BL
    x_BLD = ours.encoder(shown_BL, one.segment_ids_BL, corrupted.mask)
    labels_BL = (shown_BL != one.input_ids_BL).float()
    expected = F.binary_cross_entropy_with_logits(ours.head(x_BLD)[counted_BL], labels_BL[counted_BL])
    output = ours(one)
    torch.testing.assert_close(output.parts["discriminator_loss"], expected, rtol=1e-5, atol=1e-6)
    used_n = masking.used_BN.flatten()
    logits_nV = ours.correction.head.logits(masking.gather(x_BLD), ours.encoder.embeddings.token.weight)
    restored = F.cross_entropy(logits_nV[used_n], masking.gather(one.input_ids_BL)[used_n])
    torch.testing.assert_close(output.parts["correction_loss"], restored, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(output.parts["replaced_share"], labels_BL[counted_BL].mean())
    other = replace(one, input_ids_BL=torch.where(one.input_ids_BL > 4, one.input_ids_BL.roll(1, 0), 0))
    heldout = ours.evaluate([(one, other)])
    assert heldout["eval/discriminator_loss"] == pytest.approx(expected.item(), rel=1e-4)
    kept_n, targets_n = kept_BN.flatten() > 0, masking.gather(one.input_ids_BL)
    filled = F.cross_entropy(logits_nV[kept_n], targets_n[kept_n])
    assert heldout["eval/filled_loss"] == pytest.approx(filled.item(), rel=1e-4)
    right = (logits_nV.argmax(1) == targets_n)[kept_n].float().mean()
    assert heldout["eval/filled_accuracy"] == pytest.approx(right.item())
    ours.config = replace(ours.config, keep_masked_share=0.0)
    assert heldout["eval/unigram_auc"] == ours.evaluate([(one, other)])["eval/unigram_auc"], "of all text"


def test_its_head_is_counted_and_evaluated_and_not_exported() -> None:
    ours, without = networks("correction", 1.0)
    more = training_flops(ours.networks(16), 16) - training_flops(without.networks(16), 16)
    model, predictions = ours.encoder.config, max_predictions(16, ours.masking.share)
    size = model.hidden_size if model.head_style.projects_after_norm else model.embedding_size
    head = model.hidden_size * size + model.embedding_size * model.vocabulary_size
    assert more == 3 * 2 * predictions * head
    one = batch(8, seed=1)
    assert ours.evaluate([(one, one)]).keys() - without.evaluate([(one, one)]).keys() == {
        "eval/restored_accuracy", "eval/restored_loss",
    }  # fmt: skip
    assert ours.exportable_networks()["discriminator"].head is ours.head
    assert ours.correction is not None and ours.correction.head.bias in set(ours.output_biases())


def test_negatives_need_the_loss() -> None:
    run = {"data": "data", "out": "out", "train.steps": 10, "objective.correction_negatives": 64}
    with pytest.raises(ConfigError, match="correction_negatives: there is no correction; set correction_weight"):
        load_config("electra-tiny", run)


def test_a_share_of_negatives_needs_negatives() -> None:
    run = {
        "data": "data", "out": "out", "train.steps": 10, "objective.correction_weight": 1.0,
        "objective.correction_negatives_share": 0.9,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="correction_negatives_share: there are no negatives; set"):
        load_config("electra-tiny", run)


def test_a_network_that_fills_masks_is_exported_with_both_heads() -> None:
    alone, with_generator = objective("modern, some [MASK] kept"), objective("some [MASK] kept")
    assert isinstance(alone, ReplacedToken) and alone.correction is not None
    networks = alone.exportable_networks()
    assert networks["encoder"].encoder is networks["discriminator"].encoder
    assert networks["encoder"].head is alone.correction.head
    assert set(with_generator.exportable_networks()) == {"discriminator", "generator"}, "which fills masks already"
    assert set(objective("modern, fakes and correction").exportable_networks()) == {"discriminator"}


def test_kept_masks_need_the_loss_and_labels_of_all_text() -> None:
    run = {"data": "data", "out": "out", "train.steps": 10, "objective.keep_masked_share": 0.5}
    with pytest.raises(ConfigError, match=r"keep_masked_share: nothing is learned at \[MASK\]"):
        load_config("electra-tiny", run)
    run["objective.correction_weight"] = 1.0
    for name in ("replacement", "spare_first_position"):
        with pytest.raises(ConfigError, match=rf"masking\.{name}: must be false with .*keep_masked_share"):
            load_config("electra-tiny", {**run, f"masking.{name}": True})
    with pytest.raises(ConfigError, match="discriminator_positions: must be text with keep_masked_share"):
        load_config("electra-tiny", {**run, "objective.discriminator_positions": "masked"})
    with pytest.raises(ConfigError, match="keep_masked_share: is not possible with adversarial"):
        load_config("electra-tiny", {**run, "objective.kind": "adversarial"})


def test_it_is_refused_where_it_has_no_effect() -> None:
    run = {"data": "data", "out": "out", "train.steps": 10, "objective.correction_weight": 1.0}
    with pytest.raises(ConfigError, match=r"objective\.correction_weight: is for replaced-token, .*two-stage"):
        load_config("electra-tiny", {**run, "objective.kind": "masked-lm"})
    with pytest.raises(ConfigError, match="correction_weight: has no effect on adversarial"):
        load_config("electra-tiny", {**run, "objective.kind": "adversarial"})

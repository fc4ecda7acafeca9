"""The permutation language model against one target after the other, and what a prediction must not see."""

from dataclasses import replace

import torch
from contract import batch, objective
from torch import Tensor

from electra.data.collate import Batch
from electra.objectives.masking import Masking
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.permutation_lm import PermutationLanguageModel
from electra.objectives.row_rng import Purpose, uniforms


def model() -> PermutationLanguageModel:
    ours = objective("permutation-lm", masking=MaskingConfig(share=0.4))
    assert isinstance(ours, PermutationLanguageModel)
    return ours


def orders(one: Batch, masking: Masking) -> list[list[int]]:
    """The positions of each row's targets in the order in which they are predicted."""
    times_BN = uniforms(one.row_seeds, Purpose.ORDER, masking.positions_BN.shape[1])
    return [
        [int(positions[slot]) for slot in times.argsort().tolist() if used[slot]]
        for positions, times, used in zip(masking.positions_BN, times_BN, masking.used_BN, strict=True)
    ]


def predict(ours: PermutationLanguageModel, ids: list[int], order: list[int], number: int) -> Tensor:
    """The log-probabilities (V) of one target of a row: other words take the place of it and of all after it."""
    hidden = order[number:]
    shown = [5 + ids[position] % 12 if position in hidden else ids[position] for position in range(len(ids))]
    times = [1 + order.index(position) if position in order else 0 for position in range(len(ids))]
    may_attend = [[other == 0 or own > other for other in times] for own in times]
    ids_BL = torch.tensor([shown])
    x_D = ours.encoder(
        ids_BL, torch.zeros_like(ids_BL), positions_BN=ids_BL[:, :0], permutation_BLL=torch.tensor([may_attend]),
        targets_BN=torch.tensor([[order[number]]]),
    )[0, 0]  # fmt: skip
    return (ours.encoder.embeddings.token.weight @ x_D + ours.head.bias).log_softmax(0)


def test_its_loss_is_the_mean_over_the_targets_which_see_only_earlier_ones() -> None:
    ours, one = model(), batch(5, seed=2)
    masking = ours.draw_masks(one)
    assert not masking.used_BN.all(), "or unused slots would not be tested"
    losses = []
    for ids, length, order in zip(
        one.input_ids_BL.tolist(), one.lengths_B.tolist(), orders(one, masking), strict=True
    ):
        assert len(order) > 2
        row = ids[:length]
        losses += [-predict(ours, row, order, number)[ids[order[number]]] for number in range(len(order))]
    torch.testing.assert_close(ours(one).loss, torch.stack(losses).mean(), rtol=1e-5, atol=1e-6)
    assert int(ours.counts(one)["targets"]) == len(losses)


def test_a_prediction_sees_the_context_and_earlier_targets_only() -> None:
    ours, one = model(), batch(5, seed=2)
    masking = ours.draw_masks(one)

    def states(ids_BL: Tensor) -> Tensor:
        states_nD = ours.states(replace(one, input_ids_BL=ids_BL), masking, ours.memory)
        return states_nD.view(*masking.positions_BN.shape, -1)

    for row, order in enumerate(orders(one, masking)):
        slots = {int(position): slot for slot, position in enumerate(masking.positions_BN[row])}
        for number, position in enumerate(order):
            changed_BL = one.input_ids_BL.clone()
            changed_BL[row, position] = 5 + (changed_BL[row, position] - 4) % 12  # another word
            moved_N = (states(changed_BL) - states(one.input_ids_BL))[row].abs().amax(-1)
            blind, seeing = order[: number + 1], order[number + 1 :]
            assert all(moved_N[slots[other]] < 1e-5 for other in blind), "it has seen itself or a later target"
            assert all(moved_N[slots[other]] > 1e-4 for other in seeing), "it has not seen an earlier target"

"""The causal language model against one prefix after the other, and what a prediction must not see."""

from dataclasses import replace

import pytest
import torch
from contract import batch, objective
from torch import Tensor
from torch.nn import functional as F

from electra.data.collate import Batch, StreamState
from electra.objectives.base import Objective

NEXT = 7
"""The token after the last row of a stream."""


def log_probabilities(ours: Objective, ids: list[int]) -> Tensor:
    """Log-probabilities of the token after these ones (V); nothing else is given to the network."""
    state_D = ours.encoder(torch.tensor([ids]))[0, -1]  # type: ignore[operator]
    logits_V = ours.encoder.embeddings.token.weight @ state_D + ours.head.bias  # type: ignore[operator, union-attr]
    return logits_V.log_softmax(0)


def windows(count: int) -> list[Batch]:
    """Consecutive windows of the rows of a stream; the last ones are followed by `NEXT`."""
    ids_BL = torch.randint(5, 17, (3, 16 * count), generator=torch.Generator().manual_seed(0))
    after_BL = F.pad(ids_BL, (0, 1), value=NEXT)
    return [
        Batch(
            ids_BL[:, start : start + 16], torch.zeros(3, 16).long(), torch.full((3,), 16), seed=start,
            stream_state=StreamState(after_BL[:, start + 16], torch.zeros(3).bool()),
        )
        for start in range(0, 16 * count, 16)
    ]  # fmt: skip


def test_its_loss_is_the_mean_over_the_prefixes_of_the_rows() -> None:
    ours, one = objective("causal-lm"), batch(4, seed=2)
    assert one.lengths_B.min() < 16, "or padding would not be tested"
    losses = []
    for ids, length in zip(one.input_ids_BL.tolist(), one.lengths_B.tolist(), strict=True):
        losses += [-log_probabilities(ours, ids[:end])[ids[end]] for end in range(1, length)]
    torch.testing.assert_close(ours(one).loss, torch.stack(losses).mean(), rtol=1e-5, atol=1e-6)
    assert int(ours.counts(one)["words"]) == len(losses)


def test_the_last_token_of_a_window_predicts_the_first_of_the_next() -> None:
    ours, (first, second) = objective("causal-lm"), windows(2)
    rows = torch.cat([first.input_ids_BL, second.input_ids_BL], 1).tolist()
    each = [
        [-log_probabilities(ours, row[:end])[[*row, NEXT][end]] for end in range(1, 33)] for row in rows
    ]  # the memory is as long as a window, so the second window has seen the whole first one
    for window, tokens in ((first, slice(0, 16)), (second, slice(16, 32))):
        expected = torch.stack([loss for losses in each for loss in losses[tokens]]).mean()
        torch.testing.assert_close(ours(window).loss, expected, rtol=1e-5, atol=1e-6)
        assert int(ours.counts(window)["words"]) == 3 * 16


@pytest.mark.parametrize("position", [1, 8, 15])
def test_a_prediction_does_not_see_its_token_or_later_ones(position: int) -> None:
    ours, (window,) = objective("causal-lm"), windows(1)
    changed_BL = window.input_ids_BL.clone()
    changed_BL[:, position:] = 5 + (changed_BL[:, position:] - 4) % 12  # another word
    assert window.stream_state is not None
    changed = replace(window, input_ids_BL=changed_BL)
    before, after = (
        ours.states(one, ours.memory.empty_copy()).view(3, 16, -1)  # type: ignore[operator, union-attr]
        for one in (window, changed)
    )
    # The state of the token before predicts the one at the position.
    torch.testing.assert_close(before[:, :position], after[:, :position], rtol=1e-5, atol=1e-6)
    assert (before[:, position] - after[:, position]).abs().amax() > 1e-3

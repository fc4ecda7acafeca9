"""The first of two stages."""

from dataclasses import replace

import pytest
import torch
from contract import batch, objective

from electra.objectives.two_stage import TwoStage


@pytest.mark.parametrize(
    ("name", "part"), [("generator first", "generator_loss"), ("encoder first", "encoder_loss")]
)
def test_the_loss_of_the_first_stage_has_the_weight_of_the_generator(name: str, part: str) -> None:
    ours = objective(name)
    assert isinstance(ours, TwoStage)
    ours.config = replace(ours.config, generator_weight=0.3)
    ours.begin_step(0, 10)
    output = ours(batch(4, seed=1))
    torch.testing.assert_close(output.loss, 0.3 * output.parts[part])

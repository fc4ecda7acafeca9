"""The shape of the generator."""

import pytest
from configs import make_objective_config

from electra.modeling.encoders.bert import BertConfig
from electra.modeling.encoders.relative import RelativeConfig
from electra.objectives.config import GeneratorConfig
from electra.objectives.masking_config import MaskingConfig


def test_by_width_a_generator_has_at_least_the_heads_that_are_given() -> None:
    discriminator = BertConfig(hidden_size=256, heads=4, feed_forward_size=1024)
    for given, expected in ((0, 1), (1, 1), (2, 2)):
        shape = GeneratorConfig(width=0.25, heads=given).encoder(discriminator)
        assert (shape.heads, shape.hidden_size, shape.feed_forward_size) == (expected, 64, 256)


def test_a_generator_reads_both_sides_beside_a_left_to_right_network() -> None:
    shape = GeneratorConfig(kind="relative").encoder(RelativeConfig(direction="left"))
    assert isinstance(shape, RelativeConfig) and shape.direction == "both"


@pytest.mark.parametrize("kind", ["replace-mlm", "all-tokens-mlm"])
def test_a_model_card_knows_whether_there_is_a_generator(kind: str) -> None:
    learned, uniform = (make_objective_config(kind=kind, fakes=fakes) for fakes in ("generator", "uniform"))
    assert learned.describe(MaskingConfig()).generator == "generator"
    assert uniform.describe(MaskingConfig()).generator is None

"""The shape of the generator."""

from electra.modeling.encoders.bert import BertConfig
from electra.objectives.config import GeneratorConfig


def test_by_width_a_generator_has_at_least_the_heads_that_are_given() -> None:
    discriminator = BertConfig(hidden_size=256, heads=4, feed_forward_size=1024)
    for given, expected in ((0, 1), (1, 1), (2, 2)):
        shape = GeneratorConfig(width=0.25, heads=given).encoder(discriminator)
        assert (shape.heads, shape.hidden_size, shape.feed_forward_size) == (expected, 64, 256)

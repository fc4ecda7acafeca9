"""Estimates of the cost of a run."""

from dataclasses import replace

from electra.modeling.encoders.relative import RelativeConfig
from electra.training.cost_estimate import activation_bytes, memory_bytes

CONFIG = RelativeConfig(
    layers=4, hidden_size=128, embedding_size=128, feed_forward_size=512, heads=4,
)  # fmt: skip


def told(memory: int, at_once: int = 16) -> float:
    """MiB of the states of 16 rows of 128 tokens, in float32."""
    config = replace(CONFIG, memory_length=memory)
    kept = activation_bytes(config, at_once, length=128, bytes_per_number=4)
    return (kept + memory_bytes(config, 16, at_once=at_once, length=128)) / 2**20


def test_a_transformer_xl_memory_needs_bytes() -> None:
    """Peaks of a process that made steps of a language model of this shape, in MiB, weights and all."""
    for memory, measured in ((0, 161), (128, 232), (512, 432)):
        assert 0.6 < told(memory) / measured < 0.9
    assert told(512, at_once=4) < told(512) / 3, "all rows are remembered, but few are read at once"
    assert memory_bytes(CONFIG, 16, at_once=16, length=128) == 0

"""Estimates of the cost of a run."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from contract import objective

from electra.modeling.encoders.bert import BertConfig
from electra.modeling.encoders.relative import RelativeConfig
from electra.training.config import OptimizerConfig, TrainConfig
from electra.training.cost_estimate import activation_bytes, estimate_cost, memory_bytes

CONFIG = RelativeConfig(
    layers=4, hidden_size=128, embedding_size=128, feed_forward_size=512, heads=4,
)  # fmt: skip


def told(memory: int, at_once: int = 16) -> float:
    """MiB of the states of 16 rows of 128 tokens, in float32."""
    config = replace(CONFIG, memory_length=memory)
    kept = activation_bytes(
        config, at_once * 128, documents=((128, 1),), device=torch.device("cpu"), dtype=torch.float32
    )
    return (kept + memory_bytes(config, 16, at_once=at_once, length=128)) / 2**20


def test_a_transformer_xl_memory_needs_bytes() -> None:
    """Peaks of a process that made steps of a language model of this shape, in MiB, weights and all."""
    for memory, measured in ((0, 161), (128, 232), (512, 432)):
        assert 0.6 < told(memory) / measured < 0.9
    assert told(512, at_once=4) < told(512) / 3, "all rows are remembered, but few are read at once"
    assert memory_bytes(CONFIG, 16, at_once=16, length=128) == 0


def test_a_memory_is_kept_for_all_rows_and_its_old_and_new_states_for_those_of_a_micro_batch() -> None:
    config = replace(CONFIG, layers=2, hidden_size=4, memory_length=7)
    assert memory_bytes(config, 3, at_once=2, length=5) == 4 * 2 * 4 * (3 * 7 + 2 * (7 + 5 + 7))


def estimate_by_kept(kind: str, p: float = 0.0, dtype: torch.dtype = torch.float32, inner: int = 128) -> float:
    """The estimate for a row of 1,024 tokens, divided by the bytes that the backward pass keeps."""
    shape = BertConfig(
        layers=3, hidden_size=64, embedding_size=64, feed_forward_size=inner, heads=2, vocabulary_size=60,
        max_positions=1024,
    )  # fmt: skip
    config = shape.with_kind(kind, dropout=p, attention_dropout=p)
    network = config.build()
    weights = {weight.untyped_storage().data_ptr() for weight in network.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    on_cpu = torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), on_cpu:
        states_BLD = network(torch.zeros(1, 1024, dtype=torch.int64))
    assert states_BLD.requires_grad
    estimate = activation_bytes(config, 1024, documents=((1024, 1),), device=torch.device("cpu"), dtype=dtype)
    return estimate / sum(kept.values())


KINDS = ["bert", "modernbert", "deberta", "relative"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations_are_those_that_the_backward_pass_keeps(kind: str, p: float, dtype: torch.dtype) -> None:
    """Attention weights are most of them, where they are kept. With bfloat16 some are float32."""
    assert estimate_by_kept(kind, p, dtype) == pytest.approx(1, rel=0.4)


@pytest.mark.parametrize(("kind", "inner"), [("modernbert", 128), *((kind, 1024) for kind in KINDS)])
def test_activations_without_attention_weights(kind: str, inner: int) -> None:
    """Vectors of the width are most of them with the smaller feed-forward size, those of that size with 1,024."""
    assert estimate_by_kept(kind, inner=inner) == pytest.approx(1, rel=0.15)


def test_packed_rows_keep_the_attention_weights_of_their_documents() -> None:
    options = {"device": torch.device("cpu"), "dtype": torch.float32}

    def kept(length: int, count: int) -> float:
        return activation_bytes(BertConfig(), 1024, documents=((length, count),), **options)  # type: ignore[arg-type]

    pairs = 1024 * (1024 - 256) * BertConfig().heads * 2 * BertConfig().layers
    assert kept(1024, 1) - kept(256, 4) == 4 * pairs


def test_weights_that_are_frozen_need_four_bytes_instead_of_sixteen() -> None:
    one = objective("frozen generator")
    frozen = sum(weight.numel() for weight in one.parameters() if not weight.requires_grad)
    config = TrainConfig(steps=4, batch_size=2)
    first = estimate_cost(one, config, OptimizerConfig(), length=16)
    second = estimate_cost(one.requires_grad_(), config, OptimizerConfig(), length=16)
    assert frozen and second.memory - first.memory == 12 * frozen
    assert second.trained_parameters - first.trained_parameters == frozen

"""Muon equals PyTorch's, changes nothing in a step that is not finite, and can be saved."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.encoders.modernbert import ModernBertConfig
from electra.modeling.encoders.relative import RelativeConfig
from electra.training.config import OptimizerConfig
from electra.training.muon import Muon, orthogonalize
from electra.training.optim import (
    build_optimizer,
    load_optimizer_state_dict,
    optimizer_state_dict,
    update_flops,
)


def built(config: type[EncoderConfig]) -> nn.Module:
    torch.manual_seed(0)
    return config(
        layers=2, hidden_size=32, embedding_size=32, feed_forward_size=48, heads=2, vocabulary_size=60,
        initializer_range=0.05,
    ).build()  # fmt: skip


def relative() -> nn.Module:
    return built(RelativeConfig)


def encoder() -> nn.Module:
    return built(ModernBertConfig)


def set_gradients(module: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def step(optimizer: torch.optim.Optimizer, *, finite: bool = True, scale: float = 1.0) -> None:
    optimizer.found_inf = torch.tensor(0.0 if finite else 1.0)  # type: ignore[attr-defined]
    optimizer.grad_scale = torch.tensor(scale)  # type: ignore[attr-defined]
    optimizer.step()


def test_singular_values_become_about_one() -> None:
    for shape in ((3, 16, 16), (2, 48, 16), (2, 16, 48)):
        values = torch.linalg.svdvals(
            orthogonalize(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
        )
        assert values.min() > 0.6 and values.max() < 1.3


def test_matrices_are_updated_as_by_torch() -> None:
    weights = [torch.randn(24, 8), torch.randn(24, 8), torch.randn(8, 8)]
    ours, torchs = ([nn.Parameter(weight.clone()) for weight in weights] for _ in range(2))
    others = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], fused=True)
    settings = {"lr": 1e-2, "weight_decay": 0.1, "momentum": 0.9}
    optimizer = Muon([{"params": ours}], others, **settings)
    reference = torch.optim.Muon(torchs, nesterov=True, adjust_lr_fn="match_rms_adamw", **settings)
    for seed, scale in enumerate((1.0, 3.0, 0.5)):
        generator = torch.Generator().manual_seed(seed)
        for our, its in zip(ours, torchs, strict=True):
            its.grad = torch.randn(its.shape, generator=generator)
            our.grad = its.grad * scale
        step(optimizer, scale=scale)
        reference.step()
    for our, its in zip(ours, torchs, strict=True):
        torch.testing.assert_close(our, its, rtol=0, atol=2e-3)  # PyTorch's products are in bfloat16


STACKED = {"query_key_value": 3, "key_value": 2, "inner": 2}
"""Layers of several matrices; `inner` of the gated feed-forward layers of ModernBERT."""


@pytest.mark.parametrize("build", [encoder, relative])
def test_only_matrices_of_blocks_are_orthogonalized_and_stacked_ones_one_by_one(
    build: Callable[[], nn.Module],
) -> None:
    module = build()
    optimizer = build_optimizer(module, OptimizerConfig(matrices="muon", weight_decay=0.0))
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    set_gradients(module, 1)
    step(optimizer)
    for name, parameter in module.named_parameters():
        change = parameter.detach() - before[name]
        states = optimizer.state[parameter].keys()
        if "blocks" in name and parameter.ndim == 2 and "segments" not in name:
            layer = name.split(".")[-2]
            one = layer == "inner" and build is relative
            for part in change.chunk(1 if one else STACKED.get(layer, 1)):
                values = torch.linalg.svdvals(part)
                assert values.max() < 2.5 * values.quantile(0.1), name  # a matrix may have a value of nearly 0
            assert states == {"momentum_buffer"}
        else:
            assert states == {"step", "exp_avg", "exp_avg_sq"}, name


def test_its_flops_are_those_that_torch_counts() -> None:
    module = relative()
    set_gradients(module, 1)
    optimizer = build_optimizer(module, OptimizerConfig(matrices="muon"))
    with FlopCounterMode(display=False) as counter:
        step(optimizer)
    assert update_flops(module, OptimizerConfig(matrices="muon")) == counter.get_total_flops() > 0
    assert optimizer.flops == counter.get_total_flops()  # type: ignore[attr-defined]
    assert update_flops(module, OptimizerConfig()) == 0


def test_weights_that_are_not_trained_cost_nothing() -> None:
    module = encoder()
    all_flops = update_flops(module, OptimizerConfig(matrices="muon"))
    first, second = module.blocks  # type: ignore[attr-defined]
    first.requires_grad_(False)
    optimizer = build_optimizer(module, OptimizerConfig(matrices="muon"))
    set_gradients(second, 1)
    step(optimizer)
    assert optimizer.flops == update_flops(module, OptimizerConfig(matrices="muon")) < all_flops  # type: ignore[attr-defined]


def test_the_others_are_trained_without_bias_correction_if_that_is_set() -> None:
    ends = []
    for matrices in ("adamw", "muon"):
        module = encoder()
        optimizer = build_optimizer(module, OptimizerConfig(matrices=matrices, bias_correction=False))
        set_gradients(module, 1)
        step(optimizer)
        ends.append({name: p.detach() for name, p in module.named_parameters() if "blocks" not in name})
    assert ends[0] and all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    module = encoder()
    optimizer = build_optimizer(module, OptimizerConfig(matrices="muon"))
    set_gradients(module, 1)
    step(optimizer)
    before = {name: tensor.clone() for name, tensor in optimizer_state_dict(module, optimizer).items()}
    weights = [parameter.detach().clone() for parameter in module.parameters()]
    set_gradients(module, 2)
    for parameter in module.parameters():
        assert parameter.grad is not None
        parameter.grad[0] = torch.nan
    step(optimizer, finite=False)
    assert all(torch.equal(a, b) for a, b in zip(weights, module.parameters(), strict=True))
    for name, tensor in optimizer_state_dict(module, optimizer).items():
        assert torch.equal(tensor, before[name]), name


def test_its_state_can_be_saved_and_loaded() -> None:
    ends = []
    for resumed in (False, True):
        module = encoder()
        optimizer = build_optimizer(module, OptimizerConfig(matrices="muon"))
        for seed in range(4):
            if resumed and seed == 2:
                saved = {name: tensor.clone() for name, tensor in optimizer_state_dict(module, optimizer).items()}
                optimizer = build_optimizer(module, OptimizerConfig(matrices="muon"))
                load_optimizer_state_dict(module, optimizer, saved)
            set_gradients(module, seed)
            step(optimizer)
        ends.append([parameter.detach() for parameter in module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))

"""AdamW: which parameters decay, and that its state survives a checkpoint."""

import torch
from torch import nn

from electra.training.config import OptimizerConfig
from electra.training.optim import build_optimizer, load_optimizer_state_dict, optimizer_state_dict


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.again = self.table
        self.dense = nn.Linear(4, 3)
        self.norm = nn.LayerNorm(3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.dense(self.table(ids))).pow(3).sum()


def steps(module: Small, optimizer: torch.optim.Optimizer, count: int) -> None:
    for _ in range(count):
        module(torch.arange(5)).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_biases_and_norms_do_not_decay_and_shared_parameters_occur_once() -> None:
    module = Small()
    decayed, spared = build_optimizer(module, OptimizerConfig()).param_groups
    assert {id(p) for p in decayed["params"]} == {id(module.table.weight), id(module.dense.weight)}
    assert decayed["weight_decay"] == 0.01 and spared["weight_decay"] == 0.0
    assert len(decayed["params"]) == 2 and len(spared["params"]) == 3


def test_restored_state_continues_bit_for_bit() -> None:
    torch.manual_seed(0)
    module = Small()
    optimizer = build_optimizer(module, OptimizerConfig(learning_rate=0.1))
    steps(module, optimizer, 3)
    weights = {name: p.detach().clone() for name, p in module.named_parameters()}
    state = {name: value.clone() for name, value in optimizer_state_dict(module, optimizer).items()}
    steps(module, optimizer, 2)

    other = Small()
    other.load_state_dict(weights, strict=False)
    other_optimizer = build_optimizer(other, OptimizerConfig(learning_rate=0.1))
    load_optimizer_state_dict(other, other_optimizer, state)
    steps(other, other_optimizer, 2)
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, dict(other.named_parameters())[name]), name


def test_without_bias_correction_it_is_the_plain_rule_of_the_original() -> None:
    torch.manual_seed(0)
    module, config = Small(), OptimizerConfig(learning_rate=0.01, bias_correction=False)
    optimizer = build_optimizer(module, config)
    expected = {name: p.detach().clone() for name, p in module.named_parameters()}
    first = {name: torch.zeros_like(p) for name, p in expected.items()}
    second = {name: torch.zeros_like(p) for name, p in expected.items()}
    for _ in range(4):
        module(torch.arange(5)).backward()
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None
            first[name] = 0.9 * first[name] + 0.1 * parameter.grad
            second[name] = 0.999 * second[name] + 0.001 * parameter.grad**2
            update = first[name] / (second[name].sqrt() + config.epsilon)
            if parameter.ndim == 2:
                update = update + config.weight_decay * expected[name]
            expected[name] = expected[name] - config.learning_rate * update
        optimizer.step()
        optimizer.zero_grad()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-5, atol=1e-6)

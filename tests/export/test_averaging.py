"""The average of two networks, tensor by tensor."""

import pytest
import torch
from torch import nn

from electra.errors import CheckpointError
from electra.export.averaging import average_with


def network(width: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(2, width), nn.LayerNorm(width))


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_each_tensor_is_the_weighted_mean(weight: float) -> None:
    ours, original = network(), network()
    expected = {
        name: weight * original.state_dict()[name] + (1 - weight) * tensor
        for name, tensor in ours.state_dict().items()
    }
    average_with(ours, original, weight=weight)
    assert expected and all(torch.allclose(ours.state_dict()[name], mean) for name, mean in expected.items())


def test_a_layer_that_is_used_several_times_is_averaged_once() -> None:
    """As the blocks of ALBERT: a state_dict has its tensors once for each use."""
    layers = [nn.Linear(3, 3) for _ in range(2)]
    ours, original = (nn.Sequential(layer, layer, layer) for layer in layers)
    expected = 0.25 * layers[1].weight + 0.75 * layers[0].weight
    average_with(ours, original, weight=0.25)
    assert torch.allclose(layers[0].weight, expected)


@pytest.mark.parametrize("other", [network(4), nn.Linear(2, 3)])
def test_networks_of_other_shapes_have_no_average(other: nn.Module) -> None:
    with pytest.raises(CheckpointError, match=r"the networks differ in .*, so they have no average"):
        average_with(network(), other, weight=0.5)

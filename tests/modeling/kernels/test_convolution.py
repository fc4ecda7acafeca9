"""The convolution of DeBERTa-v2 against a loop over positions."""

import numpy as np
import pytest
import torch
from torch import Tensor

from electra.modeling.kernels.convolution import Convolution
from electra.modeling.kernels.documents import DocumentMask

D, L = 4, 9


def convolution(groups: int = 1, width: int = 3) -> Convolution:
    torch.manual_seed(0)
    one = Convolution(
        D, width, groups=groups, activation=torch.tanh, dropout=0.0, norm_epsilon=1e-7, deviation=0.5
    )  # fmt: skip
    torch.nn.init.normal_(one.convolution.bias)
    return one.double()


def convolve_slowly(one: Convolution, x_lD: Tensor, groups: int) -> Tensor:
    """The states of one document, position by position."""
    weight_DCW, width = one.convolution.weight, one.convolution.weight.shape[2]
    rows, channels = [], D // groups
    for position in range(len(x_lD)):
        y_D = one.convolution.bias
        for w in range(width):
            neighbor = position + w - width // 2
            if 0 <= neighbor < len(x_lD):
                parts = [
                    weight_DCW[g * channels : (g + 1) * channels, :, w]
                    @ x_lD[neighbor, g * channels : (g + 1) * channels]
                    for g in range(groups)
                ]
                y_D = y_D + torch.cat(parts)
        rows.append(y_D.tanh())
    return torch.stack(rows)


@pytest.mark.parametrize(("groups", "width"), [(1, 3), (2, 3), (4, 5), (1, 1)])
def test_it_is_the_sum_over_neighbors(groups: int, width: int) -> None:
    one, x_BLD = convolution(groups, width), torch.randn(2, L, D, dtype=torch.float64)
    expected = torch.stack([convolve_slowly(one, x_LD, groups) for x_LD in x_BLD])
    torch.testing.assert_close(one(x_BLD), expected, rtol=0, atol=1e-12)


def test_padding_does_not_reach_its_neighbors() -> None:
    one, x_BLD = convolution(), torch.randn(2, L, D, dtype=torch.float64)
    mask_BL = torch.arange(L) < torch.tensor([[L], [4]])
    found = one(x_BLD, mask_BL)
    torch.testing.assert_close(found[1, :4], convolve_slowly(one, x_BLD[1, :4], 1), rtol=0, atol=1e-12)
    torch.testing.assert_close(found[0], convolve_slowly(one, x_BLD[0], 1), rtol=0, atol=1e-12)


def test_documents_do_not_reach_each_other() -> None:
    one = convolution()
    places = [(0, 5), (5, 1), (6, 3), (L, 4)]  # one of one token
    documents = DocumentMask.of_documents(np.array(places), 2, L)
    x_BLD = torch.randn(2, L, D, dtype=torch.float64, requires_grad=True)
    found = documents.pad(one(documents.unpad(x_BLD), documents)).flatten(0, 1)
    for start, length in places:
        expected = convolve_slowly(one, x_BLD.flatten(0, 1)[start : start + length], 1)
        torch.testing.assert_close(found[start : start + length], expected, rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x: one(documents.unpad(x), documents), x_BLD)


def test_dropout_is_before_the_activation() -> None:
    """So the scale of what is kept does not leave the range of the activation."""
    one, x_BLD = convolution(), 10 * torch.randn(20, L, D, dtype=torch.float64)
    one.dropout.p = 0.5
    found = one.train()(x_BLD)
    assert (found == 0).any() and 0.99 < found.abs().max() <= 1

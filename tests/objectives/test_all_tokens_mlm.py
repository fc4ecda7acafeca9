"""The copy gate against the formula."""

import pytest
import torch

from electra.objectives.all_tokens_mlm import copying_loss, copying_loss_plain


@pytest.mark.parametrize("sharp", [1.0, 6.0])
def test_loss_and_gradients_equal_the_plain_version(sharp: float) -> None:
    random = torch.Generator().manual_seed(0)
    N, V, E = 300, 500, 12
    tensors = [
        torch.randn(N, E, generator=random),
        torch.randn(V, E, generator=random),
        torch.randn(V, generator=random),
    ]
    gates_N = sharp * torch.randn(N, generator=random)
    targets_N = torch.randint(V, (N,), generator=random)
    weights_N = torch.randint(3, (N,), generator=random).float()
    is_original_N = torch.rand(N, generator=random) < 0.8
    results = []
    for function in (copying_loss, copying_loss_plain):
        learnt = [tensor.clone().requires_grad_() for tensor in (*tensors, gates_N)]
        loss = function(*learnt[:3], targets_N, weights_N, gates_N=learnt[3], is_original_N=is_original_N)
        (2.0 * loss).backward()
        results.append([loss.detach(), *(tensor.grad for tensor in learnt)])
    for found, plain in zip(*results, strict=True):
        torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-4)

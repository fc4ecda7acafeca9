"""The fused loss and sampler against the plain form, and the samples against their distribution."""

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from torch.nn import functional as F

from electra.modeling.kernels.cross_entropy import (
    ROWS,
    Sampling,
    sampled_cross_entropy,
    sampled_cross_entropy_plain,
)

VOCABULARIES = [7, 255, 256, 257, 1000, 1024]


def make_arguments(
    rows: int, vocabulary: int, *, width: int = 12, seed: int = 0, weights: float = 1.0
) -> dict[str, Tensor]:
    """Return random arguments. If `weights` is below 1, some rows have weight 0 and others 2."""
    random = torch.Generator().manual_seed(seed)
    return {
        "hidden_NE": torch.randn(rows, width, generator=random),
        "table_VE": torch.randn(vocabulary, width, generator=random),
        "bias_V": torch.randn(vocabulary, generator=random),
        "targets_N": torch.randint(vocabulary, (rows,), generator=random),
        "weights_N": torch.where(
            torch.rand(rows, generator=random) < weights,
            1.0,
            torch.randint(2, (rows,), generator=random).mul(2).float(),
        ),
        "uniforms_N": torch.rand(rows, generator=random),
    }


def run(function, arguments: dict[str, Tensor], **options) -> tuple[Tensor, Tensor, list[Tensor]]:
    parameters = [arguments[name].clone().requires_grad_() for name in ("hidden_NE", "table_VE", "bias_V")]
    loss, samples_N = function(*parameters, *list(arguments.values())[3:], **options)
    (3.0 * loss).backward()  # a factor, so that the gradient that arrives is not 1
    return loss.detach(), samples_N, [tensor.grad for tensor in parameters]


def sampling_error(samples_N: Tensor, arguments: dict[str, Tensor], *, temperature: float = 1.0) -> float:
    """Return the maximum distance of a uniform number from the exact interval of its sample."""
    logits_NV = F.linear(arguments["hidden_NE"], arguments["table_VE"], arguments["bias_V"]).double()
    probabilities_NV = (logits_NV / temperature).softmax(-1)
    upper_N = probabilities_NV.cumsum(-1).gather(1, samples_N[:, None]).squeeze(1)
    lower_N = upper_N - probabilities_NV.gather(1, samples_N[:, None]).squeeze(1)
    uniforms_N = arguments["uniforms_N"].double()
    return float(torch.maximum(lower_N - uniforms_N, uniforms_N - upper_N).max())


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_loss_and_gradients_equal_the_plain_form(vocabulary: int, temperature: float) -> None:
    arguments = make_arguments(ROWS + 37, vocabulary, weights=0.5)
    loss, _, gradients = run(sampled_cross_entropy, arguments, sampling=Sampling(temperature=temperature))
    plain_loss, _, plain_gradients = run(
        sampled_cross_entropy_plain, arguments, sampling=Sampling(temperature=temperature)
    )
    torch.testing.assert_close(loss, plain_loss, rtol=1e-5, atol=1e-5)
    for gradient, plain in zip(gradients, plain_gradients, strict=True):
        torch.testing.assert_close(gradient, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_uniform_numbers_select_the_samples(vocabulary: int, temperature: float) -> None:
    arguments = make_arguments(2 * ROWS + 5, vocabulary, seed=1)
    _, samples_N, _ = run(sampled_cross_entropy, arguments, sampling=Sampling(temperature=temperature))
    assert sampling_error(samples_N, arguments, temperature=temperature) < 1e-5
    _, plain_N, _ = run(sampled_cross_entropy_plain, arguments, sampling=Sampling(temperature=temperature))
    assert (samples_N == plain_N).float().mean() > 0.99  # the others differ by rounding


def test_samples_follow_the_distribution() -> None:
    rows, vocabulary = 40_000, 600
    arguments = make_arguments(rows, vocabulary, seed=2)
    arguments["hidden_NE"] = arguments["hidden_NE"][:1].expand(rows, -1) * 0.3
    _, samples_N = sampled_cross_entropy(*arguments.values())
    logits_V = arguments["table_VE"] @ arguments["hidden_NE"][0] + arguments["bias_V"]
    expected_V = rows * logits_V.double().softmax(0)
    common_V = expected_V > 10
    counts_V = torch.bincount(samples_N, minlength=vocabulary).double()
    observed = [*counts_V[common_V].tolist(), float(counts_V[~common_V].sum())]
    expected = [*expected_V[common_V].tolist(), float(expected_V[~common_V].sum())]
    assert chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2**-24])
def test_the_ends_of_the_unit_interval_select_possible_tokens(uniform: float) -> None:
    arguments = make_arguments(3, 300)
    arguments["bias_V"][:2] = arguments["bias_V"][-2:] = -1e4  # impossible tokens at both ends
    arguments["uniforms_N"].fill_(uniform)
    _, samples_N = sampled_cross_entropy(*arguments.values())
    assert ((samples_N >= 2) & (samples_N < 300)).all()
    if uniform == 0.0:
        assert (samples_N == 2).all()


def test_rows_of_weight_zero_change_nothing() -> None:
    arguments = make_arguments(50, 300)
    arguments["weights_N"][10:] = 0.0
    loss, _, gradients = run(sampled_cross_entropy, arguments)
    first = {
        name: value[:10] if name.endswith("_N") or name == "hidden_NE" else value
        for name, value in arguments.items()
    }
    first_loss, _, first_gradients = run(sampled_cross_entropy, first)
    torch.testing.assert_close(loss, first_loss)
    torch.testing.assert_close(gradients[0][:10], first_gradients[0])
    assert (gradients[0][10:] == 0).all()
    for gradient, expected in zip(gradients[1:], first_gradients[1:], strict=True):
        torch.testing.assert_close(gradient, expected)


def test_without_gradients_and_without_rows() -> None:
    arguments = make_arguments(20, 300, weights=0.5)
    with torch.no_grad():
        loss, samples_N = sampled_cross_entropy(*arguments.values())
    plain_loss, plain_N = sampled_cross_entropy_plain(*arguments.values())
    torch.testing.assert_close(loss, plain_loss)
    weighted_N = arguments["weights_N"] != 0
    assert torch.equal(samples_N[weighted_N], plain_N[weighted_N])
    empty = {
        name: value[:0] if name.endswith("_N") or name == "hidden_NE" else value
        for name, value in arguments.items()
    }
    loss, samples_N, gradients = run(sampled_cross_entropy, empty)
    assert loss == 0 and samples_N.shape == (0,) and all((gradient == 0).all() for gradient in gradients)


def test_large_logits_stay_finite() -> None:
    arguments = make_arguments(10, 300)
    arguments["hidden_NE"] *= 1e3
    loss, _, gradients = run(sampled_cross_entropy, arguments)
    plain_loss, _, _ = run(sampled_cross_entropy_plain, arguments)
    torch.testing.assert_close(loss, plain_loss, rtol=1e-4, atol=1e-2)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_under_bfloat16_autocast() -> None:
    arguments = make_arguments(2 * ROWS + 9, 1000, width=32)
    arguments["hidden_NE"] *= 0.3
    with torch.autocast("cpu", torch.bfloat16):
        loss, samples_N, gradients = run(sampled_cross_entropy, arguments)
    plain_loss, _, plain_gradients = run(sampled_cross_entropy_plain, arguments)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, plain_loss, rtol=5e-3, atol=0)
    assert sampling_error(samples_N, arguments) < 0.01
    for gradient, plain in zip(gradients, plain_gradients, strict=True):
        assert gradient.dtype == torch.float32
        assert F.cosine_similarity(gradient.flatten(), plain.flatten(), dim=0) > 0.999


def test_sums_over_many_blocks_in_bfloat16() -> None:
    arguments = make_arguments(256 * ROWS, 40, width=8)
    arguments["hidden_NE"] += 1.0  # a sum that grows steadily loses most by rounding
    with torch.autocast("cpu", torch.bfloat16):
        _, _, gradients = run(sampled_cross_entropy, arguments)
    _, _, plain_gradients = run(sampled_cross_entropy_plain, arguments)
    for gradient, plain in zip(gradients, plain_gradients, strict=True):
        assert (gradient - plain).norm() < 0.012 * plain.norm()

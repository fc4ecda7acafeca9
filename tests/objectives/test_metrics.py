"""Held-out metrics against their definitions."""

import math

import numpy as np
import pytest
import torch

from electra.modeling.kernels.cross_entropy import Sampling
from electra.objectives.metrics import DetectionMetrics, MaskedLanguageModelMetrics


def test_detection_by_hand() -> None:
    figures = DetectionMetrics()
    figures.add(torch.tensor([2.0, -1.0, 0.5]), torch.tensor([True, False, False]))
    figures.add(torch.tensor([-2.0, 1.0]), torch.tensor([False, True]))
    found = figures.compute()
    p = 1 / (1 + np.exp(-np.array([2.0, -1.0, 0.5, -2.0, 1.0])))
    y = np.array([1, 0, 0, 0, 1])
    assert found["eval/discriminator_loss"] == pytest.approx(-np.mean(y * np.log(p) + (1 - y) * np.log(1 - p)))
    assert found["eval/majority_loss"] == pytest.approx(-(0.4 * math.log(0.4) + 0.6 * math.log(0.6)))
    assert found["eval/discriminator_auc"] == 1.0
    assert found["eval/discriminator_precision"] == pytest.approx(2 / 3)
    assert found["eval/discriminator_recall"] == 1.0
    assert found["eval/replaced_share"] == 0.4


def test_a_single_class_has_no_auc() -> None:
    figures = DetectionMetrics()
    figures.add(torch.tensor([2.0, -1.0]), torch.tensor([False, False]))
    assert math.isnan(figures.auc()) and math.isnan(figures.compute()["eval/discriminator_average_precision"])


@pytest.mark.filterwarnings("ignore:invalid value")
def test_logits_that_are_not_finite_do_not_stop_an_evaluation() -> None:
    figures = DetectionMetrics()
    figures.add(torch.tensor([math.nan, 1.0]), torch.tensor([False, True]))
    assert math.isnan(figures.auc()) and math.isnan(figures.compute()["eval/discriminator_average_precision"])


def test_generator_metrics_count_masked_positions_only() -> None:
    logits_NV = torch.log(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]))
    figures = MaskedLanguageModelMetrics()
    samples_N = figures.add(
        torch.eye(3),
        logits_NV.T,
        torch.zeros(3),
        targets_N=torch.tensor([0, 1, 2]),
        masked_N=torch.tensor([True, True, False]),
        uniforms_N=torch.tensor([0.75, 0.5, 0.0]),
    )
    assert samples_N.tolist() == [1, 2, 0]
    found = figures.compute()
    assert found["eval/masked_lm_loss"] == pytest.approx(-(math.log(0.7) + math.log(0.1)) / 2, rel=1e-5)
    assert found["eval/masked_lm_accuracy"] == 0.5
    assert found["eval/masked_lm_sample_accuracy"] == 0.0
    entropies = [-sum(p * math.log(p) for p in row) for row in ([0.7, 0.2, 0.1], [0.1, 0.1, 0.8])]
    assert found["eval/generator_entropy"] == pytest.approx(sum(entropies) / 2, rel=1e-5)


def test_held_out_samples_are_drawn_as_in_training() -> None:
    logits_NV = torch.tensor([[2.0, 1.0, 0.0]]).expand(2000, 3)
    uniforms_N = torch.rand(2000, generator=torch.Generator().manual_seed(0))

    def share(**settings: object) -> list[float]:
        figures = MaskedLanguageModelMetrics()
        samples_N = figures.add(
            torch.eye(3)[torch.zeros(2000, dtype=torch.long)],
            logits_NV[:1].T.expand(3, 3).contiguous(),
            torch.zeros(3),
            targets_N=torch.zeros(2000, dtype=torch.long),
            masked_N=torch.ones(2000, dtype=torch.bool),
            uniforms_N=uniforms_N,
            sampling=Sampling(**settings),  # type: ignore[arg-type]
        )
        assert figures.compute()["eval/masked_lm_sample_accuracy"] == int((samples_N == 0).sum()) / 2000
        return [float((samples_N == token).float().mean()) for token in range(3)]

    plain = torch.tensor([2.0, 1.0, 0.0])
    assert share() == pytest.approx(plain.softmax(0).tolist(), abs=0.03)
    assert share(temperature=0.5) == pytest.approx((plain / 0.5).softmax(0).tolist(), abs=0.03)
    others = plain[1:].softmax(0).tolist()
    assert share(disallow_targets=True) == pytest.approx([0.0, *others], abs=0.03)
    first = plain[:2].softmax(0).tolist()
    assert share(top_k=2) == pytest.approx([*first, 0.0], abs=0.03)
    assert share(top_k=1, disallow_targets=True) == [0.0, 1.0, 0.0]

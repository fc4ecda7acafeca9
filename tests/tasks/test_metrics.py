"""Every metric equals that of scikit-learn, SciPy or its plain formula."""

import itertools

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn

from electra.tasks.metrics import METRICS, compute_metrics

random = np.random.default_rng(0)
BINARY = random.integers(0, 2, (2, 50)).tolist()
MANY = random.integers(0, 5, (2, 80)).tolist()
VALUES = random.normal(size=(2, 40)).round(1).tolist()  # rounded, so that some are equal


@pytest.mark.parametrize("pair", [BINARY, MANY])
def test_metrics_of_labels(pair: list[list[int]]) -> None:
    actual = compute_metrics(("accuracy", "macro_f1"), *pair)
    assert actual == pytest.approx({
        "accuracy": sklearn.accuracy_score(*pair),
        "macro_f1": sklearn.f1_score(*pair, average="macro"),
    })  # fmt: skip


def test_a_label_that_is_only_predicted_counts_in_macro_f1() -> None:
    answers, predictions = [0, 0, 1, 1], [0, 2, 1, 1]
    expected = sklearn.f1_score(answers, predictions, average="macro")
    assert expected == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert compute_metrics(["macro_f1"], answers, predictions)["macro_f1"] == pytest.approx(expected)


def test_matthews_is_the_correlation_of_two_labels() -> None:
    assert compute_metrics(["matthews"], *BINARY)["matthews"] == pytest.approx(sklearn.matthews_corrcoef(*BINARY))


def test_f1_is_that_of_the_second_label() -> None:
    assert compute_metrics(["f1"], *BINARY)["f1"] == pytest.approx(sklearn.f1_score(*BINARY))
    assert compute_metrics(["f1"], [1, 0, 0, 0], [1, 1, 0, 0])["f1"] == pytest.approx(2 / 3)


def test_correlations_and_error_of_values() -> None:
    actual = compute_metrics(("pearson", "spearman", "error"), *VALUES)
    assert actual["pearson"] == pytest.approx(stats.pearsonr(*VALUES).statistic)
    assert actual["spearman"] == pytest.approx(stats.spearmanr(*VALUES).statistic)
    assert actual["error"] == pytest.approx(sum(abs(a - b) for a, b in zip(*VALUES, strict=True)) / 40)


def test_metrics_have_the_order_of_the_names() -> None:
    assert list(compute_metrics(("f1", "accuracy"), *BINARY)) == ["f1", "accuracy"]


@pytest.mark.parametrize("name", METRICS)
def test_perfect_predictions(name: str) -> None:
    assert compute_metrics([name], [0, 1, 1, 0], [0, 1, 1, 0])[name] == pytest.approx(
        0.0 if name == "error" else 1.0
    )


@pytest.mark.parametrize("name", METRICS)
def test_constant_labels_give_a_number_and_no_warning(name: str) -> None:
    for answers, predictions in itertools.product([[0, 0, 0], [1, 1, 1], [0, 1, 1]], repeat=2):
        assert np.isfinite(compute_metrics([name], answers, predictions)[name])
    if name in ("matthews", "pearson", "spearman"):
        assert compute_metrics([name], [0, 1, 1], [1, 1, 1])[name] == 0.0
    if name == "f1":
        assert compute_metrics([name], [0, 0, 1], [0, 0, 0])[name] == 0.0


@pytest.mark.parametrize("name", METRICS)
def test_one_example_is_enough(name: str) -> None:
    assert np.isfinite(compute_metrics([name], [1], [1])[name])

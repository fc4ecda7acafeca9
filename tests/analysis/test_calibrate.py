"""Corrections are fitted on one half and evaluated on the other, on replaced tokens and on real errors."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss

from electra.analysis.calibrate import (
    CalibrationEvaluator,
    describe_correction,
    evaluate_on_errors,
    evaluate_on_replaced_tokens,
    open_prepared_data,
)
from electra.analysis.calibration import (
    CORRECTIONS,
    LabeledScores,
    cross_validate,
    estimate_prior,
    fit_calibration,
)
from electra.errors import CheckpointError
from electra.objectives.electric import ElectricConfig
from electra.registry import objectives

SEED = 0


def items(seed: int, *, share: float = -1.0, count: int = 800) -> LabeledScores:
    """Log-odds of 40 documents that are too large."""
    draws = np.random.default_rng(seed)
    right = draws.normal(share, 1.5, count)
    return LabeledScores(
        2 * right, draws.random(count) < 1 / (1 + np.exp(-right)), np.repeat(np.arange(40), count // 40)
    )


def loss(log_odds: np.ndarray, of: LabeledScores) -> float:
    return float(log_loss(of.positive_N, 1 / (1 + np.exp(-log_odds))))


def judge(of: LabeledScores) -> CalibrationEvaluator:
    return CalibrationEvaluator.create(of, bins=5, resamples=30, seed=SEED)


def test_corrections_are_fitted_on_one_half_and_evaluated_on_the_other() -> None:
    fit, other = items(1), items(2, share=-2.0)
    results, corrections, chosen = evaluate_on_replaced_tokens(fit, judge(other), correction=None, seed=SEED)
    assert (results["fitted_share"], results["share"]) == (fit.prior, other.prior)
    for row, kind in zip(results["rows"], CORRECTIONS, strict=True):
        assert row["correction"] == kind and corrections[kind] == fit_calibration(kind, fit)
        assert row["negative_log_likelihood"]["value"] == pytest.approx(
            loss(fit_calibration(kind, fit)(other.log_odds_N), other)
        )
        assert row["cross_validated"] == cross_validate(kind, fit, seed=SEED)
        assert sum(one["count"] for one in row["equal_width"]) == len(other.positive_N)
    best = min(results["rows"][1:], key=lambda row: row["cross_validated"])
    assert best["chosen"] and best["correction"] == chosen != "none"
    raw, platt = results["rows"][0], results["rows"][2]
    between = platt["difference"]["negative_log_likelihood"]
    apart = platt["negative_log_likelihood"]["value"] - raw["negative_log_likelihood"]["value"]
    assert between["value"] == pytest.approx(apart) and between["interval"][0] <= apart <= between["interval"][1]


def test_a_correction_is_chosen_even_if_none_is_needed() -> None:
    draws = np.random.default_rng(0)
    log_odds = draws.normal(-1.0, 1.5, 100)
    calibrated = LabeledScores(
        log_odds, draws.random(100) < 1 / (1 + np.exp(-log_odds)), np.repeat(np.arange(20), 5)
    )
    results, _, chosen = evaluate_on_replaced_tokens(calibrated, judge(calibrated), correction=None, seed=SEED)
    assert min(results["rows"], key=lambda row: row["cross_validated"])["correction"] == "none" != chosen
    assert [row["correction"] for row in results["rows"] if row["chosen"]] == [chosen]


def test_priors_and_the_line_come_from_the_fitting_half() -> None:
    replaced, fit, other = items(1), items(2, share=-2.0), items(3, share=-3.0)
    corrections = [fit_calibration(kind, replaced) for kind in ("none", "platt")]
    results, line = evaluate_on_errors(fit, judge(other), corrections, prior=0.05)
    assert results["share"] == other.prior and line == fit_calibration("platt", fit)
    rows = iter(results["rows"])
    for calibration in corrections:
        estimated = estimate_prior(calibration(fit.log_odds_N), replaced.prior)
        wanted = {"as trained": replaced.prior, "estimated": estimated, "given": 0.05, "true": fit.prior}
        for how, prior in wanted.items():
            row = next(rows)
            assert (row["correction"], row["prior"]) == (calibration.kind, how)
            assert row["expected"] == pytest.approx(prior)
            shift = np.log(prior / (1 - prior)) - np.log(replaced.prior / (1 - replaced.prior))
            expected = loss(calibration(other.log_odds_N) + shift, other)
            assert row["negative_log_likelihood"]["value"] == pytest.approx(expected)
    last = next(rows)
    assert last["prior"] == "fitted to real errors" and next(rows, None) is None
    assert last["negative_log_likelihood"]["value"] == pytest.approx(loss(line(other.log_odds_N), other))


def test_a_correction_is_described_by_its_parameters() -> None:
    described = {kind: describe_correction(fit_calibration(kind, items(1))) for kind in CORRECTIONS}
    assert {kind: [*one] for kind, one in described.items()} == {
        "none": ["correction"],
        "temperature": ["correction", "temperature", "slope", "intercept"],
        "platt": ["correction", "slope", "intercept"],
        "isotonic": ["correction", "knots"],
    }
    temperature = described["temperature"]
    assert temperature["temperature"] * temperature["slope"] == pytest.approx(1) and not temperature["intercept"]


def test_a_message_names_the_objective_whose_logits_are_energies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(objectives._registered, "my-energies", ElectricConfig)
    scorer: Any = SimpleNamespace(objective="my-energies")
    with pytest.raises(CheckpointError, match=r"trained with objective\.kind my-energies: its logits"):
        open_prepared_data(Path("DATA"), scorer, "RUN")

"""Each known failure is provoked and found once; a healthy run has no findings."""

import itertools
from typing import Any

import pytest

from electra.objectives.health import LOSS_SPIKE, NOT_FINITE, SLOWER, WARMING_UP, HealthMonitor, has_passed

HEALTHY: dict[str, Any] = {
    "step": 500,
    "eval/discriminator_auc": 0.8,
    "eval/unigram_auc": 0.85,
    "eval/masked_lm_accuracy": 0.35,
    "eval/masked_lm_sample_accuracy": 0.25,
    "eval/generator_entropy": 4.0,
    "eval/discriminator_loss": 0.3,
    "eval/majority_loss": 0.4,
}


def report(step: int, *, loss: float = 5.0, speed: float = 1000.0) -> dict[str, Any]:
    return {"step": step, "loss": loss, "tokens_per_second": 50.0, "flops_per_second": speed}


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        (
            "discriminator stuck",
            {
                "eval/discriminator_auc": 0.51,
                "eval/unigram_auc": 0.5,
                "eval/discriminator_loss": 0.4,
                "eval/majority_loss": 0.401,
            },
        ),
        ("generator too strong", {"eval/discriminator_auc": 0.55, "eval/masked_lm_sample_accuracy": 0.85}),
        ("generator collapsed", {"eval/generator_entropy": 0.01, "eval/masked_lm_accuracy": 0.04}),
    ],
)
def test_failures_seen_in_evaluations(name: str, figures: dict[str, Any]) -> None:
    monitor = HealthMonitor()
    assert monitor.check_evaluation(HEALTHY, progress=0.6) == []
    findings = monitor.check_evaluation(HEALTHY | figures, progress=0.6)
    assert [finding.name for finding in findings] == [name]
    assert "step 500" in findings[0].message and findings[0].remedy
    assert monitor.check_evaluation(HEALTHY | figures, progress=0.7) == []
    for later, passed in ((HEALTHY, True), (HEALTHY | figures, False)):
        evaluations = [HEALTHY | figures, later | {"step": 600}]
        assert has_passed(name, 500, reports=[], evaluations=evaluations, progress=0.7) is passed


def test_a_discriminator_without_a_generator_can_be_stuck() -> None:
    without = {
        name: value for name, value in HEALTHY.items() if "masked_lm" not in name and "generator" not in name
    }
    assert HealthMonitor().check_evaluation(without, progress=0.6) == []
    stuck = without | {"eval/discriminator_auc": 0.5, "eval/unigram_auc": 0.5, "eval/discriminator_loss": 0.4}
    assert [f.name for f in HealthMonitor().check_evaluation(stuck, progress=0.6)] == ["discriminator stuck"]


def test_a_discriminator_is_not_stuck_early_in_training() -> None:
    figures = HEALTHY | {"eval/discriminator_auc": 0.5, "eval/unigram_auc": 0.5, "eval/discriminator_loss": 0.4}
    assert HealthMonitor().check_evaluation(figures, progress=0.1) == []
    few = figures | {"tokens": 80_000}
    assert HealthMonitor().check_evaluation(few, progress=0.9) == []
    [at_end] = HealthMonitor().check_evaluation(few, progress=1.0)
    assert at_end.name == "discriminator stuck" and "train longer" in at_end.remedy


def test_a_loss_spike_is_named_once() -> None:
    monitor = HealthMonitor()
    for step in range(10):
        assert monitor.check_report(report(step, loss=5.0 - 0.1 * step)) == []
    assert [f.name for f in monitor.check_report(report(10, loss=12.0))] == ["loss spike"]
    assert monitor.check_report(report(11, loss=15.0)) == []


@pytest.mark.parametrize(("usual", "now"), [(5.0, 6.2), (1.0, 1.9)])
def test_a_rise_that_is_small_or_small_in_proportion_is_no_spike(usual: float, now: float) -> None:
    monitor = HealthMonitor()
    for step in range(10):
        monitor.check_report(report(step, loss=usual))
    assert monitor.check_report(report(10, loss=now)) == []
    assert [f.name for f in monitor.check_report(report(11, loss=usual + 2))] == ["loss spike"]


@pytest.mark.parametrize(("name", "expected"), [("discriminator_loss", []), ("generator_loss", ["loss spike"])])
def test_the_loss_of_another_stage_is_no_spike(name: str, expected: list[str]) -> None:
    monitor = HealthMonitor()
    for step in range(10):
        assert monitor.check_report(report(step) | {"generator_loss": 5.0}) == []
    findings = monitor.check_report(report(10, loss=30.0) | {name: 30.0})
    assert [finding.name for finding in findings] == expected


def test_falling_speed() -> None:
    monitor = HealthMonitor()
    for step in range(10):
        assert monitor.check_report(report(step, speed=1000.0 + step)) == []
    assert [f.name for f in monitor.check_report(report(10, speed=400.0))] == ["slower than before"]


def test_steps_with_more_flops_are_not_slower() -> None:
    monitor = HealthMonitor()
    for step in range(10):
        monitor.check_report(report(step))
    assert monitor.check_report(report(10) | {"tokens_per_second": 20.0}) == []


def test_steps_that_are_not_finite() -> None:
    monitor = HealthMonitor()
    findings = monitor.check_skipped(17, rows="a file")
    assert [f.name for f in findings] == ["not finite"] and "step 17" in findings[0].message
    assert monitor.check_skipped(18, rows="another") == []


def test_findings_from_the_length_of_the_run() -> None:
    assert HealthMonitor().check_plan(steps=1000, warmup_steps=100, epochs=3.0) == []
    names = [f.name for f in HealthMonitor().check_plan(steps=100, warmup_steps=100, epochs=50.0)]
    assert names == ["still warming up", "corpus too small"]


def test_its_state_survives_a_checkpoint() -> None:
    monitor, resumed = HealthMonitor(), HealthMonitor()
    monitor.check_skipped(1, rows="a file")
    for step in range(10):
        monitor.check_report({**report(step), "generator_loss": 2.0})
    resumed.load_state_dict(monitor.state_dict())
    assert resumed.check_skipped(2, rows="another") == []
    spike = {**report(10, loss=50.0), "generator_loss": 2.0}
    assert [f.name for f in resumed.check_report(spike)] == ["loss spike"]


def losses(*values: float, first: int) -> list[dict[str, Any]]:
    return [{"step": first + 10 * number, "loss": value} for number, value in enumerate(values)]


def test_a_spike_has_passed_when_losses_are_as_before() -> None:
    before = losses(*[3.0] * 5, first=10)
    for later, passed in (([9.0, 9.0], False), ([9.0, 3.1, 3.0], True), ([], False)):
        reports = [*before, *losses(9.0, *later, first=60)]
        assert has_passed(LOSS_SPIKE, 60, reports=reports, evaluations=[], progress=1) is passed


def timed(*intervals: tuple[float, float]) -> list[dict[str, Any]]:
    """A report every 10 steps, from the FLOPs and seconds since the one before."""
    flops, seconds = (list(itertools.accumulate(numbers)) for numbers in zip(*intervals, strict=True))
    return [
        {"step": 10 * (number + 1), "flops": flops[number], "seconds": seconds[number]}
        for number in range(len(intervals))
    ]


@pytest.mark.parametrize(("later", "passed"), [
    ([(3.0, 3.0)] * 2, False),
    ([(3.0, 1.6)], True),  # the report of the finding itself does not count
    ([(3.0, 3.0), (3.0, 1.0), (3.0, 1.0)], True),
    ([(9.0, 3.0)] * 3, True),  # as fast, but each step is more expensive
    ([], False),
])  # fmt: skip
def test_slowness_has_passed_when_as_many_flops_are_made_in_a_second(
    later: list[tuple[float, float]], passed: bool
) -> None:
    reports = timed(*[(3.0, 1.0)] * 5, (3.0, 3.0), *later)
    assert has_passed(SLOWER, 60, reports=reports, evaluations=[], progress=1) is passed


def test_what_no_report_can_end_does_not_pass() -> None:
    reports = losses(*[3.0] * 5, first=10)
    assert not has_passed(WARMING_UP, 10, reports=reports, evaluations=[], progress=1)
    assert has_passed(NOT_FINITE, 10, reports=reports, evaluations=[], progress=1)
    assert not has_passed(NOT_FINITE, 50, reports=reports, evaluations=[], progress=1)

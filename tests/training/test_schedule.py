"""Warm-up and decay."""

import pytest

from electra.training.schedule import learning_rate


def rate(step: int, steps: int | None = 100) -> float:
    return learning_rate(step, peak=1.0, warmup_steps=10, steps=steps)


def test_it_rises_to_the_peak_and_falls_to_almost_nothing() -> None:
    assert [rate(0), rate(4), rate(9)] == pytest.approx([0.1, 0.5, 1.0])
    assert rate(10) == pytest.approx(1.0)
    assert rate(55) == pytest.approx(0.5)
    assert 0 < rate(99) == pytest.approx(1 / 90)


def test_the_warm_up_needs_no_length() -> None:
    assert rate(5, steps=None) == rate(5)


def test_a_run_shorter_than_its_warm_up_never_leaves_it() -> None:
    assert learning_rate(4, peak=1.0, warmup_steps=10, steps=5) == pytest.approx(0.5)


def test_the_rate_can_stay_at_the_peak_before_it_decays() -> None:
    rates = [learning_rate(s, peak=2.0, warmup_steps=10, steps=100, decay_share=0.2) for s in range(100)]
    assert rates[9:81] == pytest.approx([2.0] * 72)
    assert rates[80:] == pytest.approx([2.0 * (100 - step) / 20 for step in range(80, 100)])
    both = {"peak": 1.0, "warmup_steps": 90, "steps": 100}  # a warm-up that takes nearly all of the run
    assert learning_rate(95, **both, decay_share=0.2) == learning_rate(95, **both)


def test_warm_up_over_decay_is_their_product() -> None:
    both = {"peak": 2.0, "warmup_steps": 10, "steps": 100, "warmup_over_decay": True}
    rates = [learning_rate(step, **both) for step in (0, 5, 10, 55, 100)]
    assert rates == pytest.approx([0.0, 2 * 0.95 * 0.5, 2 * 0.9, 2 * 0.45, 0.0])


@pytest.mark.parametrize("over", [True, False])
@pytest.mark.parametrize("before", [20, 4000])
def test_a_continued_schedule_is_the_last_part_of_the_originals(over: bool, before: int) -> None:
    """The original's rule: total steps 4e6 + n, and the rate times (4e6 + n) / n."""
    steps, warmup_steps = 1000, 50
    rates = [
        learning_rate(
            step, peak=2.0, steps=steps, steps_before=before, warmup_steps=warmup_steps, warmup_over_decay=over
        )
        for step in range(steps)
    ]
    total = before + steps
    whole = [
        learning_rate(
            step, peak=2.0 * total / steps, steps=total, warmup_steps=warmup_steps, warmup_over_decay=True
        )
        for step in range(before, total)
    ]
    assert rates == pytest.approx(whole)
    assert max(rates) <= 2.0
    assert rates[0] == pytest.approx(2.0 * min(before / warmup_steps, 1))

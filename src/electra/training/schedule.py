"""The learning rate as a pure function of the step."""

import math


def learning_rate(
    step: int,
    *,
    peak: float,
    warmup_steps: int,
    steps: int | None,
    warmup_over_decay: bool = False,
    steps_before: int = 0,
    decay_share: float = 1.0,
) -> float:
    """Linear warm-up from peak / warmup_steps, then linear decay that would reach 0 one step after the last.

    Args:
        step: counted from 0.
        steps: the length of the run; None while it is still being measured, which ends within the warm-up.
        warmup_over_decay: warm-up and decay both begin at step 0 and are multiplied, as in the original code: the
            rate is 0 at step 0 and never quite reaches the peak.
        steps_before: the number of steps that the weights were trained for before this run. The rule is the one of
            the original code for its released checkpoints: the rate decays from the peak to 0 within this run,
            multiplied by what is left of the warm-up.
        decay_share: share of the run, at its end, in which the rate decays; before it, the rate stays at the peak.
    """
    if steps_before:
        assert steps is not None, "a continued schedule needs the length of the run"
        return peak * max(1 - step / steps, 0.0) * min((steps_before + step) / warmup_steps, 1.0)
    if warmup_over_decay:
        assert steps is not None, "a decay from the first step needs the length of the run"
        return peak * max(1 - step / steps, 0.0) * min(step / warmup_steps, 1.0)
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    assert steps is not None, "the length of a run is known before its warm-up ends"
    decay_steps = min(steps - warmup_steps, math.ceil(decay_share * steps))
    return peak * min(max(steps - step, 0) / max(decay_steps, 1), 1.0)

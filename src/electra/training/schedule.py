"""The learning rate as a pure function of the step."""


def learning_rate(
    step: int,
    *,
    peak: float,
    warmup_steps: int,
    steps: int | None,
    warmup_over_decay: bool = False,
    steps_before: int = 0,
) -> float:
    """Linear warm-up from peak / warmup_steps, then linear decay that would reach 0 one step after the last.

    Args:
        step: counted from 0.
        steps: the length of the run; None while it is still being measured, which ends within the warm-up.
        warmup_over_decay: both begin at step 0 and are multiplied, as in the original: the rate is 0 at step 0 and
            the peak is never quite reached.
        steps_before: of a run that this one continues, by the original's rule for its released checkpoints: its
            schedule (warm-up over decay) for as many steps more, times (steps_before + steps) / steps. That is the
            peak falling to 0 within this run, with what is left of the warm-up.
    """
    if steps_before:
        assert steps is not None, "a schedule that goes on needs the length of the run"
        return peak * max(1 - step / steps, 0.0) * min((steps_before + step) / warmup_steps, 1.0)
    if warmup_over_decay:
        assert steps is not None, "a decay from the first step needs the length of the run"
        return peak * max(1 - step / steps, 0.0) * min(step / warmup_steps, 1.0)
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    assert steps is not None, "the length of a run is settled before its warm-up ends"
    return peak * max(steps - step, 0) / max(steps - warmup_steps, 1)

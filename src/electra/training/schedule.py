"""The learning rate as a pure function of the step."""


def learning_rate(step: int, *, peak: float, warmup_steps: int, steps: int | None) -> float:
    """Linear warm-up from peak / warmup_steps, then linear decay that would reach 0 one step after the last.

    Args:
        step: counted from 0.
        steps: the length of the run; None while it is still being measured, which ends within the warm-up.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    assert steps is not None, "the length of a run is settled before its warm-up ends"
    return peak * max(steps - step, 0) / max(steps - warmup_steps, 1)

"""How far a pre-training has come, and what it has cost: steps, tokens, FLOPs and time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra.durations import describe_duration
from electra.json_files import read_json
from electra.reports.metrics import Metrics


def run_steps(run: Path, config: Mapping[str, Any]) -> int | None:
    """The steps of a run that has finished, or the planned ones; None if they are not known.

    A run with a limit on its time can finish before the planned steps.
    """
    end = read_json(run / "ended.json", optional=True)
    steps = end.get("step") if end.get("how") == "finished" else None
    steps = steps or config.get("train", {}).get("steps")
    return int(steps) if steps else None


def describe_steps(metrics: Metrics, steps: int | None) -> str:
    """`5,814`, and `5,238 of 5,814` of a run that has not ended; "–" before its first report."""
    if not metrics.reports:
        return "–"
    step = metrics.reports[-1]["step"]
    return f"{step:,}" if steps is None or step >= steps else f"{step:,} of {steps:,}"


def describe_budget(metrics: Metrics) -> tuple[str, str, str]:
    """The tokens, the training FLOPs and the time; "–" before the first report."""
    if not metrics.reports:
        return "–", "–", "–"
    last = metrics.reports[-1]
    return f"{last['tokens']:,}", f"{last['flops']:.3e}", describe_duration(total_seconds(metrics))


def describe_time(metrics: Metrics) -> str:
    """The time of a run that has reports, that of its evaluations, and its speed in training."""
    last, evaluating = metrics.reports[-1], evaluation_seconds(metrics)
    part = (
        " without evaluations" if evaluating is None else f", of which evaluations {describe_duration(evaluating)}"
    )
    speed = f"{last['tokens'] / last['seconds']:,.0f} tokens/s in training"
    return f"{describe_duration(total_seconds(metrics))}{part}; {speed}"


def total_seconds(metrics: Metrics) -> float:
    """The time of a run that has reports, with that of its evaluations if it is known."""
    seconds: float = metrics.reports[-1]["seconds"]
    return seconds + (evaluation_seconds(metrics) or 0.0)


def evaluation_seconds(metrics: Metrics) -> float | None:
    """The time of a run's evaluations; None for runs before 2026-11-26, which have not written it."""
    if not any("evaluation_seconds" in evaluation for evaluation in metrics.evaluations):
        return None
    return sum(evaluation.get("evaluation_seconds", 0.0) for evaluation in metrics.evaluations)


def is_evaluated_at_end(metrics: Metrics, steps: int | None) -> bool:
    """Whether the last evaluation is that of the end, which reads all held-out rows.

    Args:
        steps: the length of the run; if it is not known, every run counts as ended.
    """
    return bool(metrics.evaluations) and (steps is None or metrics.evaluations[-1]["step"] >= steps)

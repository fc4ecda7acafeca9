"""Health checks: known ways in which a run can fail, found from its metrics, each reported once."""

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Metrics = Mapping[str, Any]

LOSS_SPIKE, SLOWER, TOO_LONG = "loss spike", "slower than before", "longer than asked"
NOT_FINITE = "not finite"
COLLAPSED, TOO_STRONG, STUCK = "generator collapsed", "generator too strong", "discriminator stuck"
OF_EVALUATIONS = (COLLAPSED, TOO_STRONG, STUCK)
WARMING_UP, CORPUS_TOO_SMALL = "still warming up", "corpus too small"
DEADLINE, LATE = "ended by the deadline", "later than the deadline"
SPIKE, MARGIN = 1.3, 1.0
"""A loss above SPIKE times the recent median, and more than MARGIN nats above it, is a spike."""
SLOWDOWN = 0.6
"""FLOP/s below this fraction of the run's median are a slowdown. (Tokens/s also fall in steps that cost more.)"""
OVERRUN = 1.5
"""A run that will take so many times the minutes that were asked for is reported."""
EPOCHS = 16
"""After about so many epochs, repeated text has almost no value (Muennighoff et al. 2023, figure 5)."""
EARLY = 500_000
"""Number of tokens before which a discriminator is not called stuck, except at the end of the run."""
WINDOW = 20
"""Number of reports in a median."""
RECENT = 5
"""Number of reports, at the end of a run, that show whether a finding has passed."""


_OF_DISCRIMINATOR = {
    "eval/discriminator_auc", "eval/unigram_auc", "eval/discriminator_loss", "eval/majority_loss",
}  # fmt: skip
_OF_GENERATOR = {"eval/masked_lm_accuracy", "eval/masked_lm_sample_accuracy", "eval/generator_entropy"}


@dataclass(frozen=True)
class Finding:
    """One way in which a run fails, and what to do about it."""

    name: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}; {self.remedy}"


class HealthMonitor:
    """Reads reports and evaluations in order, and returns each finding once per run.

    Args:
        silent: names of findings that are not returned.
    """

    def __init__(self, *, silent: Sequence[str] = ()) -> None:
        self.silent = silent
        self.named: list[str] = []
        self.losses: list[float] = []
        self.speeds: list[float] = []
        self.parts: list[str] = []

    def state_dict(self) -> dict[str, Any]:
        """The state to save in a checkpoint, so that a resumed run has the same findings as an uninterrupted
        one."""
        return {"named": self.named, "losses": self.losses, "speeds": self.speeds, "parts": self.parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.named, self.losses = list(state["named"]), list(state["losses"])
        self.speeds, self.parts = list(state["speeds"]), list(state.get("parts", []))

    def check_plan(self, *, steps: int, warmup_steps: int, epochs: float) -> list[Finding]:
        """Findings that are certain once the length of the run is known."""
        return self._new(_plan_findings(steps, warmup_steps, epochs))

    def check_report(self, metrics: Metrics) -> list[Finding]:
        """Findings from one report (an object of metrics.jsonl)."""
        parts = sorted(name for name in metrics if name.endswith("_loss"))
        if parts != self.parts:  # another stage, whose loss has other parts
            self.parts, self.losses = parts, []
        findings = self._new(self._report_findings(metrics))
        self.losses = [*self.losses, metrics["loss"]][-WINDOW:]
        self.speeds = [*self.speeds, metrics["flops_per_second"]][-WINDOW:]
        return findings

    def check_deadline(self, evaluation_seconds: float, *, reserved: float) -> list[Finding]:
        """The finding that the last evaluation takes longer than what is reserved for it and for the export."""
        if evaluation_seconds <= reserved:
            return []
        return self._new([
            Finding(
                LATE,
                f"the last evaluation alone takes about {evaluation_seconds:,.0f} seconds, and {reserved:,.0f} "
                "are reserved for it and the export before the deadline, so the run will end later",
                "lower evaluation.examples or raise train.deadline",
            )
        ])  # fmt: skip

    def end_at_deadline(self, step: int, steps: int | None, *, minutes: float, rate: float) -> list[Finding]:
        """The finding that a run ends at a step before its planned end, with the rate as a share of its peak."""
        planned = f" of {steps:,}" if steps else ""
        return self._new([
            Finding(
                DEADLINE,
                f"stopped at step {step:,}{planned}, because the deadline of {minutes:g} minutes is near; the "
                f"learning rate was still at {rate:.0%} of its peak",
                "set train.minutes or train.steps so that the run ends before the deadline, with a low rate",
            )
        ])  # fmt: skip

    def check_length(self, minutes: float, *, asked: float) -> list[Finding]:
        """Findings from the minutes that the run will take, and those that were asked for."""
        if minutes <= OVERRUN * asked:
            return []
        return self._new([
            Finding(
                TOO_LONG,
                f"at the present speed the run takes {minutes:.3g} minutes instead of {asked:g}; its number of "
                "steps was computed from the speed of the first ones",
                "look for another program on this machine, or set train.deadline, which ends a run in time",
            )
        ])  # fmt: skip

    def check_skipped(self, step: int, *, rows: str) -> list[Finding]:
        """Findings from a step whose loss or gradient was not finite; `rows` is the file with its rows."""
        return self._new([
            Finding(
                NOT_FINITE,
                f"the loss or gradient of step {step} is not a finite number, and the step was skipped; its rows "
                f"are in {rows}",
                "if it happens again, lower optimizer.learning_rate or set train.precision to float32",
            )
        ])  # fmt: skip

    def check_evaluation(self, metrics: Metrics, *, progress: float) -> list[Finding]:
        """Findings from one evaluation; `progress` is the share of the run that is done."""
        return self._new(_evaluation_findings(metrics, progress))

    def _new(self, findings: Iterator[Finding] | list[Finding]) -> list[Finding]:
        new = [finding for finding in findings if finding.name not in (*self.named, *self.silent)]
        self.named += [finding.name for finding in new]
        return new

    def _report_findings(self, metrics: Metrics) -> Iterator[Finding]:
        recent = statistics.median(self.losses) if len(self.losses) >= 5 else math.inf
        if _is_spike(metrics["loss"], recent):
            yield Finding(
                LOSS_SPIKE,
                f"loss {metrics['loss']:.3g} at step {metrics['step']:,}; the recent median is {recent:.3g}",
                "if it does not recover, go back to the checkpoint before it with a lower "
                "optimizer.learning_rate or more optimizer.warmup_steps",
            )
        if len(self.speeds) >= 5:
            usual = statistics.median(self.speeds)
            if metrics["flops_per_second"] < SLOWDOWN * usual:
                yield Finding(
                    SLOWER,
                    f"{metrics['flops_per_second'] / 1e9:,.3g} GFLOP/s at step {metrics['step']:,}, "
                    f"{usual / 1e9:,.3g} before",
                    "look for another program on this machine, a hot processor, or a slow disk with the data",
                )


def has_passed(
    name: str, step: int, *, reports: Sequence[Metrics], evaluations: Sequence[Metrics], progress: float
) -> bool:
    """Whether a finding of a step no longer holds at the end of a run's reports and evaluations.

    Forecasts, and findings about the length of a run or its corpus, do not pass.

    Args:
        progress: the share of the run that is done.
    """
    before = [report for report in reports if report["step"] < step][-WINDOW:]
    after = [report for report in reports if report["step"] > step][-RECENT:]
    if after and name == NOT_FINITE:
        return True
    if after and before and name == LOSS_SPIKE:
        return not _is_spike(_median(after, "loss"), _median(before, "loss"))
    if name == SLOWER:
        speeds = _flops_per_second(reports)
        usual = [speed for at, speed in speeds if at < step][-WINDOW:]
        now = [speed for at, speed in speeds if at > step][-RECENT:]
        return bool(usual and now) and statistics.median(now) >= SLOWDOWN * statistics.median(usual)
    if name in OF_EVALUATIONS and evaluations and evaluations[-1]["step"] > step:
        return name not in {finding.name for finding in _evaluation_findings(evaluations[-1], progress)}
    return False


def _flops_per_second(reports: Sequence[Metrics]) -> list[tuple[int, float]]:
    """The step of each report but the first one, and the speed since the report before it."""
    return [
        (after["step"], (after["flops"] - before["flops"]) / (after["seconds"] - before["seconds"]))
        for before, after in itertools.pairwise(reports)
        if after["seconds"] > before["seconds"]
    ]


def _median(reports: Sequence[Metrics], name: str) -> float:
    return statistics.median(report[name] for report in reports)


def _is_spike(loss: float, recent: float) -> bool:
    return loss > max(SPIKE * recent, recent + MARGIN)


def _plan_findings(steps: int, warmup_steps: int, epochs: float) -> Iterator[Finding]:
    if warmup_steps >= steps:
        yield Finding(
            WARMING_UP,
            f"the learning rate would still be rising at the last step ({warmup_steps} steps of warm-up, "
            f"{steps} in all)",
            f"set optimizer.warmup_steps to about {max(1, steps // 20)}",
        )
    if epochs > EPOCHS:
        yield Finding(
            CORPUS_TOO_SMALL,
            f"every document would be seen {epochs:.0f} times",
            f"add text or train for fewer steps; after about {EPOCHS} times, repetition has almost no value",
        )


def _evaluation_findings(metrics: Metrics, progress: float) -> Iterator[Finding]:
    if not metrics.keys() >= _OF_DISCRIMINATOR:
        return
    findings = list(_generator_findings(metrics, progress)) if metrics.keys() >= _OF_GENERATOR else []
    yield from findings or _discriminator_findings(metrics, progress)


def _generator_findings(metrics: Metrics, progress: float) -> Iterator[Finding]:
    auc, at = metrics["eval/discriminator_auc"], f"at step {metrics['step']:,}"
    accuracy, entropy = metrics["eval/masked_lm_accuracy"], metrics["eval/generator_entropy"]
    if progress >= 0.5 and entropy < 0.5 and accuracy < 0.25:
        yield Finding(
            COLLAPSED,
            f"it predicts the same few tokens at almost every position {at} (entropy {entropy:.2f} nats, "
            f"accuracy {accuracy:.2f})",
            "lower optimizer.learning_rate or raise objective.temperature",
        )
    elif progress >= 0.25 and metrics["eval/masked_lm_sample_accuracy"] > 0.75 and auc < 0.65:
        yield Finding(
            TOO_STRONG,
            f"{metrics['eval/masked_lm_sample_accuracy']:.0%} of its samples are the original token {at}, "
            f"so the discriminator (AUC {auc:.2f}) gets too few replaced tokens to learn from",
            "make generator.hidden_size or generator.layers smaller, or raise masking.share",
        )


def _discriminator_findings(metrics: Metrics, progress: float) -> Iterator[Finding]:
    auc, unigram_auc = metrics["eval/discriminator_auc"], metrics["eval/unigram_auc"]
    loss, majority = metrics["eval/discriminator_loss"], metrics["eval/majority_loss"]
    if (
        (progress >= 1 or (progress >= 0.5 and metrics.get("tokens", EARLY) >= EARLY))
        and loss > 0.97 * majority
        and max(auc, unigram_auc) < 0.6
    ):
        yield Finding(
            STUCK,
            f"it classifies every token as original at step {metrics['step']:,} (loss {loss:.3f}; always "
            f"predicting the majority class gives {majority:.3f}; AUC {auc:.2f})",
            "train longer; docs/concepts/pretraining.md, the start-up plateau, lists what shortens it",
        )

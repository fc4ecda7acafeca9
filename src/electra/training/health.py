"""Is it learning? A watch that reads a run's figures and names the known ways to fail, once each."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Figures = Mapping[str, Any]

LOSS_SPIKE = "loss spike"
SPIKE, MARGIN = 1.3, 1.0
"""A loss this many times the recent median, and so many nats above it, is a spike."""
SLOWDOWN = 0.6
"""Tokens/s below this share of the run's own median are a slowdown."""
EPOCHS = 16
"""Beyond about this many visits repeated text teaches next to nothing (Muennighoff et al. 2023, figure 5)."""
EARLY = 500_000
"""Before so many tokens a discriminator that has not started is none that is stuck."""
WINDOW = 20
"""Reports that a median is taken over."""


_NEEDED = {
    "eval/discriminator_auc", "eval/unigram_auc", "eval/masked_lm_accuracy", "eval/masked_lm_sample_accuracy",
    "eval/generator_entropy", "eval/discriminator_loss", "eval/majority_loss",
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One way in which a run fails, and what to do about it."""

    name: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}; {self.remedy}"


class Watch:
    """Reads reports and evaluations in order and yields each finding once in the life of a run.

    Args:
        silent: findings that are never said.
    """

    def __init__(self, *, silent: Sequence[str] = ()) -> None:
        self.silent = silent
        self.named: list[str] = []
        self.losses: list[float] = []
        self.speeds: list[float] = []

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, so that a resumed run says the same things as an unbroken one."""
        return {"named": self.named, "losses": self.losses, "speeds": self.speeds}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.named, self.losses = list(state["named"]), list(state["losses"])
        self.speeds = list(state["speeds"])

    def plan(self, *, steps: int, warmup_steps: int, epochs: float) -> list[Finding]:
        """Findings that are certain once the length of the run is."""
        return self._new(_plan(steps, warmup_steps, epochs))

    def report(self, figures: Figures) -> list[Finding]:
        """Findings from one report (an object of metrics.jsonl)."""
        found = self._new(self._report(figures))
        self.losses = [*self.losses, figures["loss"]][-WINDOW:]
        self.speeds = [*self.speeds, figures["tokens_per_second"]][-WINDOW:]
        return found

    def skipped(self, step: int, *, rows: str) -> list[Finding]:
        """Findings from a step whose loss or gradient was not finite, and whose rows are in a file of the run."""
        return self._new([
            Finding(
                "not finite",
                f"the loss or gradient of step {step} is not a finite number, and the step was skipped; its rows "
                f"are in {rows}",
                "if it comes again, lower optimizer.learning_rate or set train.precision to float32",
            )
        ])  # fmt: skip

    def evaluation(self, figures: Figures, *, progress: float) -> list[Finding]:
        """Findings from one evaluation; `progress` is the share of the run that is done."""
        return self._new(_evaluation(figures, progress))

    def _new(self, findings: Iterator[Finding] | list[Finding]) -> list[Finding]:
        new = [finding for finding in findings if finding.name not in (*self.named, *self.silent)]
        self.named += [finding.name for finding in new]
        return new

    def _report(self, figures: Figures) -> Iterator[Finding]:
        recent = statistics.median(self.losses) if len(self.losses) >= 5 else math.inf
        if figures["loss"] > max(SPIKE * recent, recent + MARGIN):
            yield Finding(
                LOSS_SPIKE,
                f"loss {figures['loss']:.3g} at step {figures['step']}, where it lately was {recent:.3g}",
                "if it does not come down, go back to the checkpoint before it with a lower "
                "optimizer.learning_rate or a longer optimizer.warmup_steps",
            )
        if len(self.speeds) >= 5:
            usual = statistics.median(self.speeds)
            if figures["tokens_per_second"] < SLOWDOWN * usual:
                yield Finding(
                    "tokens/s falling",
                    f"{figures['tokens_per_second']:,.0f} tokens/s at step {figures['step']}, {usual:,.0f} before",
                    "look for another program on this machine, a hot processor, or a slow disk under the data",
                )


def _plan(steps: int, warmup_steps: int, epochs: float) -> Iterator[Finding]:
    if warmup_steps >= steps:
        yield Finding(
            "still warming up",
            f"the learning rate would still be rising at the last step ({warmup_steps} steps of warm-up, "
            f"{steps} in all)",
            f"set optimizer.warmup_steps to about {max(1, steps // 20)}",
        )
    if epochs > EPOCHS:
        yield Finding(
            "corpus too small",
            f"every document would be seen {epochs:.0f} times",
            f"add text or train for fewer steps; beyond about {EPOCHS} times repetition teaches next to nothing",
        )


def _evaluation(figures: Figures, progress: float) -> Iterator[Finding]:
    if not figures.keys() >= _NEEDED:  # an objective without a generator or without a discriminator
        return
    auc, unigram_auc = figures["eval/discriminator_auc"], figures["eval/unigram_auc"]
    accuracy, entropy = figures["eval/masked_lm_accuracy"], figures["eval/generator_entropy"]
    loss, majority = figures["eval/discriminator_loss"], figures["eval/majority_loss"]
    at = f"at step {figures['step']}"
    if progress >= 0.5 and entropy < 0.5 and accuracy < 0.25:
        yield Finding(
            "generator collapsed",
            f"it fills almost every position with the same few tokens {at} (entropy {entropy:.2f} nats, "
            f"accuracy {accuracy:.2f})",
            "lower optimizer.learning_rate or raise objective.temperature",
        )
    elif progress >= 0.25 and figures["eval/masked_lm_sample_accuracy"] > 0.75 and auc < 0.65:
        yield Finding(
            "generator too strong",
            f"{figures['eval/masked_lm_sample_accuracy']:.0%} of its samples are the original token {at}, "
            f"and the discriminator (AUC {auc:.2f}) finds too few fakes to learn from",
            "make generator.hidden_size or generator.layers smaller, or raise masking.share",
        )
    elif (
        progress >= 0.5
        and figures.get("tokens", EARLY) >= EARLY
        and loss > 0.97 * majority
        and max(auc, unigram_auc) < 0.6
    ):
        yield Finding(
            "discriminator stuck",
            f"it calls every token original {at} (loss {loss:.3f}, that of the majority class {majority:.3f}; "
            f"AUC {auc:.2f})",
            "train longer; what starts it sooner is in docs/concepts/pretraining.md, the start-up plateau",
        )

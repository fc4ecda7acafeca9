"""The one loop. It knows objectives through their protocol, and the data as a function of the step.

Everything random in a step is drawn from seeds that are functions of (run seed, step), and the rows of a
batch are such a function too. A run that is killed and started again therefore needs nothing but weights,
optimiser state and counters to go on bit for bit.
"""

import contextlib
import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from electra.data.collate import Batch
from electra.errors import CheckpointError, DivergedError
from electra.modeling.flops import Networks, training_flops
from electra.training.checkpoint import Checkpoint, CheckpointConfig, Checkpoints
from electra.training.evaluation import EvaluationConfig
from electra.training.health import Finding, Watch
from electra.training.length import enough_measured, reserved_for_evaluations, second_a_step
from electra.training.optim import OptimizerConfig, build_optimizer, optimizer_tensors, restore_optimizer
from electra.training.precision import Precision
from electra.training.progress import Progress
from electra.training.run_folder import RunFolder
from electra.training.schedule import learning_rate
from electra.training.signals import StopSignal
from electra.training.tracking import Tracking, TrackingConfig, clock, evaluation_line, report_line
from electra.training.train_config import TrainConfig
from electra.training.update import Figures, Update

logger = logging.getLogger(__name__)

STEPS_WITH = "steps with "
"""Before the name of a figure: the number of steps that are in its sum."""
NOT_FINITE_IN_A_ROW = 5
"""So many steps in a row that cannot be applied end a run."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: `stopped_by` is the signal's number, or None where it went to its end."""

    step: int
    steps: int | None
    stopped_by: int | None
    evaluation: dict[str, Any]


@dataclass(frozen=True)
class Feed:
    """The data of a run.

    Attributes:
        micro_batches: the batches of a step: a pure function of the step.
        epochs: how often every example has been seen after so many steps.
        length: tokens a row, for the count of FLOPs.
        identity: facts that a checkpoint must agree with to be resumed (the data's fingerprint).
    """

    micro_batches: Callable[[int], Sequence[Batch]]
    epochs: Callable[[int], float]
    length: int
    identity: dict[str, str]


@dataclass(frozen=True)
class Rules:
    """Where fine-tuning, or a run of two stages, goes another way than pre-training, whose way is the default.

    Attributes:
        schedule_of: of which stretch of the run a step is, as the steps before it there and the length of the
            stretch; the schedule of the learning rate begins anew with each.
        rate_scales: each parameter's share of the learning rate, by name; None: all of it.
        evaluate_first: look at held-out figures before the first step.
        enough: whether the run ends with this evaluation.
        silent: findings of the watch that mean nothing here.
        out: the folder that the command was given, where the run's lies in it.
    """

    schedule_of: Callable[[int, int | None], tuple[int, int | None]] = lambda step, steps: (step, steps)
    rate_scales: Mapping[str, float] | None = None
    evaluate_first: bool = True
    enough: Callable[[dict[str, Any]], bool] = lambda _: False
    silent: tuple[str, ...] = ()
    out: Path | None = None


class Trainer:
    """Trains one objective.

    Args:
        objective: a module that follows `electra.objectives.base.Objective`.
        evaluate: held-out figures of the objective as it is now, on so many examples.
        run: the folder that everything is written to.
        config_text: the run's config as TOML, given the number of steps.
        texts: further files that every checkpoint carries (the tokenizer).
        rules: None: those of pre-training.
    """

    def __init__(
        self,
        objective: nn.Module,
        config: TrainConfig,
        *,
        optimizer: OptimizerConfig,
        feed: Feed,
        evaluation: EvaluationConfig,
        evaluate: Callable[[int], dict[str, float]],
        checkpoint: CheckpointConfig,
        tracking: TrackingConfig,
        run: RunFolder,
        config_text: Callable[[int | None], str],
        texts: dict[str, str],
        precision: Precision,
        device: torch.device,
        rules: Rules | None = None,
    ) -> None:
        self.objective, self.config, self.optimizer_config = objective, config, optimizer
        self.feed, self.evaluation_config, self.evaluate = feed, evaluation, evaluate
        self.checkpoints, self.tracking_config = Checkpoints(run.checkpoints, checkpoint), tracking
        self.run_folder, self.config_text, self.texts = run, config_text, texts
        self.precision, self.device = precision, device
        self.rules = rules or Rules()
        self.optimizer = build_optimizer(objective, optimizer, rate_scales=self.rules.rate_scales)
        self.update = Update(
            objective, self.optimizer, gradient_clip=optimizer.gradient_clip, precision=precision, device=device
        )
        self.progress, self.watch = Progress(steps=config.steps), Watch(silent=self.rules.silent)
        self.evaluation: dict[str, Any] = {}
        self.stop = StopSignal()
        self._saved_step = -1
        self._unsettled: list[tuple[float, float, Figures]] = []  # rate, FLOPs and figures of each step
        self._began: float | None = None  # when the first of them did

    def run(self) -> Outcome:
        """Train to the end, or until SIGTERM or Ctrl-C; resume where a checkpoint is found.

        Raises:
            CheckpointError: too many steps in a row were not finite, or a checkpoint fails to be written or read.
        """
        checkpoint = self.checkpoints.latest()
        if checkpoint:
            self._restore(checkpoint)
        # From the first moment the folder is known as a run, also while its length is still being measured.
        self.run_folder.write_text(self.run_folder.config, self.config_text(self.progress.steps))
        self.tracking = Tracking(
            self.run_folder.path,
            self.tracking_config,
            resume_at=checkpoint.state["metrics_bytes"] if checkpoint else 0,
            resume_step=self.progress.step,
        )
        if self.progress.steps is not None:
            self._say_plan(self.progress.steps)
        if checkpoint and self.progress.step == self.progress.steps:
            logger.info("the run is finished: %s steps; nothing is left to train", f"{self.progress.steps:,}")
        with contextlib.closing(self.tracking), self.stop.listening():
            if self.progress.step == 0 and self.rules.evaluate_first:
                self._evaluate()
            self.objective.train()
            while self.progress.steps is None or self.progress.step < self.progress.steps:
                self._step()
                self._after_step()
                if self.stop.received:
                    self._save()
                    logger.warning(
                        "saved at step %s; the command with --out %s, without --fresh, goes on from here",
                        f"{self.progress.step:,}", self.rules.out or self.run_folder.path,
                    )  # fmt: skip
                    break
        return Outcome(self.progress.step, self.progress.steps, self.stop.received, self.evaluation)

    def _step(self) -> None:
        """One update. What came of it is not known before `_settle` asks the device."""
        self._began = self._began or time.perf_counter()
        config, step = self.optimizer_config, self.progress.step
        self.objective.begin_step(step, self.progress.steps)  # type: ignore[operator]
        batches = self.feed.micro_batches(step)
        within, length = self.rules.schedule_of(step, self.progress.steps)
        rate = learning_rate(
            within,
            peak=config.learning_rate,
            warmup_steps=config.warmup_steps,
            steps=length,
            warmup_over_decay=config.warmup_over_decay,
            steps_before=config.steps_before,
        )
        networks: Networks = self.objective.networks(self.feed.length)  # type: ignore[operator]
        sequences = sum(batch.input_ids_BL.numel() for batch in batches) / self.feed.length
        flops, figures = sequences * training_flops(networks, self.feed.length), self.update(batches, rate)
        if self._unsettled and self._unsettled[-1][-1].keys() != figures.keys():  # another stage has begun
            self._settle()
            self._began = time.perf_counter()
        self._unsettled.append((rate, flops, figures))
        self.progress.step += 1

    def _settle(self) -> None:
        """Take the steps since the last time into the account. Only this waits for the device."""
        if not self._unsettled:
            return
        names = list(self._unsettled[0][-1])
        rows = [torch.stack([x.detach().double() for x in figures.values()]) for *_, figures in self._unsettled]
        known = torch.stack(rows).tolist()
        assert self._began is not None
        seconds = (time.perf_counter() - self._began) / len(known)
        settled, self._unsettled, self._began = self._unsettled, [], None
        first = self.progress.step - len(known) + 1
        for step, (rate, flops, _), row in zip(itertools.count(first), settled, known, strict=False):
            figures = {**dict(zip(names, row, strict=True)), "flops": flops, "seconds": seconds}
            self._account(step, figures, rate)

    def _account(self, step: int, figures: dict[str, float], rate: float) -> None:
        """Add one step up. One that was not applied counts as skipped; too many in a row end the run."""
        progress = self.progress
        work = {name: figures.pop(name) for name in ("tokens", "flops", "seconds")}
        self._add(work)
        progress.tokens += int(work["tokens"])
        progress.flops += work["flops"]
        progress.seconds += work["seconds"]
        if progress.steps is None:
            progress.measured.append(work["seconds"])
        if figures["applied"]:
            progress.skipped_in_a_row = 0
            self._add(figures)
            self._add({STEPS_WITH + name: 1.0 for name in figures})  # the stages of a run have different parts
            progress.sums["learning_rate"] = rate  # the last one, not a mean
            return
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        self._say(self.watch.skipped(step), step=step)
        if progress.skipped_in_a_row >= NOT_FINITE_IN_A_ROW:
            raise DivergedError(
                f"{NOT_FINITE_IN_A_ROW} steps in a row were not finite, the last one step {step}; "
                f"none of them was applied\n  the last good checkpoint is "
                f"{(self.checkpoints.names() or ['none'])[-1]} in {self.checkpoints.folder}; lower "
                "optimizer.learning_rate or set train.precision to float32 and start beside it with --fresh"
            )

    def _after_step(self) -> None:
        """Reports, evaluations and checkpoints that are due."""
        settled = False
        if self.progress.steps is None:
            self._settle()
            settled = self._measure()
        step, steps = self.progress.step, self.progress.steps
        last, tenth = step == steps, max(1, math.ceil((steps or 0) / 10))
        report = last or step % self.config.report_every == 0
        evaluate = last or (steps is not None and step % (self.evaluation_config.every or tenth) == 0)
        save = last or settled or (steps is not None and step % (self.checkpoints.config.every or tenth) == 0)
        if report or evaluate or save or self.device.type == "cpu":  # on a CPU there is nothing to wait for
            self._settle()
        if report:
            self._report()
        if evaluate:
            self._evaluate()
        # In trouble a run keeps what was good.
        if save and (last or settled or not self.progress.skipped_in_a_row):
            self._save()

    def _measure(self) -> bool:
        """Turn `train.minutes` into a number of steps once enough of them have been timed; whether that is now."""
        assert self.config.minutes is not None
        budget, progress = 60.0 * self.config.minutes, self.progress
        if not enough_measured(progress.measured, budget=budget, warmup_steps=self.optimizer_config.warmup_steps):
            return False
        speed = second_a_step(progress.measured)
        # one evaluation before the first step and one after every tenth of the run; the last may be larger
        count = 10 + self.evaluation_config.at(last=True) / self.evaluation_config.at(last=False)
        reserved = reserved_for_evaluations(progress.evaluation_seconds, count=count, budget=budget)
        progress.steps = progress.step + max(0, int((budget - progress.seconds - reserved) / speed))
        progress.measured = []
        logger.info(
            "%s minutes are %s steps at %.4f seconds a step, and %.0f seconds for evaluations",
            self.config.minutes, f"{progress.steps:,}", speed, reserved,
        )  # fmt: skip
        self.run_folder.write_text(self.run_folder.config, self.config_text(progress.steps))
        self._say_plan(progress.steps)
        return True

    def _say_plan(self, steps: int) -> None:
        """Say what is certain once the length is known."""
        config, epochs = self.optimizer_config, self.feed.epochs(steps)
        warmup_steps = max(0, config.warmup_steps - config.steps_before)
        self._say(self.watch.plan(steps=steps, warmup_steps=warmup_steps, epochs=epochs))

    def _report(self) -> None:
        sums, progress = self.progress.sums, self.progress
        counts = {name: sums.pop(name) for name in list(sums) if name.startswith(STEPS_WITH)}
        sums.pop("applied", None)
        tokens, seconds, flops = sums.pop("tokens"), sums.pop("seconds"), sums.pop("flops")
        rate = sums.pop("learning_rate", 0.0)
        figures: dict[str, Any] = {
            "step": progress.step,
            "tokens": progress.tokens,
            "flops": progress.flops,
            "seconds": round(progress.seconds, 3),
            **{name: value / counts[STEPS_WITH + name] for name, value in sums.items()},
            "learning_rate": rate,
            "tokens_per_second": tokens / seconds,
            "skipped_steps": progress.skipped,
        }
        progress.sums = {}
        if "loss" not in figures:  # every step since the last report was skipped
            return
        left = (progress.steps - progress.step) * progress.seconds / progress.step if progress.steps else None
        line = report_line(
            figures,
            steps=progress.steps,
            utilisation=flops / seconds / self.precision.product_flops,
            seconds_left=left,
        )
        self.tracking.report(figures, line=line, done=progress.step, total=progress.steps)
        self._say(self.watch.report(figures))

    def _evaluate(self) -> None:
        start = time.perf_counter()
        progress = self.progress
        examples = self.evaluation_config.at(last=progress.step == progress.steps)
        self.evaluation = {"step": progress.step, "tokens": progress.tokens, **self.evaluate(examples)}
        progress.evaluation_seconds = time.perf_counter() - start
        self.tracking.figures(self.evaluation)
        logger.info(evaluation_line(self.evaluation))
        if progress.steps:
            self._say(self.watch.evaluation(self.evaluation, progress=progress.step / progress.steps))
        if self.rules.enough(self.evaluation):
            logger.info("stopping early at step %s", f"{progress.step:,}")
            progress.steps = progress.step

    def _say(self, findings: list[Finding], *, step: int | None = None) -> None:
        """Name findings in the console and in metrics.jsonl; of a step, or of the run as it stands."""
        for finding in findings:
            logger.warning("%s", finding)
            self.tracking.metrics.write({
                "step": self.progress.step if step is None else step,
                "health": finding.name,
                "message": finding.message,
                "remedy": finding.remedy,
            })  # fmt: skip

    def _add(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.progress.sums[name] = self.progress.sums.get(name, 0.0) + value

    def _save(self) -> None:
        self._settle()
        if self._saved_step == self.progress.step:
            return
        start = time.perf_counter()
        path = self.checkpoints.save(
            self.progress.step,
            {
                "model": {name: p.detach() for name, p in self.objective.named_parameters()},
                "optimizer": optimizer_tensors(self.objective, self.optimizer),
            },
            state={
                "progress": dataclasses.asdict(self.progress),
                "watch": self.watch.state(),
                "metrics_bytes": self.tracking.metrics.size,
                "evaluation": self.evaluation,
                "identity": self.feed.identity,
            },
            texts={self.run_folder.config.name: self.config_text(self.progress.steps), **self.texts},
        )
        self._saved_step = self.progress.step
        logger.info("saved %s in %s", path.name, clock(time.perf_counter() - start))

    def _restore(self, checkpoint: Checkpoint) -> None:
        stored = checkpoint.state["identity"]
        for name, value in self.feed.identity.items():
            if stored.get(name) != value:
                raise CheckpointError(
                    f"{checkpoint.path} was trained with another {name}: it has {stored.get(name)!r}, "
                    f"given is {value!r}; give the --data of that run, another --out, or --fresh"
                )
        tensors = checkpoint.tensors("model")
        with torch.no_grad():
            for name, parameter in self.objective.named_parameters():
                if name not in tensors or tensors[name].shape != parameter.shape:
                    raise CheckpointError(
                        f"{checkpoint.path}: {name} should be {tuple(parameter.shape)}, "
                        f"found {tuple(tensors[name].shape) if name in tensors else 'nothing'}"
                    )
                parameter.copy_(tensors[name])
        restore_optimizer(self.objective, self.optimizer, checkpoint.tensors("optimizer"))
        self.progress = Progress(**checkpoint.state["progress"])
        self._saved_step = self.progress.step
        self.watch.restore(checkpoint.state["watch"])
        self.evaluation = checkpoint.state["evaluation"]
        logger.info("resuming from %s", checkpoint.path)

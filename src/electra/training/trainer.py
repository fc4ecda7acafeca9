"""The one loop. It knows objectives through their protocol, and the data as a function of the step.

Everything random in a step is drawn from seeds that are functions of (run seed, step), and the rows of a
batch are such a function too. A run that is killed and started again therefore needs nothing but weights,
optimiser state, what is remembered of the rows of a stream, and counters to go on bit for bit.
"""

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from electra import durable
from electra.data.collate import Batch
from electra.modeling.flops import Networks, training_flops
from electra.training.checkpoint import Checkpoint, CheckpointConfig, Checkpoints
from electra.training.checkpoint_io import check_identity, latest, restore, save
from electra.training.distributed import AgreedMaximum, broadcast_object, is_main_process, world_size
from electra.training.evaluation import EvaluationConfig
from electra.training.events import Event
from electra.training.health import LOSS_SPIKE, Finding, Watch
from electra.training.optim import OptimizerConfig, build_optimizer
from electra.training.precision import Precision
from electra.training.progress import Progress
from electra.training.rollback import NOT_FINITE_IN_A_ROW, diverged_error, with_rollback_answer
from electra.training.run_folder import RunFolder
from electra.training.schedule import learning_rate
from electra.training.sharding import reshard, shard
from electra.training.signals import StopSignal
from electra.training.step_metrics import MetricAccumulator, SkippedStep
from electra.training.time_budget import enough_steps_timed, evaluation_seconds_reserved, seconds_per_step
from electra.training.tracking import Tracking, TrackingConfig, clock, evaluation_line, report_line
from electra.training.train_config import TrainConfig
from electra.training.update import Update

logger = logging.getLogger(__name__)

OVERFLOWS_IN_A_ROW = 24
"""In float16 the scale of the loss is below 1 after so many of them, so it is not to blame."""


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
        rows: what a step's batch was made of, for a person to look at.
    """

    micro_batches: Callable[[int], Sequence[Batch]]
    epochs: Callable[[int], float]
    length: int
    identity: dict[str, str]
    rows: Callable[[int], list[dict[str, Any]]] = lambda _: []


@dataclass(frozen=True)
class TrainerOptions:
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
        happened: told of what happens to the run.
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
        rules: TrainerOptions | None = None,
        on_event: Callable[[Event, str, int], None] = lambda *_: None,
    ) -> None:
        self.objective, self.config, self.optimizer_config = objective, config, optimizer
        self.feed, self.evaluation_config, self.evaluate = feed, evaluation, evaluate
        self.checkpoints = Checkpoints(run.checkpoints, checkpoint, warn=self._warn)
        self.tracking_config = tracking
        self.run_folder, self.config_text, self.texts = run, config_text, texts
        self.precision, self.device = precision, device
        self.rules, self.on_event = rules or TrainerOptions(), on_event
        if config.sharding == "full" and world_size() > 1:
            shard(objective, device)
        self.optimizer = build_optimizer(objective, optimizer, rate_scales=self.rules.rate_scales)
        self.update = Update(
            objective, self.optimizer, gradient_clip=optimizer.gradient_clip, precision=precision, device=device
        )
        self.progress, self.watch = Progress(steps=config.steps), Watch(silent=self.rules.silent)
        self.evaluation: dict[str, Any] = {}
        self.stop, self.agreement = StopSignal(), AgreedMaximum()
        self.account = MetricAccumulator(self.progress)
        self._saved_step = -1

    def run(self) -> Outcome:
        """Train to the end, or until SIGTERM or Ctrl-C; resume where a checkpoint is found.

        Raises:
            CheckpointError: too many steps in a row were not finite, or a checkpoint fails to be written or read.
        """
        if checkpoint := latest(self.checkpoints):
            self._restore(checkpoint)
        # From the first moment the folder is known as a run, also while its length is still being measured.
        self._write_config()
        self._open_tracking(checkpoint)
        if self.progress.steps is not None:
            self._say_plan(self.progress.steps)
        if checkpoint and self.progress.step == self.progress.steps:
            logger.info("the run is finished: %s steps; nothing is left to train", f"{self.progress.steps:,}")
        stopped_by = 0
        self.on_event("started", f"at step {self.progress.step:,}", self.progress.step)
        with contextlib.ExitStack() as ends, self.stop.listening():
            ends.callback(lambda: self.tracking.close())  # whichever is open then
            if self.progress.step == 0 and self.rules.evaluate_first:
                self._evaluate()
            self.objective.train()
            while self.progress.steps is None or self.progress.step < self.progress.steps:
                self._step()
                self._after_step()
                if stopped_by := self.agreement(self.stop.received or 0):
                    self._save()
                    logger.warning(
                        "saved at step %s; the command with --out %s, without --fresh, goes on from here",
                        f"{self.progress.step:,}", self.rules.out or self.run_folder.path,
                    )  # fmt: skip
                    break
        return Outcome(self.progress.step, self.progress.steps, stopped_by or None, self.evaluation)

    def _open_tracking(self, checkpoint: Checkpoint | None) -> None:
        self.tracking = Tracking(
            self.run_folder.path,
            self.tracking_config,
            resume_at=checkpoint.state["metrics_bytes"] if checkpoint else 0,
            resume_step=self.progress.step,
        )

    def _step(self) -> None:
        """One update. What came of it is not known before `_settle` asks the device."""
        config, step = self.optimizer_config, self.progress.step
        if step in self.progress.passed_over:
            if not self._settle():
                self.progress.step += 1
            return
        self.account.begin()
        self.objective.begin_step(step, self.progress.steps)  # type: ignore[operator]
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
        flops = training_flops(networks, self.feed.length) / self.feed.length  # a position
        figures = self.update(self.feed.micro_batches(step), rate)
        if not self.account.fits(figures):
            if self._settle():
                return
            self.account.begin()
        self.account.note(rate, flops, figures)

    def _settle(self) -> bool:
        """Take the steps since the last time into the account; whether the run went back because of them."""
        refused = self.account.sync()
        if self.precision.name == "float16":  # gradients may overflow now and then, and the scale is halved
            refused = [one for one in refused if not math.isfinite(one.loss) or one.in_a_row >= OVERFLOWS_IN_A_ROW]
        return bool(refused) and self._look_into(refused)

    def _look_into(self, refused: list[SkippedStep]) -> bool:
        """Keep the rows of steps that were not finite, and go back to the last good checkpoint, once.

        Raises:
            DivergedError: it came again before there was a newer one, or too often in a row.
        """
        files = [self.run_folder.write_rows(one.step, self.feed.rows(one.step - 1)) for one in refused]
        last, before = refused[-1], self.progress.went_back_from
        if before is None and last.in_a_row < NOT_FINITE_IN_A_ROW and (found := latest(self.checkpoints)):
            first = refused[0].step
            self._go_back(found, [first - 1], f"the batch of step {first:,}, whose rows are in {files[0]}")
            self._say(self.watch.skipped(first, rows=files[0]), step=first)
            return True
        for one, file in zip(refused, files, strict=True):
            self._say(self.watch.skipped(one.step, rows=file), step=one.step)
        if before is not None or last.in_a_row >= NOT_FINITE_IN_A_ROW:
            rows = self.run_folder.path / files[-1]
            raise diverged_error(last, before=before, rows=rows, newest=self.checkpoints.newest())
        return False

    def _go_back(self, checkpoint: Checkpoint, without: Sequence[int], what: str) -> None:
        """Take up the run from a checkpoint, and pass over some of its steps, counted from 0, from now on."""
        self.tracking.close()
        came, passed_over = self.progress.step, sorted({*self.progress.passed_over, *without})
        self._restore(checkpoint)
        self.progress.passed_over, self.progress.went_back_from = passed_over, max(without) + 1
        self._open_tracking(checkpoint)
        self._warn(f"went back from step {came:,} to {checkpoint.path.name}, and on without {what}", came)

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
        due = report or evaluate or save or self.device.type == "cpu"  # on a CPU there is nothing to wait for
        if due and self._settle():
            return
        if report:
            self._report()
        if evaluate:
            self._evaluate()
        # In trouble a run keeps what was good.
        if save and (last or settled or not self.progress.skipped_in_a_row):
            self._save()

    def _measure(self) -> bool:
        """Turn `train.minutes` into a number of steps once enough of them have been timed; whether that is now.

        The leader's clock decides.
        """
        assert self.config.minutes is not None
        budget, progress = 60.0 * self.config.minutes, self.progress
        warmup_steps = self.optimizer_config.warmup_steps
        if not broadcast_object(enough_steps_timed(progress.measured, budget=budget, warmup_steps=warmup_steps)):
            return False
        speed = seconds_per_step(progress.measured)
        # one evaluation before the first step and one after every tenth of the run; the last may be larger
        count = 10 + self.evaluation_config.at(last=True) / self.evaluation_config.at(last=False)
        reserved = evaluation_seconds_reserved(progress.evaluation_seconds, count=count, budget=budget)
        progress.steps = broadcast_object(
            progress.step + max(0, int((budget - progress.seconds - reserved) / speed))
        )
        progress.measured = []
        logger.info(
            "%s minutes are %s steps at %.4f seconds a step, and %.0f seconds for evaluations",
            self.config.minutes, f"{progress.steps:,}", speed, reserved,
        )  # fmt: skip
        self._write_config()
        self._say_plan(progress.steps)
        return True

    def _write_config(self) -> None:
        if is_main_process():
            durable.write_text(self.run_folder.config, self.config_text(self.progress.steps))

    def _say_plan(self, steps: int) -> None:
        """Say what is certain once the length is known."""
        config, epochs = self.optimizer_config, self.feed.epochs(steps)
        warmup_steps = max(0, config.warmup_steps - config.steps_before)
        self._say(self.watch.plan(steps=steps, warmup_steps=warmup_steps, epochs=epochs))

    def _report(self) -> None:
        progress, figures = self.progress, self.account.report()
        if figures is None:
            return
        utilisation = figures.pop("flops_per_second") / self.precision.product_flops / world_size()
        left = (progress.steps - progress.step) * progress.seconds / progress.step if progress.steps else None
        line = report_line(figures, steps=progress.steps, utilisation=utilisation, seconds_left=left)
        self.tracking.report(figures, line=line, done=progress.step, total=progress.steps)
        findings, came, checkpoint = self.watch.report(figures), progress.step, None
        spikes = any(finding.name == LOSS_SPIKE for finding in findings)
        if spikes and self.config.on_spike == "go-back":
            before = progress.went_back_from is not None
            checkpoint = None if before else latest(self.checkpoints)
            findings = with_rollback_answer(findings, checkpoint.path.name if checkpoint else None, before=before)
        for finding in findings:
            self._warn(str(finding), came)
        if checkpoint:
            first = max(checkpoint.state["progress"]["step"], came - self.config.report_every)
            what = f"steps {first + 1:,} to {came:,}" if first + 1 < came else f"step {came:,}"
            self._go_back(checkpoint, range(first, came), what)
        self._note(findings, came)  # only now: what metrics.jsonl has beyond the checkpoint was cut off

    def _evaluate(self) -> None:
        start = time.perf_counter()
        progress = self.progress
        examples = self.evaluation_config.at(last=progress.step == progress.steps)
        self.evaluation = {
            "step": progress.step,
            "tokens": progress.tokens,
            **broadcast_object(self.evaluate(examples)),
        }
        reshard(self.objective)
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
        step = self.progress.step if step is None else step
        for finding in findings:
            self._warn(str(finding), step)
        self._note(findings, step)

    def _note(self, findings: list[Finding], step: int) -> None:
        for one in findings:
            found = {"step": step, "health": one.name, "message": one.message, "remedy": one.remedy}
            self.tracking.metrics.write(found)

    def _warn(self, message: str, step: int | None = None) -> None:
        logger.warning("%s", message)
        self.on_event("warning", message, self.progress.step if step is None else step)

    def _save(self) -> None:
        self._settle()
        if self._saved_step == self.progress.step:
            return
        self._saved_step, start = self.progress.step, time.perf_counter()
        if (self.progress.went_back_from or 0) < self.progress.step:
            self.progress.went_back_from = None
        path = save(
            self.checkpoints,
            self.progress.step,
            self.update,
            state={
                "progress": dataclasses.asdict(self.progress),
                "watch": self.watch.state(),
                "metrics_bytes": self.tracking.metrics.synced(),
                "evaluation": self.evaluation,
                "identity": self.feed.identity,
            },
            texts={self.run_folder.config.name: self.config_text(self.progress.steps), **self.texts},
        )
        if path is not None:
            logger.info("saved %s in %s", path.name, clock(time.perf_counter() - start))
            self.on_event("checkpoint", str(path), self.progress.step)

    def _restore(self, checkpoint: Checkpoint) -> None:
        check_identity(checkpoint, self.feed.identity)
        restore(checkpoint, self.update)
        self.progress = Progress(**checkpoint.state["progress"])
        self.account = MetricAccumulator(self.progress)
        self._saved_step = self.progress.step
        self.watch.restore(checkpoint.state["watch"])
        self.evaluation = checkpoint.state["evaluation"]
        logger.info("resuming from %s", checkpoint.path)

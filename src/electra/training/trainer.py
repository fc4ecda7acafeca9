"""The training loop of pre-training and fine-tuning.

Everything random in a step is drawn from seeds that are a function of (seed of the run, step), and so are the
rows of its batch. To continue bit for bit, a run that was killed needs only the weights, the optimizer state, the
memory of a stream's rows, and counters.
"""

import contextlib
import functools
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from electra import durable
from electra.durations import describe_duration
from electra.errors import for_caller
from electra.modeling.flops import flops_per_token
from electra.objectives.base import TrainableModule
from electra.objectives.health import LOSS_SPIKE, Finding, HealthMonitor
from electra.training.allocator import RELEASE_EVERY, release_freed_memory
from electra.training.checkpoint import Checkpoint, Checkpoints
from electra.training.checkpoint_io import check_identity, latest, restore, save
from electra.training.config import TrainerConfig
from electra.training.cost_estimate import SAMPLED_STEPS, flops_per_sequence
from electra.training.distributed import AgreedMaximum, broadcast_object, is_main_process, world_size
from electra.training.optim import build_optimizer
from electra.training.rollback import MAX_SKIPPED_IN_A_ROW, diverged_error, with_rollback_remedy
from electra.training.run_context import RunContext
from electra.training.schedule import learning_rate
from electra.training.sharding import reshard, shard
from electra.training.signals import StopSignal
from electra.training.step_metrics import MetricAccumulator, Progress, SkippedStep
from electra.training.time_budget import estimate_steps
from electra.training.tracking import Tracking, evaluation_line
from electra.training.update import Update

logger = logging.getLogger(__name__)

MAX_OVERFLOWS_IN_A_ROW = 24
"""In float16: after this number of overflows in a row the loss scale is below 1, so it is not the cause."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        step: the last step.
        steps: the length of the run.
        stopped_by: number of the signal that stopped the run; None if it finished.
        evaluation: the last held-out metrics.
    """

    step: int
    steps: int | None
    stopped_by: int | None
    evaluation: dict[str, Any]


class Trainer:
    """Trains one objective, or the model of a fine-tuning task.

    Attributes:
        progress: counters and sums of the run.
        evaluation: the last held-out metrics.
    """

    def __init__(self, objective: TrainableModule, config: TrainerConfig, context: RunContext) -> None:
        self.objective, self.config, self.context = objective, config, context
        self.options, self.device = context.options, context.device
        self.checkpoints = Checkpoints(context.run_folder.checkpoints, config.checkpoint, warn=self._warn)
        if config.train.sharding == "full" and world_size() > 1:
            shard(objective, context.device)
        optimizer = build_optimizer(objective, config.optimizer, rate_scales=self.options.learning_rate_scales)
        clip, precision = config.optimizer.gradient_clip, context.precision
        self.update = Update(objective, optimizer, gradient_clip=clip, precision=precision, device=self.device)
        self.progress, self.evaluation = Progress(steps=config.train.steps), dict[str, Any]()
        self.metrics = MetricAccumulator(self.progress)
        self.health = HealthMonitor(silent=self.options.ignored_findings)
        self.stop_signal, self.agreed_signal, self.agreed_deadline = StopSignal(), AgreedMaximum(), AgreedMaximum()
        self._saved_step = -1

    # ---------------------------------------------------------------------------------------------- the loop

    def run(self) -> Outcome:
        """Train to the end, or until SIGTERM or Ctrl-C. Resume from the latest checkpoint if there is one.

        Raises:
            CheckpointError: a checkpoint cannot be written or read.
            DivergedError: too many steps in a row were not finite.
        """
        progress, options = self.progress, self.options
        if checkpoint := latest(self.checkpoints):
            progress = self._restore(checkpoint)
        # Written first, so that the folder is known as a run while the number of steps is still being computed.
        self._write_config()
        self._open_tracking(checkpoint)
        if progress.steps is not None and progress.step < progress.steps:
            self._check_plan(progress.steps)
        if checkpoint and progress.step == progress.steps:
            logger.info("the run is finished: all %s steps are done", f"{progress.steps:,}")
        self.context.on_event("started", f"at step {progress.step:,}", progress.step)
        signal = 0
        with contextlib.ExitStack() as stack, self.stop_signal.handling():
            stack.callback(lambda: self.tracking.close())  # the one that is open then
            if progress.step == 0 and options.evaluate_first:
                self._evaluate()
            self.objective.train()
            while self.progress.steps is None or self.progress.step < self.progress.steps:
                self._step()
                if self.config.train.deadline and self.agreed_deadline(self._seconds_before_deadline() <= 0):
                    self._end_at_deadline()
                self._after_step()
                if signal := self.agreed_signal(self.stop_signal.received or 0):
                    self._save()
                    out = options.command_out or self.context.run_folder.path
                    resume = for_caller(f"to resume, do the same with --out {out}, without --fresh")
                    logger.warning("saved at step %s; %s", f"{self.progress.step:,}", resume)
                    break
        return Outcome(self.progress.step, self.progress.steps, signal or None, self.evaluation)

    def _step(self) -> None:
        """Make one update. Its metrics stay on the device until `_sync_metrics`."""
        step, batches = self.progress.step, self.context.batches
        self.objective.begin_step(step, self.progress.steps)  # an excluded step, too, can be the first of a stage
        if step in self.progress.excluded_steps:
            if not self._sync_metrics():
                self.progress.step += 1
            return
        self.metrics.start_step()
        rate = self._learning_rate(step)
        networks = self.objective.networks(batches.sequence_length)
        documents = batches.documents or ((batches.sequence_length, 1),)
        flops_per_position = flops_per_token(tuple(networks.items()), documents)
        metrics = self.update(batches.micro_batches(step), rate)
        if not self.metrics.accepts(metrics):
            if self._sync_metrics():
                return
            self.metrics.start_step()
        self.metrics.add(rate, flops_per_position, metrics, update_flops=self.update.flops)

    def _learning_rate(self, step: int) -> float:
        config = self.config.optimizer
        stage_step, stage_steps = self.options.stage_of(step, self.progress.steps)
        return learning_rate(
            stage_step,
            peak=config.learning_rate,
            warmup_steps=config.warmup(stage_steps),
            steps=stage_steps,
            warmup_over_decay=config.warmup_over_decay,
            steps_before=config.steps_before,
            decay_share=config.decay_share,
        )

    def _after_step(self) -> None:
        """Report, evaluate and save where that is due."""
        if self.device.type == "cpu" and self.progress.step % RELEASE_EVERY == 0:
            release_freed_memory()
        steps_known_now = False
        if self.progress.steps is None:
            self._sync_metrics()
            steps_known_now = self._compute_steps()
        step, steps = self.progress.step, self.progress.steps
        config, last = self.config, step == steps
        report = last or step % config.train.report_interval(steps) == 0
        evaluate = last or (steps is not None and step % config.evaluation.interval(steps) == 0)
        save = last or steps_known_now or (steps is not None and step % config.checkpoint.interval(steps) == 0)
        due = report or evaluate or save or self.device.type == "cpu"  # a CPU has always finished its step
        if due and self._sync_metrics():
            return
        if report:
            self._report()
        if evaluate:
            self._evaluate()
        # While steps are being skipped, keep the checkpoint from before.
        if save and (last or steps_known_now or not self.progress.skipped_in_a_row):
            self._save()

    # ---------------------------------------------------------------------------------- the length of the run

    @functools.cached_property
    def _cost_growth(self) -> float:
        """The FLOPs of a step at the mean of the run, in units of those of the first steps; they stand for time.

        The objective is left as in the first steps.
        """
        batches = self.context.batches
        mean, first = (
            flops_per_sequence(self.objective, batches.sequence_length, steps=steps, documents=batches.documents)
            for steps in (SAMPLED_STEPS, None)
        )
        return mean / first

    def _compute_steps(self) -> bool:
        """Compute the number of steps in `train.minutes`, once enough are timed; return whether that is now."""
        config, progress = self.config, self.progress
        assert config.train.minutes is not None
        spent = progress.seconds + progress.evaluation_seconds
        budget = min(60.0 * config.train.minutes, spent + self.context.deadline.seconds_left(0.0))
        # One evaluation before the first step and one after every tenth of the run. The last one may be larger.
        estimate = broadcast_object(  # the clock of the main process decides
            estimate_steps(
                progress, budget=budget, warmup_steps=config.optimizer.warmup(None),
                evaluations=10 + config.evaluation.last_size, growth=self._cost_growth,
            )
        )  # fmt: skip
        if estimate is None:
            return False
        progress.steps, seconds_per_step, reserved = estimate
        progress.step_seconds = []
        logger.info(
            "%.4g minutes%s: %s steps at %.4f seconds per step, and %.0f seconds for evaluations", budget / 60.0,
            " before the deadline" * (budget < 60.0 * config.train.minutes), f"{progress.steps:,}",
            seconds_per_step, reserved,
        )  # fmt: skip
        self._write_config()
        self._check_plan(progress.steps)
        return True

    def _seconds_before_deadline(self) -> float:
        last_evaluation = self.config.evaluation.last_size * self.progress.evaluation_seconds
        self._warn_of(self.health.check_deadline(last_evaluation, reserved=self.context.deadline.reserved))
        return self.context.deadline.seconds_left(last_evaluation)

    def _end_at_deadline(self) -> None:
        """Make the current step the last one."""
        progress, planned = self.progress, self.progress.steps
        if progress.step in (planned, self._saved_step):  # the step was rolled back: take another
            return
        rate = self._learning_rate(progress.step) / self.config.optimizer.learning_rate
        progress.steps = progress.step
        if planned is None:
            self._write_config()
        minutes = self.config.train.deadline
        assert minutes is not None
        self._warn_of(self.health.end_at_deadline(progress.step, planned, minutes=minutes, rate=rate))

    def _check_plan(self, steps: int) -> None:
        """Warn of problems that are certain once the length of the run is known."""
        config, epochs = self.config.optimizer, self.context.batches.epochs(steps)
        warmup_steps = max(0, config.warmup(steps) - config.steps_before)
        self._warn_of(self.health.check_plan(steps=steps, warmup_steps=warmup_steps, epochs=epochs))

    def _write_config(self) -> None:
        if is_main_process():
            durable.write_text(self.context.run_folder.config, self.context.config_text(self.progress.steps))

    # ----------------------------------------------------------------------------------- reports and evaluations

    def _open_tracking(self, checkpoint: Checkpoint | None) -> None:
        self.tracking = Tracking(
            self.context.run_folder.path,
            self.config.tracking,
            resume_at=checkpoint.state["metrics_bytes"] if checkpoint else 0,
            resume_step=self.progress.step,
            has_generator=self.options.has_generator,
        )

    def _report(self) -> None:
        progress, metrics = self.progress, self.metrics.report()
        if metrics is None:
            return
        findings = self.health.check_report(metrics)
        utilization = metrics.pop("flops_per_second") / self.context.precision.product_flops / world_size()
        left = (progress.steps - progress.step) * progress.seconds / progress.step if progress.steps else None
        if self.config.train.minutes is not None and left is not None:
            findings += self.health.check_length((progress.seconds + left) / 60, asked=self.config.train.minutes)
        self.tracking.report(metrics, steps=progress.steps, utilization=utilization, seconds_left=left)
        self.context.on_report(metrics, progress.steps)
        if self.config.train.on_spike == "go-back" and any(finding.name == LOSS_SPIKE for finding in findings):
            self._roll_back_from_spike(findings)
        else:
            self._warn_of(findings)

    def _evaluate(self) -> None:
        start, progress = time.perf_counter(), self.progress
        examples = self.config.evaluation.example_count(last=progress.step == progress.steps)
        metrics = broadcast_object(self.context.evaluate(examples))
        self.evaluation = {"step": progress.step, "tokens": progress.tokens, **metrics}
        reshard(self.objective)
        progress.evaluation_seconds = time.perf_counter() - start
        record = {**self.evaluation, "evaluation_seconds": round(progress.evaluation_seconds, 3)}
        self.tracking.write_metrics(record)
        self.context.on_report(record, progress.steps)
        logger.info(evaluation_line(self.evaluation))
        if progress.steps:
            self._warn_of(self.health.check_evaluation(self.evaluation, progress=progress.step / progress.steps))
        if self.options.should_stop(self.evaluation):
            logger.info("stopping early at step %s", f"{progress.step:,}")
            progress.steps = progress.step

    def _warn_of(self, findings: Sequence[Finding], *, step: int | None = None) -> None:
        """Report findings on the console and in metrics.jsonl, for a step or for the current one."""
        step = self.progress.step if step is None else step
        for finding in findings:
            self._warn(str(finding), step)
        self._record(findings, step)

    def _warn(self, message: str, step: int | None = None) -> None:
        logger.warning("%s", message)
        self.context.on_event("warning", message, self.progress.step if step is None else step)

    def _record(self, findings: Sequence[Finding], step: int) -> None:
        for finding in findings:
            content = {"health": finding.name, "message": finding.message, "remedy": finding.remedy}
            self.tracking.metrics.write({"step": step, **content})

    # ------------------------------------------------------------------------------ skipped steps and rollback

    def _sync_metrics(self) -> bool:
        """Wait for the metrics of all steps so far; return whether the run was rolled back because of them."""
        skipped = self.metrics.sync()
        if self.context.precision.name == "float16":  # occasional overflows are normal: they halve the loss scale
            skipped = [s for s in skipped if not math.isfinite(s.loss) or s.in_a_row >= MAX_OVERFLOWS_IN_A_ROW]
        return bool(skipped) and self._handle_skipped(skipped)

    def _handle_skipped(self, skipped: list[SkippedStep]) -> bool:
        """Write the rows of skipped steps to files, and roll back to the latest checkpoint, once.

        Raises:
            DivergedError: a step was skipped again before there was a newer checkpoint, or too many in a row were.
        """
        run_folder, rows = self.context.run_folder, self.context.batches.describe_rows
        files = [run_folder.write_rows(one.step, rows(one.step - 1)) for one in skipped]
        last, before = skipped[-1], self.progress.rolled_back_from
        diverged = before is not None or last.in_a_row >= MAX_SKIPPED_IN_A_ROW
        if not diverged and (checkpoint := latest(self.checkpoints)):
            first = skipped[0].step
            self._roll_back(checkpoint, [first - 1], f"the batch of step {first:,}, whose rows are in {files[0]}")
            self._warn_of(self.health.check_skipped(first, rows=files[0]), step=first)
            return True
        for one, file in zip(skipped, files, strict=True):
            self._warn_of(self.health.check_skipped(one.step, rows=file), step=one.step)
        if diverged:
            path = run_folder.path / files[-1]
            raise diverged_error(last, before=before, rows=path, newest=self.checkpoints.describe_newest())
        return False

    def _roll_back_from_spike(self, findings: list[Finding]) -> None:
        """Warn of a loss spike, and roll back to the latest checkpoint, once."""
        step, before = self.progress.step, self.progress.rolled_back_from is not None
        checkpoint = None if before else latest(self.checkpoints)
        findings = with_rollback_remedy(findings, checkpoint.path.name if checkpoint else None, before=before)
        for finding in findings:
            self._warn(str(finding), step)
        if checkpoint:
            interval = self.config.train.report_interval(self.progress.steps)
            first = max(checkpoint.state["progress"]["step"], step - interval)
            excluded = f"steps {first + 1:,} to {step:,}" if first + 1 < step else f"step {step:,}"
            self._roll_back(checkpoint, range(first, step), excluded)
        self._record(findings, step)  # only now: the rollback cuts off metrics.jsonl behind the checkpoint

    def _roll_back(self, checkpoint: Checkpoint, excluded: Sequence[int], description: str) -> None:
        """Continue from a checkpoint, and from now on without some steps (counted from 0)."""
        self.tracking.close()
        step, all_excluded = self.progress.step, sorted({*self.progress.excluded_steps, *excluded})
        self._restore(checkpoint)
        self.progress.excluded_steps, self.progress.rolled_back_from = all_excluded, max(excluded) + 1
        self._open_tracking(checkpoint)
        message = f"went back from step {step:,} to {checkpoint.path.name}; continuing without {description}"
        self._warn(message, step)

    # --------------------------------------------------------------------------------------------- checkpoints

    def _save(self) -> None:
        self._sync_metrics()
        progress, context = self.progress, self.context
        if self._saved_step == progress.step:
            return
        self._saved_step, start = progress.step, time.perf_counter()
        if (progress.rolled_back_from or 0) < progress.step:
            progress.rolled_back_from = None
        state = {
            "progress": progress.to_state(),
            "watch": self.health.state_dict(),
            "metrics_bytes": self.tracking.metrics.sync(),
            "evaluation": self.evaluation,
            "identity": context.batches.identity,
        }
        texts = {context.run_folder.config.name: context.config_text(progress.steps), **context.checkpoint_texts}
        path = save(self.checkpoints, progress.step, self.update, state=state, texts=texts)
        if path is not None:
            logger.info("saved %s in %s", path.name, describe_duration(time.perf_counter() - start))
            context.on_event("checkpoint", str(path), progress.step)

    def _restore(self, checkpoint: Checkpoint) -> Progress:
        check_identity(checkpoint, self.context.batches.identity)
        restore(checkpoint, self.update)
        self.progress = Progress.from_state(checkpoint.state["progress"])
        self.metrics = MetricAccumulator(self.progress)
        self._saved_step = self.progress.step
        self.health.load_state_dict(checkpoint.state["watch"])
        self.evaluation = checkpoint.state["evaluation"]
        logger.info("resuming from %s", checkpoint.path)
        return self.progress

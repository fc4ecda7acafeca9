"""Settings of the training loop, which pre-training and fine-tuning share."""

import logging
import math
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from electra.config import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Range
from electra.config_fields import DEVICE_NAMES, is_device_name
from electra.data.sampling import sequences_before
from electra.errors import for_caller

TrackerName = Literal["none", "wandb", "mlflow", "trackio"]
logger = logging.getLogger(__name__)

REPORTS, LONGEST_REPORT = 20, 100
PARTS, LONGEST_UNEVALUATED, LONGEST_UNSAVED = 10, 10_000, 2_000
WARMUP_SHARE = 0.1
"""What a setting of 0 means: so many reports, evaluations and checkpoints a run, at most so many steps apart; and
the share of a run that is warm-up."""


def _interval(every: int, steps: int | None, *, parts: int, longest: int) -> int:
    """Steps between two of something: the setting, or for 0 a part of the run, which may not be known yet."""
    return every or (longest if steps is None else min(longest, max(1, math.ceil(steps / parts))))


@dataclass(frozen=True)
class LoopConfig:
    """Settings of the training loop that pre-training and fine-tuning share."""

    batch_size: PositiveInt = 128
    """Rows (sequences) per step."""
    micro_batch_size: NonNegativeInt = 0
    """Rows per forward and backward pass. Gradients are accumulated over the batch. 0: the whole batch at once."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of matrix products. auto: on a GPU bfloat16 if its hardware has it; on a CPU bfloat16 if it is
    clearly faster, which is measured at the start. float16, for GPUs without bfloat16, uses loss scaling."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 (a GPU by its number, from 0) or mps (Apple, never measured).
    auto: a CUDA GPU if there is one, else the CPU."""
    report_every: NonNegativeInt = 0
    """Steps between two reports on the console and in metrics.jsonl. 0: a twentieth of the run, at most 100."""

    def report_interval(self, steps: int | None) -> int:
        """Steps between two reports of a run of so many steps (None: not known yet)."""
        return _interval(self.report_every, steps, parts=REPORTS, longest=LONGEST_REPORT)

    def problems(self) -> Iterator[str]:
        if not is_device_name(self.device):
            yield f"device: there is no device {self.device!r}; give {DEVICE_NAMES}"
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            yield f"micro_batch_size: {self.micro_batch_size} does not divide a batch_size of {self.batch_size}"


@dataclass(frozen=True)
class TrainConfig(LoopConfig):
    """Length of a run, size of its batches, precision and device."""

    steps: PositiveInt | None = None
    """Length of the run in steps."""
    minutes: PositiveFloat | None = None
    """Length of the run in minutes, instead of `steps`. The number of steps is computed from the speed of the
    first steps. Loading, the choice of the precision, the export, and what evaluations need beyond a fifth of the
    minutes come on top, often one or two minutes on a CPU; `train.deadline` limits the whole command."""
    deadline: Annotated[float, Range(ge=1, unit="minute")] | None = None
    """Minutes after the start of the command at which the run ends, whatever its length: it stops early enough to
    evaluate, save and export. At least 1: the start, two evaluations and the export of a tiny network take half
    a minute. The run is finished then, and is not resumed. What was planned for later steps does not happen: the
    end of the learning rate's decay, the last tenth of electra-plus. After a kill, the same command has all of the
    minutes again. None: no deadline."""
    batch_ramp_steps: NonNegativeInt = 0
    """Steps over which the batch size grows. Each third of them uses a quarter, a half, then three quarters of
    batch_size. 0: the full batch size from the start."""
    seed: NonNegativeInt = 0
    """Seed of everything random."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the encoders with torch.compile, which takes a minute at the start. auto: on a GPU only, not with
    packed rows; on: refused with them. On a CPU it has not been faster (docs/results/performance.md)."""
    deterministic: bool = False
    """Use deterministic kernels, so that a repeated run on a GPU gives the same bits. They are slower. On a CPU,
    runs with the same number of threads give the same bits in any case."""
    sharding: Literal["none", "full"] = "none"
    """Sharding over several processes. none: each process holds the whole networks. full: each process holds a
    part of the weights, gradients and optimizer state (FSDP2), for networks that do not fit on one device. With
    full, nothing is compiled."""
    timeout_minutes: PositiveFloat = 10.0
    """With several processes: how long a process waits for the others before the run ends with an error."""
    on_spike: Literal["warn", "go-back"] = "warn"
    """What to do when the loss jumps. warn: print a warning. go-back: also return to the last checkpoint and
    continue without the batches since the last report; this happens once until there is a newer checkpoint. (When
    the loss or gradient is not finite, a run always goes back once and continues without that batch.)"""

    def sequences(self, steps: int) -> int:
        """The number of sequences in the first `steps` steps."""
        return sequences_before(steps, batch_size=self.batch_size, ramp_steps=self.batch_ramp_steps)

    def problems(self) -> Iterator[str]:
        if self.steps is None and self.minutes is None:
            yield "steps: give the length of the run, --train.steps N or --train.minutes M"
        if self.batch_ramp_steps and self.minutes is not None:
            yield "batch_ramp_steps: the speed of small batches is not that of the run; give steps, not minutes"
        yield from super().problems()


@dataclass(frozen=True)
class AdamWConfig:
    """Settings of AdamW that pre-training and fine-tuning share."""

    learning_rate: NonNegativeFloat = 5e-4
    """Peak learning rate."""
    epsilon: NonNegativeFloat = 1e-6
    """Added to the root of the second moment."""
    weight_decay: NonNegativeFloat = 0.01
    """Decoupled weight decay of matrices and embeddings. Biases and LayerNorms have none."""
    gradient_clip: PositiveFloat = 1.0
    """Maximum norm of the gradient, over all networks together."""
    bias_correction: bool = True
    """Correct Adam's moments for their start at 0 (Kingma and Ba, algorithm 1). The original ELECTRA does not."""
    warmup_over_decay: bool = False
    """Start warm-up and decay both at step 0 and multiply them, as the original ELECTRA does. Default: the decay
    starts when the warm-up ends."""


@dataclass(frozen=True)
class OptimizerConfig(AdamWConfig):
    """AdamW with linear warm-up and linear decay (paper, table 6); or Muon for matrices."""

    learning_rate: PositiveFloat = 5e-4
    """Peak learning rate, reached at the end of the warm-up."""
    warmup_steps: NonNegativeInt = 0
    """Steps over which the learning rate rises from 0. 0: a tenth of the run, at most max_warmup_steps."""
    max_warmup_steps: PositiveInt = 10_000
    """Maximum of the warm-up in steps, if warmup_steps is 0. While the length of a run of train.minutes is not
    known, the rate rises as if the warm-up took so many."""
    decay_share: Annotated[float, Range(gt=0, le=1)] = 1.0
    """Share of the run (or of each of its stages), at the end, in which the learning rate falls to 0. Before it,
    the rate stays at its peak (warm-up, stable, decay: WSD). 1: it falls from the end of the warm-up."""
    matrices: Literal["adamw", "muon"] = "adamw"
    """Optimizer of the matrices of blocks; everything else is trained with AdamW. muon: momentum that is
    orthogonalized (Jordan et al. 2024); its updates are as large as AdamW's."""
    muon_momentum: Annotated[float, Range(ge=0, lt=1)] = 0.95
    """For Muon: decay of the running mean of gradients."""
    beta_1: Annotated[float, Range(ge=0, lt=1)] = 0.9
    """Decay of the running mean of gradients."""
    beta_2: Annotated[float, Range(ge=0, lt=1)] = 0.999
    """Decay of the running mean of squared gradients."""
    steps_before: NonNegativeInt = 0
    """Steps that the weights were trained for before this run, to continue their learning-rate schedule: only the
    rest of the warm-up, then decay from the full rate to 0 within this run. 4,000,000 for the released small and
    base ELECTRA."""

    def warmup(self, steps: int | None) -> int:
        """The steps of warm-up of a run of so many steps (None: not known yet)."""
        if self.warmup_steps or steps is None:
            return self.warmup_steps or self.max_warmup_steps
        return min(self.max_warmup_steps, max(1, round(WARMUP_SHARE * (self.steps_before + steps))))

    def problems(self) -> Iterator[str]:
        if self.matrices != "muon" and self.muon_momentum != 0.95:
            yield "muon_momentum: is for matrices muon; leave it out"
        if self.decay_share < 1 and (self.warmup_over_decay or self.steps_before):
            other = "warmup_over_decay" if self.warmup_over_decay else "steps_before"
            yield f"decay_share: with {other} the decay starts at step 0; leave one of them out"


@dataclass(frozen=True)
class EvaluationConfig:
    """When the held-out metrics are computed, and on how many examples."""

    every: NonNegativeInt = 0
    """Steps between evaluations. 0: a tenth of the run, at most 10,000."""
    examples: PositiveInt = 512
    """Held-out examples in the evaluation at the end of the run."""
    interim_examples: NonNegativeInt = 0
    """Held-out examples in the evaluations before that (the first ones of the same examples). 0: all of them."""
    memory_length: NonNegativeInt = 0
    """Length of the memory during evaluation, for networks with a memory, in tokens. 0: the length in training
    (model.memory_length)."""

    def interval(self, steps: int) -> int:
        """Steps between two evaluations of a run of so many steps."""
        return _interval(self.every, steps, parts=PARTS, longest=LONGEST_UNEVALUATED)

    def example_count(self, *, last: bool) -> int:
        """The number of examples in the last evaluation of a run, or in an earlier one."""
        return self.examples if last else min(self.interim_examples or self.examples, self.examples)

    @property
    def last_size(self) -> float:
        """The number of examples in the last evaluation, in units of the earlier ones."""
        return self.example_count(last=True) / self.example_count(last=False)


@dataclass(frozen=True)
class CheckpointConfig:
    """When checkpoints are written, and which are kept."""

    every: NonNegativeInt = 0
    """Steps between checkpoints. 0: a tenth of the run, at most 2,000."""
    keep: Annotated[int, Range(ge=2)] = 2
    """Number of latest checkpoints to keep. At least 2, so that there is an older one if the latest is damaged."""
    milestone_every: NonNegativeInt = 0
    """Checkpoints at multiples of this step are never deleted. 0: only the latest are kept."""

    def interval(self, steps: int) -> int:
        """Steps between two checkpoints of a run of so many steps."""
        return _interval(self.every, steps, parts=PARTS, longest=LONGEST_UNSAVED)


@dataclass(frozen=True)
class TrackingConfig:
    """What a run writes in addition to metrics.jsonl, log.txt and the console."""

    tensorboard: bool = True
    """Write the metrics for TensorBoard too."""
    tracker: TrackerName = "none"
    """Send the metrics to Weights & Biases, MLflow or Trackio, too (docs/guides/long-runs.md). Each needs the
    extra of its name."""
    on_event: str = ""
    """Shell command to start at every event of the run. Its environment has ELECTRA_EVENT (started, checkpoint,
    warning, finished, stopped, failed), ELECTRA_RUN, ELECTRA_STEP and ELECTRA_MESSAGE. Empty: no command. It is
    only started if it is given on the command line or in Python, not if a file has it."""

    def trusted(self, given: Collection[str]) -> "TrackingConfig":
        """Return the config without the command, unless `tracking.on_event` is one of the given settings.

        A file can be somebody else's, such as the config.toml of a run, and must not start a program.
        """
        if not self.on_event or "tracking.on_event" in given:
            return self
        logger.warning(
            for_caller(
                "tracking.on_event is not started, because a file has it and files can be from others; to start "
                "it: --tracking.on_event %s"
            ),
            shlex.quote(self.on_event),
        )  # fmt: skip
        return replace(self, on_event="")


@dataclass(frozen=True)
class TrainerConfig:
    """The sections of a config that the trainer reads."""

    train: TrainConfig
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

"""What a run works with, besides its objective and its config."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from electra.training.batch_source import BatchSource
from electra.training.events import Event
from electra.training.precision import Precision
from electra.training.progress_bar import OnReport
from electra.training.run_folder import RunFolder
from electra.training.time_budget import Deadline


@dataclass(frozen=True)
class TrainerOptions:
    """Differences between kinds of runs. The defaults are those of pre-training.

    Attributes:
        stage_of: from (step, length of the run): (step within its stage, length of that stage). The learning-rate
            schedule starts again in each stage.
        learning_rate_scales: a factor of the learning rate for each parameter, by name. None: 1 for all.
        has_generator: whether the objective has a generator, for the labels of its losses.
        evaluate_first: evaluate before the first step.
        should_stop: whether to end the run after this evaluation.
        ignored_findings: names of health findings that are not reported.
        command_out: the value of --out, if the run's folder is inside of it.
    """

    stage_of: Callable[[int, int | None], tuple[int, int | None]] = lambda step, steps: (step, steps)
    learning_rate_scales: Mapping[str, float] | None = None
    has_generator: bool = True
    evaluate_first: bool = True
    should_stop: Callable[[dict[str, Any]], bool] = lambda _: False
    ignored_findings: tuple[str, ...] = ()
    command_out: Path | None = None


@dataclass(frozen=True)
class RunContext:
    """What a run works with, besides its objective and its config.

    Attributes:
        batches: the training data.
        evaluate: returns the held-out metrics of the objective on that number of examples.
        run_folder: where everything is written.
        config_text: the config of the run as TOML, for a number of steps.
        checkpoint_texts: further text files for every checkpoint, by name (the tokenizer).
        on_event: called with each event, its message and the step.
        on_report: called with the metrics of each report and each evaluation (their keys begin with eval/), and
            the length of the run in steps, or None while it is being measured.
        deadline: when the command must have ended.
    """

    batches: BatchSource
    evaluate: Callable[[int], dict[str, float]]
    run_folder: RunFolder
    config_text: Callable[[int | None], str]
    precision: Precision
    device: torch.device
    checkpoint_texts: Mapping[str, str] = field(default_factory=dict)
    options: TrainerOptions = TrainerOptions()
    on_event: Callable[[Event, str, int], None] = lambda *_: None
    on_report: OnReport = lambda *_: None
    deadline: Deadline = field(default_factory=Deadline)

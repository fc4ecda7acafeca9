"""Changes of single settings, and the first step of a pre-training run with and without a change."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from small_run import config
from torch import Tensor

from electra.config_fields import Setting, settings
from electra.data.collate import Batch
from electra.data.shards import TokenData
from electra.objectives.base import StepOutput
from electra.objectives.masking import Masking
from electra.pretraining.build import RunParts, build
from electra.pretraining.config import PretrainConfig, with_vocabulary

STEPS = 10


@dataclass(frozen=True)
class Change:
    """One change of a setting, and what its documentation says about it.

    Attributes:
        value: the other value, as on the command line.
        check: whether the figures before and after the change are as documented.
        base: settings without which the setting has no effect, such as `"masking.kind=spans"`.
        step: the step to look at, of `STEPS`; None: the first, or for two stages one of the second stage.
    """

    value: str
    check: Callable[[Any, Any], bool]
    base: tuple[str, ...] = ()
    step: int | None = None


@cache
def settings_in(config_class: type[Any], *sections: str) -> dict[str, Setting]:
    """The settings of some sections of a config by name; "" is the config itself."""
    every = {setting.name: setting for setting in settings(config_class)}
    return {name: setting for name, setting in every.items() if name.rpartition(".")[0] in sections}


@dataclass(frozen=True)
class Step:
    """A forward and a backward pass of a run.

    Attributes:
        initial: the weights before the first step.
    """

    parts: RunParts
    initial: dict[str, Tensor]
    batch: Batch
    output: StepOutput
    gradients: dict[str, Tensor]

    @property
    def objective(self) -> Any:
        return self.parts.objective

    @cached_property
    def masking(self) -> Masking:
        found: Masking = self.objective.draw_masks(self.batch)
        return found

    @property
    def ids(self) -> Tensor:
        return self.batch.input_ids_BL

    @property
    def loss(self) -> float:
        return float(self.output.loss.detach())

    @property
    def corrupted(self) -> Tensor:
        """The text with replaced tokens."""
        return self.output.debug["corrupted_ids"]

    @property
    def samples(self) -> Tensor:
        """The tokens at the used slots of the corrupted text."""
        return self.at_slots(self.corrupted)

    def part(self, name: str) -> float:
        return float(self.output.parts.get(name, 0.0))

    def at_slots(self, values_BL: Tensor) -> Tensor:
        """Values at the used slots."""
        return self.masking.gather(values_BL)[self.masking.used_BN.flatten()]


def make_config(folder: Path, overrides: tuple[str, ...]) -> PretrainConfig:
    fixed = ("init.attention=random", "init.token_table=random", f"train.steps={STEPS}", "train.batch_size=32")
    return config(folder, folder.parent / "run", *fixed, *overrides)


def make_step(
    folder: Path, overrides: tuple[str, ...], step: int, *, weights: dict[str, Tensor] | None = None
) -> Step:
    """Make a pass of a run with these settings.

    Args:
        folder: prepared data.
        weights: initial weights that are used instead of those of the same names.
    """
    data = TokenData.open(folder, verify=False)
    parts = build(with_vocabulary(make_config(folder, overrides), data.vocabulary_size), data, None)
    objective = parts.objective.train()
    if weights is not None:
        shapes = {name: value.shape for name, value in objective.state_dict().items()}
        known = {name: value for name, value in weights.items() if shapes.get(name) == value.shape}
        objective.load_state_dict(known, strict=False)
    initial = {name: value.clone() for name, value in objective.state_dict().items()}
    for number in range(step + 1):
        objective.begin_step(number, STEPS)
    (batch,) = parts.batches.micro_batches(0)
    torch.manual_seed(0)
    output = objective(batch)
    output.loss.backward()
    gradients = {name: p.grad for name, p in objective.named_parameters() if p.grad is not None}
    return Step(parts, initial, batch, output, gradients)


def differs(before: Step, after: Step) -> bool:
    """Whether the batch, the loss or a gradient has changed."""
    if not torch.equal(before.ids, after.ids) or before.loss != after.loss:
        return True
    return before.gradients.keys() != after.gradients.keys() or any(
        not torch.equal(gradient, after.gradients[name]) for name, gradient in before.gradients.items()
    )


def same(before: Step, after: Step) -> bool:
    """Whether nothing has changed; the check of a step at which a setting has no effect yet, or no more."""
    return not differs(before, after)

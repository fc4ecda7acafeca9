"""Every setting of the optimizer changes the rates or the updates of a run as its documentation says. A setting
without an entry fails."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from loop import NextId, metrics, train, weights
from setting_changes import Change, settings_in
from torch import Tensor, nn

from electra.config import load_config
from electra.data.collate import Batch
from electra.modeling.encoders.bert import BertConfig
from electra.objectives.base import Counts, StepOutput
from electra.pretraining.config import PretrainConfig
from electra.training.config import OptimizerConfig, TrainConfig

SETTINGS = settings_in(PretrainConfig, "optimizer")
STEPS, PEAK, WARMUP = 10, 0.01, 2
BASE = (
    f"train.steps={STEPS}", f"optimizer.learning_rate={PEAK}", f"optimizer.warmup_steps={WARMUP}",
    "optimizer.weight_decay=0.1", "optimizer.epsilon=1e-6", "optimizer.gradient_clip=1e6",
)  # fmt: skip
MUON = "optimizer.matrices=muon"
Weights = dict[str, Tensor]


class KnownGradients(NextId):
    """An encoder whose gradients are random numbers that are known for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(BertConfig(
            layers=1, hidden_size=16, embedding_size=16, heads=2, feed_forward_size=32, vocabulary_size=20,
            max_positions=8,
        ).build())  # fmt: skip
        self.history: list[Weights] = []
        """The weights before each step."""

    def gradients(self, step: int) -> Weights:
        generator = torch.Generator().manual_seed(step)
        return {name: torch.randn(p.shape, generator=generator) for name, p in self.named_parameters()}

    def begin_step(self, step: int, steps: int | None) -> None:
        self.history.append({name: p.detach().clone() for name, p in self.named_parameters()})

    def forward(self, batch: Batch, counts: Counts | None = None) -> StepOutput:
        gradients = self.gradients(len(self.history) - 1)
        loss = torch.stack([(p * gradients[name]).sum() for name, p in self.named_parameters()]).sum()
        return StepOutput(loss, {"generator_loss": loss.detach()})


@dataclass(frozen=True)
class Run:
    """A run of a few steps.

    Attributes:
        rates: the learning rate of each step.
        weights: the weights before each step, and those at the end.
        gradients: the gradients of each step.
    """

    config: OptimizerConfig
    rates: list[float]
    weights: list[Weights]
    gradients: list[Weights]

    @property
    def matrices(self) -> list[str]:
        """The weights of linear layers of the blocks."""
        return [name for name, value in self.weights[0].items() if ".blocks." in name and value.ndim == 2]

    def update(self, name: str, step: int) -> Tensor:
        """The change of a parameter in a step, without weight decay and in units of the learning rate."""
        before, after = self.weights[step][name], self.weights[step + 1][name]
        decay = self.config.weight_decay if before.ndim == 2 else 0
        return (after - before) / self.rates[step] + decay * before

    def sizes(self) -> list[float]:
        """The root mean square of the update of each matrix of the blocks in the first step."""
        return [float(self.update(name, 0).square().mean().sqrt()) for name in self.matrices]


def is_adamw(run: Run) -> bool:
    """Whether the first and the second update are those of a plain AdamW with the settings of the config."""
    config = run.config
    names = [name for name in run.weights[0] if config.matrices == "adamw" or name not in run.matrices]
    first, second = ({name: torch.zeros_like(value) for name, value in run.weights[0].items()} for _ in range(2))
    for step in range(2):
        every = torch.cat([gradient.flatten() for gradient in run.gradients[step].values()])
        scale = min(1.0, config.gradient_clip / float(every.norm()))
        for name in names:
            gradient = scale * run.gradients[step][name]
            first[name] = config.beta_1 * first[name] + (1 - config.beta_1) * gradient
            second[name] = config.beta_2 * second[name] + (1 - config.beta_2) * gradient**2
            one, two = 1 - config.beta_1 ** (step + 1), 1 - config.beta_2 ** (step + 1)
            if not config.bias_correction:
                one = two = 1.0
            expected = -(first[name] / one) / ((second[name] / two).sqrt() + config.epsilon)
            if not torch.allclose(run.update(name, step), expected, rtol=1e-3, atol=1e-3):
                return False
    return True


def smaller(before: Run, after: Run, *, step: int) -> bool:
    """Whether every update of a step is smaller."""
    return all(
        bool((after.update(name, step).abs() < before.update(name, step).abs() + 1e-6).all())
        for name in before.weights[0]
    )


def decayed(run: Run, name: str) -> Tensor:
    """The first update of a parameter besides Adam's, which has the size 1 and the gradient's sign."""
    update = (run.weights[1][name] - run.weights[0][name]) / run.rates[0]
    return update + run.gradients[0][name].sign()


def only_matrices_decay(before: Run, after: Run) -> bool:
    return all(
        torch.allclose(decayed(after, name) - decayed(before, name), -4.9 * weight * (weight.ndim == 2), atol=2e-3)
        for name, weight in before.weights[0].items()
    )


def turns(run: Run) -> bool:
    """Whether the second update has the direction of the second gradient alone."""
    return all(bool((run.update(name, 1) * gradient <= 1e-6).all()) for name, gradient in run.gradients[1].items())


def alignment(run: Run, step: int) -> float:
    """The least cosine of the angle between an update of a matrix of the blocks and its gradient, downhill."""
    return min(
        float(torch.cosine_similarity(-run.update(name, step).flatten(), run.gradients[step][name].flatten(), 0))
        for name in run.matrices
    )


def approximately(values: list[float]) -> object:
    return pytest.approx(values, rel=1e-3)


FALLING = [PEAK * (STEPS - step) / STEPS for step in range(STEPS)]
CHANGES = {
    "optimizer.learning_rate": [Change("0.02", lambda b, a: a.rates == approximately([2 * r for r in b.rates]))],
    "optimizer.warmup_steps": [
        Change("5", lambda b, a: [run.rates.index(max(run.rates)) for run in (b, a)] == [WARMUP - 1, 4]
               and a.rates[:5] == approximately([PEAK * share for share in (0.2, 0.4, 0.6, 0.8, 1)])),
    ],
    "optimizer.max_warmup_steps": [
        Change("2", lambda b, a: [run.rates.index(max(run.rates)) for run in (b, a)] == [4, 1],
               ("optimizer.warmup_steps=0", "train.steps=50")),
    ],
    "optimizer.decay_share": [
        Change("0.3", lambda b, a: a.rates[1:8] == approximately([PEAK] * 7) and b.rates[7] < 0.5 * PEAK
               and a.rates[8:] == approximately([PEAK * 2 / 3, PEAK / 3])),
    ],
    "optimizer.warmup_over_decay": [
        Change("true", lambda b, a: a.rates == approximately([0, FALLING[1] / 2, *FALLING[2:]]) and b.rates[0] > 0)
    ],
    "optimizer.steps_before": [
        Change("1000", lambda b, a: a.rates == approximately(FALLING)),
        Change("1", lambda b, a: a.rates == approximately([FALLING[0] / 2, *FALLING[1:]])),
    ],
    "optimizer.epsilon": [Change("1", lambda b, a: smaller(b, a, step=0) and is_adamw(a))],
    "optimizer.weight_decay": [Change("5", only_matrices_decay)],
    "optimizer.gradient_clip": [
        Change("1", lambda b, a: smaller(b, a, step=0) and is_adamw(a), ("optimizer.epsilon=0.1",)),
    ],
    "optimizer.bias_correction": [
        Change("false", lambda b, a: is_adamw(a) and b.sizes() == approximately([1.0] * len(b.sizes()))
               and a.sizes() == approximately([0.1 / 0.001**0.5] * len(b.sizes()))),
    ],
    "optimizer.beta_1": [Change("0", lambda b, a: turns(a) and not turns(b) and is_adamw(a))],
    "optimizer.beta_2": [
        Change("0.5", lambda b, a: same_update(b, a, 0) and not same_update(b, a, 1) and is_adamw(a)),
    ],
    "optimizer.matrices": [
        Change("muon", lambda b, a: is_adamw(b) and is_adamw(a) and all(0.1 < size < 0.3 for size in a.sizes())
               and alignment(a, 0) > 0.8),
    ],
    "optimizer.muon_momentum": [
        Change("0", lambda b, a: alignment(a, 1) > 0.8 > alignment(b, 1) and is_adamw(a), (MUON,))
    ],
}  # fmt: skip


def same_update(before: Run, after: Run, step: int) -> bool:
    return all(
        torch.allclose(before.update(name, step), after.update(name, step), atol=1e-3) for name in before.matrices
    )


def run(folder: Path, overrides: tuple[str, ...]) -> Run:
    loaded = load_config(PretrainConfig, "electra-tiny", [*BASE, *overrides])
    config, steps = loaded.optimizer, loaded.train.steps
    objective = KnownGradients()
    trainer, _ = train(folder, TrainConfig(steps=steps, report_every=1), objective=objective, optimizer=config)
    rates = [line["learning_rate"] for line in metrics(folder) if "learning_rate" in line]
    gradients = [objective.gradients(step) for step in range(STEPS)]
    return Run(config, rates, [*objective.history, weights(trainer)], gradients)


def cases() -> Iterator[tuple[str, Change]]:
    yield from ((name, change) for name, changes in CHANGES.items() for change in changes)


@pytest.mark.parametrize(("name", "change"), list(cases()), ids=lambda x: x.value if isinstance(x, Change) else x)
def test_a_change_has_its_documented_effect(name: str, change: Change, tmp_path: Path) -> None:
    before = run(tmp_path / "before", change.base)
    after = run(tmp_path / "after", (*change.base, f"{name}={change.value}"))
    assert is_adamw(before)
    assert change.check(before, after)


def test_every_setting_has_an_entry() -> None:
    assert CHANGES.keys() == SETTINGS.keys()

"""What a run will take, before it is begun: parameters, FLOPs, memory, time."""

from dataclasses import dataclass

import torch
from torch import nn

from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.flops import Convention, Networks, training_flops
from electra.modeling.kernels.cross_entropy import ROWS
from electra.objectives.base import ExportableNetwork, NetworkName
from electra.training.config import TrainConfig
from electra.training.precision import PRECISIONS, product_flops
from electra.training.tracking import clock

UTILISATION = 0.4
"""Share of the speed of plain products that a step is expected to reach; measured ones lie at .3 to .6."""
STAGES = 100
"""Points of a run at which its FLOPs are looked at."""


@dataclass(frozen=True)
class CostEstimate:
    """What `--dry-run` shows.

    Attributes:
        parameters: by tower; tables that the towers share count in each.
        trained_parameters: all of them, shared ones once.
        flops: training FLOPs of the whole run, or of one step where its length is given in minutes.
        memory: bytes at the peak of a step: weights, gradients, moments, activations.
        seconds: of the whole run, from the measured speed of plain products and `UTILISATION`.
    """

    parameters: dict[NetworkName, int]
    trained_parameters: int
    steps: int | None
    tokens_per_step: int
    flops: float
    memory: float
    seconds: float

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of each line of the table that a person sees."""
        length = f"{self.steps:,} steps" if self.steps else "one step (the number of steps is measured)"
        return [
            *((f"parameters of the {name}", f"{count:,}") for name, count in self.parameters.items()),
            ("parameters that are trained (shared ones once)", f"{self.trained_parameters:,}"),
            ("tokens a step", f"{self.tokens_per_step:,}"),
            (f"training FLOPs, {length}", f"{self.flops:.3e}"),
            ("memory at the peak of a step, about", f"{self.memory / 2**30:.2f} GiB"),
            (f"time of the steps alone, {length}, about", clock(self.seconds)),
        ]


def count_parameters(*modules: nn.Module) -> int:
    """Parameters of modules, each once."""
    return sum({id(p): p.numel() for module in modules for p in module.parameters()}.values())


def activation_bytes(config: EncoderConfig, rows: int, *, length: int, bytes_per_number: int) -> float:
    """What one encoder keeps of a forward pass over `rows` sequences for the backward pass."""
    numbers = config.layers * config.activation_numbers(length) + 4 * length * config.embedding_size
    return float(rows * numbers * bytes_per_number)


def memory_bytes(config: EncoderConfig, rows: int, *, at_once: int, length: int) -> float:
    """What is remembered of all rows, in float32, and of those that are read at once the states of old memory and
    batch together, and the memory that is taken from them."""
    if not config.memory_length:
        return 0.0
    slots = rows * config.memory_length + at_once * (2 * config.memory_length + length)
    return 4.0 * config.layers * config.hidden_size * slots


def state_bytes(parameters: int) -> float:
    """Weights, gradients and the two moments of Adam, in float32."""
    return 16.0 * parameters


def flops_a_sequence(
    objective: nn.Module, length: int, *, steps: int | None, convention: Convention = "modern"
) -> float:
    """Training FLOPs over one sequence, in the mean over the steps of a run, which may differ."""
    points = [0] if steps is None else [round((i + 0.5) / STAGES * steps) for i in range(STAGES)]
    found = []
    for step in points:
        objective.begin_step(step, steps)  # type: ignore[operator]
        networks: Networks = objective.networks(length)  # type: ignore[operator]
        found.append(training_flops(networks, length, convention))
    return sum(found) / len(found)


def estimate_cost(objective: nn.Module, config: TrainConfig, *, length: int) -> CostEstimate:
    """The plan of a run; the objective may live on the meta device."""
    towers: dict[NetworkName, ExportableNetwork] = objective.exportable_networks()  # type: ignore[operator]
    parameters = {name: count_parameters(tower.encoder, tower.head) for name, tower in towers.items()}
    trained = count_parameters(objective)
    at_once = config.micro_batch_size or config.batch_size
    device = torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    number = 2 if config.precision in ("bfloat16", "float16") else 4
    activations = sum(
        activation_bytes(encoder, at_once, length=length, bytes_per_number=number)
        + memory_bytes(encoder, config.batch_size, at_once=at_once, length=length)
        for encoder in {id(tower.encoder): tower.encoder.config for tower in towers.values()}.values()
    )
    vocabulary = max(tower.encoder.config.vocabulary_size for tower in towers.values())
    head = 3.0 * ROWS * vocabulary * 4
    tokens = config.batch_size * length
    sequences = config.sequences(config.steps) if config.steps else config.batch_size
    flops = sequences * flops_a_sequence(objective, length, steps=config.steps)
    known = "float32" if config.precision == "auto" else config.precision
    speed = product_flops(PRECISIONS[known], device)
    seconds = 60.0 * config.minutes if config.minutes and not config.steps else flops / speed / UTILISATION
    return CostEstimate(
        parameters, trained, config.steps, tokens, flops, state_bytes(trained) + activations + head, seconds
    )

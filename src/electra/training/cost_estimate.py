"""The cost of a run before it starts: parameters, FLOPs, memory, time."""

from dataclasses import dataclass

import torch
from torch import nn

from electra.durations import format_duration
from electra.modeling.device import resolve_device
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.flops import Convention, Documents, flops_per_token
from electra.modeling.kernels.cross_entropy import ROWS
from electra.objectives.base import NetworkName, Objective, TrainableModule
from electra.training.config import OptimizerConfig, TrainConfig
from electra.training.optim import update_flops
from electra.training.precision import PRECISIONS, PrecisionName, product_flops

UTILIZATION = 0.4
"""Speed of a step as a fraction of the speed of matrix products; measured values are 0.3 to 0.6."""
SAMPLED_STEPS = 100
"""Number of steps of a run whose FLOPs are counted; the mean is taken."""


@dataclass(frozen=True)
class CostEstimate:
    """The cost that `--dry-run` shows.

    Attributes:
        parameters: of each network; shared tables count in each of them.
        trained_parameters: of all networks, shared ones once.
        flops: training FLOPs of the whole run, or of one step if the length is given in minutes.
        memory: peak memory of a step in bytes: weights, gradients, moments, activations.
        seconds: duration of the run, from the measured speed of matrix products and `UTILIZATION`.
    """

    parameters: dict[NetworkName, int]
    trained_parameters: int
    steps: int | None
    tokens_per_step: int
    flops: float
    memory: float
    seconds: float

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of each line of the table."""
        length = f"{self.steps:,} steps" if self.steps else "one step (the number of steps is measured)"
        trained = "training and evaluations (train.minutes)"
        time = f"time of the steps alone, {length}, about" if self.steps else f"time of {trained}"
        return [
            *((f"parameters of the {name}", f"{count:,}") for name, count in self.parameters.items()),
            ("parameters that are trained (shared ones once)", f"{self.trained_parameters:,}"),
            ("tokens per step", f"{self.tokens_per_step:,}"),
            (f"training FLOPs, {length}", f"{self.flops:.3e}"),
            ("memory at the peak of a step, about", f"{self.memory / 2**30:.2f} GiB"),
            (time, format_duration(self.seconds)),
        ]


def count_parameters(*modules: nn.Module) -> int:
    """Number of parameters of modules; shared ones count once."""
    return sum({id(p): p.numel() for module in modules for p in module.parameters()}.values())


def activation_bytes(
    config: EncoderConfig, tokens: int, *, documents: Documents, device: torch.device, dtype: torch.dtype
) -> float:
    """Bytes that one encoder saves of a forward pass for the backward pass.

    Args:
        tokens: of the rows that are computed at once.
        documents: the documents that they consist of.
        dtype: of the matrix products.
    """
    blocks = sum(
        count * config.activation_numbers(length, device=device, dtype=dtype) for length, count in documents
    )
    numbers = blocks / sum(count * length for length, count in documents) + 4 * config.embedding_size
    return float(tokens * numbers * dtype.itemsize)


def memory_bytes(config: EncoderConfig, rows: int, *, at_once: int, length: int) -> float:
    """Bytes of the memory (Transformer-XL) in float32.

    That is the memory of all rows, and for each row of a micro-batch (`at_once` rows) the old memory together with
    the states of the batch, and the new memory.
    """
    if not config.memory_length:
        return 0.0
    states = rows * config.memory_length + at_once * (2 * config.memory_length + length)
    return 4.0 * config.layers * config.hidden_size * states


def model_state_bytes(parameters: int) -> float:
    """Bytes of weights, gradients and the two moments of Adam, in float32."""
    return 16.0 * parameters


def flops_per_sequence(
    objective: TrainableModule,
    length: int,
    *,
    steps: int | None,
    convention: Convention = "modern",
    documents: Documents | None = None,
) -> float:
    """Training FLOPs per sequence, the mean over the steps of a run (stages can have different FLOPs).

    Args:
        length: tokens of a sequence.
        documents: the documents of which sequences consist; None: each sequence is one document.
    """
    sample = [0] if steps is None else [int((i + 0.5) / SAMPLED_STEPS * steps) for i in range(SAMPLED_STEPS)]
    flops = []
    for step in sample:
        objective.begin_step(step, steps)
        networks = tuple(objective.networks(length).items())
        flops.append(length * flops_per_token(networks, documents or ((length, 1),), convention))
    return sum(flops) / len(flops)


def estimate_cost(
    objective: Objective,
    config: TrainConfig,
    optimizer: OptimizerConfig,
    *,
    length: int,
    documents: Documents | None = None,
) -> CostEstimate:
    """Estimate the cost of a run; the objective can be on the meta device.

    Args:
        length, documents: as in `flops_per_sequence`.
    """
    networks = objective.exportable_networks()
    parameters = {name: count_parameters(network.encoder, network.head) for name, network in networks.items()}
    trained = sum(parameter.numel() for parameter in objective.parameters() if parameter.requires_grad)
    memory = model_state_bytes(trained) + 4.0 * (count_parameters(objective) - trained)
    at_once = config.micro_batch_size or config.batch_size
    device = resolve_device(config.device, option="train.device")
    precision: PrecisionName = "float32" if config.precision == "auto" else config.precision
    parts, dtype = documents or ((length, 1),), PRECISIONS[precision]
    activations = sum(
        activation_bytes(encoder, at_once * length, documents=parts, device=device, dtype=dtype)
        + memory_bytes(encoder, config.batch_size, at_once=at_once, length=length)
        for encoder in {id(network.encoder): network.encoder.config for network in networks.values()}.values()
    )
    vocabulary = max(network.encoder.config.vocabulary_size for network in networks.values())
    head = 3.0 * ROWS * vocabulary * 4
    tokens = config.batch_size * length
    steps = config.steps or 1
    sequences = config.sequences(steps) if config.steps else config.batch_size
    flops = sequences * flops_per_sequence(objective, length, steps=config.steps, documents=documents)
    flops += steps * update_flops(objective, optimizer)
    speed = product_flops(dtype, device)
    seconds = 60.0 * config.minutes if config.minutes and not config.steps else flops / speed / UTILIZATION
    return CostEstimate(parameters, trained, config.steps, tokens, flops, memory + activations + head, seconds)

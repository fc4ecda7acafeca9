"""Floating-point operations of presets, config files and the models that the paper compares."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch

from electra.config import PRESETS, load_config, preset_names, read_toml
from electra.data.tokenizer import SpecialTokens
from electra.errors import ConfigError, did_you_mean
from electra.modeling.flops import Convention, Network, Networks, forward_terms, inference_flops, training_flops
from electra.objectives.base import ExportableNetwork
from electra.pretraining.config import PretrainConfig, build_objective
from electra.pretraining.resolve import resolve_without_data
from electra.training.cost_estimate import flops_per_sequence
from electra.training.optim import update_flops

REFERENCE = "reference"
"""Folder below the presets with the models that the paper compares."""


@dataclass(frozen=True)
class ReferenceConfig:
    """A published model, as far as its compute depends on it. A network of 0 layers does not exist."""

    length: int
    """Tokens per sequence."""
    batch_size: int
    """Sequences per step."""
    steps: int
    """Steps of the whole training."""
    encoder: Network = field(default_factory=Network)
    decoder: Network = field(default_factory=Network)
    generator: Network = field(default_factory=Network)
    discriminator: Network = field(default_factory=Network)

    def problems(self) -> Iterator[str]:
        if not any(network.layers for network in self.networks().values()):
            yield "encoder: no network has layers; give one of encoder, decoder, generator and discriminator"

    def networks(self) -> Networks:
        everything = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: n for name, n in everything.items() if isinstance(n, Network) and n.layers}


@dataclass(frozen=True)
class FlopsCount:
    """The FLOPs of a model.

    Attributes:
        terms: FLOPs of a forward pass over one training sequence, by network and term, in most steps of the run
            (`ObjectiveConfig.typical_step`).
        inference: FLOPs of each network's forward pass over one sequence, without its head.
        training_sequence: training FLOPs per sequence.
        update: FLOPs of the optimizer in a step (Muon); the paper's script counts none.
        training: FLOPs of the whole training; None if its length is given in minutes.
        parameters: number of parameters of each exported network, without its head (BERT's pooler counts); empty
            for models of the paper, of which only the compute is known.
    """

    name: str
    convention: Convention
    length: int
    batch_size: int
    steps: int | None
    terms: dict[str, dict[str, float]]
    inference: dict[str, float]
    training_sequence: float
    update: float
    training: float | None
    parameters: dict[str, int]


def count_flops(model: str, convention: Convention) -> FlopsCount:
    """Count the FLOPs of a preset, a TOML file, or one of the paper's models.

    Raises:
        ConfigError: there is no such model, or its config has problems.
    """
    references = sorted(path.stem for path in (PRESETS / REFERENCE).glob("*.toml"))
    known = [*preset_names(), *references]
    if model not in known and not Path(model).is_file():
        raise ConfigError(
            f"{model!r} is not a preset, a model of the paper, or a file{did_you_mean(model, known)}\n"
            f"  presets: {', '.join(preset_names())}\n  models of the paper: {', '.join(references)}"
        )
    source = f"{REFERENCE}/{model}" if model in references else model
    if "length" in read_toml(source):
        reference = load_config(ReferenceConfig, source)
        networks, length, batch_size = reference.networks(), reference.length, reference.batch_size
        parameters: dict[str, int] = {}
        update = 0.0
        steps: int | None = reference.steps
        sequence, sequences = training_flops(networks, length, convention), batch_size * reference.steps
    else:
        config = resolve_without_data(load_config(PretrainConfig, source))
        length, batch_size = config.packing.sequence_length, config.train.batch_size
        steps = config.train.steps
        with torch.device("meta"):
            objective = build_objective(config, SpecialTokens(0, 1, 2, 3, 4))
        parameters = {
            name: _count_parameters(network) for name, network in objective.exportable_networks().items()
        }
        sequence = flops_per_sequence(objective, length, steps=steps, convention=convention)
        update = update_flops(objective, config.optimizer) if convention == "modern" else 0.0
        if steps is not None:
            objective.begin_step(config.objective.typical_step(steps), steps)
        networks, sequences = objective.networks(length), config.train.sequences(steps or 0)
    return FlopsCount(
        Path(model).stem if model.endswith(".toml") else model,
        convention,
        length,
        batch_size,
        steps,
        {name: forward_terms(network, length, convention) for name, network in networks.items()},
        {n: inference_flops(network, length, convention) for n, network in networks.items() if network.layers},
        sequence,
        update,
        None if steps is None else sequence * sequences + update * steps,
        parameters,
    )


def _count_parameters(network: ExportableNetwork) -> int:
    """The number of learned parameters; shared ones count once."""
    modules = [network.encoder, *([] if network.pairs is None else [network.pairs.dense])]
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's comparison.

    Attributes:
        training: FLOPs of the whole training.
        source: the config that they are counted from, or "cited".
        to_bert, to_electra: ratio to the training of the paper's own BERT, and to that of ELECTRA-1.75M.
        printed: the ratios as the paper prints them, for the development ("dev") and the test set; None: not
            printed.
    """

    model: str
    training: float
    source: str
    to_bert: float
    to_electra: float
    printed: dict[str, str | None]


_PAPER_ROWS: list[tuple[str, str | float, tuple[str | None, str | None]]] = [
    ("ELMo", 3.4114394716164127e18, (None, None)),
    ("GPT", "gpt", (None, None)),
    ("BERT", "bert_large", ("0.27x", "0.06x")),
    ("RoBERTa-100K", "roberta_100k", ("0.90x", None)),
    ("RoBERTa-500K", "roberta", ("4.5x", "1.02x")),
    ("XLNet", 3.856582065028608e21, ("5.4x", "1.26x")),
    ("ALBERT", "albert", (None, "10x")),
    ("T5-11B", "t5_11b", (None, None)),
    ("BERT (ours)", "bert_large_464k", ("1x", None)),
    ("ELECTRA-400K", "electra_400k", ("1x", None)),
    ("ELECTRA-1.75M", "electra_1.75M", ("4.4x", "1x")),
]
"""Model, its config or its cited FLOPs, and the ratios that the paper prints (dev, test)."""


def paper_rows() -> list[PaperRow]:
    """The compute columns of the paper's comparison with large models on GLUE, counted again."""
    training = {
        name: source if isinstance(source, float) else _training(source) for name, source, _ in _PAPER_ROWS
    }
    return [
        PaperRow(
            name,
            training[name],
            "cited" if isinstance(source, float) else source,
            training[name] / training["BERT (ours)"],
            training[name] / training["ELECTRA-1.75M"],
            dict(zip(("dev", "test"), printed, strict=True)),
        )
        for name, source, printed in _PAPER_ROWS
    ]


def _training(model: str) -> float:
    training = count_flops(model, "paper").training
    assert training is not None
    return training

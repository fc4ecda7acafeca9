"""`electra flops`: what models cost to train and to use, term by term, in two conventions."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from rich.console import Group, RenderableType
from rich.table import Table

from electra.config import PRESETS, did_you_mean, load_config, preset_names, read_toml
from electra.data.tokenizer import SpecialTokens
from electra.errors import ConfigError
from electra.modeling.flops import Convention, Network, Networks, forward_terms, inference_flops, training_flops
from electra.objectives.base import ExportableNetwork
from electra.pretraining.config import PretrainConfig, build_objective, with_vocabulary
from electra.pretraining.warm_start import load_warm_start, with_shapes
from electra.training.cost_estimate import flops_a_sequence

REFERENCE = "reference"
"""The folder, below the presets, of the models that the paper compares."""


@dataclass(frozen=True)
class FlopsConfig:
    """Which models to count, and how."""

    models: tyro.conf.Positional[tuple[str, ...]] = ()
    """Presets, TOML files, or the paper's models: gpt, bert_base, electra_400k, ... (presets/reference)."""
    convention: Convention = "modern"
    """modern: matrix products, a backward pass costs two forward ones. paper: as the original's script counts."""
    json: bool = False
    """Print one JSON object instead of tables."""
    table: Literal["paper"] | None = None
    """paper: the compute columns of the paper's comparison on GLUE, in the paper's convention."""


@dataclass(frozen=True)
class ReferenceConfig:
    """A model that somebody has trained, as far as its compute goes; a network of 0 layers is not there."""

    length: int
    """Tokens a sequence."""
    batch_size: int
    """Sequences a step."""
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
class PaperRow:
    """A line of the paper's comparison.

    Attributes:
        training: operations of the whole training.
        source: the config that they are counted from, or "cited".
        to_bert, to_electra: times the training of the paper's own BERT, and of ELECTRA-1.75M.
        printed: the ratios as the tables print them, of the development ("dev") and the test set; None: not there.
    """

    model: str
    training: float
    source: str
    to_bert: float
    to_electra: float
    printed: dict[str, str | None]


@dataclass(frozen=True)
class PaperTable:
    """The compute columns of the paper's comparison with large models on GLUE."""

    rows: list[PaperRow]

    def __rich__(self) -> RenderableType:
        table = Table("model", "training FLOPs")
        for column in ("x BERT (ours)", "printed (dev)", "x ELECTRA-1.75M", "printed (test)"):
            table.add_column(column, justify="right")
        table.add_column("counted from")
        for row in self.rows:
            dev, test = (row.printed[part] or "" for part in ("dev", "test"))
            table.add_row(
                row.model,
                f"{row.training:.3e}",
                f"{row.to_bert:.3g}",
                dev,
                f"{row.to_electra:.3g}",
                test,
                row.source,
            )
        return Group(
            "Training compute of the models in the paper's tables on GLUE, in the paper's convention",
            table,
            "ELMo's and XLNet's figures are cited: the authors counted the operations of their graphs.",
            "XLNet's printed 1.26 is the ratio of the rounded figures, 3.9e21 / 3.1e21.",
        )


@dataclass(frozen=True)
class Counted:
    """A model's operations.

    Attributes:
        terms: of a forward pass over one sequence in training, by network and term.
        inference: of each network's forward pass over one sequence without its head.
        training: of the whole training; None where its length is given in minutes.
        parameters: of each network that is exported, without its head (BERT's pooler counts); empty for models of
            the paper, of which only the compute is known.
    """

    name: str
    convention: Convention
    length: int
    batch_size: int
    steps: int | None
    terms: dict[str, dict[str, float]]
    inference: dict[str, float]
    training_sequence: float
    training: float | None
    parameters: dict[str, int]


@dataclass(frozen=True)
class Flops:
    """What was counted of each model."""

    models: list[Counted]

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = []
        for model in self.models:
            parts += [
                f"{model.name}: operations of a forward pass over {model.length} tokens",
                _terms_table(model),
            ]
        return Group(*parts, f"Training, in the {self.models[0].convention} convention", _summary(self.models))


def run(config: FlopsConfig) -> Flops | PaperTable | str:
    """Count floating-point operations: every term of a forward pass, using a model, training it.

    Examples:
        electra flops electra-small electra-base
        electra flops my-run.toml bert_base --convention paper --json
        electra flops --table paper
    """
    if config.table == "paper":
        if config.models:
            raise ConfigError(f"--table paper has its own models; leave {', '.join(config.models)} out")
        rows = paper_table()
        return _json([vars(row) for row in rows.rows]) if config.json else rows
    if not config.models:
        raise ConfigError("name a preset or a TOML file, or give --table paper")
    models = [count(model, config.convention) for model in config.models]
    return _json([vars(model) for model in models]) if config.json else Flops(models)


def count(model: str, convention: Convention) -> Counted:
    """The operations of a preset, a TOML file, or one of the paper's models.

    Raises:
        ConfigError: there is no such model, or its config has problems.
    """
    references = sorted(path.stem for path in (PRESETS / REFERENCE).glob("*.toml"))
    known = [*preset_names(), *references]
    if model not in known and not Path(model).is_file():
        raise ConfigError(
            f"no preset, no model of the paper and no file is called {model!r}{did_you_mean(model, known)}\n"
            f"  presets: {', '.join(preset_names())}\n  of the paper: {', '.join(references)}"
        )
    source = f"{REFERENCE}/{model}" if model in references else model
    if "length" in read_toml(source):
        reference = load_config(ReferenceConfig, source)
        networks, length, batch_size = reference.networks(), reference.length, reference.batch_size
        parameters: dict[str, int] = {}
        steps: int | None = reference.steps
        sequence, sequences = training_flops(networks, length, convention), batch_size * reference.steps
    else:
        config = load_config(PretrainConfig, source)
        config = with_vocabulary(with_shapes(config, load_warm_start(config.init)))
        length, batch_size = config.packing.sequence_length, config.train.batch_size
        steps = None if config.train.minutes is not None else config.train.steps
        with torch.device("meta"):
            objective = build_objective(config, SpecialTokens(0, 1, 2, 3, 4))
        parameters = {name: _parameters(tower) for name, tower in objective.exportable_networks().items()}
        sequence = flops_a_sequence(objective, length, steps=steps, convention=convention)
        networks, sequences = objective.networks(length), config.train.sequences(steps or 0)  # of the last stage
    return Counted(
        Path(model).stem if model.endswith(".toml") else model,
        convention,
        length,
        batch_size,
        steps,
        {name: forward_terms(network, length, convention) for name, network in networks.items()},
        {n: inference_flops(network, length, convention) for n, network in networks.items() if network.layers},
        sequence,
        None if steps is None else sequence * sequences,
        parameters,
    )


def _parameters(tower: ExportableNetwork) -> int:
    """Numbers that are learnt, each once even where blocks share it."""
    modules = [tower.encoder, *([] if tower.pairs is None else [tower.pairs.dense])]
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


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


def paper_table() -> PaperTable:
    """The rows of the paper's comparison with their operations and ratios."""
    known = {name: source if isinstance(source, float) else _trained(source) for name, source, _ in _PAPER_ROWS}
    rows = [
        PaperRow(
            name,
            known[name],
            "cited" if isinstance(source, float) else source,
            known[name] / known["BERT (ours)"],
            known[name] / known["ELECTRA-1.75M"],
            dict(zip(("dev", "test"), printed, strict=True)),
        )
        for name, source, printed in _PAPER_ROWS
    ]
    return PaperTable(rows)


def _trained(model: str) -> float:
    training = count(model, "paper").training
    assert training is not None
    return training


def _json(models: list[dict[str, Any]]) -> str:
    return json.dumps({"models": _whole(models)}, indent=1)


def _whole(value: Any) -> Any:
    """Whole numbers as such, with all their digits."""
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _terms_table(model: Counted) -> Table:
    """Terms down, networks across, in operations of one sequence."""
    table = Table("term")
    for name in model.terms:
        table.add_column(name, justify="right")
    for term in dict.fromkeys(term for terms in model.terms.values() for term in terms):
        if any(terms.get(term) for terms in model.terms.values()):  # without a memory it costs nothing
            table.add_row(term, *(_shown(terms.get(term) or None) for terms in model.terms.values()))
    table.add_section()
    table.add_row("all", *(_shown(sum(terms.values())) for terms in model.terms.values()))
    table.add_row("the encoder alone, all states", *(_shown(model.inference.get(name)) for name in model.terms))
    return table


def _summary(models: list[Counted]) -> Table:
    table = Table("model")
    for column in ("parameters", "sequences a step", "one step", "steps", "whole training", f"x {models[0].name}"):
        table.add_column(column, justify="right")
    for model in models:
        table.add_row(
            model.name,
            _millions(model.parameters),
            f"{model.batch_size:,}",
            _shown(model.training_sequence * model.batch_size),
            f"{model.steps:,}" if model.steps else "by the clock",
            _shown(model.training),
            f"{model.training / models[0].training:.3g}" if model.training and models[0].training else "",
        )
    return table


def _millions(parameters: dict[str, int]) -> str:
    """Of the network that is trained for its own sake."""
    found = parameters.get("discriminator") or parameters.get("encoder")
    return "" if found is None else f"{found / 1e6:.1f}M"


def _shown(operations: float | None) -> str:
    return "" if operations is None else f"{operations:.4g}"

"""`electra flops`: floating-point operations of training and inference, term by term, in two conventions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import tyro
from rich.console import Group, RenderableType
from rich.table import Table

from electra.errors import ConfigError

if TYPE_CHECKING:
    from electra.pretraining.count_flops import FlopsCount, PaperRow


@dataclass(frozen=True)
class FlopsConfig:
    """The command line of `electra flops`."""

    models: tyro.conf.Positional[tuple[str, ...]] = ()
    """Presets, TOML files, or models of the paper: gpt, bert_base, electra_400k, ... (see presets/reference)."""
    convention: Literal["modern", "paper"] = "modern"
    """modern: matrix products, and a backward pass as two forward passes. paper: as flops_computation.py of the
    original code counts."""
    json: bool = False
    """Print one JSON object instead of tables."""
    table: Literal["paper"] | None = None
    """paper: the compute columns of the paper's comparison on GLUE, in the paper's convention."""


def run(config: FlopsConfig) -> Flops | PaperTable | str:
    """Count the floating-point operations of a forward pass, of inference and of training.

    Examples:
        electra flops electra-small electra-base
        electra flops my-run.toml bert_base --convention paper --json
        electra flops --table paper
    """
    if config.table is None and not config.models:
        raise ConfigError("name a preset or a TOML file, or give --table paper")
    if config.table == "paper" and config.models:
        raise ConfigError(f"--table paper has a fixed list of models; leave {', '.join(config.models)} out")
    from electra.pretraining.count_flops import count_flops, paper_rows

    if config.table == "paper":
        rows = paper_rows()
        return _json([vars(row) for row in rows]) if config.json else PaperTable(rows)
    models = [count_flops(model, config.convention) for model in config.models]
    return _json([vars(model) for model in models]) if config.json else Flops(models)


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
            "ELMo's and XLNet's FLOPs are cited: the authors counted the operations of their graphs.",
            "XLNet's printed 1.26 is the ratio of the rounded numbers, 3.9e21 / 3.1e21.",
        )


@dataclass(frozen=True)
class Flops:
    """A table of terms for each model, and one that compares the models."""

    models: list[FlopsCount]

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = []
        for model in self.models:
            parts += [
                f"{model.name}: operations of a forward pass over {model.length} tokens",
                _terms_table(model),
            ]
        return Group(*parts, f"Training, in the {self.models[0].convention} convention", _summary(self.models))


def _terms_table(model: FlopsCount) -> Table:
    """Terms as rows, networks as columns, in operations per sequence."""
    table = Table("term")
    for name in model.terms:
        table.add_column(name, justify="right")
    for term in dict.fromkeys(term for terms in model.terms.values() for term in terms):
        if any(terms.get(term) for terms in model.terms.values()):  # terms of memory are 0 without a memory
            table.add_row(term, *(_number(terms.get(term) or None) for terms in model.terms.values()))
    table.add_section()
    table.add_row("all", *(_number(sum(terms.values())) for terms in model.terms.values()))
    table.add_row("the encoder alone, all states", *(_number(model.inference.get(name)) for name in model.terms))
    return table


def _summary(models: list[FlopsCount]) -> Table:
    table = Table("model")
    for column in (
        "parameters",
        "sequences per step",
        "one step",
        "steps",
        "whole training",
        f"x {models[0].name}",
    ):
        table.add_column(column, justify="right")
    for model in models:
        table.add_row(
            model.name,
            _millions(model.parameters),
            f"{model.batch_size:,}",
            _number(model.training_sequence * model.batch_size + model.update),
            f"{model.steps:,}" if model.steps else "by the clock",
            _number(model.training),
            f"{model.training / models[0].training:.3g}" if model.training and models[0].training else "",
        )
    return table


def _millions(parameters: dict[str, int]) -> str:
    """Parameters of the network that training is for."""
    count = parameters.get("discriminator") or parameters.get("encoder")
    return "" if count is None else f"{count / 1e6:.1f}M"


def _number(operations: float | None) -> str:
    return "" if operations is None else f"{operations:.4g}"


def _json(models: list[dict[str, Any]]) -> str:
    return json.dumps({"models": _with_integers(models)}, indent=1)


def _with_integers(value: Any) -> Any:
    """The same with whole floats as integers, which JSON writes with all their digits."""
    if isinstance(value, dict):
        return {key: _with_integers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_integers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value

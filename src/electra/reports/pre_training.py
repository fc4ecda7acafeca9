"""The section of a pre-training: its budget, what it was started from, its last held-out metrics, its curves."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from electra.errors import CheckpointError
from electra.export.weights_file import WEIGHTS, read_header
from electra.json_files import raise_if_damaged, read_json
from electra.objectives.metric_labels import metric_label
from electra.reports.budget import describe_budget, describe_steps, describe_time, run_steps
from electra.reports.comparison import format_metric
from electra.reports.curves import run_panels
from electra.reports.figures import figure_svg
from electra.reports.findings import finding_notes
from electra.reports.metrics import read_metrics
from electra.reports.page import Figure, Section
from electra.reports.settings import read_config

Contents = Mapping[str, Any]
"""The contents of a JSON or TOML file."""
EXPORTS = ("discriminator", "encoder")
"""The exports of the network that a run trains, in contrast to its generator; a run has one or both."""


def pre_training_sections(folder: Path, name: str) -> list[Section]:
    """The section of the folder of a pre-training, in a list."""
    metrics, config = read_metrics(folder), read_config(folder)
    environment = read_json(folder / "environment.json", optional=True)
    steps, properties = run_steps(folder, config), []
    if metrics.reports:
        tokens, flops, _ = describe_budget(metrics)
        properties = [
            ("steps", describe_steps(metrics, steps)),
            ("tokens", tokens),
            ("training FLOPs", flops),
            ("time", describe_time(metrics)),
        ]
    properties += [*_describe_model(folder, config), *_describe_data(config, environment)]
    properties += _describe_machine(config, environment)
    tables = []
    if metrics.evaluations:
        evaluation = metrics.evaluations[-1]
        table = Table("held-out metric", f"step {evaluation['step']:,}")
        for key, value in evaluation.items():
            if key.startswith("eval/"):
                table.add_row(metric_label(key), format_metric(value))
        tables.append(table)
    notes = finding_notes(metrics, steps)
    figures = [Figure(panel.title, figure_svg(panel.figure())) for panel in run_panels(metrics, config)]
    return [Section(name, "pre-training", properties, notes, tables, figures)]


def _describe_model(folder: Path, config: Contents) -> Iterator[tuple[str, str]]:
    yield "objective", str(config.get("objective", {}).get("kind", "replaced-token"))
    if config:
        yield "started from", _describe_start(config.get("init", {}))
    if model := config.get("model"):
        shape = f"{model.get('kind', 'bert')}, {model['layers']} layers × {model['hidden_size']}"
        yield "network", shape + _describe_parameters(folder)


def _describe_start(init: Contents) -> str:
    """A run of which this one is the second stage, pre-trained networks, or random weights."""
    if first := init.get("from"):  # the other settings are ignored then
        return f"{first} (second stage)"
    started = [str(init["discriminator"])] if init.get("discriminator") else []
    if generator := init.get("generator"):
        started.append(f"generator: {generator}")
    return "; ".join(started) or "random weights"


def _describe_parameters(folder: Path) -> str:
    """The number of parameters of the trained network, from the header of its export; "" without an export."""
    files = (folder / "export" / name / WEIGHTS for name in EXPORTS)
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        return ""
    try:
        with raise_if_damaged(path):
            tensors = [one for name, one in read_header(path).items() if name != "__metadata__"]
            return f", {sum(math.prod(one['shape']) for one in tensors):,} parameters with its head"
    except CheckpointError:
        return ", its export is damaged"


def _describe_data(config: Contents, environment: Contents) -> Iterator[tuple[str, str]]:
    described = []
    if data := environment.get("data", {}).get("statistics"):
        described.append(f"{data['documents']:,} documents, {data['tokens']:,} tokens")
    if folder := config.get("data"):
        described.insert(0, str(folder))
    if described:
        yield "data", ": ".join(described)


def _describe_machine(config: Contents, environment: Contents) -> Iterator[tuple[str, str]]:
    if "torch" in environment:
        precision = config.get("train", {}).get("precision", "")
        machine = (
            environment.get("accelerator") or f"{environment['processor']}, threads: {environment['threads']}"
        )
        yield "machine", f"{machine}, {precision}, PyTorch {environment['torch']}"

"""`electra data inspect`: show rows of prepared data as a run reads them, and the lengths of all rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from electra.config import COMMAND_LINE, NonNegativeInt, load_config

if TYPE_CHECKING:
    from electra.data.inspection import Inspection, RowText

BINS = 16
BAR = 40
"""Characters of the longest bar."""


@dataclass(frozen=True)
class InspectConfig:
    """The command line of `electra data inspect`."""

    data: tyro.conf.Positional[Path]
    """Folder that electra prepare made."""
    preset: str = "electra-small"
    """Preset or TOML file whose [packing] is used. Settings such as --packing.sequence_length override it."""
    split: Literal["train", "heldout"] = "train"
    """Split to show: training text or held-out text."""
    examples: NonNegativeInt = 4
    """Number of rows to show."""
    seed: NonNegativeInt = 0
    """Random seed for sampling the rows."""
    overrides: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Any setting of the config, as `--packing.name VALUE`."""


@dataclass(frozen=True)
class InspectResult:
    """Some rows, statistics of all rows, and a histogram of their lengths."""

    inspection: Inspection

    def __rich__(self) -> RenderableType:
        inspection = self.inspection
        packed, present = inspection.shards
        of_shards = "" if packed == present else f" (of {packed:,} of {present:,} shards)"
        length, mean = inspection.packing.sequence_length, inspection.lengths.mean()
        streams = inspection.packing.streams
        reason = "at the ends of shards" if streams else "which the original builder drops"
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="dim")
        table.add_column()
        table.add_row("rows", f"{len(inspection.lengths):,}{of_shards}")
        table.add_row("tokens per row", f"{mean:.1f} of {length}, {1 - mean / length:.1%} padding")
        table.add_row("one segment", f"{inspection.one_segment:.1%} of the rows")
        table.add_row("full rows", f"{inspection.full:.1%} (at most one token missing)")
        table.add_row("tokens in no row", f"{inspection.dropped:.1%} ({reason})")
        if inspection.mixture:
            shares = ", ".join(f"{share:.1%} of {folder}" for folder, share in inspection.mixture)
            table.add_row("mixture", f"a run's rows are {shares}; the statistics here count every row once")
        return Group(*map(_format_row, inspection.rows), table, *([] if streams else ["", *self.histogram()]))

    def histogram(self) -> Iterator[str]:
        """Yield the lines of a histogram of the lengths of the rows."""
        import numpy as np

        lengths = self.inspection.lengths
        edges = np.unique(np.linspace(3, self.inspection.packing.sequence_length + 1, BINS + 1).astype(int))
        counts, _ = np.histogram(lengths, edges)
        yield "tokens per row, including [CLS] and [SEP]"
        for low, high, count in zip(edges[:-1], edges[1:] - 1, counts, strict=True):
            bar = "█" * round(BAR * count / max(counts.max(), 1))
            share = count / len(lengths)
            yield f"  {low:5,}–{high:<5,} {bar or ('▏' if count else '')} {count:,} ({share:.1%})"


def _format_row(row: RowText) -> Text:
    text = Text().append(f"{row.location}\n", "dim")
    if row.window:
        return text.append(row.segments[0]).append("\n")
    text.append("[CLS] ", "bold cyan")
    for segment, style in zip(row.segments, ("", "green"), strict=False):
        text.append(segment, style).append(" [SEP] ", "bold cyan")
    return text.append("\n")


def run(config: InspectConfig) -> InspectResult:
    """Show rows of prepared data as a run reads them, and a histogram of their lengths.

    Rows of a mixture are sampled by weight.

    Examples:
        electra data inspect DATA
        electra data inspect DATA --split heldout --packing.sequence_length 512 --packing.builder original
    """
    from electra.pretraining.early_check import check_early

    check_early(config.preset, config.overrides)  # before torch is imported, which takes seconds
    from electra.data.inspection import inspect_data
    from electra.data.shards import TokenData
    from electra.pretraining.config import PretrainConfig

    settings = load_config(PretrainConfig, config.preset, config.overrides, overrides_from=COMMAND_LINE)
    inspection = inspect_data(
        TokenData.open(config.data, verify=False),
        settings.packing,
        split=config.split,
        packing_seed=settings.train.seed,
        examples=config.examples,
        seed=config.seed,
    )
    return InspectResult(inspection)

"""`electra compare`: is one fine-tuning better than another? A paired bootstrap over the examples."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Group, RenderableType
from rich.table import Table

from electra.config import NonNegativeInt, PositiveInt
from electra.objectives.metric_labels import metric_label

if TYPE_CHECKING:
    from electra.finetuning.compare import Comparison, Difference


FEW_SEEDS = 3
"""With fewer seeds, the table says that their variation is unknown."""


@dataclass(frozen=True)
class CompareConfig:
    """The command line of `electra compare`."""

    first: tyro.conf.Positional[Path]
    """A folder that `electra finetune` wrote."""
    second: tyro.conf.Positional[Path]
    """Another folder, of the same task and data."""
    data: Path | None = None
    """The task's data, if it was moved after the fine-tuning. Default: its path during the fine-tuning."""
    resamples: PositiveInt = 1000
    """Number of bootstrap resamples of the examples."""
    seed: NonNegativeInt = 0
    """Random seed of the resamples."""
    json: bool = False
    """Print the result as one JSON object."""


@dataclass(frozen=True)
class ComparisonResult:
    """The comparison as a table, or as JSON."""

    comparison: Comparison
    is_json: bool

    def __rich__(self) -> RenderableType:
        result = self.comparison
        if self.is_json:
            return json.dumps(result.as_json())
        failed = ["failed seeds"] if any(result.failed) else []
        table = Table(
            "", f"{metric_label(result.metric)} on dev", *(f"on {split}" for split in result.others), "seeds",
            "standard deviation over seeds", *failed,
        )  # fmt: skip
        splits = [result.dev, *result.others.values()]
        for side, name in enumerate(("first", "second")):
            deviation = result.dev.deviations[side]
            table.add_row(
                f"{name}: {result.names[side]}", *(f"{getattr(split, name):.4f}" for split in splits),
                str(result.seeds[side]), "–" if deviation is None else f"{deviation:.4f}",
                *([str(result.failed[side])] if failed else []),
            )  # fmt: skip
        # The examples are drawn again, the seeds are not.
        of_what = " for these networks" if min(result.seeds) < FEW_SEEDS else ""
        lines = [f"second - first: {_describe(result.dev, of_what)}"]
        lines += [f"on {split}: {_describe(difference, of_what)}" for split, difference in result.others.items()]
        if any(result.failed):
            lines.append("failed seeds are included in the means; results.json says why they failed")
        if min(result.seeds) < FEW_SEEDS:
            few = f"with fewer than {FEW_SEEDS} seeds"
            lines.append(f"{few}, nothing is said about other seeds: train more (--seeds)")
        return Group(table, *lines)


def _describe(difference: Difference, of_what: str) -> str:
    """A difference and, if the predictions are known, its interval and whether it is significant, of what."""
    value = f"{difference.second - difference.first:+.4f}"
    if difference.interval is None or difference.probability is None:
        return f"{value} (means over the seeds, without an interval)"
    low, high = difference.interval
    verdict = "significant" if difference.probability < 0.05 else "not significant"
    return (
        f"{value}, 95% interval {low:+.4f} to {high:+.4f}, p = {difference.probability:.3f} ({verdict}{of_what}; "
        f"{difference.examples:,} examples)"
    )


def run(config: CompareConfig) -> ComparisonResult:
    """Compare two fine-tunings of one task on the same examples of dev and test, by a paired bootstrap.

    The metrics are means over seeds.

    Examples:
        electra compare OUT-SMALL OUT-BASE
        electra compare OUT1 OUT2 --resamples 10000 --json
    """
    from electra.finetuning.compare import compare_finetunings

    comparison = compare_finetunings(
        config.first, config.second, data=config.data, resamples=config.resamples, seed=config.seed
    )
    return ComparisonResult(comparison, config.json)

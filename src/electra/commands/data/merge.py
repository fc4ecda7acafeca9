"""`electra data merge`: join folders of prepared data, or mix them by weight."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from electra.preparation.merge import MergeResult


@dataclass(frozen=True)
class MergeConfig:
    """The command line of `electra data merge`."""

    parts: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="PART...", help_behavior_hint="(required)")
    ]
    """Folders that electra prepare made with one tokenizer, in the order in which their shards are merged."""
    out: Path
    """A new folder for the merged data."""
    weights: tuple[float, ...] = ()
    """How often training samples from each part, one number per part (3 1: three of four rows are from the first).
    Default: every row is equally likely, so a part counts by its size."""


def run(config: MergeConfig) -> MergeResult:
    """Join folders of prepared data, one for each part of a corpus, into one folder.

    All parts must have the same tokenizer: train it once, and give it to every other electra prepare with
    --tokenizer. Every file is checked first. Shards are hard links where the file system has them, otherwise
    copies. Documents that occur in two parts are kept twice. With --weights the result is a mixture: each part has
    its share of the training rows, whatever its size, and small parts are repeated more often. If the same data
    were merged before, the command does nothing.

    Examples:
        electra data merge PART-1 PART-2 PART-3 --out DATA
        electra data merge WIKIPEDIA BOOKS --weights 3 1 --out MIXTURE
    """
    from electra.preparation.merge import merge_data

    return merge_data(config.parts, config.out, weights=config.weights)

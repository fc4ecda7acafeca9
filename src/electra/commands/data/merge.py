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
    """Output folder: a new one."""
    weights: tuple[float, ...] = ()
    """How often training samples from each part, one number per part (3 1: three of four rows are from the first).
    Default: every row is equally likely, so a part counts by its size."""


def run(config: MergeConfig) -> MergeResult:
    """Join folders that electra prepare made of parts of a corpus, on one machine or on many, into one folder.

    All parts must have the same tokenizer: train it once, and give it to every other electra prepare with
    --tokenizer. Every file is checked first. Shards are linked if the file system can, otherwise copied. Documents
    that occur in two parts stay twice. With --weights the result is a mixture: each part has its share of the
    training rows, whatever its size, and small parts are repeated more often. If the same data were merged before,
    the same command does nothing.

    Examples:
        electra data merge PART-1 PART-2 PART-3 --out DATA
        electra data merge WIKIPEDIA BOOKS --weights 3 1 --out MIXTURE
    """
    from electra.preparation.merge import merge_data

    return merge_data(config.parts, config.out, weights=config.weights)

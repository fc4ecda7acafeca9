"""Options that several analyses share."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import tyro

Models = Annotated[
    tyro.conf.Positional[tuple[str, ...]],
    tyro.conf.arg(metavar="MODEL...", help_behavior_hint="(required)"),
]


def missing_models(models: Sequence[str]) -> Iterator[str]:
    """The problem of a command line without models."""
    if not models:
        yield "MODEL: name at least one model"

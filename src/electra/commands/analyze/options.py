"""Options and steps that several analyses share."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from electra.serving.likelihood import Likelihoods, LikelihoodScorer

logger = logging.getLogger(__name__)

CHUNK = 4096
"""Texts, or groups of texts, that are scored at a time."""

Models = Annotated[
    tyro.conf.Positional[tuple[str, ...]],
    tyro.conf.arg(metavar="MODEL...", help_behavior_hint="(required)"),
]


def missing_models(models: Sequence[str]) -> Iterator[str]:
    """The problem of a command line without models."""
    if not models:
        yield "MODEL: name at least one model"


def score_in_chunks(
    name: str, model: LikelihoodScorer, texts: Sequence[str], *, chunk: int = CHUNK, unknown: str | None = None
) -> list[Likelihoods]:
    """Return the likelihoods of texts, one item per chunk, and log the progress.

    Args:
        name: the name of the model in the log.
        chunk: the number of texts that are scored at a time.
        unknown: the string that marks an unknown word (`LikelihoodScorer.__call__`).
    """
    parts = []
    for first in range(0, len(texts), chunk):
        logger.info("Scoring with %s", name, extra={"progress": (first, len(texts))})
        parts.append(model(texts[first : first + chunk], unknown=unknown))
    logger.info("Scored with %s", name, extra={"progress": (len(texts), len(texts))})
    return parts

"""`electra analyze context`: what a causal language model makes of what came long before."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tokenizers import Tokenizer

from electra.data import tokenizer as tokenizers
from electra.data.shards import TokenData
from electra.errors import ConfigError, DataError
from electra.reports.analysis import AnalysisReport, names_of, prepare_out, reported

if TYPE_CHECKING:
    from electra.serving.causal_language_model import CausalLanguageModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnalyzeContextConfig:
    """The command line of `electra analyze context`."""

    models: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="MODEL...", help_behavior_hint="(required)"),
    ]
    """Runs, export folders, Hugging Face folders or ids of causal language models."""
    data: Path
    """The folder that `electra prepare` made, whose held-out documents are read."""
    memory: tuple[int, ...] = (0, 32, 64, 128, 256, 512, 1024)
    """Tokens that are remembered: the loss with each of these."""
    window: int = 0
    """Tokens that are read at once; 0: as many as in training."""
    documents: int = 16
    """At most so many documents, the longest."""
    length: int = 2048
    """Tokens of each document at most, from its beginning."""
    speed: bool = True
    """Leave out what reading with memory costs, beside a sliding window that is computed anew for each token."""
    speed_tokens: int = 64
    """Tokens whose sliding windows are timed."""
    out: Path | None = None
    """A folder for context.json, context.png and context.svg; those that are there are replaced."""

    def problems(self) -> Iterator[str]:
        if not self.models:
            yield "MODEL: name at least one model"
        for name, least in (("window", 0), ("documents", 1), ("length", 1), ("speed_tokens", 1)):
            if getattr(self, name) < least:
                yield f"--{name.replace('_', '-')}: must be at least {least}, got {getattr(self, name)}"
        if not self.memory or min(self.memory) < 0 or len(set(self.memory)) < len(self.memory):
            yield "--memory: give lengths of 0 or more, each once"


def run(config: AnalyzeContextConfig) -> AnalysisReport:
    """Measure what a longer memory is worth to a causal language model, and how much quicker it reads.

    The loss is that of held-out documents, as a whole and by how far into its document a token stands: early is
    within the first 256 tokens.

    Examples:
        electra analyze context RUN --data DATA --out context
        electra analyze context RUN1 RUN2 --data DATA --memory 0 128 512 --length 4096 --no-speed
    """
    from electra.analysis.context import held_out
    from electra.export.loading import load_pretrained
    from electra.serving.causal_language_model import CausalLanguageModel

    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    prepare_out(config.out)
    data = TokenData.open(config.data, verify=False)
    documents = held_out(
        data.heldout, separate=data.special.separate, documents=config.documents, length=config.length
    )
    models = []
    for model, name in zip(config.models, names_of(config.models), strict=True):
        pretrained = load_pretrained(model)  # all: a mistake is to be found before the first one is measured
        models.append((name, CausalLanguageModel.from_pretrained(pretrained, model)))
        check_vocabulary(pretrained.tokenizer, model, data)
    tokens = sum(len(one) - 1 for one in documents)
    facts = {
        "data": data.fingerprint, "documents": len(documents), "tokens": tokens, "length": config.length,
        "models": [_measured(config, name, model, documents) for name, model in models],
    }  # fmt: skip
    return reported("context", facts, config.out)


def _measured(
    config: AnalyzeContextConfig, name: str, model: CausalLanguageModel, documents: list[Any]
) -> dict[str, Any]:
    """What context.json says of one model."""
    from electra.analysis.context import Reading
    from electra.analysis.context_speed import speed
    from electra.serving.causal_language_model import compute_token_losses

    window, readings, speeds = config.window or model.window, [], []
    for number, memory in enumerate(config.memory):
        logger.info("Reading with %s", name, extra={"progress": (number, len(config.memory))})
        losses = compute_token_losses(model, documents, window=window, memory=memory)
        readings.append(asdict(Reading.of(memory, losses)))
    timed = sorted(memory for memory in config.memory if memory and config.speed)
    for number, memory in enumerate(timed):
        logger.info("Timing %s", name, extra={"progress": (number, len(timed))})
        found = speed(model, documents[0], window=window, memory=memory, tokens=config.speed_tokens)
        if found is not None:  # the document is long enough
            speeds.append(asdict(found) | {"times": found.times})
    return {
        "model": name,
        "window": window,
        "trained_memory": model.encoder.config.memory_length,
        "readings": readings,
        "speeds": speeds,
    }


def check_vocabulary(tokenizer: Tokenizer, name: str, data: TokenData) -> None:
    """Raises a DataError where data were prepared with another vocabulary than a model's."""
    if tokenizers.load(data.tokenizer_path).get_vocab() != tokenizer.get_vocab():
        raise DataError(
            f"{data.folder} was prepared with another vocabulary than that of {name}; prepare the text with "
            "--tokenizer and that model's folder"
        )

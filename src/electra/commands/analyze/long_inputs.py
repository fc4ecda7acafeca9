"""`electra analyze long-inputs`: quality by position in a row, and the use of words that are far away."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from electra.commands.analyze.options import Models, missing_models
from electra.config import NonNegativeInt, OpenFraction, PositiveInt, Range

if TYPE_CHECKING:
    from electra.analysis.long_inputs import Reader
    from electra.reports.analysis import AnalysisReport
    from electra.serving.backends import LoadedModel

logger = logging.getLogger(__name__)

DEFAULT_LENGTH = 2048
SHORTEST = 64
"""Minimum number of tokens of a row."""
SHORTEST_WINDOW = 3
"""Two special tokens and a token of the text."""


@dataclass(frozen=True)
class AnalyzeLongInputsConfig:
    """The command line of `electra analyze long-inputs`."""

    models: Models
    """Discriminators or masked language models: runs, export folders, Hugging Face folders or ids."""
    data: Path
    """A folder of prepared data (electra prepare), whose longest held-out documents are read."""
    length: NonNegativeInt = 0
    """Tokens of a row, special tokens included. 0: as many as all models read, at most 2,048."""
    window: NonNegativeInt = 0
    """Tokens of the windows that the whole row is compared with, at most those of the row. 0: the longest input in
    training, at most a quarter of the row."""
    documents: PositiveInt = 32
    """Maximum number of documents, one row of each."""
    needles: PositiveInt = 4
    """Number of rare words for each document."""
    share: OpenFraction = 0.15
    """Share of tokens that are replaced or masked."""
    generator: str | None = None
    """Masked language model that replaces tokens for discriminators. Default: the generator of the run."""
    resamples: Annotated[int, Range(ge=10)] = 1000
    """Number of bootstrap resamples of documents."""
    seed: NonNegativeInt = 0
    """Seed of masks, samples and rare words."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    out: Path | None = None
    """Folder for long-inputs.json, .png and .svg; existing ones are replaced. Default: no files."""

    def problems(self) -> Iterator[str]:
        yield from missing_models(self.models)
        if 0 < self.length < SHORTEST:
            yield f"--length: must be at least {SHORTEST}, got {self.length}"
        if 0 < self.window < SHORTEST_WINDOW:
            yield f"--window: must be at least {SHORTEST_WINDOW}, got {self.window}"


def run(config: AnalyzeLongInputsConfig) -> AnalysisReport:
    """Measure whether late positions are read as well as early ones, and whether far words are used.

    By position: the area under the ROC curve of a discriminator, or the loss of a masked language model, with the
    whole row at once and in windows. By distance: how much likelier a rare word becomes if the row has it already.

    Examples:
        electra analyze long-inputs RUN --data DATA --length 2048 --out long-inputs
        electra analyze long-inputs RUN1/export/generator RUN2/export/generator --data DATA
    """
    from electra.analysis.long_inputs import rare_words, sample_needles
    from electra.data.shards import TokenData
    from electra.errors import ConfigError, DataError
    from electra.export.display_name import display_names
    from electra.reports.analysis import make_output_folder, save_report
    from electra.serving.backends import load_model

    make_output_folder(config.out)
    data = TokenData.open(config.data, verify=False)
    models = [load_model(model) for model in config.models]
    length = config.length or min(DEFAULT_LENGTH, *(model.max_length for model in models))
    for model, source in zip(models, config.models, strict=True):
        if length > model.max_length:
            raise ConfigError(
                f"--length: {length:,} is more than the {model.max_length:,} tokens that {source} reads at once"
            )
    if config.window > length:
        raise ConfigError(f"--window: {config.window:,} is more than the {length:,} tokens of a row (--length)")
    trained = [model.trained_length or model.max_length for model in models]  # before the limit for this analysis
    models = [load_model(model, max_length=length) for model in models]
    names = display_names(config.models)
    readers = [
        _build_reader(config, model, source, data=data, length=length)
        for model, source in zip(models, config.models, strict=True)
    ]
    ids = _long_rows(data, length=length - 2, documents=config.documents)
    rare = rare_words(data.unigram_counts, data.special.ids)
    needles = sample_needles(ids, rare, count=config.needles, seed=config.seed)
    if not needles:
        raise DataError(f"{data.folder}: every rare token is in every document; prepare more text")
    results = {
        "data": data.fingerprint, "documents": len(ids), "tokens": sum(map(len, ids)), "length": length,
        "needles": len(needles), "share": config.share, "resamples": config.resamples, "seed": config.seed,
        "models": [
            {"model": name, "trained_length": longest, "window": window}
            | _measure(config, name, reader, ids, needles)
            for name, longest, (reader, window) in zip(names, trained, readers, strict=True)
        ],
    }  # fmt: skip
    return save_report("long-inputs", results, config.out)


def _build_reader(
    config: AnalyzeLongInputsConfig, model: LoadedModel, source: str, *, data: Any, length: int
) -> tuple[Reader, int]:
    """The reader of a model, and the length of its windows."""
    from electra.analysis.load_models import check_vocabulary, load_generator
    from electra.analysis.long_inputs import DiscriminatorReader, MaskedReader
    from electra.errors import CheckpointError
    from electra.serving.backends import describe_head, head_kind, load_model
    from electra.serving.scorer import Scorer

    window = config.window or max(SHORTEST_WINDOW, min(model.trained_length or length, length // 4))
    check_vocabulary(model.tokenizer, source, data)
    if head_kind(model) == "generator":
        return MaskedReader(model, load_model(model, max_length=window), device=config.device), window
    if head_kind(model) != "discriminator":
        raise CheckpointError(
            f"{source} is {describe_head(model)}; this needs a discriminator or a masked language model"
        )
    generator = load_generator(source, config.generator, Scorer(model, device=config.device))
    return DiscriminatorReader(model, generator, window=window, device=config.device), window


def _long_rows(data: Any, *, length: int, documents: int) -> list[list[int]]:
    """The beginnings of the longest held-out documents that fill a row."""
    from electra.analysis.held_out_text import longest_documents
    from electra.errors import DataError

    longest = longest_documents(data.heldout, separate=data.special.separate, documents=documents, length=length)
    rows = [document[1:].tolist() for document in longest]
    full = [row for row in rows if len(row) == length]
    if not full:
        raise DataError(
            f"{data.folder}: no held-out document has {length:,} tokens (the longest: {len(rows[0]):,}); give a "
            "smaller --length, or prepare longer documents or a larger --heldout"
        )
    return full


def _measure(
    config: AnalyzeLongInputsConfig, name: str, reader: Reader, ids: list[list[int]], needles: list[Any]
) -> dict[str, Any]:
    """The results of one model for long-inputs.json."""
    from electra.analysis.long_inputs import measure_needle, usable_distances

    distances = usable_distances(min(map(len, ids)))
    logger.info("Reading with %s", name, extra={"progress": (0, len(distances) + 1)})
    positions, gains = reader.by_position(ids, share=config.share, seed=config.seed), []
    for number, distance in enumerate(distances):
        logger.info("Reading with %s", name, extra={"progress": (number + 1, len(distances) + 1)})
        gains.append(measure_needle(reader, ids, needles, distance, resamples=config.resamples, seed=config.seed))
    return {"metric": reader.metric, "positions": positions, "needles": gains}

"""`electra score`: how replaced each token of a text looks."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from tyro.conf import Positional

from electra.commands.text_results import STANDARD_INPUT, Lines, Written, no_text, write_lines
from electra.errors import CheckpointError, ConfigError
from electra.readers.base import Item, Reject, make_document
from electra.readers.read import read_texts
from electra.readers.text import texts_of_lines

if TYPE_CHECKING:
    from electra.serving.calibration import Calibration
    from electra.serving.scorer import ScoredText, Scorer

logger = logging.getLogger(__name__)

AT_ONCE = 2**18
"""Characters of the texts that are held and sorted by length at a time, so that a file may have any size: some
thousand sentences, among which each finds others of its length."""


@dataclass(frozen=True)
class ScoreConfig:
    """The command line of `electra score`."""

    model: Positional[str]
    """A run, an export folder, an ONNX folder, a Hugging Face folder or id; of a discriminator."""
    texts: Positional[tuple[str, ...]] = ()
    """Texts to score, each as one argument."""
    input: str | None = None
    """A .txt (one text a line), .jsonl, .csv, .tsv or .parquet, each also .gz or .zst; - for standard input."""
    text_column: str | None = None
    """The column or key of the text in INPUT; found by itself where it is left out."""
    json: bool = False
    """One JSON object a text: text, tokens, offsets (characters), probabilities; calibration, where they were
    corrected."""
    output: Path | None = None
    """Write to this file instead of showing the result."""
    long: Literal["memory", "windows"] | None = None
    """How texts longer than the model's input are read: with memory, each token once and with what the model
    remembers of those before, or in windows that overlap by half. Left out: with memory, where there is one."""
    calibrated: bool = False
    """Give the probabilities as electra analyze calibrate MODEL --store corrected them."""
    prior: float | None = None
    """With --calibrated: the share of tokens that you expect to be wrong in these texts; left out: as many as
    where the correction was fitted: replaced tokens, about one in seven, or with --store-errors wrong words."""
    electric: bool = False
    """For a model of objective.kind electric: give each text's pseudo-log-likelihood, the same divided by its
    tokens, and the text, with tabs between; in JSON also the log-probability of each token."""


@dataclass(frozen=True)
class Shown:
    """Scored texts, drawn in colour."""

    texts: list[ScoredText]

    def __rich__(self) -> RenderableType:
        return Group(*self.texts)


def run(config: ScoreConfig) -> Shown | Lines | Written:
    """Say of each token of a text how likely it is to have been replaced.

    A likely token is coloured, and from a probability of .5 on it stands in brackets: [word .93].

    Examples:
        electra score RUN "The chef ate the meal in the kitchen." "A second text."
        electra score RUN --input texts.jsonl --json --output scores.jsonl
        electra score RUN --calibrated --prior .03 "The chef ate the meal in the kitchen."
        electra score RUN --electric --input hypotheses.txt
    """
    from electra.serving.scorer import Scorer

    texts = _texts(config)
    scorer = Scorer(config.model, long=config.long, calibration=_calibration(config))
    if config.electric != (scorer.objective == "electric"):
        hint = "leave --electric out" if config.electric else "give --electric"
        raise CheckpointError(f"{config.model} was trained by objective.kind {scorer.objective}; {hint}")
    results = _scored(scorer, texts)
    in_json, plain = (likelihood_json, likelihood_line) if config.electric else (partial(json_line, scorer), str)
    if config.output is not None:
        lines = map(in_json if config.json else plain, results)
        return Written(write_lines(config.output, lines), "scored text", config.output)
    if config.json or config.electric:
        return Lines(list(map(in_json if config.json else plain, results)))
    return Shown(list(results))


def _calibration(config: ScoreConfig) -> Calibration | None:
    """The correction that is asked for.

    Raises:
        ConfigError: the options do not go together.
        CheckpointError: the model has none.
    """
    from electra.serving.calibration import Calibration

    if config.prior is not None and not 0 < config.prior < 1:
        raise ConfigError(f"--prior: must lie between 0 and 1, got {config.prior}")
    if not config.calibrated:
        if config.prior is not None:
            raise ConfigError("--prior: says what to expect of corrected probabilities; give --calibrated with it")
        return None
    if config.electric:
        raise ConfigError("--calibrated: probabilities are corrected, and --electric gives none; leave one out")
    return Calibration.load(config.model).with_target_prior(config.prior)


def json_line(scorer: Scorer, scored: ScoredText) -> str:
    """A scored text as one JSON object; where its probabilities were corrected, it says so."""
    figures: dict[str, object] = {"probabilities": _rounded(scored.probabilities)}
    if (by := scorer.calibration) is not None:
        figures["calibration"] = {
            "kind": by.kind,
            "prior": by.prior if by.target_prior is None else by.target_prior,
        }
    return _json(scored, **figures)


def likelihood_json(scored: ScoredText) -> str:
    """A text with its pseudo-log-likelihood as one JSON object."""
    total = round(scored.pseudo_log_likelihood, 6)
    return _json(scored, log_probabilities=_rounded(scored.log_probabilities), pseudo_log_likelihood=total)


def likelihood_line(scored: ScoredText) -> str:
    """Pseudo-log-likelihood, the same a token, and the text, with tabs between: sorts and cuts well."""
    total = scored.pseudo_log_likelihood
    return f"{total:.3f}\t{total / max(len(scored.tokens), 1):.3f}\t{scored.text}"


def _json(scored: ScoredText, **figures: object) -> str:
    facts = {"text": scored.text, "tokens": scored.tokens, "offsets": scored.offsets, **figures}
    return json.dumps(facts, ensure_ascii=False)


def _rounded(numbers: NDArray[np.float32]) -> list[float]:
    rounded: list[float] = numbers.astype(np.float64).round(6).tolist()
    return rounded


def _scored(scorer: Scorer, texts: Iterator[str]) -> Iterator[ScoredText]:
    done = long = 0
    for group in _groups(texts):
        if done:  # else nobody waits yet
            logger.info("scored %s texts", f"{done:,}", extra={"progress": (done, None)})
        results = scorer(group)
        yield from results
        done += len(group)
        long += scorer.batcher.count_windowed(len(scored.tokens) for scored in results)
    if long:
        logger.info(
            "%s of %s texts are longer than the model's input and were read in windows", f"{long:,}", f"{done:,}"
        )


def _groups(texts: Iterator[str]) -> Iterator[list[str]]:
    """The texts in lists of about `AT_ONCE` characters."""
    group: list[str] = []
    characters = 0
    for text in texts:
        group.append(text)
        characters += len(text)
        if characters >= AT_ONCE:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _texts(config: ScoreConfig) -> Iterator[str]:
    """Every text that the command names, one after the other; what is no text is named and passed over.

    Raises:
        ConfigError: there is none to be read.
        DataError: the input file is missing or of an unknown kind; or, at the end, there was no text in it.
    """
    if not config.texts and config.input is None:
        raise ConfigError("give a text to score, or --input FILE (- for standard input)")
    items = [make_document(text, "the command line", i) for i, text in enumerate(config.texts, start=1)]
    more = iter(()) if config.input is None else _read(config.input, config.text_column)
    return _accepted((item for part in (items, more) for item in part), config.input)


def _accepted(items: Iterable[Item], name: str | None) -> Iterator[str]:
    some = False
    for item in items:
        if isinstance(item, Reject):
            logger.warning("%s:%s is passed over: %s", item.source, item.line, item.reason)
        else:
            some = True
            yield item.text
    if not some:
        raise no_text(name)


def _read(name: str, text_column: str | None) -> Iterator[Item]:
    if name == STANDARD_INPUT:
        return texts_of_lines("standard input", enumerate(sys.stdin.buffer, start=1))
    return read_texts(Path(name), text_column=text_column)

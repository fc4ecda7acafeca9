"""`electra score`: how likely each token of a text is to have been replaced, or how surprising each word is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Group, RenderableType
from tyro.conf import Positional

from electra.config import OpenFraction, PositiveInt
from electra.errors import CheckpointError
from electra.serving.text_files import (
    Lines,
    WrittenFile,
    check_place,
    check_suffix,
    read_texts,
    table_row,
    warn_of_paths,
    write_lines,
)

if TYPE_CHECKING:
    from rich.text import Text

    from electra.serving.calibration import Calibration
    from electra.serving.scorer import ScoredText
    from electra.serving.surprisal import SurprisalText

JSON_LINES = ".jsonl"
SUFFIXES = (JSON_LINES, ".csv", ".tsv", ".txt")
"""Endings of the file of --output: JSON, a table, or what is printed."""


@dataclass(frozen=True)
class ScoreConfig:
    """The command line of `electra score`."""

    model: Positional[str]
    """A discriminator: a run, an export folder, an ONNX folder, a Hugging Face folder or id, or the name of an
    included model (wiki-tiny). With --surprisal also a masked language model, and no ONNX folder."""
    texts: Positional[tuple[str, ...]] = ()
    """Texts to score, one per argument."""
    input: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """File with texts: .txt (one text per line), .jsonl, .csv, .tsv or .parquet, each also compressed as .gz or
    .zst; - for standard input."""
    text_column: str | None = None
    """Column or key of the text in the input file. Default: detected."""
    pieces: bool = False
    """Show each token of a word. Default: a word of several tokens is shown with the highest of their
    probabilities."""
    json: bool = False
    """Print one JSON object per text: text, tokens, offsets (in characters), probabilities, and whether a token
    continues a word and whether it is unknown (not in the vocabulary); with --calibrated also the calibration."""
    output: Path | None = None
    """File for the results: .jsonl as with --json; .csv or .tsv for a table, with a row for each word (--pieces:
    each token) and the number of its text, or with --electric a row for each text; .txt as they are printed.
    Default: they are printed."""
    long: Literal["memory", "windows"] | None = None
    """How to read texts that are longer than the model's input: in consecutive windows with memory of the windows
    before, or in windows that overlap by half. Default: with memory if the model has one."""
    max_length: PositiveInt | None = None
    """Maximum number of tokens that are read at once; a longer text is read in parts. Default: as many as the
    model can read."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    calibrated: bool = False
    """Correct the probabilities with the calibration that electra analyze calibrate MODEL --store saved."""
    prior: OpenFraction | None = None
    """Share of wrong tokens that you expect in these texts; needs --calibrated. Default: the share in the text
    on which the calibration was fitted: replaced tokens, about one in seven, or with --store-errors wrong
    words."""
    electric: bool = False
    """For a model with objective.kind electric: print the pseudo-log-likelihood of each text, its mean per token,
    and the text, separated by tabs; with --json also the log-probability of each token."""

    surprisal: bool = False
    """Score words by a masked language model (MODEL, or the one beside the discriminator), which reads the text
    with the word masked: its surprisal, -log p(word | other words), in nats. One pass is computed for each token
    of a text, in place of one for all. With --json: text, words, offsets, surprisals, and whether a word has a
    token that is not in the vocabulary."""

    def problems(self) -> Iterator[str]:
        if not self.texts and self.input is None:
            yield "give a text to score, or --input FILE (- for standard input)"
        if self.prior is not None and not self.calibrated:
            yield "--prior: applies to calibrated probabilities; give --calibrated, too"
        if self.calibrated and self.electric:
            yield "--calibrated: corrects probabilities, and --electric gives none; leave one of them out"
        others = [name for name in ("calibrated", "electric", "long", "pieces") if getattr(self, name)]
        if self.surprisal and others:
            yield f"--surprisal: is not possible with --{others[0]}; leave one of them out"
        if self.pieces and (self.in_json or self.electric):
            yield "--pieces: is about what is shown; JSON and --electric always have each token"

    @property
    def output_suffix(self) -> str | None:
        """The ending of the file of --output, which decides the form of the results."""
        return None if self.output is None else self.output.suffix.lower()

    @property
    def in_json(self) -> bool:
        """Whether the results are JSON."""
        return self.json or self.output_suffix == JSON_LINES


@dataclass(frozen=True)
class ScoredTexts:
    """Scored texts, and how they are printed."""

    texts: list[ScoredText] | list[SurprisalText]
    printed: list[Text]

    def __rich__(self) -> RenderableType:
        return Group(*self.printed)


def run(config: ScoreConfig) -> ScoredTexts | Lines | WrittenFile:
    """Show the probability that a word was replaced, for each word of a text.

    The higher the probability, the stronger the color. From .5, a word is also in brackets: [word .93]. With
    --surprisal these are nats, and the brackets begin at 10; in a short text every word is surprising. A word with
    a token that is not in the vocabulary has no color and no brackets, because its figure means nothing.

    Examples:
        electra score RUN "The chef ate the meal in the kitchen." "A second text."
        electra score RUN --input texts.jsonl --json --output scores.jsonl
        electra score RUN --calibrated --prior .03 "The chef ate the meal in the kitchen."
        electra score RUN --electric --input hypotheses.txt
        electra score RUN --surprisal "The film was directed by a British banana."
    """
    warn_of_paths(config.texts)
    check_place(config.output)
    if config.output is not None:
        check_suffix(config.output, (JSON_LINES,) if config.json else SUFFIXES)
    from electra.objectives.config import scores_of
    from electra.serving.calibration import Calibration
    from electra.serving.scorer import Scorer

    texts = read_texts(config.texts, config.input, text_column=config.text_column)
    if config.surprisal:
        return _score_surprisal(config, texts)
    calibration = Calibration.load(config.model).with_target_prior(config.prior) if config.calibrated else None
    scorer = Scorer(
        config.model,
        long=config.long,
        calibration=calibration,
        max_length=config.max_length,
        device=config.device,
    )
    if config.electric != (scores_of(scorer.objective) == "energy"):
        hint = "leave --electric out" if config.electric else "give --electric"
        raise CheckpointError(f"{config.model} was trained with objective.kind {scorer.objective}; {hint}")
    if config.electric:
        form = _Form(
            ("pseudo_log_likelihood", "per_token", "text"),
            rows=lambda _, scored: [_likelihoods(scored)],
            json=_likelihood_json,
            render=lambda scored: "\t".join(_likelihoods(scored)),
        )
    else:
        form = _Form(
            ("text_number", "start", "end", "token" if config.pieces else "word", "probability"),
            rows=lambda number, scored: _word_rows(number, scored.text, scored.spans(pieces=config.pieces)),
            json=lambda scored: _probability_json(scored, calibration),
            render=lambda scored: scored.render(pieces=config.pieces),
        )
    return _results(config, scorer.stream(texts), form)


def _score_surprisal(config: ScoreConfig, texts: Iterator[str]) -> ScoredTexts | Lines | WrittenFile:
    from electra.serving.surprisal import SurprisalScorer

    form = _Form(
        ("text_number", "start", "end", "word", "surprisal"),
        rows=lambda number, scored: _word_rows(number, scored.text, scored.spans()),
        json=lambda scored: json.dumps({"text": scored.text, **scored.fields()}, ensure_ascii=False),
        render=lambda scored: scored.render(),
    )
    scorer = SurprisalScorer(config.model, max_length=config.max_length, device=config.device)
    return _results(config, scorer.stream(texts), form)


@dataclass(frozen=True)
class _Form:
    """How a scored text is written.

    Attributes:
        header: the columns of a table.
        rows: the rows of the text in a table, given its number from 1.
        json: its line of JSON.
        render: what is printed without --json.
    """

    header: tuple[str, ...]
    rows: Callable[[int, Any], Iterable[tuple[Any, ...]]]
    json: Callable[[Any], str]
    render: Callable[[Any], Any]


def _results(
    config: ScoreConfig, results: Iterator[ScoredText] | Iterator[SurprisalText], form: _Form
) -> ScoredTexts | Lines | WrittenFile:
    """Print or write scored texts."""
    if config.output is None and not config.in_json and not config.electric:
        scored_texts: list[Any] = list(results)
        return ScoredTexts(scored_texts, [form.render(scored) for scored in scored_texts])
    lines = (form.json(scored) if config.in_json else str(form.render(scored)) for scored in results)
    if config.output is None:
        return Lines(list(lines))
    if (suffix := config.output_suffix) in (".csv", ".tsv"):
        rows = chain.from_iterable(form.rows(number, scored) for number, scored in enumerate(results, start=1))
        lines = (table_row(row, suffix) for row in chain([form.header], rows))
        return WrittenFile(write_lines(config.output, lines) - 1, "row", config.output)
    return WrittenFile(write_lines(config.output, lines), "scored text", config.output)


def _word_rows(number: int, text: str, spans: Iterable[tuple[int, int, float]]) -> Iterator[tuple[Any, ...]]:
    """The rows of a table, with no score for a word that has an unknown token."""
    for start, end, score in spans:
        yield number, start, end, text[start:end], "" if math.isnan(score) else f"{score:.6f}"


def _probability_json(scored: ScoredText, calibration: Calibration | None) -> str:
    fields = {"text": scored.text, **scored.probability_fields()}
    if calibration is not None:
        prior = calibration.prior if calibration.target_prior is None else calibration.target_prior
        fields["calibration"] = {"kind": calibration.kind, "prior": prior}
    return json.dumps(fields, ensure_ascii=False)


def _likelihood_json(scored: ScoredText) -> str:
    return json.dumps({"text": scored.text, **scored.likelihood_fields()}, ensure_ascii=False)


def _likelihoods(scored: ScoredText) -> tuple[str, str, str]:
    """The pseudo-log-likelihood of a text, its mean per token, and the text."""
    total = scored.pseudo_log_likelihood
    return f"{total:.3f}", f"{total / max(len(scored.tokens), 1):.3f}", scored.text

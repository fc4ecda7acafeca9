"""`electra analyze compare`: two encoders side by side, layer by layer, on the same words."""

from __future__ import annotations

import logging
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro
from tokenizers import pre_tokenizers

from electra.analysis import annotated_text
from electra.analysis.annotated_text import Annotated
from electra.analysis.probing import SHORTEST, Probe
from electra.errors import ConfigError, DataError
from electra.reports.analysis import AnalysisReport, names_of, prepare_out, reported

if TYPE_CHECKING:
    from electra.analysis.compare_encoders import Pair
    from electra.analysis.layers import LayerReader
    from electra.export.huggingface import Pretrained

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnalyzeCompareConfig:
    """The command line of `electra analyze compare`."""

    models: typing.Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="MODEL MODEL", help_behavior_hint="(required)"),
    ]
    """Two encoders: runs, export folders, Hugging Face folders or ids; their vocabularies may differ."""
    text: Path
    """CoNLL-U (its name ends in .conllu) with tags and heads; or plain text, a sentence a line, of which nothing
    can be probed."""
    chunks: Path | None = None
    """One probe more: columns with chunk tags or any others, a word a line, its tag the last (CoNLL-2000)."""
    words: int = 5_000
    """So many words of each text at most, in whole sentences drawn by lot; memory and time grow with them."""
    neighbours: int = 10
    """The nearest words and sentences that are compared."""
    queries: tuple[str, ...] = ()
    """Words of the text whose neighbours are shown; none: some are drawn."""
    sentences: tuple[str, ...] = ()
    """Sentences of your own whose neighbours in the text are shown; none: some of the text are drawn."""
    resamples: int = 1_000
    """How often the sentences are drawn anew for the intervals."""
    seed: int = 0
    """Of all that is drawn: sentences, what is held out, control tasks, resamples."""
    out: Path | None = None
    """A folder for compare.json, compare.png and compare.svg; those that are there are replaced."""

    def problems(self) -> Iterator[str]:
        if len(self.models) != 2:
            yield f"MODEL: name two encoders (the same one twice is allowed), got {len(self.models)}"
        for name, least in (("words", 100), ("neighbours", 1), ("resamples", 1), ("seed", 0)):
            if getattr(self, name) < least:
                yield f"--{name}: must be at least {least}, got {getattr(self, name)}"
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            yield f"--out: {self.out} is a file; name a folder"
        for sentence in self.sentences:
            if not sentence.strip():
                yield "--sentences: one of them is empty"


def run(config: AnalyzeCompareConfig) -> AnalysisReport:
    """Set two encoders side by side: how alike their layers are, what can be read off them, where attention looks.

    For every layer: CKA with all layers of the other, linear probes with control tasks (parts of speech, depth in
    the tree, chunks), how evenly the states fill their space; for every head the entropy of attention and what it
    looks at; and the nearest words and sentences of both.

    Examples:
        electra analyze compare RUN/export/discriminator RUN/export/generator --text dev.conllu --out compare
        electra analyze compare ELECTRA BERT --text dev.conllu --chunks train.txt --queries bank spring
    """
    from electra.analysis import compare_encoders, shown_neighbours
    from electra.analysis.compare_encoders import Pair
    from electra.analysis.layers import LayerReader
    from electra.export.loading import load_pretrained

    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    prepare_out(config.out)
    text = _drawn(config, annotated_text.read(config.text))
    chunks = _drawn(config, annotated_text.read_tagged(config.chunks)) if config.chunks else []
    _check_queries(config, [word for one in text for word in one.words], f"drawn of {config.text}")
    pretrained = [load_pretrained(name) for name in config.models]
    readers = [LayerReader(one) for one in pretrained]
    wanted = [_split(sentence, readers) for sentence in config.sentences]
    pair = Pair.read(readers, text)
    _check_neighbours(config, pair)
    _check_queries(config, pair.words, "that both networks have tokens for")
    names = names_of(config.models)
    parts = zip(names, pretrained, readers, pair.states, strict=True)
    chunked = Pair.read(readers, chunks) if chunks else None
    pairs = [pair, chunked] if chunked else [pair]
    facts = {
        "text": config.text.name, "sentences": len(text), "words": len(pair.words),
        "forms": int(pair.types_N.max()) + 1, "without_tokens": int((~pair.kept_N).sum()), "seed": config.seed,
        "in_windows": {name: sum(one.in_windows[side] for one in pairs) for side, name in enumerate(names)},
        "models": [_model(*each, text) for each in parts],
    }  # fmt: skip
    logger.info("Comparing all layers with all")
    facts["alignment"] = compare_encoders.alignment(pair)
    facts |= _probes(config, pair, chunked)
    logger.info("Comparing neighbours")
    numbers: dict[str, Any] = {"k": config.neighbours, "seed": config.seed}
    facts["neighbours"] = compare_encoders.overlaps(pair, resamples=config.resamples, **numbers) | {
        "of_words": shown_neighbours.words(pair, config.queries, **numbers),
        "of_sentences": shown_neighbours.sentences(pair, readers, wanted, **numbers),
    }
    return reported("compare", facts, config.out)


def _drawn(config: AnalyzeCompareConfig, sentences: Sequence[Annotated]) -> list[Annotated]:
    return annotated_text.drawn(sentences, words=config.words, seed=config.seed)


def _split(sentence: str, readers: Sequence[LayerReader]) -> list[str]:
    """The words of a sentence of the user's own."""
    if not all(reader.tokenizer.encode(sentence, add_special_tokens=False).ids for reader in readers):
        raise ConfigError(f"--sentences: one of the tokenizers has no token for {sentence!r}; give another")
    return [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(sentence)]


def _check_queries(config: AnalyzeCompareConfig, words: Sequence[str], which: str) -> None:
    forms = {word.lower() for word in words}
    if missing := [word for word in config.queries if word.lower() not in forms]:
        raise ConfigError(
            f"--queries: {', '.join(map(repr, missing))} is not among the {len(words):,} words {which}; "
            "give words that are, or more --words"
        )


def _check_neighbours(config: AnalyzeCompareConfig, pair: Pair) -> None:
    """There have to be more sentences, and more other words, than are asked for."""
    if not len(pair.words):
        raise DataError(f"{config.text}: neither tokenizer knows a word of it; is it in the models' language?")
    sentences = len({*pair.sentences_N.tolist()})
    others = len(pair.words) - int(np.bincount(pair.types_N).max())
    if config.neighbours >= min(sentences, others):
        raise ConfigError(
            f"--neighbours: {config.neighbours} of {sentences} sentences with {len(pair.words):,} words; "
            "give fewer, or a longer text"
        )


def _model(
    name: str, pretrained: Pretrained, reader: LayerReader, states: Any, text: Sequence[Annotated]
) -> dict[str, Any]:
    """What compare.json says of one model by itself."""
    from electra.analysis import compare_encoders

    logger.info("Measuring %s", name)
    shape = pretrained.encoder.config
    attention = reader.attention([one.words for one in text])
    return {
        "model": name, "blocks": shape.layers, "hidden_size": shape.hidden_size, "heads": shape.heads,
        "vocabulary": shape.vocabulary_size, "looks": shape.direction,
        "isotropy": compare_encoders.isotropy(states),
        "attention": {figure: values.tolist() for figure, values in attention.items()},
    }  # fmt: skip


def _probes(config: AnalyzeCompareConfig, pair: Pair, chunks: Pair | None) -> dict[str, Any]:
    """Those that the texts have answers for, and why the others are left out."""
    from electra.analysis import compare_encoders

    asked: list[tuple[Probe, Pair]] = []
    left_out = []

    def ask(probe: Probe | None, words: Pair, otherwise: str) -> None:
        if probe is None:
            left_out.append(otherwise)
        else:
            asked.append((probe, words))

    name, seed = config.text.name, config.seed
    tagged = f"parts of speech: {name} has too few sentences with tags (field 4 of CoNLL-U), or all alike"
    ask(pair.labels("part of speech", seed), pair, tagged)
    headed = f"{name} has too few sentences of {SHORTEST} words or more with heads (field 7 of CoNLL-U)"
    ask(pair.depths(seed), pair, f"depth in the tree: {headed}")
    if chunks is not None:
        assert config.chunks is not None
        alike = f"chunks: {config.chunks.name} has no two different tags in its last column"
        ask(chunks.labels("chunk", seed), chunks, alike)
    layers = sum(map(len, pair.states))
    found = []
    for number, (probe, words) in enumerate(asked):
        done = number * layers

        def step() -> None:
            nonlocal done
            done += 1
            logger.info("Probing", extra={"progress": (done, layers * len(asked))})

        found.append(compare_encoders.probe(probe, words, resamples=config.resamples, seed=config.seed, step=step))
    return {"probes": found, "left_out": left_out}

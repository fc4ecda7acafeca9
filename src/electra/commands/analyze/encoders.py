"""`electra analyze compare`: compare two encoders layer by layer on the same words."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from electra.config import NonNegativeInt, PositiveInt, Range
from electra.errors import ConfigError

if TYPE_CHECKING:
    from electra.analysis.compare_encoders import PairedStates
    from electra.analysis.layers import LayerReader
    from electra.reports.analysis import AnalysisReport

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnalyzeCompareConfig:
    """The command line of `electra analyze compare`."""

    models: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="MODEL MODEL", help_behavior_hint="(required)"),
    ]
    """Two encoders: runs, export folders, Hugging Face folders or ids. Their vocabularies may differ."""
    text: Path
    """CoNLL-U (the file's name ends in .conllu) with tags and heads; or plain text with a sentence per line,
    without probes."""
    chunks: Path | None = None
    """Text for one more probe: columns with a word per line and its chunk tag, or any other tag, in the last
    column (CoNLL-2000). Default: no such probe."""
    words: Annotated[int, Range(ge=100)] = 5_000
    """Maximum number of words of each text, in whole sentences (a random sample); memory and time grow with it."""
    neighbours: PositiveInt = 10
    """Number of nearest words and sentences that are compared."""
    queries: tuple[str, ...] = ()
    """Words of the text whose nearest neighbors are shown. Default: a random sample."""
    sentences: tuple[str, ...] = ()
    """Your own sentences whose nearest neighbors in the text are shown. Default: a random sample of the text."""
    resamples: PositiveInt = 1_000
    """Number of bootstrap resamples of the sentences, for the intervals."""
    seed: NonNegativeInt = 0
    """Random seed of the samples, the held-out sentences, the control tasks and the resamples."""
    out: Path | None = None
    """Folder for compare.json, compare.png and compare.svg; existing ones are replaced. Default: no files."""

    def problems(self) -> Iterator[str]:
        if len(self.models) != 2:
            yield f"MODEL: name two encoders (the same one twice is allowed), got {len(self.models)}"
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            yield f"--out: {self.out} is a file; name a folder"
        if not all(sentence.strip() for sentence in self.sentences):
            yield "--sentences: one of them is empty"


def run(config: AnalyzeCompareConfig) -> AnalysisReport:
    """Compare two encoders: the similarity of their layers, linear probes, attention, and nearest neighbors.

    For every layer: CKA with all layers of the other encoder, linear probes with control tasks (parts of speech,
    depth in the tree, chunks), and isotropy; for every head: the entropy of attention, and what it attends to; and
    the nearest words and sentences in both.

    Examples:
        electra analyze compare RUN/export/discriminator RUN/export/generator --text dev.conllu --out compare
        electra analyze compare ELECTRA BERT --text dev.conllu --chunks train.txt --queries bank spring
    """
    from electra.analysis import annotated_text, compare_encoders, neighbors
    from electra.analysis.layers import LayerReader
    from electra.export.display_name import display_names
    from electra.export.loading import load_pretrained
    from electra.reports.analysis import make_output_folder, save_report

    make_output_folder(config.out)
    sampling: dict[str, Any] = {"words": config.words, "seed": config.seed}
    text = annotated_text.sample_sentences(annotated_text.read_sentences(config.text), **sampling)
    words = [word for sentence in text for word in sentence.words]
    _check_queries(config, words, f"sampled from {config.text}")
    chunked = []
    if config.chunks is not None:
        chunked = annotated_text.sample_sentences(annotated_text.read_tagged_columns(config.chunks), **sampling)
    readers = [LayerReader(load_pretrained(name)) for name in config.models]
    sentences = [_split_sentence(sentence, readers) for sentence in config.sentences]
    pair = compare_encoders.PairedStates.read(readers, text)
    _check_pair(config, pair)
    chunks = compare_encoders.PairedStates.read(readers, chunked) if chunked else None
    names = display_names(config.models)
    pairs = [pair, chunks] if chunks is not None else [pair]
    results = {
        "text": config.text.name, "sentences": len(text), "words": len(pair.words),
        "forms": int(pair.types_N.max()) + 1, "without_tokens": int((~pair.kept_N).sum()), "seed": config.seed,
        "in_windows": {name: sum(part.in_windows[side] for part in pairs) for side, name in enumerate(names)},
        "models": [
            compare_encoders.describe_network(name, reader, states, text)
            for name, reader, states in zip(names, readers, pair.states, strict=True)
        ],
    }  # fmt: skip
    logger.info("Comparing all layers with all")
    results["alignment"] = compare_encoders.compute_alignment(pair)
    results |= compare_encoders.run_probes(
        pair, chunks, text_name=config.text.name, chunks_name=config.chunks.name if config.chunks else "",
        resamples=config.resamples, seed=config.seed,
    )  # fmt: skip
    logger.info("Comparing neighbors")
    options: dict[str, Any] = {"k": config.neighbours, "seed": config.seed}
    results["neighbours"] = neighbors.compare_neighbors(pair, resamples=config.resamples, **options) | {
        "of_words": neighbors.example_words(pair, config.queries, **options),
        "of_sentences": neighbors.example_sentences(pair, readers, sentences, **options),
    }
    return save_report("compare", results, config.out)


def _split_sentence(sentence: str, readers: Sequence[LayerReader]) -> list[str]:
    """The words of a sentence from the command line."""
    from tokenizers import pre_tokenizers

    if not all(reader.tokenizer.encode(sentence, add_special_tokens=False).ids for reader in readers):
        raise ConfigError(f"--sentences: one of the tokenizers has no token for {sentence!r}; give another one")
    return [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(sentence)]


def _check_queries(config: AnalyzeCompareConfig, words: Sequence[str], description: str) -> None:
    forms = {word.lower() for word in words}
    if missing := [word for word in config.queries if word.lower() not in forms]:
        raise ConfigError(
            f"--queries: {', '.join(map(repr, missing))} is not among the {len(words):,} words {description}; "
            "give other words, or more --words"
        )


def _check_pair(config: AnalyzeCompareConfig, pair: PairedStates) -> None:
    """Check that there are queries, and more sentences and more other words than neighbors."""
    import numpy as np

    from electra.errors import DataError

    if not len(pair.words):
        raise DataError(
            f"{config.text}: neither tokenizer has tokens for its words; is it in the models' language?"
        )
    sentences = len({*pair.sentences_N.tolist()})
    others = len(pair.words) - int(np.bincount(pair.types_N).max())
    if config.neighbours >= min(sentences, others):
        raise ConfigError(
            f"--neighbours: {config.neighbours} is too many for {sentences} sentences with {len(pair.words):,} "
            "words; give fewer, or a longer text"
        )
    _check_queries(config, pair.words, "for which both networks have tokens")

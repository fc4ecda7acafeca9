"""Compare two encoders layer by layer on the same words. The results are plain JSON.

Shapes: N words, S sentences, Z layers, D hidden size.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import pre_tokenizers

from electra.analysis.annotated_text import (
    AnnotatedSentence,
    read_sentences,
    read_tagged_columns,
    sample_sentences,
)
from electra.analysis.geometry import Isotropy, jackknife_standard_error, linear_cka
from electra.analysis.layers import LayerReader
from electra.analysis.neighbors import compare_neighbors, example_sentences, example_words
from electra.analysis.paired_states import PairedStates, States
from electra.analysis.probing import (
    MIN_WORDS,
    Probe,
    ProbeResult,
    bootstrap_difference,
    bootstrap_intervals,
    fit_probe,
    majority_accuracy,
)
from electra.errors import ConfigError, DataError
from electra.export.display_name import display_names
from electra.export.loading import load_pretrained

logger = logging.getLogger(__name__)

FOLDS = 10
"""Groups of sentences in the jackknife of CKA."""


@dataclass(frozen=True)
class CompareOptions:
    """Samples and sizes of the comparison of two encoders.

    Attributes:
        words: maximum number of words of each text, in whole sentences.
        neighbors: number of nearest words and sentences that are compared.
        queries: words whose nearest neighbors are listed; empty: a random sample.
        sentences: sentences whose nearest neighbors in the text are listed; empty: a random sample.
        resamples: bootstrap resamples of the sentences, for the intervals.
    """

    words: int
    neighbors: int
    queries: Sequence[str]
    sentences: Sequence[str]
    resamples: int
    seed: int


def compare(
    models: Sequence[str], text: Path, *, chunks: Path | None, options: CompareOptions, device: str = "auto"
) -> dict[str, Any]:
    """Compare two encoders layer by layer on the same words.

    Args:
        models: two runs, export folders, Hugging Face folders or ids.
        text: CoNLL-U, or plain text with a sentence per line.
        chunks: columns with a word per line and its tag, for one more probe; None: no such probe.
        device: the device of both (`resolve_device`).

    Returns:
        The results, as compare.json has them.

    Raises:
        CheckpointError: a model cannot be loaded.
        ConfigError: a query is not in the text, or there are fewer words or sentences than neighbors.
        DataError: a file cannot be read, or its words have no tokens.
    """
    sentences = sample_sentences(read_sentences(text), words=options.words, seed=options.seed)
    words = [word for sentence in sentences for word in sentence.words]
    _check_queries(options.queries, words, f"sampled from {text}")
    chunked = []
    if chunks is not None:
        chunked = sample_sentences(read_tagged_columns(chunks), words=options.words, seed=options.seed)
    readers = [LayerReader(load_pretrained(name), device=device) for name in models]
    query_sentences = [_split_sentence(sentence, readers) for sentence in options.sentences]
    pair = PairedStates.read(readers, sentences)
    _check_pair(pair, text, options)
    pair_of_chunks = PairedStates.read(readers, chunked) if chunked else None
    names = display_names(models)
    pairs = [pair, pair_of_chunks] if pair_of_chunks is not None else [pair]
    results = {
        "text": text.name, "sentences": len(sentences), "words": len(pair.words),
        "forms": int(pair.types_N.max()) + 1, "without_tokens": int((~pair.kept_N).sum()), "seed": options.seed,
        "in_windows": {name: sum(part.in_windows[side] for part in pairs) for side, name in enumerate(names)},
        "models": [
            describe_network(name, reader, states, sentences)
            for name, reader, states in zip(names, readers, pair.states, strict=True)
        ],
    }  # fmt: skip
    logger.info("Comparing all layers with all")
    results["alignment"] = compute_alignment(pair)
    results |= run_probes(
        pair, pair_of_chunks, text_name=text.name, chunks_name=chunks.name if chunks else "",
        resamples=options.resamples, seed=options.seed,
    )  # fmt: skip
    logger.info("Comparing neighbors")
    sizes = {"k": options.neighbors, "seed": options.seed}
    results["neighbours"] = compare_neighbors(pair, resamples=options.resamples, **sizes) | {
        "of_words": example_words(pair, options.queries, **sizes),
        "of_sentences": example_sentences(pair, readers, query_sentences, **sizes),
    }
    return results


def compute_alignment(pair: PairedStates) -> dict[str, Any]:
    """CKA between all layers of both networks (the first one's, then the second's), and of the last layers."""
    first, second = ([*states] for states in pair.states)
    cross_YZ = linear_cka(first, second)
    values = np.block([[linear_cka(first, first), cross_YZ], [cross_YZ.T, linear_cka(second, second)]])
    error = jackknife_standard_error(first[-1], second[-1], pair.sentences_N % FOLDS)
    best = np.unravel_index(cross_YZ.argmax(), cross_YZ.shape)
    return {
        "values": values.tolist(), "last": float(cross_YZ[-1, -1]), "standard_error": error,
        "best": float(cross_YZ.max()), "best_layers": [int(layer) for layer in best],
    }  # fmt: skip


def describe_network(
    name: str, reader: LayerReader, states_ZND: States, sentences: Sequence[AnnotatedSentence]
) -> dict[str, Any]:
    """The results of one network for compare.json: its shape, isotropy and attention."""
    logger.info("Measuring %s", name)
    config = reader.encoder.config
    attention = reader.attention([sentence.words for sentence in sentences])
    return {
        "model": name, "blocks": config.layers, "hidden_size": config.hidden_size, "heads": config.heads,
        "vocabulary": config.vocabulary_size, "looks": config.direction,
        "isotropy": [asdict(Isotropy.measure(states_ND)) for states_ND in states_ZND],
        "attention": {statistic: values.tolist() for statistic, values in attention.items()},
    }  # fmt: skip


def run_probes(
    pair: PairedStates,
    chunks: PairedStates | None,
    *,
    text_name: str,
    chunks_name: str,
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """Run the probes for which the texts have labels, and name the reasons why others are left out.

    Args:
        chunks: words with chunk tags, or any other tags; None: no such probe.
        text_name, chunks_name: the names of the files, for messages.
    """
    probes = [
        (
            pair.tag_probe("part of speech", seed), pair,
            f"parts of speech: {text_name} has too few sentences with tags (field 4 of CoNLL-U), or only one tag",
        ),
        (
            pair.depth_probe(seed), pair,
            f"depth in the tree: {text_name} has too few sentences of {MIN_WORDS} words or more with heads "
            "(field 7 of CoNLL-U)",
        ),
    ]  # fmt: skip
    if chunks is not None:
        missing = f"chunks: {chunks_name} has no two different tags in its last column"
        probes.append((chunks.tag_probe("chunk", seed), chunks, missing))
    possible = [(probe, words) for probe, words, _ in probes if probe is not None]
    total, done = len(possible) * sum(map(len, pair.states)), 0

    def report_progress() -> None:
        nonlocal done
        done += 1
        logger.info("Probing", extra={"progress": (done, total)})

    return {
        "probes": [
            _run_probe(probe, words, resamples=resamples, seed=seed, progress=report_progress)
            for probe, words in possible
        ],
        "left_out": [reason for probe, _, reason in probes if probe is None],
    }


def _run_probe(probe: Probe, pair: PairedStates, *, resamples: int, seed: int, progress: Any) -> dict[str, Any]:
    """Probe every layer of both networks, with intervals and the difference of the networks."""
    first, second = (fit_probe(probe, [*states], seed=seed, progress=progress) for states in pair.states)
    difference, interval = bootstrap_difference(first, second, resamples=resamples, seed=seed)
    return {
        "name": probe.name,
        "measure": "Spearman" if probe.ordered else "accuracy",
        "sentences": int(first.counts_S.astype(bool).sum()),
        "majority": None if probe.ordered else majority_accuracy(probe, seed),
        "models": [_probe_scores(result, resamples=resamples, seed=seed) for result in (first, second)],
        "difference": difference,
        "interval": interval,
    }


def _probe_scores(result: ProbeResult, *, resamples: int, seed: int) -> dict[str, Any]:
    intervals = bootstrap_intervals(result, resamples=resamples, seed=seed)
    return {
        "scores": result.scores_Z.tolist(), "intervals": intervals.scores,
        "controls": result.control_scores_Z.tolist(),
        "selectivities": (result.scores_Z - result.control_scores_Z).tolist(),
        "selectivity_intervals": intervals.selectivities,
    }  # fmt: skip


def _split_sentence(sentence: str, readers: Sequence[LayerReader]) -> list[str]:
    """The words of a sentence from the command line."""
    if not all(reader.tokenizer.encode(sentence, add_special_tokens=False).ids for reader in readers):
        raise ConfigError(f"--sentences: one of the tokenizers has no token for {sentence!r}; give another one")
    return [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(sentence)]


def _check_queries(queries: Sequence[str], words: Sequence[str], description: str) -> None:
    forms = {word.lower() for word in words}
    if missing := [word for word in queries if word.lower() not in forms]:
        raise ConfigError(
            f"--queries: {', '.join(map(repr, missing))} is not among the {len(words):,} words {description}; "
            "give other words, or more --words"
        )


def _check_pair(pair: PairedStates, text: Path, options: CompareOptions) -> None:
    """Check that there are queries, and more sentences and more other words than neighbors."""
    if not len(pair.words):
        raise DataError(f"{text}: neither tokenizer has tokens for its words; is it in the models' language?")
    sentences = len({*pair.sentences_N.tolist()})
    others = len(pair.words) - int(np.bincount(pair.types_N).max())
    if options.neighbors >= min(sentences, others):
        raise ConfigError(
            f"--neighbours: {options.neighbors} is too many for {sentences} sentences with {len(pair.words):,} "
            "words; give fewer, or a longer text"
        )
    _check_queries(options.queries, pair.words, "for which both networks have tokens")

"""Two encoders' states of the same words, and the results that compare them, as plain JSON.

Shapes: N words, S sentences, Z layers, D hidden size.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.annotated_text import AnnotatedSentence
from electra.analysis.geometry import Isotropy, jackknife_standard_error, linear_cka
from electra.analysis.layers import LayerReader
from electra.analysis.probing import (
    MIN_WORDS,
    Probe,
    ProbeResult,
    bootstrap_difference,
    bootstrap_intervals,
    fit_probe,
    majority_accuracy,
)
from electra.tasks.conll import EMPTY_FIELD

logger = logging.getLogger(__name__)

FOLDS = 10
"""Groups of sentences in the jackknife of CKA."""

States = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PairedStates:
    """The words for which both tokenizers have tokens, and the states of both networks.

    Attributes:
        sentences: all sentences, with the words that are left out.
        kept_N: which of their words are kept.
        states: the states of the kept words in either network (Z, N, D).
        in_windows: the number of sentences that each network read in windows.
    """

    sentences: Sequence[AnnotatedSentence]
    kept_N: NDArray[np.bool_]
    states: tuple[States, States]
    in_windows: tuple[int, int]

    @classmethod
    def read(cls, readers: Sequence[LayerReader], sentences: Sequence[AnnotatedSentence]) -> "PairedStates":
        """Read sentences with both networks."""
        words = [sentence.words for sentence in sentences]
        first, second = (reader.states(words) for reader in readers)
        kept_N = first.has_N & second.has_N
        states = first.states_ZND, second.states_ZND
        if not kept_N.all():  # else without a copy
            states = states[0][:, kept_N], states[1][:, kept_N]
        return cls(sentences, kept_N, states, (first.in_windows, second.in_windows))

    @cached_property
    def words(self) -> list[str]:
        every = (word for sentence in self.sentences for word in sentence.words)
        return [word for word, kept in zip(every, self.kept_N, strict=True) if kept]

    @cached_property
    def sentences_N(self) -> Ints:
        """The index of each word's sentence."""
        lengths = [len(sentence.words) for sentence in self.sentences]
        return np.repeat(np.arange(len(self.sentences)), lengths)[self.kept_N]

    @cached_property
    def types_N(self) -> Ints:
        """The index of each word's type (its lowercase form)."""
        types_N: Ints = np.unique([word.lower() for word in self.words], return_inverse=True)[1]
        return types_N

    def tag_probe(self, name: str, seed: int) -> Probe | None:
        """The probe for tags; None if the training half has only one tag, or the held-out half has none."""
        every = [
            tag for sentence in self.sentences for tag in sentence.tags or [EMPTY_FIELD] * len(sentence.words)
        ]
        tags = [tag for tag, kept in zip(every, self.kept_N, strict=True) if kept]
        names = sorted({*tags} - {EMPTY_FIELD})
        if len(names) < 2:
            return None
        numbers = {tag: number for number, tag in enumerate(names)} | {EMPTY_FIELD: -1}
        probe = Probe(name, np.array([numbers[tag] for tag in tags]), self.types_N, self.sentences_N)
        train_N, test_N = probe.train_test_split(seed)
        return probe if len(np.unique(probe.values_N[train_N])) > 1 and test_N.any() else None

    def depth_probe(self, seed: int) -> Probe | None:
        """The probe for the depth in the tree; None without depths, or without a long held-out sentence."""
        every = [depth for sentence in self.sentences for depth in sentence.depths or [-1] * len(sentence.words)]
        depths_N = np.array(every)[self.kept_N]
        probe = Probe("depth in the tree", depths_N, self.types_N, self.sentences_N, ordered=True)
        train_N, test_N = probe.train_test_split(seed)
        longest = np.bincount(self.sentences_N[test_N], minlength=1).max()
        return probe if longest >= MIN_WORDS and train_N.any() else None


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

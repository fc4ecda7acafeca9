"""Two encoders' states of the same words, and the figures that set them beside each other, as plain JSON.

Shapes: N words, S sentences, Z layers, D hidden size, Q queries, k neighbours.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis import nearest
from electra.analysis.annotated_text import NOTHING, Annotated
from electra.analysis.bootstrap import drawn, interval, means
from electra.analysis.isotropy import Isotropy
from electra.analysis.kernel_alignment import alignments, standard_error
from electra.analysis.layers import LayerReader
from electra.analysis.probing import SHORTEST, Outcome, Probe, difference, intervals, majority, probed

FOLDS = 10
"""Groups of sentences of the jackknife of CKA."""
QUERIES = 1_000
"""Words whose neighbours are compared."""

States = NDArray[np.float32]
Ints = NDArray[np.int64]
Step = Callable[[], None]


@dataclass(frozen=True)
class Pair:
    """The words that both networks have tokens for, and the states of both.

    Attributes:
        sentences: all of them, with the words that are left out.
        kept_N: which of their words these are.
        states: of either network (Z, N, D), of the kept words.
        in_windows: how many sentences either network read in windows.
    """

    sentences: Sequence[Annotated]
    kept_N: NDArray[np.bool_]
    states: tuple[States, States]
    in_windows: tuple[int, int]

    @classmethod
    def read(cls, readers: Sequence[LayerReader], sentences: Sequence[Annotated]) -> "Pair":
        """By both networks."""
        words = [one.words for one in sentences]
        first, second = (reader.states(words) for reader in readers)
        kept_N = first.has_N & second.has_N
        states = first.states_ZND, second.states_ZND
        if not kept_N.all():  # else without a copy
            states = states[0][:, kept_N], states[1][:, kept_N]
        return cls(sentences, kept_N, states, (first.in_windows, second.in_windows))

    @cached_property
    def words(self) -> list[str]:
        every = (word for one in self.sentences for word in one.words)
        return [word for word, kept in zip(every, self.kept_N, strict=True) if kept]

    @cached_property
    def sentences_N(self) -> Ints:
        """The number of each word's sentence."""
        return np.repeat(np.arange(len(self.sentences)), [len(one.words) for one in self.sentences])[self.kept_N]

    @cached_property
    def types_N(self) -> Ints:
        """The number of each word's form, in small letters."""
        found: Ints = np.unique([word.lower() for word in self.words], return_inverse=True)[1]
        return found

    def labels(self, name: str, seed: int) -> Probe | None:
        """The probe for the tags; None where there are no two to tell apart, or none in what is held out."""
        every = [tag for one in self.sentences for tag in one.tags or [NOTHING] * len(one.words)]
        tags = [tag for tag, kept in zip(every, self.kept_N, strict=True) if kept]
        names = sorted({*tags} - {NOTHING})
        if len(names) < 2:
            return None
        numbers = {tag: number for number, tag in enumerate(names)} | {NOTHING: -1}
        probe = Probe(name, np.array([numbers[tag] for tag in tags]), self.types_N, self.sentences_N)
        learnt_N, asked_N = probe.halves(seed)
        return probe if len(np.unique(probe.values_N[learnt_N])) > 1 and asked_N.any() else None

    def depths(self, seed: int) -> Probe | None:
        """The probe for the depth in the tree; None where none are known, or in no long sentence held out."""
        every = [depth for one in self.sentences for depth in one.depths or [-1] * len(one.words)]
        depths_N = np.array(every)[self.kept_N]
        probe = Probe("depth in the tree", depths_N, self.types_N, self.sentences_N, ordered=True)
        learnt_N, asked_N = probe.halves(seed)
        longest = np.bincount(self.sentences_N[asked_N], minlength=1).max()
        return probe if longest >= SHORTEST and learnt_N.any() else None


def alignment(pair: Pair) -> dict[str, Any]:
    """CKA of all layers of both networks with all (the first one's, then the second's), and of the last two."""
    first, second = ([*states] for states in pair.states)
    crossed_YZ = alignments(first, second)
    values = np.block([[alignments(first, first), crossed_YZ], [crossed_YZ.T, alignments(second, second)]])
    error = standard_error(first[-1], second[-1], pair.sentences_N % FOLDS)
    best = np.unravel_index(crossed_YZ.argmax(), crossed_YZ.shape)
    return {
        "values": values.tolist(), "last": float(crossed_YZ[-1, -1]), "standard_error": error,
        "best": float(crossed_YZ.max()), "best_layers": [int(layer) for layer in best],
    }  # fmt: skip


def isotropy(states_ZND: States) -> list[dict[str, float]]:
    """`Isotropy` of each layer."""
    return [asdict(Isotropy.of(states_ND)) for states_ND in states_ZND]


def probe(asked: Probe, pair: Pair, *, resamples: int, seed: int, step: Step) -> dict[str, Any]:
    """A probe of every layer of both networks, with intervals, and which one is better."""
    outcomes = [probed(asked, [*states], seed=seed, progress=step) for states in pair.states]
    between, around = difference(*outcomes, resamples=resamples, seed=seed)
    return {
        "name": asked.name,
        "measure": "Spearman" if asked.ordered else "accuracy",
        "sentences": int(outcomes[0].counts_S.astype(bool).sum()),
        "majority": None if asked.ordered else majority(asked, seed),
        "models": [_outcome(one, resamples=resamples, seed=seed) for one in outcomes],
        "difference": between,
        "interval": around,
    }


def _outcome(outcome: Outcome, *, resamples: int, seed: int) -> dict[str, Any]:
    around = intervals(outcome, resamples=resamples, seed=seed)
    return {
        "scores": outcome.scores_Z.tolist(), "intervals": around.scores,
        "controls": outcome.control_scores_Z.tolist(),
        "selectivities": (outcome.scores_Z - outcome.control_scores_Z).tolist(),
        "selectivity_intervals": around.selectivities,
    }  # fmt: skip


def overlaps(pair: Pair, *, k: int, resamples: int, seed: int) -> dict[str, Any]:
    """How many of the k nearest other words both networks have in common, layer beside layer, and of sentences.

    Where one has more layers, each of them is set beside the one at the same relative depth.
    """
    random = np.random.default_rng(seed)
    queries_Q = np.sort(random.permutation(len(pair.words))[:QUERIES])
    same_QN = pair.types_N[queries_Q][:, None] == pair.types_N
    most = max(len(states) for states in pair.states)
    layers = [[round(i * (len(s) - 1) / (most - 1)) for s in pair.states] for i in range(most)]
    found = []
    for first, second in layers:
        sides = [pair.states[0][first], pair.states[1][second]]
        shares_Q = nearest.common(*(nearest.neighbours(s[queries_Q], s, same_QN, k=k) for s in sides))
        found.append({"layers": [first, second], **_mean(shares_Q, pair.sentences_N[queries_Q], resamples, seed)})
    means = [sentence_states(pair.states[side][-1], pair.sentences_N) for side in (0, 1)]
    own_SS = np.eye(len(means[0]), dtype=bool)
    shares_S = nearest.common(*(nearest.neighbours(s, s, own_SS, k=k) for s in means))
    left = len(pair.words) - same_QN.sum(1)
    return {
        "k": k, "queries": len(queries_Q), "words": found, "chance": float((k / left).mean()),
        "sentences": _mean(shares_S, np.arange(len(shares_S)), resamples, seed),
        "chance_of_sentences": k / (len(shares_S) - 1),
    }  # fmt: skip


def sentence_states(states_ND: States, sentences_N: Ints) -> States:
    """The mean state of the words of each sentence that has any."""
    _, places_N = np.unique(sentences_N, return_inverse=True)
    sums = np.zeros((int(places_N.max()) + 1, states_ND.shape[1]), np.float32)
    np.add.at(sums, places_N, states_ND)
    return np.asarray(sums / np.bincount(places_N)[:, None], np.float32)


def _mean(values_Q: NDArray[np.float64], sentences_Q: Ints, resamples: int, seed: int) -> dict[str, Any]:
    """The mean of some values and its interval, over sentences."""
    _, places_Q = np.unique(sentences_Q, return_inverse=True)
    sums_S = np.bincount(places_Q, values_Q).astype(np.float64)
    counts_S = np.bincount(places_Q).astype(np.float64)
    around = means(sums_S, counts_S, drawn(len(counts_S), resamples=resamples, seed=seed))
    return {"overlap": float(values_Q.mean()), "interval": interval(around)}

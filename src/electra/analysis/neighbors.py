"""The nearest words and sentences in two networks, and how far the networks agree on them.

Similarity is the cosine of states. A word's neighbors are other words: the same word elsewhere is excluded, or
every network would agree with every other one.

Shapes: N states (words), S sentences, Q queries, D hidden size, k neighbors.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import percentile_interval, resample_counts, resampled_means
from electra.analysis.layers import LayerReader
from electra.analysis.paired_states import PairedStates

QUERIES = 1_000
"""Words whose neighbors are compared."""
CONTEXT_WORDS = 3
"""Words shown on either side of a word in its context."""
MAX_CHARACTERS = 70
"""Characters of a sentence that are shown."""
EXAMPLES = 5
"""Words and sentences that are sampled if none are given."""

Ints = NDArray[np.int64]
Floats32 = NDArray[np.float32]


def nearest_neighbors(
    queries_QD: Floats32, states_ND: Floats32, excluded_QN: NDArray[np.bool_], *, k: int
) -> Ints:
    """The indices (Q, k) of the nearest states, the nearest first.

    Args:
        excluded_QN: the states that are no neighbors of a query. At least k must remain.
    """
    similarity_QN = _normalize(queries_QD) @ _normalize(states_ND).T
    similarity_QN[excluded_QN] = -np.inf
    nearest_Qk = np.argpartition(-similarity_QN, k - 1, axis=1)[:, :k]
    order_Qk = np.argsort(-np.take_along_axis(similarity_QN, nearest_Qk, 1), axis=1, kind="stable")
    return np.take_along_axis(nearest_Qk, order_Qk, 1)


def overlap(first_Qk: Ints, second_Qk: Ints) -> NDArray[np.float64]:
    """The fraction of neighbors that two networks have in common (Q,)."""
    same_Qkk = first_Qk[:, :, None] == second_Qk[:, None]
    return np.asarray(same_Qkk.any(2).mean(1), np.float64)


def _normalize(x: Floats32) -> Floats32:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12), np.float32)


def compare_neighbors(pair: PairedStates, *, k: int, resamples: int, seed: int) -> dict[str, Any]:
    """Compute the fraction of common neighbors among the k nearest words, for every layer, and of sentences.

    If one network has more layers, each of them is compared with the layer at the same relative depth.
    """
    rng = np.random.default_rng(seed)
    queries_Q = np.sort(rng.permutation(len(pair.words))[:QUERIES])
    same_word_QN = pair.types_N[queries_Q][:, None] == pair.types_N
    most = max(len(states) for states in pair.states)
    layers = [[round(i * (len(states) - 1) / (most - 1)) for states in pair.states] for i in range(most)]
    by_layer = []
    for first, second in layers:
        neighbors = [
            nearest_neighbors(states_ND[queries_Q], states_ND, same_word_QN, k=k)
            for states_ND in (pair.states[0][first], pair.states[1][second])
        ]
        mean = _mean_with_interval(overlap(*neighbors), pair.sentences_N[queries_Q], resamples, seed)
        by_layer.append({"layers": [first, second], **mean})
    sentence_states = [mean_sentence_states(states[-1], pair.sentences_N) for states in pair.states]
    own_SS = np.eye(len(sentence_states[0]), dtype=bool)
    overlap_S = overlap(*(nearest_neighbors(states_SD, states_SD, own_SS, k=k) for states_SD in sentence_states))
    candidates = len(pair.words) - same_word_QN.sum(1)
    return {
        "k": k, "queries": len(queries_Q), "words": by_layer, "chance": float((k / candidates).mean()),
        "sentences": _mean_with_interval(overlap_S, np.arange(len(overlap_S)), resamples, seed),
        "chance_of_sentences": k / (len(overlap_S) - 1),
    }  # fmt: skip


def mean_sentence_states(states_ND: Floats32, sentences_N: Ints) -> Floats32:
    """The mean state of the words of each sentence that has any."""
    _, rows_N = np.unique(sentences_N, return_inverse=True)
    sums = np.zeros((int(rows_N.max()) + 1, states_ND.shape[1]), np.float32)
    np.add.at(sums, rows_N, states_ND)
    return np.asarray(sums / np.bincount(rows_N)[:, None], np.float32)


def _mean_with_interval(
    values_Q: NDArray[np.float64], sentences_Q: Ints, resamples: int, seed: int
) -> dict[str, Any]:
    """The mean of some values, and its interval over sentences."""
    _, rows_Q = np.unique(sentences_Q, return_inverse=True)
    sums_S = np.bincount(rows_Q, values_Q).astype(np.float64)
    counts_S = np.bincount(rows_Q).astype(np.float64)
    means_R = resampled_means(sums_S, counts_S, resample_counts(len(counts_S), resamples=resamples, seed=seed))
    return {"overlap": float(values_Q.mean()), "interval": percentile_interval(means_R)}


def example_words(pair: PairedStates, words: Sequence[str], *, k: int, seed: int) -> list[dict[str, Any]]:
    """The k nearest distinct words in the last layers, for the first occurrence of each given word.

    Args:
        words: of the text; empty: some are sampled, if possible of those that occur more than once.
    """
    forms = [word.lower() for word in pair.words]
    examples = []
    for index in _query_indices(pair, words, seed):
        excluded_1N = (pair.types_N == pair.types_N[index])[None]
        sides = []
        for states in pair.states:
            count = min(20 * k, int((~excluded_1N).sum()))  # so that k distinct words are likely among them
            [nearest] = nearest_neighbors(states[-1][index][None], states[-1], excluded_1N, k=count)
            sides.append(distinct_names(nearest.tolist(), forms, count=k))
        examples.append({"word": pair.words[index], "context": _context(pair, index), **_compare(*sides)})
    return examples


def example_sentences(
    pair: PairedStates, readers: Sequence[LayerReader], sentences: Sequence[Sequence[str]], *, k: int, seed: int
) -> list[dict[str, Any]]:
    """The k nearest sentences by the mean of the last layers' states, for given sentences or a sample of the
    text."""
    numbers = np.unique(pair.sentences_N)
    states = [mean_sentence_states(layers[-1], pair.sentences_N) for layers in pair.states]
    texts = [_shorten(pair.sentences[number].words) for number in numbers]
    if sentences:
        queries = [np.stack([_mean_state(reader, words) for words in sentences]) for reader in readers]
        names = [_shorten(words) for words in sentences]
        own = np.zeros((len(sentences), len(texts)), bool)
    else:
        sampled = np.sort(np.random.default_rng(seed).permutation(len(numbers))[:EXAMPLES])
        queries = [states_SD[sampled] for states_SD in states]
        names = [texts[index] for index in sampled]
        own = sampled[:, None] == np.arange(len(texts))
    nearest = [
        nearest_neighbors(queries_QD, states_SD, own, k=k)
        for queries_QD, states_SD in zip(queries, states, strict=True)
    ]
    return [
        {"sentence": name, **_compare(*([texts[index] for index in side[row]] for side in nearest))}
        for row, name in enumerate(names)
    ]


def distinct_names(indices: Sequence[int], names: Sequence[str], *, count: int) -> list[str]:
    """The first distinct names among those at the indices."""
    return list(dict.fromkeys(names[index] for index in indices))[:count]


def _compare(first: list[str], second: list[str]) -> dict[str, Any]:
    return {"first": first, "second": second, "common": len({*first} & {*second})}


def _shorten(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1].rstrip()}…"


def _mean_state(reader: LayerReader, words: Sequence[str]) -> np.ndarray:
    states = reader.states([words])
    return np.asarray(states.states_ZND[-1][states.has_N].mean(0), np.float32)


def _query_indices(pair: PairedStates, words: Sequence[str], seed: int) -> list[int]:
    forms = [word.lower() for word in pair.words]
    if words:
        return [forms.index(word.lower()) for word in words]
    firsts = np.unique(pair.types_N, return_index=True)[1]
    content_words = [index for index in firsts.tolist() if forms[index].isalpha() and len(forms[index]) > 3]
    repeated = [index for index in content_words if (pair.types_N == pair.types_N[index]).sum() > 1]
    rng = np.random.default_rng(seed)
    return sorted(rng.permutation(repeated or content_words or firsts)[:EXAMPLES].tolist())


def _context(pair: PairedStates, index: int) -> str:
    inside = np.flatnonzero(pair.sentences_N == pair.sentences_N[index])
    near = [number for number in inside.tolist() if abs(number - index) <= CONTEXT_WORDS]
    return " ".join(f"[{pair.words[n]}]" if n == index else pair.words[n] for n in near)

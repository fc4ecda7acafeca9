"""The nearest words and sentences of some, as two networks see them, beside each other: to be read by people.

Shapes: N words, S sentences, D hidden size.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from electra.analysis import nearest
from electra.analysis.compare_encoders import Pair, sentence_states
from electra.analysis.layers import LayerReader

AROUND = 3
"""Words on either side of one that is shown in its context."""
LONGEST = 70
"""Characters of a sentence that are shown."""
DRAWN = 5
"""Words and sentences that are drawn where none are given."""


def words(pair: Pair, wanted: Sequence[str], *, k: int, seed: int) -> list[dict[str, Any]]:
    """The k nearest words of the last layers, each word once, of the first place of each wanted word.

    Args:
        wanted: words of the text; none: some are drawn, of those that occur more than once, if there are any.
    """
    found = []
    for place in _places(pair, wanted, seed):
        left_out_1N = (pair.types_N == pair.types_N[place])[None]
        sides = []
        for states in pair.states:
            count = min(20 * k, int((~left_out_1N).sum()))  # so that k different ones are likely among them
            [near] = nearest.neighbours(states[-1][place][None], states[-1], left_out_1N, k=count)
            sides.append(nearest.distinct(near.tolist(), [word.lower() for word in pair.words], count=k))
        found.append({"word": pair.words[place], "context": _context(pair, place), **_beside(sides)})
    return found


def sentences(
    pair: Pair, readers: Sequence[LayerReader], wanted: Sequence[Sequence[str]], *, k: int, seed: int
) -> list[dict[str, Any]]:
    """The k nearest sentences by the mean of the last layers' states, of wanted ones or of some that are drawn."""
    numbers = np.unique(pair.sentences_N)
    means = [sentence_states(states[-1], pair.sentences_N) for states in pair.states]
    texts = [_shortened(pair.sentences[number].words) for number in numbers]
    if wanted:
        queries = [np.stack([_mean(reader, words) for words in wanted]) for reader in readers]
        names = [_shortened(words) for words in wanted]
        own = np.zeros((len(wanted), len(texts)), bool)
    else:
        drawn = np.sort(np.random.default_rng(seed).permutation(len(numbers))[:DRAWN])
        queries = [mean[drawn] for mean in means]
        names = [texts[place] for place in drawn]
        own = drawn[:, None] == np.arange(len(texts))
    near = [nearest.neighbours(asked, mean, own, k=k) for asked, mean in zip(queries, means, strict=True)]
    return [
        {"sentence": name, **_beside([[texts[place] for place in side[row]] for side in near])}
        for row, name in enumerate(names)
    ]


def _beside(sides: Sequence[list[str]]) -> dict[str, Any]:
    first, second = sides
    return {"first": first, "second": second, "common": len({*first} & {*second})}


def _shortened(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1].rstrip()}…"


def _mean(reader: LayerReader, words: Sequence[str]) -> np.ndarray:
    found = reader.states([words])
    return np.asarray(found.states_ZND[-1][found.has_N].mean(0), np.float32)


def _places(pair: Pair, wanted: Sequence[str], seed: int) -> list[int]:
    forms = [word.lower() for word in pair.words]
    if wanted:
        return [forms.index(word.lower()) for word in wanted]
    firsts = np.unique(pair.types_N, return_index=True)[1]
    telling = [place for place in firsts.tolist() if forms[place].isalpha() and len(forms[place]) > 3]
    often = [place for place in telling if (pair.types_N == pair.types_N[place]).sum() > 1]
    return sorted(np.random.default_rng(seed).permutation(often or telling or firsts)[:DRAWN].tolist())


def _context(pair: Pair, place: int) -> str:
    inside = np.flatnonzero(pair.sentences_N == pair.sentences_N[place])
    near = [number for number in inside.tolist() if abs(number - place) <= AROUND]
    return " ".join(f"[{pair.words[n]}]" if n == place else pair.words[n] for n in near)

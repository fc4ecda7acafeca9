"""Whether a network reads late positions as well as early ones, and whether it uses tokens that are far away.

*By position*: the quality of a discriminator (area under the ROC curve) or of a masked language model (loss) in
ranges of positions of a row. The same tokens are also read in windows of a length that the network knows, because
text later in a document can be easier or harder.

*Needles*: a rare word is put at a late position of a row, and also at some distance before it. In a second row
another rare word is at the earlier position. A network that uses context over this distance finds the late word
more likely in the first row: the masked language model by its log-probability, the discriminator by its logit of
being original.

Shapes: N tokens of all texts, G documents, R resamples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import Floats, percentile_interval, resample_counts, resampled_means
from electra.analysis.corruption import corrupt_texts, sample_mask_positions
from electra.analysis.ranking import Ranking
from electra.errors import DataError
from electra.serving.backends import LoadedModel
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.scorer import Scorer

FIRST_RANGE = 128
"""The first positions of a row, which form one range; each later range is twice as long as the one before."""
SHORTEST_DISTANCE = 16
LATE_SHARE = 1 / 16
"""Share of a row, at its end, in which late words are placed."""
RARE_SHARE = 0.1
"""Rare words are those least frequent ones that make up this share of the training text."""
MIN_COUNT = 5
"""Rarer tokens may be unknown to the network."""


@dataclass(frozen=True)
class Needle:
    """A pair of rare words for one document.

    Attributes:
        document: the number of the document.
        position: where `word` is put.
        word, other: token ids; `other` is put before it in the second row.
    """

    document: int
    position: int
    word: int
    other: int

    def row(self, ids: Sequence[int], distance: int, *, same: bool) -> list[int]:
        """The document's row with the word at its position, and at a distance before it the same or the other."""
        row = list(ids)
        row[self.position - distance] = self.word if same else self.other
        row[self.position] = self.word
        return row


class DiscriminatorReader:
    """Reads with a discriminator.

    Args:
        window: the number of tokens that are read at once for comparison.
        device: the device (`resolve_device`).
    """

    metric = "AUC"

    def __init__(
        self, model: LoadedModel, generator: MaskedTokenPredictor, *, window: int, device: str = "auto"
    ) -> None:
        self.scorer, self.generator = Scorer(model, device=device), generator
        self.windows = Scorer(model, max_length=window, device=device)
        for reader in (self.scorer, self.generator):
            reader.batcher.length_check.expect_longer()

    def by_position(self, ids: Sequence[list[int]], *, share: float, seed: int) -> list[dict[str, Any]]:
        """The AUC for tokens that the generator sampled, by position."""
        tokens = corrupt_texts(self.scorer, self.generator, ids, share=share, seed=seed)
        ends = np.cumsum([len(row) for row in ids])[:-1]
        corrupted = [row.tolist() for row in np.split(tokens.corrupted_N, ends)]
        logits = tokens.logits_N, np.concatenate(self.windows.logits(corrupted))

        def areas(range_N: NDArray[np.bool_]) -> list[float]:
            return [
                Ranking(logits_N[range_N].astype(np.float64), tokens.replaced_N[range_N]).areas()[1]
                for logits_N in logits
            ]

        return [
            _range(first, end, tokens.position_N, *areas((tokens.position_N >= first) & (tokens.position_N < end)))
            for first, end in position_ranges(max(map(len, ids)))
        ]

    def originality(self, rows: Sequence[list[int]], positions: Sequence[int]) -> Floats:
        """The logit that the token at one position of each row is original."""
        logits = self.scorer.logits(rows)
        return np.array([-logits_L[position] for logits_L, position in zip(logits, positions, strict=True)])


class MaskedReader:
    """Reads with a masked language model; the arguments are those of `DiscriminatorReader`."""

    metric = "loss"

    def __init__(self, model: LoadedModel, windows: LoadedModel, *, device: str = "auto") -> None:
        self.predictors = MaskedTokenPredictor(model, device=device), MaskedTokenPredictor(windows, device=device)
        for predictor in self.predictors:
            predictor.batcher.length_check.expect_longer()

    def by_position(self, ids: Sequence[list[int]], *, share: float, seed: int) -> list[dict[str, Any]]:
        """The loss of masked tokens, in nats, by position."""
        masked = sample_mask_positions(ids, share, np.random.default_rng(seed))
        positions_N = np.concatenate(masked)
        losses = [-np.concatenate(_log_probabilities(one, ids, masked)) for one in self.predictors]
        return [
            _range(first, end, positions_N, *(float(losses_N[inside_N].mean()) for losses_N in losses))
            for first, end in position_ranges(max(map(len, ids)))
            if (inside_N := (positions_N >= first) & (positions_N < end)).any()
        ]

    def originality(self, rows: Sequence[list[int]], positions: Sequence[int]) -> Floats:
        """The log-probability of the token at one position of each row, which is masked."""
        masked = [np.array([position]) for position in positions]
        return np.concatenate(_log_probabilities(self.predictors[0], rows, masked))


Reader = DiscriminatorReader | MaskedReader


def _log_probabilities(
    predictor: MaskedTokenPredictor, ids: Sequence[list[int]], masked: Sequence[NDArray[np.int64]]
) -> list[Floats]:
    """The log-probabilities of the masked tokens of each text."""
    values = [np.zeros(len(positions)) for positions in masked]
    for text, part, log_probabilities_nV in predictor(ids, masked):
        tokens = np.array(ids[text])[part]
        slots = np.searchsorted(masked[text], part)
        values[text][slots] = log_probabilities_nV.numpy()[np.arange(len(part)), tokens]
    return values


def position_ranges(longest: int) -> Iterator[tuple[int, int]]:
    """Ranges of positions: 0 to 127, 128 to 255, 256 to 511 and so on."""
    first, end = 0, FIRST_RANGE
    while first < longest:
        yield first, min(end, longest)
        first, end = end, 2 * end


def _range(
    first: int, end: int, positions_N: NDArray[np.int64], at_once: float, in_windows: float
) -> dict[str, Any]:
    tokens = int(((positions_N >= first) & (positions_N < end)).sum())
    return {"first": first, "last": end - 1, "tokens": tokens, "at_once": at_once, "in_windows": in_windows}


def rare_words(counts_V: NDArray[np.int64], special: Sequence[int]) -> NDArray[np.int64]:
    """The ids of rare tokens, most of which are words or long pieces.

    Args:
        counts_V: how often the training text has each token.

    Raises:
        DataError: there are fewer than three.
    """
    order_V = np.argsort(counts_V, kind="stable")
    shares_V = np.cumsum(counts_V[order_V]) / max(int(counts_V.sum()), 1)
    rare = order_V[(shares_V <= RARE_SHARE) & (counts_V[order_V] >= MIN_COUNT)]
    rare = np.sort(rare[~np.isin(rare, special)])
    if len(rare) < 3:
        raise DataError(
            f"the text has fewer than three rare tokens with a count of {MIN_COUNT}; prepare more text"
        )
    return rare


def sample_needles(ids: Sequence[list[int]], rare: NDArray[np.int64], *, count: int, seed: int) -> list[Needle]:
    """Sample rare words and a late position for each, `count` for each document; no document has its word."""
    rng = np.random.default_rng(seed)
    needles = []
    for document, row in enumerate(ids):
        absent = np.setdiff1d(rare, row)
        late = max(1, int(LATE_SHARE * len(row)))
        for _ in range(count if len(absent) > 1 else 0):
            word, other = rng.choice(absent, 2, replace=False).tolist()
            needles.append(Needle(document, len(row) - 1 - int(rng.integers(late)), word, other))
    return needles


def usable_distances(shortest: int) -> list[int]:
    """Powers of two that fit between any late position and the beginning of a row of `shortest` tokens."""
    last = shortest - 1 - max(1, int(LATE_SHARE * shortest))
    return [2**power for power in range(30) if SHORTEST_DISTANCE <= 2**power <= last]


def measure_needle(
    reader: Reader,
    ids: Sequence[list[int]],
    needles: Sequence[Needle],
    distance: int,
    *,
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """By how much the late word is more original after itself than after another rare word.

    Returns:
        distance, pairs, the mean `gain` in nats or logits, and its interval over documents.
    """
    positions = [needle.position for needle in needles]
    same_N, other_N = (
        reader.originality(
            [needle.row(ids[needle.document], distance, same=same) for needle in needles], positions
        )
        for same in (True, False)
    )
    gains_N, documents_N = same_N - other_N, np.array([needle.document for needle in needles])
    sums_G = np.bincount(documents_N, gains_N, len(ids)).astype(np.float64)
    counts_G = np.bincount(documents_N, minlength=len(ids)).astype(np.float64)
    resampled_R = resampled_means(sums_G, counts_G, resample_counts(len(ids), resamples=resamples, seed=seed))
    return {
        "distance": distance,
        "pairs": len(needles),
        "gain": float(gains_N.mean()),
        "interval": list(percentile_interval(resampled_R)),
    }

"""Which tokens a discriminator takes for replaced, by groups of tokens, beside how hard the generator made it.

Two things make an error likelier in one group than in another: the discriminator may know the group less well,
or what the generator proposes there may be harder to tell from the original. So each group's error is also
computed at equal difficulty: as if every group had the same shares of fakes by the generator's probability.

Shapes: N tokens of the text, M tokens of all draws, n filled places of all draws, G groups, B bins.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.corrupted import CorruptedTokens
from electra.analysis.group_bootstrap import Estimate, Resamples, sums
from electra.analysis.logistic_effects import Factor, effects

Numbers = NDArray[np.int64]
Floats = NDArray[Any]
Flags = NDArray[np.bool_]
BINS = 10
"""Of difficulty, each with as many tokens."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """A way to part the tokens of the text: the groups' names, and the number of each token's group (N)."""

    name: str
    groups: Sequence[str]
    group_N: Numbers


@dataclass(frozen=True, eq=False)
class Observed:
    """All draws of one text, one behind the other.

    Attributes:
        clean_N: the discriminator's logits of the text as it is.
        token_M: of each token of the draws its number in the text.
        logits_M, replaced_M: what the discriminator says of the corrupted texts, and what is so.
        place_n: of each place that the generator filled, its number among all tokens of the draws (M).
        original_n, shown_n, entropy_n: the generator's log-probability of what stood there and of its draw, and
            the entropy of its distribution, in nats.
    """

    sentence_N: Numbers
    clean_N: Floats
    token_M: Numbers
    logits_M: Floats
    replaced_M: Flags
    place_n: Numbers
    original_n: Floats
    shown_n: Floats
    entropy_n: Floats

    @classmethod
    def of(cls, draws: Sequence[CorruptedTokens]) -> "Observed":
        """Of draws of the same texts."""
        first = draws[0]
        return cls(
            sentence_N=first.text_N,
            clean_N=first.clean_logits_N,
            token_M=np.tile(np.arange(len(first.text_N)), len(draws)),
            logits_M=np.concatenate([one.logits_N for one in draws]),
            replaced_M=np.concatenate([one.replaced_N for one in draws]),
            place_n=np.flatnonzero(np.concatenate([one.chosen_N for one in draws])),
            original_n=np.concatenate([one.original_log_probability_n for one in draws]),
            shown_n=np.concatenate([one.shown_log_probability_n for one in draws]),
            entropy_n=np.concatenate([one.entropy_n for one in draws]),
        )

    @property
    def token_n(self) -> Numbers:
        """The token of the text that stood at each filled place."""
        return self.token_M[self.place_n]

    @property
    def fake_n(self) -> Flags:
        """Whether the draw is another token than the original."""
        return self.replaced_M[self.place_n]


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of as many tokens by a log-probability; ties may make them uneven.

    Attributes:
        names: their bounds, as probabilities.
        bin_n: of each token.
    """

    names: list[str]
    bin_n: Numbers

    @classmethod
    def of(cls, log_probability_n: Floats) -> "Bins":
        if not len(log_probability_n):
            return cls(["any"], np.zeros(0, np.int64))
        bounds = np.unique(np.quantile(log_probability_n, np.linspace(0, 1, BINS + 1)[1:-1]))
        edges = [f"{value:.2g}" for value in np.exp([*bounds.tolist(), 0.0]).tolist()]
        names = [f"up to {edges[0]}", *(f"{low} to {high}" for low, high in pairwise(edges))]
        return cls(names, np.searchsorted(bounds, log_probability_n, side="left"))


def groups(
    observed: Observed, grouping: Grouping, *, resamples: Resamples, logit: float
) -> Iterator[dict[str, Any]]:
    """The figures of each group that has tokens.

    Args:
        logit: above which the discriminator is said to take a token for replaced.
    """
    seen = np.bincount(grouping.group_N, minlength=len(grouping.groups))
    figures = _figures(observed, grouping, resamples, logit)
    equal, covered = _at_equal_difficulty(observed, grouping, resamples, logit)
    counts = _counts(observed, grouping)
    group_M = grouping.group_N[observed.token_M]
    sentence_M = observed.sentence_N[observed.token_M]
    for number, name in enumerate(grouping.groups):
        if not seen[number]:
            continue
        inside_M = group_M == number
        area = resamples.area(sentence_M[inside_M], observed.logits_M[inside_M], observed.replaced_M[inside_M])
        yield {
            "name": name,
            **{key: int(values[number]) for key, values in counts.items()},
            **{key: _facts(values[number]) for key, values in (figures | equal).items()},
            "covered": {key: values[number] for key, values in covered.items()},
            "auc": _facts(area),
        }


def _counts(observed: Observed, grouping: Grouping) -> dict[str, Numbers]:
    group_N, size = grouping.group_N, len(grouping.groups)
    return {
        "tokens": np.bincount(group_N, minlength=size),
        "places": np.bincount(group_N[observed.token_n], minlength=size),
        "fakes": np.bincount(group_N[observed.token_n[observed.fake_n]], minlength=size),
    }


def _figures(
    observed: Observed, grouping: Grouping, resamples: Resamples, logit: float
) -> dict[str, list[Estimate | None]]:
    """Of each group the means of what is measured on some tokens (clean text, untouched ones, places, fakes)."""
    token_M, token_n, fake_n = observed.token_M, observed.token_n, observed.fake_n
    untouched_M = ~observed.replaced_M
    logits_n = observed.logits_M[observed.place_n]
    every = np.arange(len(grouping.group_N))
    measured: Mapping[str, tuple[Numbers, Floats]] = {
        "clean_suspected": (every, observed.clean_N > logit),
        "clean_logit": (every, observed.clean_N),
        "untouched_suspected": (token_M[untouched_M], observed.logits_M[untouched_M] > logit),
        "untouched_logit": (token_M[untouched_M], observed.logits_M[untouched_M]),
        "missed": (token_n[fake_n], logits_n[fake_n] <= logit),
        "fake_logit": (token_n[fake_n], logits_n[fake_n]),
        "original_probability": (token_n, np.exp(observed.original_n)),
        "original_log_probability": (token_n, observed.original_n),
        "entropy": (token_n, observed.entropy_n),
        "same": (token_n, ~fake_n),
        "fake_log_probability": (token_n[fake_n], observed.shown_n[fake_n]),
    }
    found = {}
    for key, (tokens, values) in measured.items():
        found[key] = resamples.ratios(
            _sums(observed, grouping, tokens, values), _sums(observed, grouping, tokens, np.ones(len(tokens)))
        )
    return found


def _errors(observed: Observed, logit: float) -> dict[str, tuple[Numbers, Flags, Floats]]:
    """Both kinds of error where the generator's probability is known: tokens, whether each is one, and that of the
    fake, or of the original."""
    token_n, fake_n = observed.token_n, observed.fake_n
    logits_n = observed.logits_M[observed.place_n]
    return {
        "missed": (token_n[fake_n], logits_n[fake_n] <= logit, observed.shown_n[fake_n]),
        "clean_suspected": (token_n, observed.clean_N[token_n] > logit, observed.original_n),
    }


def _at_equal_difficulty(
    observed: Observed, grouping: Grouping, resamples: Resamples, logit: float
) -> tuple[dict[str, list[Estimate | None]], dict[str, list[float]]]:
    """Of each group both errors, and the share of everything that lies where the group has tokens."""
    found: dict[str, list[Estimate | None]] = {}
    covered: dict[str, list[float]] = {}
    for key, (tokens, values, difficulty) in _errors(observed, logit).items():
        bins = Bins.of(difficulty)
        size, sentences = len(bins.names), int(observed.sentence_N[-1]) + 1
        cells = grouping.group_N[tokens] * size + bins.bin_n
        parts = [
            sums(observed.sentence_N[tokens], cells, one, sentences=sentences, groups=len(grouping.groups) * size)
            for one in (values, np.ones(len(tokens)))
        ]
        found[f"{key}_at_equal_difficulty"], covered[key] = resamples.standardized(
            *(one.reshape(sentences, -1, size) for one in parts)
        )
    return found, covered


def _sums(observed: Observed, grouping: Grouping, tokens: Numbers, values: Floats) -> Floats:
    sentences = int(observed.sentence_N[-1]) + 1
    return sums(
        observed.sentence_N[tokens],
        grouping.group_N[tokens],
        values,
        sentences=sentences,
        groups=len(grouping.groups),
    )


def adjusted(observed: Observed, groupings: Sequence[Grouping], *, logit: float) -> dict[str, Any]:
    """Effects on both errors of all groupings and of the generator's log-probability at once.

    Of fakes that is the log-probability of the fake; of originals, on clean text, that of the original.
    """
    found: dict[str, Any] = {}
    for key, (tokens, error, difficulty) in _errors(observed, logit).items():
        bins = Bins.of(difficulty)
        factors = [Factor(one.name, one.groups, one.group_N[tokens]) for one in groupings]
        factors.append(Factor("generator's probability", bins.names, bins.bin_n))
        effect = effects(error, factors, observed.sentence_N[tokens])
        found[key] = effect and {name: [asdict(one) for one in levels] for name, levels in effect.items()}
    return found


def _facts(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else asdict(estimate)

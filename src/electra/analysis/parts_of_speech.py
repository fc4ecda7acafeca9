"""The errors of a discriminator by groups of tokens, and how difficult the generator made each group.

Two things make an error more likely in one group than in another: the discriminator may know the group less well,
or the generator's samples there may be harder to tell from the original. So each group's error is also computed at
equal difficulty: as if every group had the same distribution of fakes over the generator's probability.

Shapes: N tokens of the text, M tokens of all draws (corrupted copies of the text), n masked positions of all
draws, G groups, B bins.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from electra.analysis.corruption import CorruptedTokens
from electra.analysis.frequency import FrequencyBands
from electra.analysis.group_bootstrap import Estimate, GroupBootstrap, sum_by_group
from electra.analysis.logistic_effects import Factor, fit_effects
from electra.analysis.tagged_tokens import PIECES, TaggedTokens, position_bins, position_names, rarest_piece

logger = logging.getLogger(__name__)

Numbers = NDArray[np.int64]
Floats = NDArray[Any]
Flags = NDArray[np.bool_]
BINS = 10
"""Bins of difficulty, with equally many tokens in each."""
TAG, TOKEN_FREQUENCY, WORD_FREQUENCY = "tag", "frequency of the token", "frequency of the word"
POSITION, PIECE = "position", "piece"
SUSPECTS = 12
"""The number of tokens that are listed because they are most often suspected."""
MIN_OCCURRENCES = 10
"""How often a token must occur in the text to be listed."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """A property that divides the tokens of the text: the names of the groups, and each token's group (N)."""

    name: str
    groups: Sequence[str]
    group_N: Numbers


def group_tokens(tokens: TaggedTokens, counts_V: Numbers) -> list[Grouping]:
    """Group tokens by tag, frequency of token and word, position in the sentence, and piece of the word.

    Args:
        counts_V: how often each token occurs in some text.
    """
    id_N = np.concatenate([np.array(ids, np.int64) for ids in tokens.ids])
    bands = FrequencyBands.from_counts(counts_V)
    return [
        Grouping(TAG, tokens.tags, tokens.tag_N),
        Grouping(TOKEN_FREQUENCY, bands.names, bands.band_V[id_N]),
        Grouping(WORD_FREQUENCY, bands.names, bands.band_V[rarest_piece(tokens, bands.rank_V)]),
        Grouping(POSITION, position_names(), position_bins(tokens.word_position_N)),
        Grouping(PIECE, PIECES, tokens.piece_N),
    ]


def most_suspected_tokens(
    tokenizer: Tokenizer, tokens: TaggedTokens, draw: CorruptedTokens, *, logit: float
) -> list[dict[str, Any]]:
    """The pairs of token and tag that are most often taken for replaced in the original text.

    Args:
        draw: any one; it has the logits of the original text.
        logit: above which a token is suspected.
    """
    pairs, pair_N = np.unique(np.stack([draw.original_N, tokens.tag_N], 1), axis=0, return_inverse=True)
    counts = np.bincount(pair_N.ravel())
    rates = np.bincount(pair_N.ravel(), weights=draw.clean_logits_N > logit) / counts
    order = np.lexsort((-counts, -np.where(counts >= MIN_OCCURRENCES, rates, -1)))[:SUSPECTS]
    return [
        {
            "token": tokenizer.id_to_token(int(pairs[i, 0])),
            "tag": tokens.tags[pairs[i, 1]],
            "tokens": int(counts[i]),
            "rate": float(rates[i]),
        }
        for i in order.tolist()
        if counts[i] >= MIN_OCCURRENCES and rates[i] > 0
    ]


@dataclass(frozen=True, eq=False)
class Observations:
    """All draws of one text, concatenated.

    Attributes:
        clean_N: the discriminator's logits for the original text.
        token_M: the index in the text of each token of the draws.
        logits_M, replaced_M: the discriminator's logits for the corrupted texts, and the labels.
        position_n: the index among all tokens of the draws (M) of each masked position.
        original_n, sampled_n, entropy_n: the generator's log-probability of the original token and of its sample,
            and the entropy of its distribution, in nats.
    """

    sentence_N: Numbers
    clean_N: Floats
    token_M: Numbers
    logits_M: Floats
    replaced_M: Flags
    position_n: Numbers
    original_n: Floats
    sampled_n: Floats
    entropy_n: Floats

    @classmethod
    def from_draws(cls, draws: Sequence[CorruptedTokens]) -> "Observations":
        """Concatenate draws of the same texts."""
        first = draws[0]
        return cls(
            sentence_N=first.text_N,
            clean_N=first.clean_logits_N,
            token_M=np.tile(np.arange(len(first.text_N)), len(draws)),
            logits_M=np.concatenate([draw.logits_N for draw in draws]),
            replaced_M=np.concatenate([draw.replaced_N for draw in draws]),
            position_n=np.flatnonzero(np.concatenate([draw.masked_N for draw in draws])),
            original_n=np.concatenate([draw.original_log_probability_n for draw in draws]),
            sampled_n=np.concatenate([draw.sampled_log_probability_n for draw in draws]),
            entropy_n=np.concatenate([draw.entropy_n for draw in draws]),
        )

    @property
    def token_n(self) -> Numbers:
        """The token of the text at each masked position."""
        return self.token_M[self.position_n]

    @property
    def fake_n(self) -> Flags:
        """Whether the sample differs from the original."""
        return self.replaced_M[self.position_n]


@dataclass(frozen=True, eq=False)
class QuantileBins:
    """Bins with equally many tokens by a log-probability; ties may make them uneven.

    Attributes:
        names: their bounds, as probabilities.
        bin_n: the bin of each token.
    """

    names: list[str]
    bin_n: Numbers

    @classmethod
    def assign(cls, log_probability_n: Floats) -> "QuantileBins":
        if not len(log_probability_n):
            return cls(["any"], np.zeros(0, np.int64))
        bounds = np.unique(np.quantile(log_probability_n, np.linspace(0, 1, BINS + 1)[1:-1]))
        edges = [f"{value:.2g}" for value in np.exp([*bounds.tolist(), 0.0]).tolist()]
        names = [f"up to {edges[0]}", *(f"{low} to {high}" for low, high in pairwise(edges))]
        return cls(names, np.searchsorted(bounds, log_probability_n, side="left"))


def evaluate_groupings(
    observations: Observations, groupings: Sequence[Grouping], *, bootstrap: GroupBootstrap, logit: float
) -> dict[str, list[dict[str, Any]]]:
    """The results of all tokens together, and of the groups of each grouping (see `evaluate_groups`)."""
    all_tokens = Grouping("all tokens", ("all",), np.zeros(len(observations.sentence_N), np.int64))
    results = {}
    for number, grouping in enumerate([all_tokens, *groupings]):
        logger.info("Evaluating groups", extra={"progress": (number, len(groupings) + 1)})
        results[grouping.name] = list(evaluate_groups(observations, grouping, bootstrap=bootstrap, logit=logit))
    return results


def evaluate_groups(
    observations: Observations, grouping: Grouping, *, bootstrap: GroupBootstrap, logit: float
) -> Iterator[dict[str, Any]]:
    """Yield the results of each group that has tokens.

    Args:
        logit: above which the discriminator takes a token for replaced.
    """
    means = _means(observations, grouping, bootstrap, logit)
    at_equal_difficulty, coverage = _at_equal_difficulty(observations, grouping, bootstrap, logit)
    counts = _counts(observations, grouping)
    group_M = grouping.group_N[observations.token_M]
    sentence_M = observations.sentence_N[observations.token_M]
    for number, name in enumerate(grouping.groups):
        if not counts["tokens"][number]:
            continue
        inside_M = group_M == number
        auc = bootstrap.roc_auc(
            sentence_M[inside_M], observations.logits_M[inside_M], observations.replaced_M[inside_M]
        )
        yield {
            "name": name,
            **{key: int(values[number]) for key, values in counts.items()},
            **{key: _as_json(values[number]) for key, values in (means | at_equal_difficulty).items()},
            "covered": {key: values[number] for key, values in coverage.items()},
            "auc": _as_json(auc),
        }


def _counts(observations: Observations, grouping: Grouping) -> dict[str, Numbers]:
    group_N, size = grouping.group_N, len(grouping.groups)
    return {
        "tokens": np.bincount(group_N, minlength=size),
        "places": np.bincount(group_N[observations.token_n], minlength=size),
        "fakes": np.bincount(group_N[observations.token_n[observations.fake_n]], minlength=size),
    }


def _means(
    observations: Observations, grouping: Grouping, bootstrap: GroupBootstrap, logit: float
) -> dict[str, list[Estimate | None]]:
    """The means for each group of values of original tokens, unreplaced tokens, masked positions, and fakes."""
    token_M, token_n, fake_n = observations.token_M, observations.token_n, observations.fake_n
    unreplaced_M = ~observations.replaced_M
    logits_n = observations.logits_M[observations.position_n]
    all_N = np.arange(len(grouping.group_N))
    measured: Mapping[str, tuple[Numbers, Floats]] = {
        "clean_suspected": (all_N, observations.clean_N > logit),
        "clean_logit": (all_N, observations.clean_N),
        "untouched_suspected": (token_M[unreplaced_M], observations.logits_M[unreplaced_M] > logit),
        "untouched_logit": (token_M[unreplaced_M], observations.logits_M[unreplaced_M]),
        "missed": (token_n[fake_n], logits_n[fake_n] <= logit),
        "fake_logit": (token_n[fake_n], logits_n[fake_n]),
        "original_probability": (token_n, np.exp(observations.original_n)),
        "original_log_probability": (token_n, observations.original_n),
        "entropy": (token_n, observations.entropy_n),
        "same": (token_n, ~fake_n),
        "fake_log_probability": (token_n[fake_n], observations.sampled_n[fake_n]),
    }
    size = len(grouping.groups)
    estimates = {}
    for key, (tokens, values) in measured.items():
        group = grouping.group_N[tokens]
        sums = _sum_by_sentence(observations, tokens, group, values, groups=size)
        counts = _sum_by_sentence(observations, tokens, group, np.ones(len(tokens)), groups=size)
        estimates[key] = bootstrap.ratios(sums, counts)
    return estimates


def _errors(observations: Observations, logit: float) -> dict[str, tuple[Numbers, Flags, Floats]]:
    """Both kinds of error at masked positions: tokens, whether each is an error, and the generator's
    log-probability of the fake (missed) or of the original (suspected)."""
    token_n, fake_n = observations.token_n, observations.fake_n
    logits_n = observations.logits_M[observations.position_n]
    return {
        "missed": (token_n[fake_n], logits_n[fake_n] <= logit, observations.sampled_n[fake_n]),
        "clean_suspected": (token_n, observations.clean_N[token_n] > logit, observations.original_n),
    }


def _at_equal_difficulty(
    observations: Observations, grouping: Grouping, bootstrap: GroupBootstrap, logit: float
) -> tuple[dict[str, list[Estimate | None]], dict[str, list[float]]]:
    """Both errors of each group, and the fraction of all tokens that lie in bins where the group has tokens."""
    estimates: dict[str, list[Estimate | None]] = {}
    coverage: dict[str, list[float]] = {}
    for key, (tokens, errors, difficulty) in _errors(observations, logit).items():
        bins = QuantileBins.assign(difficulty)
        size = len(bins.names)
        cells, total = grouping.group_N[tokens] * size + bins.bin_n, len(grouping.groups) * size
        errors_SGB, counts_SGB = (
            _sum_by_sentence(observations, tokens, cells, values, groups=total).reshape(
                -1, len(grouping.groups), size
            )
            for values in (errors, np.ones(len(tokens)))
        )
        estimates[f"{key}_at_equal_difficulty"], coverage[key] = bootstrap.standardized_ratios(
            errors_SGB, counts_SGB
        )
    return estimates, coverage


def _sum_by_sentence(
    observations: Observations, tokens: Numbers, groups_of_tokens: Numbers, values: Floats, *, groups: int
) -> Floats:
    sentences = int(observations.sentence_N[-1]) + 1
    return sum_by_group(
        observations.sentence_N[tokens], groups_of_tokens, values, sentences=sentences, groups=groups
    )


def fit_error_effects(
    observations: Observations, groupings: Sequence[Grouping], *, logit: float
) -> dict[str, Any]:
    """Estimate the effects of all groupings and of the generator's log-probability at once, on both errors.

    The log-probability is that of the fake for missed fakes, and that of the original for suspected originals.
    """
    effects: dict[str, Any] = {}
    for key, (tokens, error, difficulty) in _errors(observations, logit).items():
        bins = QuantileBins.assign(difficulty)
        factors = [Factor(grouping.name, grouping.groups, grouping.group_N[tokens]) for grouping in groupings]
        factors.append(Factor("generator's probability", bins.names, bins.bin_n))
        by_factor = fit_effects(error, factors, observations.sentence_N[tokens])
        effects[key] = by_factor and {
            name: [asdict(level) for level in levels] for name, levels in by_factor.items()
        }
    return effects


def _as_json(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else asdict(estimate)

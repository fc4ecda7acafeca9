"""How well detectors (`electra.analysis.detectors`) find learners' wrong words.

Every word gets a score. If a detector scores tokens, the word gets their maximum or their mean, whichever ranks
the words of the tuning set better.

Shapes: S sentences, W words of all of them, N tokens of a sentence, R resamples.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import MIN_GROUPS, value_with_interval
from electra.analysis.detectors import Detector, TokenScores, Words
from electra.analysis.error_corpora import LabeledSentence, read_error_corpus, split_indices
from electra.analysis.ranking import Flags, Floats, Ranking
from electra.errors import DataError

Pooling = Callable[[Floats], float]
Results = dict[str, Any]

POOLINGS: dict[str, Pooling] = {"max": lambda odds_N: odds_N.max(), "mean": lambda odds_N: odds_N.mean()}
BUCKETS = {"none": 0.0, "up to 10 %": 0.1, "up to 20 %": 0.2, "more": 1.0}
"""Buckets of sentences by their error rate: the name and the upper bound of each."""
CURVE_POINTS = 200
METRICS = ("flagged", "precision", "recall", "f0.5", "average_precision", "auc")
COMPARED = ("f0.5", "average_precision", "auc")


def pool_token_scores(scores: TokenScores, words: int, pooling: Pooling) -> Floats:
    """Pool the log-odds of tokens to one for each word (words,); nan for a word without tokens."""
    log_odds = np.full(words, np.nan)
    for word in np.unique(scores.words_N):
        log_odds[word] = pooling(scores.log_odds_N[scores.words_N == word])
    return log_odds


@dataclass(frozen=True, eq=False)
class SentenceSet:
    """Sentences, with the sentence and the label of each of their words (W)."""

    sentences: list[LabeledSentence]

    @property
    def sentence_W(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.sentences)), [len(sentence.words) for sentence in self.sentences])

    @property
    def wrong_W(self) -> Flags:
        return np.fromiter(chain.from_iterable(sentence.wrong for sentence in self.sentences), bool)

    @property
    def bucket_S(self) -> NDArray[np.int64]:
        """The index in `BUCKETS` of each sentence's bucket."""
        return np.searchsorted([*BUCKETS.values()], [sentence.error_rate for sentence in self.sentences])

    def counts(self) -> dict[str, int]:
        wrong_W = self.wrong_W
        return {"sentences": len(self.sentences), "words": len(wrong_W), "errors": int(wrong_W.sum())}

    def bucket_counts(self) -> list[Results]:
        """The counts of each bucket."""
        bucket_S = self.bucket_S
        buckets = [
            SentenceSet([self.sentences[i] for i in np.flatnonzero(bucket_S == number)])
            for number in range(len(BUCKETS))
        ]
        return [{"bucket": name, **bucket.counts()} for name, bucket in zip(BUCKETS, buckets, strict=True)]


def read_tune_and_scored(
    data: Path, tune: Path | None, *, tune_share: float, references: int, seed: int
) -> tuple[SentenceSet, SentenceSet]:
    """Read the sentences for choosing thresholds and the sentences to score.

    Args:
        tune: None: thresholds are chosen on a random part of `data`, which is then not scored.
        tune_share: the fraction of `data` in that part.
        references: the number of rewrites that must change a word for it to count as wrong.

    Raises:
        DataError: a set has too few sentences, or its words are all right or all wrong.
    """
    sentences = read_error_corpus(data, references=references)
    if tune is not None:
        sets = SentenceSet(read_error_corpus(tune, references=references)), SentenceSet(sentences)
    else:
        tune_indices, others = split_indices(len(sentences), tune_share, seed=seed)
        sets = SentenceSet([sentences[i] for i in tune_indices]), SentenceSet([sentences[i] for i in others])
    for part, path, purpose in zip(sets, (tune or data, data), ("for thresholds", "to score"), strict=True):
        if len(part.sentences) < MIN_GROUPS:
            raise DataError(
                f"{path}: {len(part.sentences)} sentences {purpose} are too few, {MIN_GROUPS} are needed; give "
                "more, another --tune-share, or --tune with other data"
            )
        wrong_W = part.wrong_W
        if wrong_W.all() or not wrong_W.any():
            raise DataError(
                f"{path}: the sentences {purpose} have {'only' if wrong_W.any() else 'no'} wrong words; give more "
                "sentences, or another --seed"
            )
    return sets


@dataclass(frozen=True, eq=False)
class WordScores:
    """The scores of one detector or baseline on both sets.

    Attributes:
        pooling: how the scores of tokens became those of words; empty if words are scored directly.
        tune_W, scored_W: log-odds, or other scores that are higher for words that are more likely wrong.
        rewrites: the mean score of each scored sentence, and those of its rewrites; empty if there are none.
        long, unseen: the number of sentences read in windows, and the number of words without a token, which get
            the lowest score.
    """

    name: str
    kind: str
    pooling: str
    tune_W: Floats
    scored_W: Floats
    rewrites: list[tuple[float, Floats]]
    long: int = 0
    unseen: int = 0


def score_words(detector: Detector, tune: SentenceSet, scored: SentenceSet) -> WordScores:
    """Score both sets with a detector."""
    tune_tokens, scored_tokens = (
        detector.score_tokens([sentence.words for sentence in part.sentences]) for part in (tune, scored)
    )
    poolings = POOLINGS if detector.kind == "discriminator" else {"": POOLINGS["max"]}
    tune_scores = {name: _pool(tune, tune_tokens, pooling) for name, pooling in poolings.items()}
    best = max(tune_scores, key=lambda name: Ranking(tune_scores[name], tune.wrong_W).areas()[0])
    every_token = [*tune_tokens, *scored_tokens]
    words_with_tokens = sum(len(np.unique(scores.words_N)) for scores in every_token)
    return WordScores(
        detector.name, detector.kind, best, tune_scores[best], _pool(scored, scored_tokens, poolings[best]),
        rewrites=_score_rewrites(scored, scored_tokens, detector),
        long=detector.in_windows(scores.tokens_read for scores in every_token),
        unseen=len(tune.wrong_W) + len(scored.wrong_W) - words_with_tokens,
    )  # fmt: skip


def _pool(part: SentenceSet, tokens: Sequence[TokenScores], pooling: Pooling) -> Floats:
    scores_W = np.concatenate([
        pool_token_scores(scores, len(sentence.words), pooling)
        for sentence, scores in zip(part.sentences, tokens, strict=True)
    ])  # fmt: skip
    return np.where(np.isnan(scores_W), np.nanmin(scores_W), scores_W)


def _score_rewrites(
    part: SentenceSet, tokens: Sequence[TokenScores], detector: Detector
) -> list[tuple[float, Floats]]:
    rewrites = [
        [rewrite for rewrite in sentence.rewrites if rewrite != sentence.words] for sentence in part.sentences
    ]
    if not any(rewrites):
        return []
    scored = iter(detector.score_tokens([*chain.from_iterable(rewrites)]))
    return [
        (_mean(scores), np.array([_mean(next(scored)) for _ in of_sentence]))
        for scores, of_sentence in zip(tokens, rewrites, strict=True)
    ]


def _mean(scores: TokenScores) -> float:
    return float(scores.log_odds_N.mean()) if len(scores.log_odds_N) else 0.0


def rare_words_baseline(tune: SentenceSet, scored: SentenceSet) -> WordScores:
    """A baseline without grammar: the rarer a word is in the tuning set, the more likely it is wrong.

    A word of the tuning set does not count its own occurrence, because words of the scored set do not either.
    """
    counts = Counter(word.lower() for sentence in tune.sentences for word in sentence.words)

    def rarity(words: Words, own: int) -> Floats:
        return np.array([-np.log1p(counts[word.lower()] - own) for word in words])

    tune_W = np.concatenate([rarity(sentence.words, 1) for sentence in tune.sentences])
    scored_W = np.concatenate([rarity(sentence.words, 0) for sentence in scored.sentences])
    rewrites = [
        (
            float(rarity(sentence.words, 0).mean()),
            np.array([rarity(words, 0).mean() for words in sentence.rewrites if words != sentence.words]),
        )
        for sentence in scored.sentences
    ]
    has_rewrites = any(len(others) for _, others in rewrites)
    return WordScores("rare words", "baseline", "", tune_W, scored_W, rewrites if has_rewrites else [])


def every_word_baseline(tune: SentenceSet, scored: SentenceSet) -> WordScores:
    """The baseline that flags every word; a random order has the same average precision."""
    return WordScores("every word", "baseline", "", np.zeros(len(tune.wrong_W)), np.zeros(len(scored.wrong_W)), [])


def evaluate_scores(
    scores: WordScores, tune: SentenceSet, scored: SentenceSet, counts_RS: Floats
) -> tuple[Results, Mapping[str, Floats]]:
    """Compute the results of one detector for detect.json, and its metrics in each resample (R,).

    Args:
        counts_RS: how often each resample contains each scored sentence.
    """
    threshold = Ranking(scores.tune_W, tune.wrong_W).best_threshold()
    bucket_S, sentence_W, wrong_W = scored.bucket_S, scored.sentence_W, scored.wrong_W
    overall, resampled = _metrics(scores.scored_W, wrong_W, threshold, counts_RS, sentence_W)
    buckets = []
    for number, name in enumerate(BUCKETS):
        inside_W = bucket_S[sentence_W] == number
        if inside_W.any():
            inside = scores.scored_W[inside_W], wrong_W[inside_W]
            metrics, _ = _metrics(*inside, threshold, counts_RS, sentence_W[inside_W])
            buckets.append({"bucket": name, **metrics})
    curve = Ranking(scores.scored_W, wrong_W).precision_recall_curve(CURVE_POINTS)
    results = {
        "model": scores.name, "kind": scores.kind, "pooling": scores.pooling, "threshold": threshold,
        "long": scores.long, "unseen": scores.unseen, **overall, "buckets": buckets,
        "curve": [list(point) for point in curve],
    }  # fmt: skip
    if scores.rewrites:
        results["rewrites"] = _rewrite_accuracy(scores.rewrites, counts_RS)
    return results, resampled


def _metrics(
    scores_W: Floats, wrong_W: Flags, threshold: float, counts_RS: Floats, sentence_W: NDArray[np.int64]
) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Each metric with its interval, and in each resample."""
    ranking = Ranking(scores_W, wrong_W)
    values = np.array([_metrics_row(ranking, threshold, counts_S[sentence_W]) for counts_S in counts_RS])
    resampled = dict(zip(METRICS, values.T, strict=True))
    row = _metrics_row(ranking, threshold, None)
    metrics = {name: value_with_interval(value, resampled[name]) for name, value in zip(METRICS, row, strict=True)}
    return metrics, resampled


def _metrics_row(ranking: Ranking, threshold: float, weights_W: Floats | None) -> tuple[float, ...]:
    metrics = ranking.metrics_at(threshold, weights_W)
    if not ranking.positive.any():  # without errors only the fraction of flagged words is defined
        return metrics.flagged, *[float("nan")] * 5
    return metrics.flagged, metrics.precision, metrics.recall, metrics.f_half, *ranking.areas(weights_W)


def _rewrite_accuracy(rewrites: Sequence[tuple[float, Floats]], counts_RS: Floats) -> dict[str, Any]:
    """The fraction of pairs in which the sentence has a higher mean score than its rewrite; ties count half."""
    right_S = np.array([(np.sign(own - others) + 1).sum() / 2 for own, others in rewrites])
    pairs_S = np.array([len(others) for _, others in rewrites], np.float64)
    pairs_R = counts_RS @ pairs_S
    values_R = np.divide(counts_RS @ right_S, pairs_R, out=np.full(len(pairs_R), np.nan), where=pairs_R > 0)
    accuracy = value_with_interval(float(right_S.sum() / pairs_S.sum()), values_R)
    return {"pairs": int(pairs_S.sum()), "accuracy": accuracy}


def compare_to_first(resampled: Sequence[Mapping[str, Floats]], models: Sequence[Results]) -> list[Results]:
    """The difference of each detector to the first one, paired: every resample has the same sentences for all.

    Args:
        resampled: the metrics of each detector in each resample (R,).
        models: the results of each detector.
    """
    rows = []
    for values, model in zip(resampled[1:], models[1:], strict=True):
        row: Results = {"model": model["model"], "than": models[0]["model"]}
        for metric in COMPARED:
            difference = model[metric]["value"] - models[0][metric]["value"]
            row[metric] = value_with_interval(difference, values[metric] - resampled[0][metric])
        rows.append(row)
    return rows

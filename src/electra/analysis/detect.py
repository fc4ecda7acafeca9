"""Finding learners' wrong words with discriminators, without training, and with taggers.

Every word gets a log-odds of being wrong. A tagger gives it; a discriminator gives one to each of the word's
tokens, and the word has their maximum or their mean, whichever ranks the words of the tuning part better.

Shapes: S sentences, W words of all of them, N tokens of a sentence, R resamples.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import with_interval
from electra.analysis.error_corpora import MarkedSentence
from electra.analysis.ranking import Flags, Floats, Ranking
from electra.errors import CheckpointError
from electra.export.huggingface import Pretrained
from electra.export.loading import load_pretrained
from electra.modeling.heads import ReplacedTokenHead
from electra.serving.backends import describe_head
from electra.serving.predictor import Predictor
from electra.serving.scorer import Scorer
from electra.tasks.tagging import Tagging, tokenize_words
from electra.tasks.tagging_datasets import CORRECT_TAGS

Words = Sequence[str]
Pooling = Callable[[Floats], float]
Facts = dict[str, Any]

POOLINGS: dict[str, Pooling] = {"max": lambda odds_N: odds_N.max(), "mean": lambda odds_N: odds_N.mean()}
BUCKETS = {"none": 0.0, "up to 10 %": 0.1, "up to 20 %": 0.2, "more": 1.0}
"""Sentences by the share of their words that is wrong: up to which share, beyond that of the bucket before."""
CERTAIN = 1e-7
"""How far probabilities are kept from 0 and 1 where they become log-odds."""
CURVE = 200  # points of a precision-recall curve


@dataclass(frozen=True, eq=False)
class TokenScores:
    """Of a sentence the log-odds of each token, and the word that it belongs to, from 0.

    Attributes:
        read: tokens that went through the network; a tagger has one score a word.
    """

    log_odds_N: Floats
    words_N: NDArray[np.int64]
    read: int


@dataclass(frozen=True)
class Detector:
    """Something that scores tokens.

    Attributes:
        kind: discriminator, or tagger, whose tokens are words.
        in_windows: of sentences of so many tokens, how many it reads in windows.
    """

    name: str
    kind: str
    in_windows: Callable[[Iterable[int]], int]
    tokens: Callable[[Sequence[Words]], list[TokenScores]]

    @classmethod
    def of(cls, model: str, name: str) -> "Detector":
        """That of a MODEL.

        Args:
            name: what tables call it.

        Raises:
            CheckpointError: it is neither a discriminator nor a tagger with a tag for right words.
        """
        pretrained = load_pretrained(model)
        if isinstance(pretrained.head, ReplacedTokenHead):
            scorer = Scorer(pretrained)
            return cls(
                name, "discriminator", scorer.batcher.count_windowed, lambda words: token_scores(scorer, words)
            )
        predictor = _tagger(pretrained, model)
        most = predictor.input_spec.max_length - 2

        def in_windows(lengths: Iterable[int]) -> int:
            return sum(length > most for length in lengths)

        return cls(name, "tagger", in_windows, lambda words: word_scores(predictor, words))


def token_scores(scorer: Scorer, sentences: Sequence[Words]) -> list[TokenScores]:
    """Those of a discriminator."""
    encodings = tokenize_words(sentences, scorer.tokenizer)
    logits = scorer.logits([encoding.ids for encoding in encodings])
    return [
        TokenScores(logits_N.astype(np.float64), np.array(encoding.word_ids, np.int64), len(encoding.ids))
        for logits_N, encoding in zip(logits, encodings, strict=True)
    ]


def word_scores(tagger: Predictor, sentences: Sequence[Words]) -> list[TokenScores]:
    """Those of a tagger of wrong words, one a word: of its having another tag than those of right ones."""
    right = _right(tagger)
    found = []
    encodings = tokenize_words(sentences, tagger.input_spec.tokenizer)
    for probabilities_WK, encoding in zip(tagger.tag_probabilities(sentences), encodings, strict=True):
        right_W = probabilities_WK[:, right].sum(1).clip(CERTAIN, 1 - CERTAIN)
        seen_W = np.flatnonzero(probabilities_WK.any(1))
        log_odds = np.log1p(-right_W[seen_W]) - np.log(right_W[seen_W])
        found.append(TokenScores(log_odds, seen_W, len(encoding.ids)))
    return found


def _right(tagger: Predictor) -> list[int]:
    """The numbers of the labels of right words."""
    assert isinstance(tagger.problem, Tagging)
    return [number for number, label in enumerate(tagger.problem.labels) if label in CORRECT_TAGS]


def _tagger(pretrained: Pretrained, model: str) -> Predictor:
    """That of a MODEL.

    Raises:
        CheckpointError: it is none, or has no tag for right words.
    """
    wanted = (
        "to find errors, give a discriminator (a run of objective.kind replaced-token) or a tagger of wrong "
        "words: electra finetune MODEL --task ged --data FOLDER --out TAGGER"
    )
    predictor = Predictor(pretrained) if pretrained.task is not None and pretrained.head is not None else None
    if predictor is None or not isinstance(predictor.problem, Tagging):
        raise CheckpointError(f"{model} is {describe_head(pretrained)}; {wanted}")
    if not _right(predictor):
        labels = predictor.problem.labels
        listed = ", ".join(labels[:5]) + (", ..." if len(labels) > 5 else "")
        raise CheckpointError(
            f"{model} tags words as {listed}, and none of these says that a word is right "
            f"({', '.join(CORRECT_TAGS)}); {wanted}"
        )

    return predictor


def pooled(scores: TokenScores, words: int, how: Pooling) -> Floats:
    """The log-odds of each word (words,); nan for one without a token."""
    found = np.full(words, np.nan)
    for word in np.unique(scores.words_N):
        found[word] = how(scores.log_odds_N[scores.words_N == word])
    return found


@dataclass(frozen=True, eq=False)
class Part:
    """Sentences, and for each of their words (W) its sentence and whether it is wrong."""

    sentences: list[MarkedSentence]

    @property
    def sentence_W(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.sentences)), [len(one.words) for one in self.sentences])

    @property
    def wrong_W(self) -> Flags:
        return np.fromiter(chain.from_iterable(one.wrong for one in self.sentences), bool)

    @property
    def bucket_S(self) -> NDArray[np.int64]:
        """The number of each sentence's bucket among `BUCKETS`."""
        return np.searchsorted([*BUCKETS.values()], [one.share for one in self.sentences])

    def facts(self) -> dict[str, int]:
        wrong_W = self.wrong_W
        return {"sentences": len(self.sentences), "words": len(wrong_W), "errors": int(wrong_W.sum())}


@dataclass(frozen=True, eq=False)
class Scores:
    """What one detector, or a baseline, says of both parts.

    Attributes:
        pooling: how words have their scores of their tokens'; empty: they are scored themselves.
        tune_W, scored_W: log-odds, or other scores that are higher for words that are more likely wrong.
        rewrites: of each scored sentence its mean score and those of its rewrites; none where there are none.
        long, unseen: sentences that were read in windows, and words that have no token and got the lowest score.
    """

    name: str
    kind: str
    pooling: str
    tune_W: Floats
    scored_W: Floats
    rewrites: list[tuple[float, Floats]]
    long: int = 0
    unseen: int = 0


def detected(detector: Detector, tune: Part, scored: Part) -> Scores:
    """What a detector says of both parts."""
    tokens = [detector.tokens([one.words for one in part.sentences]) for part in (tune, scored)]
    every = [*tokens[0], *tokens[1]]
    ways = POOLINGS if detector.kind == "discriminator" else {"": POOLINGS["max"]}
    found: dict[str, list[Floats]] = {
        name: [_words(part, of, how) for part, of in zip((tune, scored), tokens, strict=True)]
        for name, how in ways.items()
    }
    best = max(found, key=lambda name: Ranking(found[name][0], tune.wrong_W).areas()[0])
    seen = sum(len(np.unique(one.words_N)) for one in every)
    return Scores(
        detector.name, detector.kind, best, found[best][0], found[best][1],
        rewrites=_rewrites(scored, tokens[1], detector),
        long=detector.in_windows(one.read for one in every),
        unseen=len(tune.wrong_W) + len(scored.wrong_W) - seen,
    )  # fmt: skip


def _words(part: Part, tokens: Sequence[TokenScores], how: Pooling) -> Floats:
    scores_W = np.concatenate(
        [pooled(of, len(one.words), how) for one, of in zip(part.sentences, tokens, strict=True)]
    )
    return np.where(np.isnan(scores_W), np.nanmin(scores_W), scores_W)


def _rewrites(part: Part, tokens: Sequence[TokenScores], detector: Detector) -> list[tuple[float, Floats]]:
    different = [[one for one in sentence.rewrites if one != sentence.words] for sentence in part.sentences]
    if not any(different):
        return []
    scored = iter(detector.tokens([*chain.from_iterable(different)]))
    return [
        (_mean(of), np.array([_mean(next(scored)) for _ in rewrites]))
        for of, rewrites in zip(tokens, different, strict=True)
    ]


def _mean(scores: TokenScores) -> float:
    return float(scores.log_odds_N.mean()) if len(scores.log_odds_N) else 0.0


def rare_words(tune: Part, scored: Part) -> Scores:
    """A baseline that knows no grammar: the rarer a word is among those of the tuning part, the more likely wrong.

    A word of the tuning part itself is not counted with the others, as one of the scored part is not.
    """
    counts = Counter(word.lower() for one in tune.sentences for word in one.words)

    def rarity(words: Words, own: int) -> Floats:
        return np.array([-np.log1p(counts[word.lower()] - own) for word in words])

    tune_W = np.concatenate([rarity(one.words, 1) for one in tune.sentences])
    scored_W = np.concatenate([rarity(one.words, 0) for one in scored.sentences])
    rewrites = [
        (
            float(rarity(one.words, 0).mean()),
            np.array([rarity(words, 0).mean() for words in one.rewrites if words != one.words]),
        )
        for one in scored.sentences
    ]
    some = any(len(others) for _, others in rewrites)
    return Scores("rare words", "baseline", "", tune_W, scored_W, rewrites if some else [])


def every_word(tune: Part, scored: Part) -> Scores:
    """The baseline that flags all; a random order has the same average precision."""
    return Scores("every word", "baseline", "", np.zeros(len(tune.wrong_W)), np.zeros(len(scored.wrong_W)), [])


FIGURES = ("flagged", "precision", "recall", "f0.5", "average_precision", "auc")


def judged(scores: Scores, tune: Part, scored: Part, counts_RS: Floats) -> tuple[Facts, Mapping[str, Floats]]:
    """What detect.json says of one detector, and its figures in each resample (R,).

    Args:
        counts_RS: how often each scored sentence stands in each resample.
    """
    threshold = Ranking(scores.tune_W, tune.wrong_W).best_threshold()
    bucket_S, sentence_W, wrong_W = scored.bucket_S, scored.sentence_W, scored.wrong_W
    whole, values = _figures(scores.scored_W, wrong_W, threshold, counts_RS, sentence_W)
    buckets = []
    for number, name in enumerate(BUCKETS):
        inside_W = bucket_S[sentence_W] == number
        if inside_W.any():
            part = scores.scored_W[inside_W], wrong_W[inside_W]
            figures, _ = _figures(*part, threshold, counts_RS, sentence_W[inside_W])
            buckets.append({"bucket": name, **figures})
    ranking = Ranking(scores.scored_W, wrong_W)
    facts = {
        "model": scores.name, "kind": scores.kind, "pooling": scores.pooling, "threshold": threshold,
        "long": scores.long, "unseen": scores.unseen, **whole, "buckets": buckets,
        "curve": [list(point) for point in ranking.curve(CURVE)],
    }  # fmt: skip
    if scores.rewrites:
        facts["rewrites"] = _told_apart(scores.rewrites, counts_RS)
    return facts, values


def _figures(
    scores_W: Floats, wrong_W: Flags, threshold: float, counts_RS: Floats, sentence_W: NDArray[np.int64]
) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Each figure as value and interval, and in each resample."""
    ranking = Ranking(scores_W, wrong_W)
    values = np.array([_row(ranking, threshold, counts_S[sentence_W]) for counts_S in counts_RS])
    by_name = dict(zip(FIGURES, values.T, strict=True))
    row = _row(ranking, threshold, None)
    return {name: with_interval(value, by_name[name]) for name, value in zip(FIGURES, row, strict=True)}, by_name


def _row(ranking: Ranking, threshold: float, weights_W: Floats | None) -> tuple[float, ...]:
    one = ranking.flagging(threshold, weights_W)
    if not ranking.positive.any():  # of sentences without errors only what is flagged means something
        return one.flagged, *[float("nan")] * 5
    return one.flagged, one.precision, one.recall, one.f_half, *ranking.areas(weights_W)


def _told_apart(rewrites: Sequence[tuple[float, Floats]], counts_RS: Floats) -> dict[str, Any]:
    """In which share of the pairs the sentence has a higher mean score than its rewrite; ties count half."""
    right_S = np.array([(np.sign(own - others) + 1).sum() / 2 for own, others in rewrites])
    pairs_S = np.array([len(others) for _, others in rewrites], np.float64)
    pairs_R = counts_RS @ pairs_S
    values_R = np.divide(counts_RS @ right_S, pairs_R, out=np.full(len(pairs_R), np.nan), where=pairs_R > 0)
    return {"pairs": int(pairs_S.sum()), "accuracy": with_interval(float(right_S.sum() / pairs_S.sum()), values_R)}


def differences(all_values: Sequence[tuple[str, Mapping[str, Floats]]], points: Sequence[Facts]) -> list[Facts]:
    """Each detector beside the first one, sentence by sentence the same in every resample."""
    (first, base), *others = all_values
    found = []
    for (name, values), facts in zip(others, points[1:], strict=True):
        row: Facts = {"model": name, "than": first}
        for metric in ("f0.5", "average_precision", "auc"):
            difference = facts[metric]["value"] - points[0][metric]["value"]
            row[metric] = with_interval(difference, values[metric] - base[metric])
        found.append(row)
    return found

"""What gives the words of sentences a score for being wrong: discriminators, masked language models, taggers.

A tagger predicts the log-odds that a word is wrong, a discriminator those that each of its tokens was replaced. A
masked language model gives the surprisal of the word, which is no log-odds but ranks words, too. Only a tagger was
trained for this.

Shapes: W words, N tokens that have a score, T all tokens of a sentence, K labels.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from electra.analysis.ranking import Floats
from electra.errors import CheckpointError
from electra.export.loading import load_pretrained
from electra.export.pretrained import Pretrained
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.objectives.config import DEFAULT_OBJECTIVE
from electra.serving.backends import describe_head
from electra.serving.likelihood import MaskedLikelihoodScorer, TokenizedText
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.predictor import Predictor
from electra.serving.scorer import Scorer
from electra.serving.surprisal import word_ids
from electra.tasks.tagging import Tagging, tokenize_words
from electra.tasks.tagging_datasets import CORRECT_TAGS

Words = Sequence[str]

MIN_PROBABILITY = 1e-7
"""Probabilities are clipped to this distance from 0 and 1 before they become log-odds."""


@dataclass(frozen=True, eq=False)
class TokenScores:
    """The score of each token or word of a sentence, and the index of the word that it belongs to.

    Attributes:
        log_odds_N: that it is wrong; for a masked language model the surprisal in nats, which is no log-odds.
        tokens_read: the number of tokens that the network read; it differs for a tagger, with one score per word.
    """

    log_odds_N: Floats
    words_N: NDArray[np.int64]
    tokens_read: int


@dataclass(frozen=True)
class Detector:
    """A model that scores tokens.

    Attributes:
        name: the name in tables.
        kind: "discriminator", or "tagger" or "masked-lm", whose tokens are words.
        in_windows: counts how many sentences of the given lengths in tokens are read in windows.
        score_tokens: the scores of sentences.
    """

    name: str
    kind: str
    in_windows: Callable[[Iterable[int]], int]
    score_tokens: Callable[[Sequence[Words]], list[TokenScores]]

    @classmethod
    def load(cls, model: str, name: str, *, device: str = "auto") -> "Detector":
        """Load a MODEL on a device (`resolve_device`).

        Raises:
            CheckpointError: it is no discriminator, masked language model or tagger with a tag for correct words.
        """
        pretrained = load_pretrained(model)
        if isinstance(pretrained.head, ReplacedTokenHead):
            scorer = Scorer(pretrained, device=device)
            return cls(
                name, "discriminator", scorer.batcher.count_windowed, lambda words: token_scores(scorer, words)
            )
        if isinstance(pretrained.head, MaskedLanguageModelHead):
            masked = MaskedLikelihoodScorer(MaskedTokenPredictor(pretrained, device=device))
            return cls(
                name,
                "masked-lm",
                lambda lengths: sum(length > masked.predictor.batcher.max_tokens for length in lengths),
                lambda words: surprisal_scores(masked, words),
            )
        predictor = _load_tagger(pretrained, model, device=device)
        longest = predictor.input_spec.max_length - 2

        def in_windows(lengths: Iterable[int]) -> int:
            return sum(length > longest for length in lengths)

        return cls(name, "tagger", in_windows, lambda words: tagger_scores(predictor, words))


def token_scores(scorer: Scorer, sentences: Sequence[Words]) -> list[TokenScores]:
    """Score sentences with a discriminator."""
    encodings = tokenize_words(sentences, scorer.tokenizer)
    logits = scorer.logits([encoding.ids for encoding in encodings])
    return [
        TokenScores(logits_N.astype(np.float64), np.array(encoding.word_ids, np.int64), len(encoding.ids))
        for logits_N, encoding in zip(logits, encodings, strict=True)
    ]


def surprisal_scores(scorer: MaskedLikelihoodScorer, sentences: Sequence[Words]) -> list[TokenScores]:
    """Score sentences with a masked language model: the surprisal of each word (`electra.serving.surprisal`)."""
    encodings = tokenize_words(sentences, scorer.predictor.tokenizer)
    tokenized = [TokenizedText(encoding.ids, word_ids(encoding)) for encoding in encodings]
    scores = []
    for text, (scores_T,) in zip(tokenized, scorer.token_scores(tokenized, ("pll-word-l2r",)), strict=True):
        with_tokens_W, word_T = np.unique(np.array(text.word_ids, np.int64), return_inverse=True)
        surprisal_W = np.zeros(len(with_tokens_W))
        np.add.at(surprisal_W, word_T, -scores_T)
        scores.append(TokenScores(surprisal_W, with_tokens_W, len(text.ids)))
    return scores


def tagger_scores(tagger: Predictor, sentences: Sequence[Words]) -> list[TokenScores]:
    """Score sentences with a tagger: the log-odds of each word having any tag but those of correct words."""
    right = _right_labels(tagger)
    scores = []
    encodings = tokenize_words(sentences, tagger.input_spec.tokenizer)
    for probabilities_WK, encoding in zip(tagger.tag_probabilities(sentences), encodings, strict=True):
        right_W = probabilities_WK[:, right].sum(1).clip(MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        with_tokens_W = np.flatnonzero(probabilities_WK.any(1))
        log_odds = np.log1p(-right_W[with_tokens_W]) - np.log(right_W[with_tokens_W])
        scores.append(TokenScores(log_odds, with_tokens_W, len(encoding.ids)))
    return scores


def _right_labels(tagger: Predictor) -> list[int]:
    """The indices of the labels of correct words."""
    assert isinstance(tagger.problem, Tagging)
    return [number for number, label in enumerate(tagger.problem.labels) if label in CORRECT_TAGS]


def _load_tagger(pretrained: Pretrained, model: str, *, device: str) -> Predictor:
    """The tagger of a MODEL.

    Raises:
        CheckpointError: the model is no tagger, or has no tag for correct words.
    """
    instead = (
        f"to find errors, give a discriminator (a run with objective.kind {DEFAULT_OBJECTIVE}), a masked language "
        "model, or a tagger of wrong words: electra finetune MODEL --task ged --data FOLDER --out TAGGER"
    )
    is_for_task = pretrained.task is not None and pretrained.head is not None
    predictor = Predictor(pretrained, device=device) if is_for_task else None
    if predictor is None or not isinstance(predictor.problem, Tagging):
        raise CheckpointError(f"{model} is {describe_head(pretrained)}; {instead}")
    if not _right_labels(predictor):
        labels = predictor.problem.labels
        listed = ", ".join(labels[:5]) + (", ..." if len(labels) > 5 else "")
        raise CheckpointError(
            f"{model} tags words as {listed}, but none of these tags is for correct words "
            f"({', '.join(CORRECT_TAGS)}); {instead}"
        )
    return predictor

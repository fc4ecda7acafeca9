"""A tag for each word of a sentence: chunks, names, parts of speech, errors.

Shapes: B rows of a batch, L length, D hidden size, K labels, N tokens of a sentence, W words of a row.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.tokenizer import special_tokens
from electra.errors import DataError
from electra.modeling.encoders.bert import EncoderConfig
from electra.modeling.task_heads import TokenHead
from electra.tasks import tags
from electra.tasks.base import (
    IGNORE_INDEX,
    Facts,
    InputSpec,
    Outputs,
    Prediction,
    Rows,
    Task,
    TaskBatch,
    build_rows,
)
from electra.tasks.conll import Sentence

Metric = Literal["span_f1", "accuracy", "f0.5"]

MAX_LABELS = 1_000
"""Different tags above which the column is taken for a wrong one."""
UNSEEN = 0.01
"""Share of a split's words up to which tags that train never has are counted as wrong, not refused: a treebank's
test part has features that nothing before it has."""
DIGITS = 4  # of a score in a prediction
LISTED = 10  # tags named in a message
OUTSIDE = "O"


@dataclass(frozen=True)
class Tagging:
    """Tags from a closed set.

    Tags of spans are BIOES inside, as in ELECTRA's own code; examples and predictions have the files' scheme.

    Attributes:
        labels: what the network chooses from.
        scheme: of the files' tags.
        metric: what runs are judged by.
        fallback: the label of a word that the tokenizer has no token for (a control character, say).
        positive: the tag that is to be found, for f0.5.
    """

    labels: tuple[str, ...]
    scheme: tags.Scheme
    metric: Metric
    fallback: str
    positive: str = ""
    kind, says = "tagging", "tags"

    def known(self, example: Sentence) -> Facts:
        return {"gold": [*(example.tags or ())]}  # the words stand in the prediction

    def with_tuned_threshold(self, metrics: dict[str, float]) -> "Tagging":
        return self

    def facts(self) -> Facts:
        return {"kind": self.kind, **asdict(self)}

    def head(self, config: EncoderConfig) -> TokenHead:
        return TokenHead(config, len(self.labels))

    def encode(self, examples: Sequence[Sentence], reading: InputSpec) -> Rows:
        """Sentences as rows, with the target `labels` at each word's first token where the sentences have tags.

        A sentence that is too long for a row makes several, which overlap. Each word counts in the one that shows
        most on both sides of it, so no word is lost or counted twice.
        """
        special = special_tokens(reading.tokenizer)
        capacity = reading.max_length - 2
        tokens: list[list[int]] = []
        owners: list[int] = []
        targets: list[NDArray[np.int64]] = []
        notes: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        encodings = tokenize_words([example.words for example in examples], reading.tokenizer)
        for number, (example, encoding) in enumerate(zip(examples, encodings, strict=True)):
            words_W, places_W = _first_tokens(encoding)
            labels = self._targets(example)
            for start, end, kept_from, kept_to in split_windows(len(encoding.ids), capacity):
                kept = (kept_from <= places_W) & (places_W < kept_to)
                words, places = words_W[kept], places_W[kept] - start + 1
                target_L = np.full(end - start + 2, IGNORE_INDEX, np.int64)
                target_L[places] = labels[words]
                tokens.append(encoding.ids[start:end])
                owners.append(number)
                targets.append(target_L)
                notes.append((words, places))
        tagged = any(example.tags is not None for example in examples)
        return build_rows(
            [(ids, None) for ids in tokens],
            (special.classify, special.separate),
            examples=owners,
            token_targets={"labels": np.concatenate(targets)} if tagged else {},
            notes=notes,
        )

    def logits(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> dict[str, Tensor]:
        return {"logits": head(x_BLD)}

    def outputs(self, logits: dict[str, Tensor], batch: TaskBatch) -> dict[str, Tensor]:
        """The `probabilities` (B, L, K) of the labels at each token."""
        return {"probabilities": torch.softmax(logits["logits"].float(), dim=-1)}

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """The cross-entropy (B) of a row's labelled tokens together."""
        logits_BKL, labels_BL = head(x_BLD).float().transpose(1, 2), batch.targets["labels"]
        return F.cross_entropy(logits_BKL, labels_BL, ignore_index=IGNORE_INDEX, reduction="none").sum(1)

    def answers(self, batch: TaskBatch) -> Tensor:
        return (batch.targets["labels"] != IGNORE_INDEX).sum().clamp(min=1)

    def probabilities(
        self, examples: Sequence[Sentence], rows: Rows, outputs: Sequence[Outputs]
    ) -> list[NDArray[np.float64]]:
        """For each sentence those of all labels (W, K); of a word that the network did not see, 0."""
        found = [np.zeros((len(example.words), len(self.labels))) for example in examples]
        for example, (words, places), output in zip(rows.examples.tolist(), rows.notes, outputs, strict=True):
            found[example][words] = output["probabilities"][places]
        return found

    def predictions(
        self, examples: Sequence[Sentence], rows: Rows, outputs: Sequence[Outputs]
    ) -> list[Prediction]:
        """For each sentence its `words`, their `tags` in the files' scheme, and `scores`.

        A score is the probability of the label that the network chose; 0 for a word that it did not see.
        """
        fallback = self.labels.index(self.fallback)
        probabilities = self.probabilities(examples, rows, outputs)
        scores = [found_WK.max(1) for found_WK in probabilities]
        chosen = [
            np.where(score_W > 0, found_WK.argmax(1), fallback)
            for found_WK, score_W in zip(probabilities, scores, strict=True)
        ]
        return [
            {
                "words": [*example.words],
                "tags": self._in_files([self.labels[label] for label in labels.tolist()]),
                "scores": [round(score, DIGITS) for score in certain.tolist()],
            }
            for example, labels, certain in zip(examples, chosen, scores, strict=True)
        ]

    def score(self, examples: Sequence[Sentence], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Figures from 0 to 1, by the metric: those of `span_scores`, of `detection_scores`, or the accuracy."""
        gold = [example.tags or () for example in examples]
        predicted = [prediction["tags"] for prediction in predictions]
        if self.metric == "span_f1":
            return tags.span_scores(gold, predicted)
        if self.metric == "f0.5":
            return tags.detection_scores(gold, predicted, self.positive)
        return {"accuracy": tags.accuracy(gold, predicted)}

    def unknown(self, examples: Sequence[Sentence]) -> Counter[str]:
        """The tags of these sentences that are none of the problem's, and how often each stands there."""
        kinds = {*tags.span_types(self.labels)}

        def known(tag: str) -> bool:
            if self.scheme == "none":
                return tag in self._numbers
            letter, kind = tags.split_tag(tag)
            return letter == OUTSIDE or (letter in tags.MEANINGS and kind in kinds)

        seen = Counter(tag for example in examples for tag in example.tags or ())
        return Counter({tag: count for tag, count in seen.items() if not known(tag)})

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def _in_files(self, labels: list[str]) -> list[str]:
        return labels if self.scheme == "none" else tags.convert_scheme(labels, self.scheme)

    def _targets(self, example: Sentence) -> NDArray[np.int64]:
        """The number of each word's label; `IGNORE_INDEX` where it has none, or one that is not learnt."""
        if example.tags is None:
            return np.full(len(example.words), IGNORE_INDEX, np.int64)
        labels = example.tags if self.scheme == "none" else tags.convert_scheme(example.tags, "bioes")
        return np.array([self._numbers.get(label, IGNORE_INDEX) for label in labels], np.int64)


def build_tagging_task(
    name: str,
    splits: Mapping[str, Sequence[Sentence]],
    *,
    metric: Metric | None = None,
    positive: str = "",
    notes: Sequence[str] = (),
) -> Task:
    """A task whose labels are the tags of its split `train`.

    Args:
        metric: None: span_f1 where the tags mark spans, else accuracy.
        positive: the tag to be found, for f0.5.
        notes: what is known of the data already.

    Raises:
        DataError: when the tags of `train` do not suit (there is one, there are above `MAX_LABELS`, they mark no
            spans as span_f1 wants, `positive` is none of them), or when another split has tags that it has not: of
            spans any, of others more than `UNSEEN` of its words.
    """
    seen = Counter(tag for example in splits["train"] for tag in example.tags or ())
    source = splits["train"][0].source
    scheme = "none" if metric == "f0.5" else tags.detect_scheme(example.tags or () for example in splits["train"])
    if len(seen) > MAX_LABELS:
        raise DataError(
            f"{source}: there are {len(seen):,} different tags, as {_listed(seen)}; is this the right column?"
        )
    if len(seen) < 2:
        raise DataError(
            f"{source}: every word has the same tag ({_listed(seen) or 'none'}), so there is nothing to learn; "
            "is this the right column?"
        )
    if metric == "span_f1" and scheme == "none":
        raise DataError(f"{source}: these tags mark no spans: {_listed(seen)}; name their column, or use accuracy")
    if metric == "f0.5" and positive not in seen:
        raise DataError(f"{source}: no word has the tag {positive!r}, the one to find; there is {_listed(seen)}")
    labels = set(seen) if scheme == "none" else tags.bioes_tags(tags.span_types(seen))
    problem = Tagging(
        labels=tuple(sorted(labels, key=lambda label: (label != OUTSIDE, label))),
        scheme=scheme,
        metric=metric or ("accuracy" if scheme == "none" else "span_f1"),
        fallback=OUTSIDE if OUTSIDE in labels else seen.most_common(1)[0][0],
        positive=positive,
    )
    for split, examples in splits.items():
        if unknown := problem.unknown(examples):
            found = f"{split} has tags that train never has: {_listed(unknown)}"
            if scheme != "none" or unknown.total() > UNSEEN * sum(len(example.words) for example in examples):
                raise DataError(
                    f"{examples[0].source}: {found}; put sentences with them into train, or leave them out here"
                )
            notes = (*notes, f"{found}; they can only be wrong")
    counted = [_counted(split, examples, scheme) for split, examples in splits.items()]
    return Task(name, problem, splits, (*notes, f"{len(labels)} labels; tags: {scheme}", *counted))


def split_windows(length: int, capacity: int) -> list[tuple[int, int, int, int]]:
    """Windows of at most `capacity` tokens that cover `length`, neighbours overlapping by half.

    Returns:
        Of each its start, its end, and where the tokens begin and end that have no more context in another one.
    """
    if length <= capacity:
        return [(0, length, 0, length)]
    count = 1 + math.ceil((length - capacity) / (capacity - capacity // 2))
    starts = [i * (length - capacity) // (count - 1) for i in range(count)]
    middles = [(start + before + capacity) // 2 for before, start in pairwise(starts)]
    borders = [0, *middles, length]
    return [(start, start + capacity, *kept) for start, kept in zip(starts, pairwise(borders), strict=True)]


def tokenize_words(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[Encoding]:
    """The tokens of words, without special ones; `word_ids` says whose each is. A word may have none."""
    # A blank before each word but the first, as in a byte-level BPE's texts; others set one themselves or drop it.
    spaced = [[word if i == 0 else f" {word}" for i, word in enumerate(words)] for words in sentences]
    return tokenizer.encode_batch(spaced, is_pretokenized=True, add_special_tokens=False)


def _first_tokens(encoding: Encoding) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The words (W) that have tokens, and the place of the first token of each."""
    words_N = np.array(encoding.word_ids, np.int64)
    places_W = np.flatnonzero(np.diff(words_N, prepend=-1))
    return words_N[places_W], places_W


def _counted(split: str, examples: Sequence[Sentence], scheme: tags.Scheme) -> str:
    words = sum(len(example.words) for example in examples)
    note = f"{split}: {len(examples):,} sentences, {words:,} words"
    if any(example.tags is None for example in examples):
        return f"{note}, without tags"
    wrong = sum(tags.count_violations(example.tags or (), scheme) for example in examples)
    return f"{note}, {wrong:,} tags that break the scheme, mended as conlleval reads them" if wrong else note


def _listed(counts: Counter[str]) -> str:
    listed = ", ".join(f"{tag!r} ({count:,} times)" for tag, count in counts.most_common(LISTED))
    return listed + (f" and {len(counts) - LISTED:,} others" if len(counts) > LISTED else "")

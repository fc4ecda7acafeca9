"""What problems with one answer per text, or per pair of texts, have in common.

Shapes: B batch, L length, K outputs, D hidden size.
"""

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from tokenizers import Tokenizer
from torch import Tensor, nn

from electra.data.tokenizer import special_tokens
from electra.errors import ConfigError, DataError
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.task_heads import TextHead
from electra.tasks.base import InputSpec, Problem, Rows, TaskBatch, Text, build_rows

TextHeadKind = Literal["linear", "hidden"]
SHOWN_LABELS = 12
"""Number of labels whose share is shown."""


@dataclass(frozen=True)
class TextExample:
    """One or two texts and their answer.

    Attributes:
        answer: the number of the label, the numbers of several labels, or a value; None: unknown.
    """

    first: str
    second: str | None = None
    answer: float | tuple[int, ...] | None = None

    @property
    def swapped(self) -> "TextExample":
        """The same pair in the other order."""
        assert self.second is not None
        return replace(self, first=self.second, second=self.first)


@dataclass(frozen=True)
class TextProblem(Problem):
    """A problem with one answer per text or per pair of texts, from the state of [CLS].

    Attributes:
        metrics: names of the metrics; runs are compared by the first one.
        head_kind: linear (ELECTRA), or hidden, with a hidden layer (transformers).
        pair: the examples are pairs of texts.
    """

    metrics: tuple[str, ...]
    head_kind: TextHeadKind = "linear"
    pair: bool = False

    @cached_property
    def metric(self) -> str:  # type: ignore[override]  # a dataclass cannot override a property with a field
        return self.metrics[0]

    @property
    def takes_pairs(self) -> bool:
        return self.pair

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Number of outputs (logits, or values) per text."""

    @abstractmethod
    def targets(self, answers: Sequence[Any]) -> np.ndarray[Any, Any]:
        """Return answers in the form that the loss takes."""

    @abstractmethod
    def format_answer(self, answer: Any) -> Any:
        """Return an answer in the form that files have."""

    def make_example(self, text: Text, number: int) -> TextExample:
        if self.pair:
            return TextExample(*split_pair(text, number, "a pair of texts"))
        if not isinstance(text, str):
            raise DataError(
                f"text {number + 1}: expected one text, found {json.dumps(text, ensure_ascii=False)[:60]}"
            )
        return TextExample(text)

    def describe_example(self, example: TextExample) -> dict[str, Any]:
        texts = {"text": example.first} | ({} if example.second is None else {"pair": example.second})
        return {**texts, "gold": None if example.answer is None else self.format_answer(example.answer)}

    def encode(self, examples: Sequence[TextExample], spec: InputSpec) -> Rows:
        """Return one row per example. If a pair is too long, the longer text loses tokens at its end."""
        special = special_tokens(spec.tokenizer)
        firsts = _tokenize([example.first for example in examples], spec.tokenizer)
        seconds = iter(
            _tokenize([example.second for example in examples if example.second is not None], spec.tokenizer)
        )
        segments: list[tuple[list[int], list[int] | None]] = []
        cut = []
        for number, (example, first) in enumerate(zip(examples, firsts, strict=True)):
            second = None if example.second is None else next(seconds)
            truncated = truncate_pair(first, second, spec.max_length)
            if truncated != (first, second):
                cut.append(number)
            segments.append(truncated)
        answers = [example.answer for example in examples if example.answer is not None]
        targets = {"answer": self.targets(answers)} if len(answers) == len(examples) else {}
        return build_rows(segments, (special.classify, special.separate), targets=targets, cut=cut)

    def build_head(self, config: EncoderConfig) -> TextHead:
        return TextHead(config, self.num_outputs, hidden=self.head_kind == "hidden")

    def logits(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> dict[str, Tensor]:
        return {"logits": head(x_BLD)}

    def outputs(self, logits: dict[str, Tensor], batch: TaskBatch) -> dict[str, Tensor]:
        return logits

    def describe_answers(self, examples: Sequence[TextExample]) -> str:
        """Return the distribution of the answers, as the end of a sentence."""
        answers = [example.answer for example in examples if example.answer is not None]
        return self._distribution(answers) if len(answers) == len(examples) else ", without answers"

    @abstractmethod
    def _distribution(self, answers: Sequence[Any]) -> str: ...


def label_shares(labels: Iterable[str], total: int) -> str:
    """Return the share of `total` examples that have each label, the most frequent labels first."""
    counts = Counter(labels)
    shown = [f"{label}: {count / total:.1%}" for label, count in counts.most_common(SHOWN_LABELS)]
    more = f", and {len(counts) - SHOWN_LABELS} more" if len(counts) > SHOWN_LABELS else ""
    return f"; {', '.join(shown)}{more}"


def describe_untested_labels(
    labels: Sequence[str], train: Sequence[TextExample], dev: Sequence[TextExample]
) -> tuple[str, ...]:
    """Return a remark about the labels that no example of dev has, the rarest first; nothing if there are none."""
    counts, tested = _count_labels(train), _count_labels(dev)
    untested = sorted((number for number in counts if number not in tested), key=lambda number: counts[number])
    if not untested:
        return ()
    shown = [f"{labels[number]!r} ({counts[number]:,} in train)" for number in untested[:SHOWN_LABELS]]
    more = f", and {len(untested) - SHOWN_LABELS} more" if len(untested) > SHOWN_LABELS else ""
    start = "1 label has" if len(untested) == 1 else f"{len(untested)} labels have"
    pronoun = "it" if len(untested) == 1 else "them"
    return (f"{start} no example in dev, so its metrics say nothing about {pronoun}: {', '.join(shown)}{more}",)


def _count_labels(examples: Sequence[TextExample]) -> Counter[Any]:
    """Return the number of examples of each label, for examples with one label or several."""
    answers = (example.answer for example in examples)
    return Counter(number for one in answers for number in (one if isinstance(one, tuple) else (one,)))


def split_pair(text: Text, number: int, expected: str) -> tuple[str, str]:
    """Return the two parts of an input. Its number and what is expected are for the message.

    Raises:
        DataError: it does not have two parts.
    """
    if isinstance(text, str) or len(text) != 2:
        raise DataError(
            f"text {number + 1}: expected {expected}, found {json.dumps(text, ensure_ascii=False)[:60]}"
        )
    return text[0], text[1]


def truncate_pair(
    first: list[int], second: list[int] | None, max_length: int
) -> tuple[list[int], list[int] | None]:
    """Truncate the tokens of one or two texts to a row: the longer text loses tokens at its end until both fit."""
    if second is None:
        return first[: max_length - 2], None
    room = max_length - 3
    if len(first) + len(second) <= room:
        return first, second
    shorter = min(len(first), len(second), room // 2)
    if len(first) > len(second):
        return first[: room - shorter], second[:shorter]
    return first[:shorter], second[: room - shorter]


def round_scores(scores: Sequence[float]) -> list[float]:
    """Return scores with as many digits as predictions have."""
    return [round(score, 6) for score in scores]


def check_top(problem: Problem, top: int | None, option: str) -> None:
    """Check that a number of labels is at least 1, and only given for a model that scores labels.

    Args:
        option: the name of `top` in the message.

    Raises:
        ConfigError: it is less than 1, or the model predicts tags, answers or a number.
    """
    if top is not None and top < 1:
        raise ConfigError(f"{option}: must be at least 1, got {top}")
    if top is not None and (problem.reads_words or not getattr(problem, "labels", ())):
        raise ConfigError(
            f"{option}: is for models that give scores to labels (of kind classification, pair or multilabel); "
            f"this one is of kind {problem.kind}; leave it out"
        )


def highest_scores(scores: Mapping[str, float], count: int | None = None) -> dict[str, float]:
    """Return the scores of labels, the highest first; at most `count` of them."""
    return dict(sorted(scores.items(), key=lambda pair: -pair[1])[:count])


def _tokenize(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

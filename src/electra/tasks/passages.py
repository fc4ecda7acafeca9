"""Questions about passages: the tokens of passages, and the windows that rows show of them.

Shapes: N tokens of a passage, K windows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from unicodedata import category

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the passage (`context`) that its answer is in.

    Attributes:
        answers: text of each answer, with the position of its first character in the context; -1 if it is not
            there, so that predictions can be compared with it but nothing can be learned from it.
        impossible: the context does not answer the question. If it is False and there are no answers, they are
            unknown.
        training: the question is a training example.
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    impossible: bool = False
    training: bool = False

    @property
    def has_answer(self) -> bool:
        """Whether the right prediction is known: an answer, or that there is none."""
        return bool(self.answers) or self.impossible


class Passage(NamedTuple):
    """The tokens of a context, and the characters (N, 2) of each: start and end (exclusive)."""

    ids: list[int]
    spans_N2: NDArray[np.int32]


def tokenize_passages(contexts: Iterable[str], tokenizer: Tokenizer) -> dict[str, Passage]:
    """Return passages by context. Each distinct context is tokenized once."""
    texts = list(dict.fromkeys(contexts))
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    return {
        text: Passage(encoding.ids, _character_spans(text, encoding.offsets))
        for text, encoding in zip(texts, encodings, strict=True)
    }


def window_starts(tokens: int, room: int, *, stride: int, max_answer: int) -> NDArray[np.int64]:
    """Return the first token (K) of each window of `room` tokens: one every `stride` tokens, until all are shown.

    Short windows have a smaller stride, so that an answer that one of them cuts is whole in the next.
    """
    step = min(stride, max((room + 1) // 2, room - max_answer))
    return np.arange(0, max(0, tokens - room) + step, step)


def max_context_windows(firsts_K: NDArray[np.int64], tokens: int, room: int) -> NDArray[np.int64]:
    """Return the window (N) that shows the most context of each token (BERT's "max context").

    It is the first one with the largest value of: the tokens on the side with fewer tokens, plus a hundredth of
    the window's length.
    """
    if len(firsts_K) == 1:
        return np.zeros(tokens, np.int64)
    ends_K = np.minimum(firsts_K + room, tokens)
    positions_N = np.arange(tokens)
    fewer_KN = np.minimum(positions_N - firsts_K[:, None], ends_K[:, None] - 1 - positions_N)
    context_KN = np.where(fewer_KN < 0, -np.inf, fewer_KN + 0.01 * (ends_K - firsts_K)[:, None])
    return np.argmax(context_KN, 0)


def answer_span(example: Question, spans_N2: NDArray[np.int32]) -> tuple[int, int] | None:
    """Return the first and last token of the first answer with a known position: all that share a character."""
    text, start = next((answer for answer in example.answers if answer[1] >= 0), ("", -1))
    if start < 0 or example.impossible:
        return None
    start, end = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    first = int(np.searchsorted(spans_N2[:, 1], start, side="right"))
    last = int(np.searchsorted(spans_N2[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else None


def _character_spans(text: str, offsets: Sequence[tuple[int, int]]) -> NDArray[np.int32]:
    """Return the characters (N, 2) of each token, without white space around them; a token may have none.

    A combining accent belongs to the token before it, also if the tokenizer strips it.
    """
    if not offsets:
        return np.zeros((0, 2), np.int32)
    count = len(text)
    starts_N, ends_N = np.array(offsets, np.int64).T
    is_space = np.array([*map(str.isspace, text), True])
    positions = np.arange(count + 1)
    next_word = np.minimum.accumulate(np.where(is_space, count, positions)[::-1])[::-1]
    word_end = np.maximum.accumulate(np.concatenate([[0], np.where(is_space[:-1], 0, positions[1:])]))
    starts_N = next_word[starts_N]
    ends_N = np.maximum(word_end[ends_N], starts_N)
    if not text.isascii():
        is_accent = np.array([*(category(character).startswith("M") for character in text), False])
        next_other = np.minimum.accumulate(np.where(is_accent, count, positions)[::-1])[::-1]
        ends_N = np.maximum(ends_N, np.minimum(next_other[ends_N], np.append(starts_N[1:], count)))
    return np.stack([starts_N, ends_N], 1).astype(np.int32)

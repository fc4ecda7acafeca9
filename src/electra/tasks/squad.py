"""An answer in a passage: SQuAD 1.1, 2.0 (where some questions have none), and own data in that format.

A row is [CLS] question [SEP] a window of the context [SEP]. Spans of tokens are read back as characters of the
context, so that an answer is always the original text.

Shapes: B batch, L length, D hidden size, T starts of answers, N tokens of a context, K windows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.tokenizer import special_tokens
from electra.errors import ConfigError, DataError
from electra.modeling.encoders.bert import EncoderConfig
from electra.modeling.task_heads import BEAM, ConditionalSpanHead, SpanHead
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
from electra.tasks.squad_files import SOURCE, Question, hold_out, read_questions
from electra.tasks.squad_metrics import best_thresholds, compute_squad_metrics
from electra.tasks.squad_passages import Passage, tokenize_passages

SpanHeadKind = Literal["conditional", "plain"]
Version = Literal["1.1", "2.0"]

ANSWERABLE_WEIGHT = 0.5
"""The answerability's weight in the loss (the original's `answerable_weight`)."""
N_BEST_WRITTEN = 5
"""Answers of each question that a prediction lists."""


class Window(NamedTuple):
    """What a row shows of a context: the characters (N, 2) of all its tokens, and the first token shown."""

    spans_N2: NDArray[np.int32]
    first: int


@dataclass(frozen=True)
class QuestionAnswering:
    """Where in a context the answer to a question stands.

    A window that does not hold the whole answer has, with `impossible`, [CLS] for its target and counts as one
    without an answer; without, it makes no row for training and has no target in other data. (The original's code
    points to [CLS] in both, and there calls the window answerable.)

    Attributes:
        pointer: the end given the start (ELECTRA), or both independently (BERT).
        impossible: some questions have no answer (SQuAD 2.0).
        max_question: tokens that a question is cut to.
        stride: tokens between the beginnings of two windows.
        max_answer: tokens of the longest answer that is given.
        n_best: spans kept for each window.
        null_threshold: an answer is given where its null odds are at most this.
    """

    pointer: SpanHeadKind = "conditional"
    impossible: bool = False
    max_question: int = 64
    stride: int = 128
    max_answer: int = 30
    n_best: int = 20
    null_threshold: float = 0.0
    kind, says = "answering", "answer"
    metric = "exact"

    def known(self, example: Question) -> Facts:
        return {"question": example.question, "gold": [text for text, _ in example.answers]}

    def with_tuned_threshold(self, metrics: dict[str, float]) -> "QuestionAnswering":
        """With the threshold that was best on dev, where there are questions without an answer."""
        return replace(self, null_threshold=metrics["best_threshold"]) if self.impossible else self

    def facts(self) -> Facts:
        return {"kind": self.kind, **asdict(self)}

    def head(self, config: EncoderConfig) -> SpanHead | ConditionalSpanHead:
        if self.pointer == "plain":
            return SpanHead(config)
        return ConditionalSpanHead(config, answerable=self.impossible)

    def encode(self, examples: Sequence[Question], reading: InputSpec) -> Rows:
        """A row for each window of a question's context; `cut`: those of which the question was too long.

        Token targets: `allowed`, 1 where an answer may begin and end ([CLS] and the context); `begins`, 1 where
        one may begin in use: where no other window shows more of the token's surroundings. Notes: `Window`s.

        Raises:
            ConfigError: rows are too short for a question and some context.
        """
        if reading.max_length < self.max_question + 4:
            raise ConfigError(
                f"max_length: rows of {reading.max_length} tokens cannot hold a question of {self.max_question} "
                f"and some of its context; {self.max_question + 4} is the least, and 384 or 512 are usual. "
                "Where data.max_length was left open, the model reads no more: take one for longer rows"
            )
        special = special_tokens(reading.tokenizer)
        passages = tokenize_passages((example.context for example in examples), reading.tokenizer)
        asked = reading.tokenizer.encode_batch_fast([e.question for e in examples], add_special_tokens=False)
        pieces: list[tuple[list[int], list[int] | None]] = []
        numbers, begins, notes, targets = [], [], [], []
        for number, (example, encoding) in enumerate(zip(examples, asked, strict=True)):
            question, passage = encoding.ids[: self.max_question], passages[example.context]
            room = reading.max_length - len(question) - 3
            firsts_K = self._windows(len(passage.ids), room)
            owners_N = max_context_windows(firsts_K, len(passage.ids), room)
            goals = self._goals(example, passage, firsts_K, room, len(question) + 2)
            for window, (first, goal) in enumerate(zip(firsts_K.tolist(), goals, strict=True)):
                if goal is None and example.training:
                    continue
                pieces.append((question, passage.ids[first : first + room]))
                numbers.append(number)
                begins.append(owners_N[first : first + room] == window)
                notes.append(Window(passage.spans_N2, first))
                targets.append(goal or (IGNORE_INDEX, IGNORE_INDEX, IGNORE_INDEX))
        rows = build_rows(pieces, (special.classify, special.separate), examples=numbers, notes=notes)
        names = ("start", "end", "impossible") if self.impossible else ("start", "end")
        columns = np.array(targets, np.int64).reshape(-1, 3).T
        known = any(example.known for example in examples)
        return replace(
            rows,
            targets=dict(zip(names, columns, strict=False)) if known else {},
            token_targets=_token_targets(rows, begins),
            cut=[i for i, encoding in enumerate(asked) if len(encoding.ids) > self.max_question],
        )

    def _windows(self, tokens: int, room: int) -> NDArray[np.int64]:
        """Where windows of `room` tokens begin (K): one every `stride` until the last token is shown.

        Short windows come closer together, so that an answer that one of them cuts is whole in the next.
        """
        step = min(self.stride, max((room + 1) // 2, room - self.max_answer))
        return np.arange(0, max(0, tokens - room) + step, step)

    def _goals(
        self, example: Question, passage: Passage, firsts_K: NDArray[np.int64], room: int, second: int
    ) -> Iterator[tuple[int, int, int] | None]:
        """For each window: the answer's first and last token in its row, and whether there is none."""
        nothing = (0, 0, 1) if self.impossible else None
        span = _answer_span(example, passage.spans_N2)
        for first in firsts_K.tolist():
            if span is None:
                yield nothing if example.impossible else None
            elif first <= span[0] and span[1] < first + room:
                yield span[0] - first + second, span[1] - first + second, 0
            else:
                yield nothing

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """(B): the mean of the cross-entropies of start and end, of the end given the true start where the pointer
        is conditional; in 2.0 and with that pointer, also half the one of whether there is an answer."""
        allowed_BL = batch.targets["allowed"] == 1
        start_B, end_B = batch.targets["start"], batch.targets["end"]
        if self.pointer == "plain":
            start_BL, end_BL = _plain_logits(head, x_BLD, allowed_BL)
            return (_cross_entropy(start_BL, start_B) + _cross_entropy(end_BL, end_B)) / 2
        assert isinstance(head, ConditionalSpanHead)
        start_BL = head.start_logits(x_BLD, allowed_BL)
        end_BL = head.end_logits(x_BLD, start_B.clamp(min=0)[:, None], allowed_BL)[:, 0]
        losses_B = (_cross_entropy(start_BL, start_B) + _cross_entropy(end_BL, end_B)) / 2
        if self.impossible:
            none_B = batch.targets["impossible"]
            answerable_B = F.binary_cross_entropy_with_logits(
                head.answerable_logits(x_BLD, start_BL).float(), none_B.clamp(min=0).float(), reduction="none"
            )
            losses_B = losses_B + ANSWERABLE_WEIGHT * answerable_B * (none_B != IGNORE_INDEX)
        return losses_B

    def answers(self, batch: TaskBatch) -> Tensor:
        return torch.tensor(len(batch.lengths_B), device=batch.lengths_B.device)

    def logits(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> dict[str, Tensor]:
        """Of the plain pointer `start_logits` and `end_logits` (B, L).

        Of the conditional one the `BEAM` likeliest `starts` (B, T) and their log-probabilities `start_scores`,
        those of each token's being the end, `end_scores` (B, T, L), and `null_scores` (B): in 2.0 the logit of
        there being no answer, else the log-probability of [CLS].
        """
        if self.pointer == "plain":
            start_BL, end_BL = head(x_BLD).unbind(-1)
            return {"start_logits": start_BL, "end_logits": end_BL}
        assert isinstance(head, ConditionalSpanHead)
        allowed_BL, begins_BL = batch.targets["allowed"] == 1, batch.targets["begins"] == 1
        logits_BL = head.start_logits(x_BLD, allowed_BL)
        start_BL = logits_BL.float().log_softmax(-1)
        start_BT, places_BT = start_BL.masked_fill(~begins_BL, -torch.inf).topk(min(BEAM, start_BL.shape[1]))
        return {
            "start_scores": start_BT,
            "starts": places_BT,
            "end_scores": head.end_logits(x_BLD, places_BT, allowed_BL).float().log_softmax(-1),
            "null_scores": head.answerable_logits(x_BLD, logits_BL) if self.impossible else start_BL[:, 0],
        }

    def outputs(self, logits: dict[str, Tensor], batch: TaskBatch) -> dict[str, Tensor]:
        """The best spans (B, up to n_best): `starts`, `ends`, `scores` (-inf: there are fewer); and `null` (B).

        A score is the sum of two logits, or of two log-probabilities with the conditional pointer, which follows
        the `BEAM` likeliest starts. `null` is the score of [CLS], or in 2.0 the conditional head's logit of there
        being no answer.
        """
        if self.pointer == "plain":
            allowed_BL, begins_BL = batch.targets["allowed"] == 1, batch.targets["begins"] == 1
            start_BL, end_BL = (
                logits[name].float().masked_fill(~allowed_BL, -torch.inf)
                for name in ("start_logits", "end_logits")
            )
            null_B = start_BL[:, 0] + end_BL[:, 0]
            start_BT = start_BL.masked_fill(~begins_BL, -torch.inf)
            places_BT = torch.arange(start_BL.shape[1], device=start_BL.device).expand_as(start_BL)
            end_BTL = end_BL[:, None]
        else:
            start_BT, places_BT, end_BTL, null_B = (
                logits[name] for name in ("start_scores", "starts", "end_scores", "null_scores")
            )
        L = end_BTL.shape[-1]
        further_BTL = torch.arange(L, device=end_BTL.device) - places_BT[..., None]
        fits_BTL = (further_BTL >= 0) & (further_BTL < self.max_answer)
        scores_BTL = (start_BT[..., None] + end_BTL).masked_fill(~fits_BTL, -torch.inf)
        flat_BX = scores_BTL.flatten(1)
        scores, best = flat_BX.topk(min(self.n_best, flat_BX.shape[1]))
        return {"starts": places_BT.gather(1, best // L), "ends": best % L, "scores": scores, "null": null_B}

    def predictions(
        self, examples: Sequence[Question], rows: Rows, outputs: Sequence[Outputs]
    ) -> list[Prediction]:
        """For each question: id, answer ("" for none), the best answer's score, null_odds, and the best answers.

        The odds are the least null score of the question's windows: as it is where it is the logit of no answer,
        else less the best answer's score.
        """
        spans: list[list[tuple[float, int, int]]] = [[] for _ in examples]
        nulls = [np.inf] * len(examples)
        for row, (number, output) in enumerate(zip(rows.examples.tolist(), outputs, strict=True)):
            spans_N2, first = rows.notes[row]
            chosen = np.isfinite(output["scores"])
            shift = first - int(rows.seconds[row])
            starts = spans_N2[output["starts"][chosen].astype(np.int64) + shift, 0].tolist()
            ends = spans_N2[output["ends"][chosen].astype(np.int64) + shift, 1].tolist()
            spans[number] += zip(output["scores"][chosen].tolist(), starts, ends, strict=True)
            nulls[number] = min(nulls[number], float(output["null"]))
        return [self._prediction(*one) for one in zip(examples, spans, nulls, strict=True)]

    def _prediction(self, example: Question, spans: list[tuple[float, int, int]], null: float) -> Prediction:
        best: dict[str, Prediction] = {}
        for score, start, end in sorted(spans, key=lambda span: -span[0]):
            text = example.context[start:end]
            if text and text not in best:
                best[text] = {"text": text, "score": round(score, 6), "start": start, "end": end}
            if len(best) == N_BEST_WRITTEN:
                break
        listed = list(best.values())
        score = listed[0]["score"] if listed else 0.0
        odds = round(null if self.pointer == "conditional" and self.impossible else null - score, 6)
        given = bool(listed) and (not self.impossible or odds <= self.null_threshold)
        return {
            "id": example.id,
            "answer": listed[0]["text"] if given else "",
            "score": score,
            "null_odds": odds,
            "n_best": listed,
        }

    def score(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> dict[str, float]:
        """`exact` and `f1`; in 2.0 also of both kinds of questions (HasAns_, NoAns_), and the best that another
        threshold would give: best_exact, best_f1, with best_threshold and best_f1_threshold."""
        judged = [
            (prediction, [text for text, _ in example.answers])
            for example, prediction in zip(examples, predictions, strict=True)
            if example.answers or (self.impossible and example.impossible)
        ]
        golds = [known for _, known in judged]
        found = compute_squad_metrics(
            [prediction["answer"] for prediction, _ in judged], golds, impossible=self.impossible
        )
        if self.impossible:
            best = [prediction["n_best"][0]["text"] if prediction["n_best"] else "" for prediction, _ in judged]
            found |= best_thresholds(best, golds, [prediction["null_odds"] for prediction, _ in judged])
        return found


def max_context_windows(firsts_K: NDArray[np.int64], tokens: int, room: int) -> NDArray[np.int64]:
    """The window (N) that shows most on both sides of each token: the first where the lesser side is greatest, to
    which a hundredth of the window's length is added (as BERT has it)."""
    if len(firsts_K) == 1:
        return np.zeros(tokens, np.int64)
    ends_K = np.minimum(firsts_K + room, tokens)
    places_N = np.arange(tokens)
    lesser_KN = np.minimum(places_N - firsts_K[:, None], ends_K[:, None] - 1 - places_N)
    shown_KN = np.where(lesser_KN < 0, -np.inf, lesser_KN + 0.01 * (ends_K - firsts_K)[:, None])
    return np.argmax(shown_KN, 0)


def load_squad(folder: Path, version: Version, *, pointer: SpanHeadKind = "conditional") -> Task:
    """SQuAD from its official files.

    Raises:
        DataError: a file is missing or broken.
    """
    train, dev = (folder / f"{split}-v{version}.json" for split in ("train", "dev"))
    if missing := [path.name for path in (train, dev) if not path.is_file()]:
        raise DataError(f"{folder}: {' and '.join(missing)} missing; {SOURCE}")
    return load_question_files(f"squad-{version}", train, dev, pointer=pointer)


def load_question_files(
    name: str,
    train: Path,
    dev: Path | None = None,
    *,
    pointer: SpanHeadKind = "conditional",
    dev_share: float = 0.1,
    seed: int = 0,
) -> Task:
    """Files in SQuAD's format; that some questions have no answer is seen in them.

    Args:
        dev: None: a share of the training file's contexts is held out.

    Raises:
        DataError: a file is missing or broken, or nothing can be held out.
    """
    learnt, notes = read_questions(train, training=True)
    if dev is None:
        learnt, judged = hold_out(learnt, dev_share, seed)
        notes = (*notes, f"{train.name}: {len(judged)} questions of {dev_share:.0%} of the contexts are held out")
    else:
        judged, others = read_questions(dev)
        notes += others
        if unknown := sum(not question.known for question in judged):
            judged = [question for question in judged if question.known]
            notes = (*notes, f"{dev.name}: {unknown} questions have no answer to be judged by and are left out")
        if not judged:
            raise DataError(f"{dev}: no question has an answer, so nothing can be judged; give another dev file")
    impossible = any(question.impossible for question in (*learnt, *judged))
    for split, questions in (("train", learnt), ("dev", judged)):
        unanswerable = sum(question.impossible for question in questions)
        without = f", {unanswerable:,} of them without an answer" if impossible else ""
        notes = (*notes, f"{split}: {len(questions):,} questions{without}")
    return Task(name, QuestionAnswering(pointer, impossible), {"train": learnt, "dev": judged}, notes)


def _answer_span(example: Question, spans_N2: NDArray[np.int32]) -> tuple[int, int] | None:
    """The first and last token of the first answer whose place is known: all that have one of its characters."""
    text, start = next((answer for answer in example.answers if answer[1] >= 0), ("", -1))
    if start < 0 or example.impossible:
        return None
    start, end = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    first = int(np.searchsorted(spans_N2[:, 1], start, side="right"))
    last = int(np.searchsorted(spans_N2[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else None


def _token_targets(rows: Rows, begins: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    places = np.arange(len(rows.ids)) - np.repeat(rows.starts[:-1], rows.lengths)
    context = (places >= np.repeat(rows.seconds, rows.lengths)) & (
        places < np.repeat(rows.lengths - 1, rows.lengths)
    )
    begin = np.zeros(len(rows.ids), np.int8)
    begin[context] = np.concatenate(begins) if begins else []
    return {"allowed": (context | (places == 0)).astype(np.int8), "begins": begin}


def _plain_logits(head: nn.Module, x_BLD: Tensor, allowed_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Of start and end (B, L) each; -inf where neither may be."""
    start_BL, end_BL = head(x_BLD).float().masked_fill(~allowed_BL[..., None], -torch.inf).unbind(-1)
    return start_BL, end_BL


def _cross_entropy(logits_BL: Tensor, target_B: Tensor) -> Tensor:
    return F.cross_entropy(logits_BL.float(), target_B, ignore_index=IGNORE_INDEX, reduction="none")

"""Extractive question answering: the answer to a question is a span of a passage, as in SQuAD 1.1 and 2.0.

A row is [CLS] question [SEP] window of the context [SEP]. Predicted spans of tokens are mapped back to characters
of the context, so that an answer is always part of the original text.

Shapes: B batch, L length, D hidden size, T candidate starts of answers, N tokens of a context, K windows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.tokenizer import special_tokens
from electra.errors import ConfigError, DataError
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.task_heads import BEAM, ConditionalSpanHead, SpanHead
from electra.tasks.base import (
    IGNORE_INDEX,
    InputSpec,
    Outputs,
    Prediction,
    Problem,
    Rows,
    Task,
    TaskBatch,
    Text,
    build_rows,
)
from electra.tasks.config import DataConfig, HeadConfig
from electra.tasks.passages import (
    Passage,
    Question,
    answer_span,
    max_context_windows,
    tokenize_passages,
    window_starts,
)
from electra.tasks.squad_files import hold_out, read_questions
from electra.tasks.squad_metrics import best_thresholds, compute_squad_metrics
from electra.tasks.tabular import SPLIT_SEED, find_files
from electra.tasks.texts import split_pair

SpanHeadKind = Literal["conditional", "plain"]

NO_TRAINING_FILE = "name one train.json, or choose the files with --data.train FILE and --data.dev FILE"
ANSWERABLE_WEIGHT = 0.5
"""Weight of the answerability loss (the original's `answerable_weight`)."""
N_BEST_WRITTEN = 5
"""Number of answers that the prediction of a question lists."""


class Window(NamedTuple):
    """What a row shows of a context: the characters (N, 2) of all its tokens, and the first token shown."""

    spans_N2: NDArray[np.int32]
    first: int


@dataclass(frozen=True)
class QuestionAnswering(Problem):
    """The position in a context of the answer to a question.

    A window that does not contain the whole answer has [CLS] as its target if `impossible`, and counts as one
    without an answer. Otherwise it makes no row for training, and has no target in other data. (The original code
    has the target [CLS] in both cases, and counts the window as answerable in the second one.)

    Attributes:
        pointer: conditional: the end depends on the start (ELECTRA); plain: both are independent (BERT).
        impossible: some questions have no answer (SQuAD 2.0).
        max_question: maximum number of tokens of a question; the rest is cut off.
        stride: tokens between the starts of two windows.
        max_answer: maximum number of tokens of an answer.
        n_best: number of spans that are kept for each window.
        null_threshold: an answer is given if its null odds are at most this.
    """

    pointer: SpanHeadKind = "conditional"
    impossible: bool = False
    max_question: int = 64
    stride: int = 128
    max_answer: int = 30
    n_best: int = 20
    null_threshold: float = 0.0
    kind, answer_key, metric = "answering", "answer", "exact"
    default_max_length, is_extractive, takes_pairs = 512, True, True
    purpose = "Finds the answer to a question in a passage that is given with it."
    pipeline_tag, input_example = "question-answering", '("Who saw Bob?", "Ann saw Bob.")'
    column_names = ("question",), ("context", "passage")

    @classmethod
    def load_task(cls, name: str, data: DataConfig, head: HeadConfig) -> Task:
        """Load files in SQuAD's format. Without a dev file, dev is a part of the training file."""
        settings = {"test": data.test, "text": data.text, "pair": data.pair, "label": data.label}
        if given := [f"data.{setting}" for setting, value in settings.items() if value is not None]:
            raise ConfigError(
                f"{', '.join(given)}: kind answering reads files in SQuAD's format, for train and dev, without "
                "columns; leave this out, and answer the questions of another file with electra predict"
            )
        files = find_files(data, fits=lambda file: file.suffix == ".json", remedy=NO_TRAINING_FILE)
        return load_question_files(
            name, files["train"], files.get("dev"), pointer=head.span, dev_share=data.dev_share
        )

    def make_example(self, text: Text, number: int) -> Question:
        return Question(str(number), *split_pair(text, number, "a question and its passage"))

    def describe_example(self, example: Question) -> dict[str, Any]:
        return {"question": example.question, "gold": [text for text, _ in example.answers]}

    def with_tuned_threshold(self, metrics: dict[str, float]) -> "QuestionAnswering":
        return replace(self, null_threshold=metrics["best_threshold"]) if self.impossible else self

    def build_head(self, config: EncoderConfig) -> SpanHead | ConditionalSpanHead:
        if self.pointer == "plain":
            return SpanHead(config)
        return ConditionalSpanHead(config, answerable=self.impossible)

    def encode(self, examples: Sequence[Question], spec: InputSpec) -> Rows:
        """Return a row for each window of each question's context. `cut`: examples whose question was too long.

        Token targets: `allowed`, 1 where an answer may start and end ([CLS] and the context); `begins`, 1 where a
        predicted answer may start: where no other window shows more context of the token. Notes: `Window`s.

        Raises:
            ConfigError: rows are too short for a question and some context.
        """
        if spec.max_length < self.max_question + 4:
            raise ConfigError(
                f"data.max_length (of predict: --max-length): rows of {spec.max_length} tokens cannot hold a "
                f"question of {self.max_question} tokens and some of its context; give at least "
                f"{self.max_question + 4} (384 or 512 are usual). If data.max_length is not set, "
                "the model has too few positions; choose another model"
            )
        special = special_tokens(spec.tokenizer)
        passages = tokenize_passages((example.context for example in examples), spec.tokenizer)
        questions = spec.tokenizer.encode_batch_fast([e.question for e in examples], add_special_tokens=False)
        segments: list[tuple[list[int], list[int] | None]] = []
        numbers, begins, notes, targets = [], [], [], []
        for number, (example, encoding) in enumerate(zip(examples, questions, strict=True)):
            question, passage = encoding.ids[: self.max_question], passages[example.context]
            room = spec.max_length - len(question) - 3
            firsts_K = window_starts(len(passage.ids), room, stride=self.stride, max_answer=self.max_answer)
            best_N = max_context_windows(firsts_K, len(passage.ids), room)
            positions = self._answer_positions(example, passage, firsts_K, room, len(question) + 2)
            for window, (first, position) in enumerate(zip(firsts_K.tolist(), positions, strict=True)):
                if position is None and example.training:
                    continue
                segments.append((question, passage.ids[first : first + room]))
                numbers.append(number)
                begins.append(best_N[first : first + room] == window)
                notes.append(Window(passage.spans_N2, first))
                targets.append(position or (IGNORE_INDEX, IGNORE_INDEX, IGNORE_INDEX))
        rows = build_rows(segments, (special.classify, special.separate), examples=numbers, notes=notes)
        names = ("start", "end", "impossible") if self.impossible else ("start", "end")
        columns = np.array(targets, np.int64).reshape(-1, 3).T
        has_answers = any(example.has_answer for example in examples)
        return replace(
            rows,
            targets=dict(zip(names, columns, strict=False)) if has_answers else {},
            token_targets=_token_targets(rows, begins),
            cut=[i for i, encoding in enumerate(questions) if len(encoding.ids) > self.max_question],
        )

    def _answer_positions(
        self, example: Question, passage: Passage, firsts_K: NDArray[np.int64], room: int, second: int
    ) -> Iterator[tuple[int, int, int] | None]:
        """Yield for each window: the answer's first and last position in its row, and 1 if there is no answer.

        Args:
            second: position in the row where the context starts.
        """
        no_answer = (0, 0, 1) if self.impossible else None
        span = answer_span(example, passage.spans_N2)
        for first in firsts_K.tolist():
            if span is None:
                yield no_answer if example.impossible else None
            elif first <= span[0] and span[1] < first + room:
                yield span[0] - first + second, span[1] - first + second, 0
            else:
                yield no_answer

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """Return the loss (B): the mean of the cross-entropies of start and end.

        With the conditional pointer, the end is conditioned on the true start; and in 2.0, half the cross-entropy
        of whether there is an answer is added.
        """
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

    def logits(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> dict[str, Tensor]:
        """Return the outputs of the head.

        With the plain pointer: `start_logits` and `end_logits` (B, L). With the conditional one: the `BEAM` most
        probable `starts` (B, T), their log-probabilities `start_scores`, the log-probability of each token as the
        end, `end_scores` (B, T, L), and `null_scores` (B): in 2.0 the logit of there being no answer, else the
        log-probability of [CLS].
        """
        if self.pointer == "plain":
            start_BL, end_BL = head(x_BLD).unbind(-1)
            return {"start_logits": start_BL, "end_logits": end_BL}
        assert isinstance(head, ConditionalSpanHead)
        allowed_BL, begins_BL = batch.targets["allowed"] == 1, batch.targets["begins"] == 1
        logits_BL = head.start_logits(x_BLD, allowed_BL)
        start_BL = logits_BL.float().log_softmax(-1)
        start_BT, starts_BT = start_BL.masked_fill(~begins_BL, -torch.inf).topk(min(BEAM, start_BL.shape[1]))
        return {
            "start_scores": start_BT,
            "starts": starts_BT,
            "end_scores": head.end_logits(x_BLD, starts_BT, allowed_BL).float().log_softmax(-1),
            "null_scores": head.answerable_logits(x_BLD, logits_BL) if self.impossible else start_BL[:, 0],
        }

    def outputs(self, logits: dict[str, Tensor], batch: TaskBatch) -> dict[str, Tensor]:
        """Return the best spans (B, up to n_best), `starts`, `ends`, `scores` (-inf: no span), and `null` (B).

        A score is the sum of two logits. With the conditional pointer it is the sum of two log-probabilities, for
        the `BEAM` most probable starts. `null` is the score of [CLS], or in 2.0 the conditional head's logit of
        there being no answer.
        """
        if self.pointer == "plain":
            allowed_BL, begins_BL = batch.targets["allowed"] == 1, batch.targets["begins"] == 1
            start_BL, end_BL = (
                logits[name].float().masked_fill(~allowed_BL, -torch.inf)
                for name in ("start_logits", "end_logits")
            )
            null_B = start_BL[:, 0] + end_BL[:, 0]
            start_BT = start_BL.masked_fill(~begins_BL, -torch.inf)
            starts_BT = torch.arange(start_BL.shape[1], device=start_BL.device).expand_as(start_BL)
            end_BTL = end_BL[:, None]
        else:
            start_BT, starts_BT, end_BTL, null_B = (
                logits[name] for name in ("start_scores", "starts", "end_scores", "null_scores")
            )
        L = end_BTL.shape[-1]
        offset_BTL = torch.arange(L, device=end_BTL.device) - starts_BT[..., None]
        fits_BTL = (offset_BTL >= 0) & (offset_BTL < self.max_answer)
        scores_BTL = (start_BT[..., None] + end_BTL).masked_fill(~fits_BTL, -torch.inf)
        flat_BX = scores_BTL.flatten(1)
        scores, best = flat_BX.topk(min(self.n_best, flat_BX.shape[1]))
        return {"starts": starts_BT.gather(1, best // L), "ends": best % L, "scores": scores, "null": null_B}

    def decode(self, examples: Sequence[Question], rows: Rows, outputs: Sequence[Outputs]) -> list[Prediction]:
        """Return for each question: id, answer ("": none), score of the best answer, null_odds, n best answers.

        The null odds are the smallest null score of the question's windows. If that is not the logit of there
        being no answer, the score of the best answer is subtracted.
        """
        spans: list[list[tuple[float, int, int]]] = [[] for _ in examples]
        nulls = [np.inf] * len(examples)
        for row, (number, output) in enumerate(zip(rows.examples.tolist(), outputs, strict=True)):
            spans_N2, first = rows.notes[row]
            valid = np.isfinite(output["scores"])
            shift = first - int(rows.seconds[row])
            starts = spans_N2[output["starts"][valid].astype(np.int64) + shift, 0].tolist()
            ends = spans_N2[output["ends"][valid].astype(np.int64) + shift, 1].tolist()
            spans[number] += zip(output["scores"][valid].tolist(), starts, ends, strict=True)
            nulls[number] = min(nulls[number], float(output["null"]))
        return [self._predict(*each) for each in zip(examples, spans, nulls, strict=True)]

    def format_prediction(self, prediction: Prediction, text: str) -> str:
        return f"{prediction[self.answer_key] or '(no answer)'}\t{text}"

    def _predict(self, example: Question, spans: list[tuple[float, int, int]], null: float) -> Prediction:
        best: dict[str, Prediction] = {}
        for score, start, end in sorted(spans, key=lambda span: -span[0]):
            text = example.context[start:end]
            if text and text not in best:
                best[text] = {"text": text, "score": round(score, 6), "start": start, "end": end}
            if len(best) == N_BEST_WRITTEN:
                break
        n_best = list(best.values())
        score = n_best[0]["score"] if n_best else 0.0
        odds = round(null if self.pointer == "conditional" and self.impossible else null - score, 6)
        is_given = bool(n_best) and (not self.impossible or odds <= self.null_threshold)
        return {
            "id": example.id,
            "answer": n_best[0]["text"] if is_given else "",
            "score": score,
            "null_odds": odds,
            "n_best": n_best,
        }

    def compute_metrics(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Return `exact` and `f1`; in 2.0 also for questions with and without an answer (HasAns_, NoAns_).

        In 2.0 also the best metrics that another threshold would give: best_exact and best_f1, with best_threshold
        and best_f1_threshold.
        """
        scored = [
            (prediction, [text for text, _ in example.answers])
            for example, prediction in zip(examples, predictions, strict=True)
            if example.answers or (self.impossible and example.impossible)
        ]
        golds = [gold for _, gold in scored]
        answers = [prediction["answer"] for prediction, _ in scored]
        metrics = compute_squad_metrics(answers, golds, impossible=self.impossible)
        if self.impossible:
            best = [prediction["n_best"][0]["text"] if prediction["n_best"] else "" for prediction, _ in scored]
            metrics |= best_thresholds(best, golds, [prediction["null_odds"] for prediction, _ in scored])
        return metrics


def load_question_files(
    name: str,
    train: Path,
    dev: Path | None = None,
    *,
    pointer: SpanHeadKind = "conditional",
    dev_share: float = 0.1,
    seed: int = SPLIT_SEED,
) -> Task:
    """Load files in SQuAD's format. Whether some questions have no answer is detected from them.

    Args:
        dev: None: a share of the training file's contexts is held out.

    Raises:
        DataError: a file is missing or damaged, or nothing can be held out.
    """
    training, notes = read_questions(train, training=True)
    if dev is None:
        training, heldout = hold_out(training, dev_share, seed)
        notes = (*notes, f"{train.name}: {len(heldout)} questions of {dev_share:.0%} of the contexts are held out")
    else:
        heldout, others = read_questions(dev)
        notes += others
        if unknown := sum(not question.has_answer for question in heldout):
            heldout = [question for question in heldout if question.has_answer]
            notes = (*notes, f"{dev.name}: {unknown} questions have no known answer and are left out")
        if not heldout:
            raise DataError(
                f"{dev}: no question has an answer, so nothing can be evaluated; give another dev file"
            )
    impossible = any(question.impossible for question in (*training, *heldout))
    for split, questions in (("train", training), ("dev", heldout)):
        unanswerable = sum(question.impossible for question in questions)
        without = f", {unanswerable:,} of them without an answer" if impossible else ""
        notes = (*notes, f"{split}: {len(questions):,} questions{without}")
    problem, splits = QuestionAnswering(pointer, impossible), {"train": training, "dev": heldout}
    return Task(name, problem, splits, notes, default_epochs=2)


def _token_targets(rows: Rows, begins: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    positions = np.arange(len(rows.ids)) - np.repeat(rows.starts[:-1], rows.lengths)
    context = (positions >= np.repeat(rows.seconds, rows.lengths)) & (
        positions < np.repeat(rows.lengths - 1, rows.lengths)
    )
    begin = np.zeros(len(rows.ids), np.int8)
    begin[context] = np.concatenate(begins) if begins else []
    return {"allowed": (context | (positions == 0)).astype(np.int8), "begins": begin}


def _plain_logits(head: nn.Module, x_BLD: Tensor, allowed_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits (B, L) of start and end; -inf where neither is allowed."""
    start_BL, end_BL = head(x_BLD).float().masked_fill(~allowed_BL[..., None], -torch.inf).unbind(-1)
    return start_BL, end_BL


def _cross_entropy(logits_BL: Tensor, target_B: Tensor) -> Tensor:
    return F.cross_entropy(logits_BL.float(), target_B, ignore_index=IGNORE_INDEX, reduction="none")

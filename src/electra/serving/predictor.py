"""Predictions of a fine-tuned model for new texts."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError, DataError, caller_name
from electra.serving.backends import LoadedModel, build_task_backend, head_kind, load_model, name_in_messages
from electra.serving.batching import TrainedLengthCheck, check_texts
from electra.tasks.base import InputSpec, Outputs, Prediction, Rows, Text, describe_unknown
from electra.tasks.catalog import load_problem
from electra.tasks.long_texts import LONG_TEXT_METHODS, LongTexts
from electra.tasks.tagging import Tagging
from electra.tasks.texts import check_top, highest_scores

logger = logging.getLogger(__name__)

CHUNK_TEXTS = 4096
"""Texts that `Predictor.stream` sorts by length at a time."""

SHOWN_TEXTS = 5
"""Number of empty texts that a warning names."""
Tag = TypeVar("Tag")


@dataclass
class _Counts:
    """What is counted while texts are predicted, for one warning each.

    Attributes:
        empty: numbers of the empty texts, from 1.
        unknown: number of tokens that are not in the vocabulary.
    """

    texts: int = 0
    empty: list[int] = field(default_factory=list)
    cut: int = 0
    tokens: int = 0
    unknown: int = 0

    def add(self, texts: Sequence[Text], rows: Rows, *, unknown: int) -> None:
        """Count some more texts and their rows, in which unknown tokens have the id `unknown`."""
        self.empty += [
            number
            for number, text in enumerate(texts, start=self.texts + 1)
            if isinstance(text, str) and (not text or text.isspace())
        ]
        self.texts += len(texts)
        self.cut += len(rows.cut)
        self.tokens += len(rows.ids)
        self.unknown += int((rows.ids == unknown).sum())

    def warn(self, max_length: int) -> None:
        """Log what makes predictions doubtful.

        Args:
            max_length: the number of tokens that texts were cut to.
        """
        if self.empty:
            one = len(self.empty) == 1
            listed = ", ".join(map(str, self.empty[:SHOWN_TEXTS])) + ", …" * (len(self.empty) > SHOWN_TEXTS)
            logger.warning(
                "%s of %s texts %s no meaning (%s %s)", f"{len(self.empty):,}", f"{self.texts:,}",
                "is empty; its prediction has" if one else "are empty; their predictions have",
                "text" if one else "texts", listed,
            )  # fmt: skip
        if self.cut:
            logger.warning(
                "%s of %s texts %s too long and %s cut (to %s tokens)", f"{self.cut:,}", f"{self.texts:,}",
                "is" if self.cut == 1 else "are", "was" if self.cut == 1 else "were", max_length,
            )  # fmt: skip
        if warning := describe_unknown(self.unknown, self.tokens):
            logger.warning("%s", warning)


class Predictor:
    """Predicts labels, values, tags or answers.

    Args:
        model: a folder that `electra finetune` wrote, the folder `model` in it, or a loaded model.
        device: auto, cpu, cuda, cuda:1 or mps. None: auto, a CUDA GPU if there is one, else the CPU.
        max_length: maximum number of tokens of a text; the rest is cut off. If the model was fine-tuned with
            `data.long` windows or memory, of a window. None: the same as in the fine-tuning.

    Raises:
        CheckpointError: the model cannot be loaded, or was not fine-tuned with electra.
        ConfigError: the model cannot read `max_length` tokens, or that is less than 8.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        device: str | torch.device | None = None,
        max_length: int | None = None,
    ) -> None:
        loaded = load_model(model, max_length=max_length)
        kind = head_kind(loaded)
        if loaded.task is None or kind == "encoder":
            raise CheckpointError(
                f"{name_in_messages(model)} was not fine-tuned for a task with electra; fine-tune it: "
                f"{caller_name('electra finetune MODEL --task NAME', 'electra.finetune')}"
            )
        assert kind not in ("discriminator", "generator")
        self.problem = load_problem(loaded.task)
        row = loaded.task.get("max_length", loaded.max_length)
        self.long = LongTexts(way, row) if (way := loaded.task.get("long")) in LONG_TEXT_METHODS else None
        self.input_spec = InputSpec(
            loaded.tokenizer, row if self.long is None else max(row, loaded.task.get("longest", row))
        )
        self.length_check = TrainedLengthCheck(loaded)
        special = special_tokens(loaded.tokenizer)
        self.pad, self.unknown = special.pad, special.unknown
        self.backend = build_task_backend(loaded, self.problem, device, long=self.long)

    @property
    def pairs(self) -> bool:
        """Whether an input is a pair: two texts, or a question and its passage."""
        return self.problem.takes_pairs

    def __call__(
        self, texts: Sequence[Text], *, top: int | None = None, batch_tokens: int | None = None
    ) -> list[Prediction]:
        """One prediction per text, in the order of the texts. A text that was too long has `cut` in its
        prediction.

        Args:
            texts: texts; pairs of texts, if the task has pairs; for tagging, lists of words, or texts that are
                split at blanks; for question answering, pairs of question and passage.
            top: number of labels in the `scores` of a prediction, the highest first; not for tags, answers and
                numbers. None: all, in the order of the labels.
            batch_tokens: the maximum number of tokens of a batch, padding included. None: a default for the
                device.

        Raises:
            TypeError: a single text was given instead of a list of texts, or a text is no string.
            DataError: a text does not have the form that the task needs, or has broken Unicode.
            ConfigError: rows are too short for the task, such as for a question and some of its passage; or the
                model does not score labels, and `top` is given.
        """
        check_top(self.problem, top, "top")
        counts = _Counts()
        predictions = self._predict(texts, counts, batch_tokens)
        counts.warn(self.input_spec.max_length)
        if top is not None:
            for prediction in predictions:
                if isinstance(prediction.get("scores"), dict):  # a problem of a plugin may have none
                    prediction["scores"] = highest_scores(prediction["scores"], top)
        return predictions

    def stream(self, inputs: Iterable[tuple[Tag, Text]]) -> Iterator[tuple[Tag, Text, Prediction]]:
        """Predict for any number of texts in chunks, in their order, and log the progress.

        Args:
            inputs: anything that belongs to a text, such as its row in a table, and the text.

        Raises:
            DataError: a text does not have the form that the task needs.
        """
        inputs, counts = iter(inputs), _Counts()
        while chunk := list(islice(inputs, CHUNK_TEXTS)):
            if done := counts.texts:
                logger.info("predicted %s texts", f"{done:,}", extra={"progress": (done, None)})
            predictions = self._predict([text for _, text in chunk], counts)
            for (tag, text), prediction in zip(chunk, predictions, strict=True):
                yield tag, text, prediction
        counts.warn(self.input_spec.max_length)

    def _predict(
        self, texts: Sequence[Text], counts: "_Counts", batch_tokens: int | None = None
    ) -> list[Prediction]:
        """Predict for texts, and add to `counts` what warnings are about."""
        check_texts(texts, parts=True, first=counts.texts + 1)
        if not texts:
            return []
        examples = [self.problem.make_example(text, number) for number, text in enumerate(texts, counts.texts)]
        rows = self.problem.encode(examples, self.input_spec)
        counts.add(texts, rows, unknown=self.unknown)
        predictions = self.predict_rows(examples, rows, batch_tokens=batch_tokens)
        for number in rows.cut:
            predictions[number]["cut"] = True
        return predictions

    def check(self, texts: Sequence[Text]) -> None:
        """Check the form of texts, without computing anything.

        Raises:
            DataError: a text does not have the form that the task needs, or it or a part of it is empty.
        """
        for number, text in enumerate(texts):
            self.problem.make_example(text, number)
            if isinstance(text, str):
                if not text.strip():
                    raise DataError(f"text {number + 1} is empty; give a text to predict from")
            elif empty := [part for part, content in enumerate(text, start=1) if not content.strip()]:
                raise DataError(f"text {number + 1}: part {empty[0]} is empty")

    def predict_rows(
        self, examples: Sequence[Any], rows: Rows, *, batch_tokens: int | None = None
    ) -> list[Prediction]:
        """Predictions for examples of the task that are already encoded as rows."""
        outputs = self._outputs(rows, batch_tokens)
        return self.problem.decode(examples, rows, outputs)

    def tag_probabilities(
        self, sentences: Sequence[Sequence[str]], *, batch_tokens: int | None = None
    ) -> list[NDArray[np.float64]]:
        """The probabilities (words, labels) of the task's `labels` for each sentence.

        Args:
            sentences: lists of words.

        Raises:
            CheckpointError: the model was not fine-tuned for tagging.
        """
        if not isinstance(self.problem, Tagging):
            raise CheckpointError("the model was not fine-tuned for tagging words")
        examples = [self.problem.make_example(words, number) for number, words in enumerate(sentences)]
        rows = self.problem.encode(examples, self.input_spec)
        outputs = self._outputs(rows, batch_tokens)
        return self.problem.probabilities(examples, rows, outputs)

    def _outputs(self, rows: Rows, batch_tokens: int | None) -> list[Outputs]:
        longest = int(rows.lengths.max(initial=0))
        self.length_check(longest if self.long is None else min(longest, self.long.window))
        with torch.inference_mode():
            return self.backend.outputs(rows, pad=self.pad, batch_tokens=batch_tokens)

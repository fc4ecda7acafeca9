"""What a fine-tuned network says of new texts."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError, DataError
from electra.serving.backends import LoadedModel, build_task_backend, head_kind, load_model
from electra.serving.batching import check_texts
from electra.tasks.base import InputSpec, Prediction, Rows
from electra.tasks.classification import TextExample
from electra.tasks.conll import Sentence
from electra.tasks.long_texts import LONG_TEXT_METHODS, LongTexts
from electra.tasks.problems import problem_from_dict
from electra.tasks.squad_files import Question
from electra.tasks.tagging import Tagging

logger = logging.getLogger(__name__)

Text = str | Sequence[str]
"""A text; a pair of texts; words; or a question and its passage: as the model's task has it."""


class Predictor:
    """Predicts labels, values, tags or answers.

    Args:
        model: a folder that `electra finetune` wrote, or its `model`; or what was loaded of one.
        device: such as "cpu" or "cuda"; None: the GPU where there is one.

    Raises:
        CheckpointError: the model cannot be loaded, or was not fine-tuned here.
    """

    def __init__(self, model: str | Path | LoadedModel, *, device: str | torch.device | None = None) -> None:
        loaded = load_model(model)
        kind = head_kind(loaded)
        if loaded.task is None or kind == "encoder":
            what = model if isinstance(model, str | Path) else "this model"
            raise CheckpointError(
                f"{what} was not fine-tuned for a task here; make one that is: electra finetune MODEL --task NAME"
            )
        assert kind not in ("discriminator", "generator")
        self.problem = problem_from_dict(loaded.task)
        row = loaded.task.get("max_length", loaded.max_length)
        long = LongTexts(way, row) if (way := loaded.task.get("long")) in LONG_TEXT_METHODS else None
        self.input_spec = InputSpec(
            loaded.tokenizer, row if long is None else max(row, loaded.task.get("longest", row))
        )
        self.pad = special_tokens(loaded.tokenizer).pad
        self.pairs: bool = loaded.task.get("pair", self.problem.kind == "answering")
        """Whether a text is a pair: of texts, or of a question and its passage."""
        self.backend = build_task_backend(loaded, self.problem, device, long=long)

    def __call__(self, texts: Sequence[Text], *, batch_tokens: int | None = None) -> list[Prediction]:
        """One prediction a text, in the order given; of a text that was too long it says `cut`.

        Args:
            texts: texts; pairs of texts, where the task has two; for tagging lists of words, or texts that are
                parted at blanks; for questions pairs of question and passage.
            batch_tokens: that go through the network at once, padding included; None: what suits the device.

        Raises:
            TypeError: a single text was given where a list of texts belongs.
            DataError: a text has not the form that the task needs.
        """
        check_texts(texts)  # type: ignore[arg-type]
        if not texts:
            return []
        if empty := sum(not text or text.isspace() for text in texts if isinstance(text, str)):
            logger.warning("%s of %s texts are empty; what is said of them means nothing", empty, len(texts))
        examples = [self._example(text, number) for number, text in enumerate(texts)]
        rows = self.problem.encode(examples, self.input_spec)
        if rows.cut:
            logger.warning(
                "%s of %s texts are too long and were cut (%s tokens a row)",
                f"{len(rows.cut):,}", f"{len(examples):,}", self.input_spec.max_length,
            )  # fmt: skip
        predictions = self.predict_rows(examples, rows, batch_tokens=batch_tokens)
        for number in rows.cut:
            predictions[number]["cut"] = True
        return predictions

    def check(self, texts: Sequence[Text]) -> None:
        """Refuse texts of which nothing can be said, without reading them.

        Raises:
            DataError: a text has not the form that the task needs, or it or a part of it is empty.
        """
        for number, text in enumerate(texts):
            self._example(text, number)
            if isinstance(text, str):
                if not text.strip():
                    raise DataError(f"text {number + 1} is empty; there is nothing to predict of it")
            elif empty := [place for place, part in enumerate(text, start=1) if not part.strip()]:
                raise DataError(f"text {number + 1}: its part {empty[0]} is empty")

    def predict_rows(
        self, examples: Sequence[Any], rows: Rows, *, batch_tokens: int | None = None
    ) -> list[Prediction]:
        """The same for examples of the task that are rows already."""
        with torch.inference_mode():
            outputs = self.backend.outputs(rows, pad=self.pad, batch_tokens=batch_tokens)
        return self.problem.predictions(examples, rows, outputs)

    def tag_probabilities(
        self, sentences: Sequence[Sequence[str]], *, batch_tokens: int | None = None
    ) -> list[NDArray[np.float64]]:
        """Of each sentence, which is given in words, the probabilities (words, labels) of the problem's `labels`.

        Raises:
            CheckpointError: the model gives no tags.
        """
        if not isinstance(self.problem, Tagging):
            raise CheckpointError("the model was not fine-tuned to tag words")
        examples = [self._example(words, number) for number, words in enumerate(sentences)]
        rows = self.problem.encode(examples, self.input_spec)
        with torch.inference_mode():
            outputs = self.backend.outputs(rows, pad=self.pad, batch_tokens=batch_tokens)
        return self.problem.probabilities(examples, rows, outputs)

    def _example(self, text: Text, number: int) -> Any:
        if self.problem.kind == "tagging":
            words = tuple(text.split()) if isinstance(text, str) else tuple(text)
            if not words:
                raise DataError(f"text {number + 1} has no words")
            return Sentence(words, None, f"text {number + 1}", 1)
        if self.problem.kind == "answering":
            question, context = _pair(text, number, "a question and its passage")
            return Question(str(number), question, context)
        if self.pairs:
            return TextExample(*_pair(text, number, "a pair of texts"))
        if not isinstance(text, str):
            raise DataError(f"text {number + 1}: one text is expected, found {str(text)[:60]!r}")
        return TextExample(text)


def _pair(text: Text, number: int, what: str) -> tuple[str, str]:
    if isinstance(text, str) or len(text) != 2:
        raise DataError(f"text {number + 1}: {what} is expected, found {str(text)[:60]!r}")
    return text[0], text[1]

"""A MODEL on the server: loaded once, with all operations that it supports."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError, ConfigError, in_option
from electra.export.loading import find_masked_lm
from electra.serving.backends import load_model
from electra.serving.fill_mask import FillMask
from electra.serving.http.examples import find_examples, read_dev_inputs
from electra.serving.http.worker import Operation
from electra.serving.predictor import Predictor
from electra.serving.scorer import Scorer
from electra.serving.text_encoder import TextEncoder
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.tagging import Tagging

Loaded = TypeVar("Loaded")

GENERIC_FOLDERS = ("discriminator", "encoder", "generator", "model", "export")
"""Folders that every run has, so that they do not identify a model."""
ONNX_PREFIX = "onnx"
"""The first letters of folders of `electra export --to onnx`. They are part of a model's name."""
OPERATIONS = ("score", "rescore", "predict", "embed", "proposals")
MARK_AFTER_WORD = re.compile(r"([.,।])(?= |$)")
"""A punctuation mark that is written without a space before it. In data for tagging it is a word."""
WARM_UP_TEXT = "The chef cooked the meal."


class HostedModel:
    """One of the models of the server.

    Args:
        model: a run, an export folder, the output of a fine-tuning, an ONNX folder, or a Hugging Face folder or
            id.
        device: auto, cpu, cuda, cuda:1 or mps. None: auto, a CUDA GPU if there is one, else the CPU.
        generator: a masked language model with the same vocabulary. None: the generator that the run exported
            next to its discriminator, if there is one.
        other: the other model of the server. The names of the two are different.
        max_length: the most tokens that are read at once. None: as many as the model can read.
        shows_dev: whether texts of the data may be shown as examples, if the model is the output of a fine-tuning.

    Attributes:
        max_length: the most tokens that are read at once.
        dev_inputs: texts of the dev part of the fine-tuning, which the page shows as examples.
        unsupported: for each operation that the model does not support, what would be needed.

    Raises:
        CheckpointError: a model cannot be loaded, or supports no operation.
        DataError: a tokenizer cannot be read.
        ConfigError: the generator has another vocabulary.
    """

    def __init__(
        self,
        model: str,
        *,
        device: str | None = None,
        generator: str | None = None,
        other: str | None = None,
        max_length: int | None = None,
        shows_dev: bool = True,
    ) -> None:
        self.name = hosted_name(model, other=other)
        self.unsupported: dict[str, str] = {}
        loaded = load_model(model, max_length=max_length)
        self.max_length = loaded.max_length
        self.examples = find_examples(loaded.tokenizer, special_tokens(loaded.tokenizer, model).unknown)
        self.scorer = self._try("score", lambda: Scorer(loaded, device=device))
        self.predictor = self._try("predict", lambda: Predictor(loaded, device=device))
        self.dev_inputs = read_dev_inputs(Path(model)) if self.predictor and shows_dev else []
        self.encoder = self._try("embed", lambda: TextEncoder(loaded, device=device))
        if not (self.scorer or self.predictor or self.encoder):
            raise CheckpointError(self.unsupported["embed"])
        generator_folder = generator or find_masked_lm(model)
        self.generator = None if generator_folder is None else hosted_name(str(generator_folder))
        self.fill_mask: FillMask | None
        if generator is not None:
            with in_option("--generator"):
                self.fill_mask = FillMask(generator, device=device)
        else:
            self.fill_mask = self._try("proposals", lambda: FillMask(generator_folder or loaded, device=device))
        if "score" in self.unsupported:
            self.unsupported["rescore"] = self.unsupported["score"]
        if self.fill_mask is not None and self.scorer is not None:
            self._check_vocabulary(self.scorer, self.fill_mask, generator_folder)

    def _try(self, operation: str, load: Callable[[], Loaded]) -> Loaded | None:
        """What carries out an operation. If the model does not support it: None, and the reason is kept."""
        try:
            return load()
        except CheckpointError as error:
            self.unsupported[operation] = f"{self.name}: {error}".replace(f"{self.name}: the model", self.name, 1)
            return None

    def _check_vocabulary(self, scorer: Scorer, fill_mask: FillMask, generator: str | Path | None) -> None:
        if scorer.tokenizer.get_vocab() != fill_mask.tokenizer.get_vocab():
            raise ConfigError(
                f"--generator: {generator} has another vocabulary than {self.name}, so its proposals would be for "
                "other tokens; give the generator that the discriminator was trained with"
            )

    def _example_inputs(self) -> list[list[str]]:
        """Texts to try the model with; for a model of pairs, two texts each."""
        if self.predictor is None:
            return [[sentence] for sentence in self.examples.sentences]
        if self.dev_inputs:
            return self.dev_inputs
        texts, problem = self.examples.plain, self.predictor.problem
        if isinstance(problem, QuestionAnswering):
            return [[self.examples.question, texts[-1]]]
        if self.predictor.pairs:
            return [[texts[0], texts[0]], [texts[0], texts[1]]]
        if problem.reads_words:
            return [[MARK_AFTER_WORD.sub(r" \1", text)] for text in reversed(texts)]
        return [[text] for text in texts]

    def operations(self) -> dict[str, Operation]:
        """The functions of the supported operations by name, each from a list of items to their results."""
        operations: dict[str, Operation] = {}
        if self.scorer is not None:
            operations["score"] = self.scorer
        if self.predictor is not None:
            operations["predict"] = self.predictor
        if self.encoder is not None:
            operations["embed"] = partial(_embed, self.encoder)
        if self.fill_mask is not None:
            operations["proposals"] = self.fill_mask
        return operations

    def warm_up(self) -> None:
        """Run the networks once, because the first run is slower."""
        for operation in (self.scorer, self.encoder):
            if operation is not None:
                operation([WARM_UP_TEXT] * 2)

    def describe(self) -> dict[str, Any]:
        """What `GET /models` says about the model."""
        supported = [operation for operation in OPERATIONS if operation not in self.unsupported]
        description: dict[str, Any] = {"name": self.name, "can": supported, "cannot": self.unsupported}
        description["examples"] = self._example_inputs()
        if self.scorer is not None:
            description["objective"] = self.scorer.objective
        if self.predictor is not None:
            problem = self.predictor.problem
            description |= {"task": problem.kind, "pairs": self.predictor.pairs}
            if labels := getattr(problem, "labels", None):
                description["labels"] = list(labels)
            if isinstance(problem, Tagging):
                description["scheme"] = problem.scheme
        if self.generator is not None and self.fill_mask is not None:
            description["generator"] = self.generator
        return description


def _embed(encoder: TextEncoder, texts: list[str]) -> list[NDArray[np.float32]]:
    return list(encoder.encode(texts))


def hosted_name(model: str, *, other: str | None = None) -> str:
    """The name of a MODEL in the API, a path without parent folders: `my-run`, `my-run/export/generator`.

    If another model would have the same name, both names have as many folders more as are needed to differ.
    """
    names = [_split(model), _split(other or "")]
    for above in range(len(names[0][0]) + 1):
        own_name, other_name = ("/".join([*parents[len(parents) - above :], *name]) for parents, name in names)
        if own_name != other_name:
            break
    return own_name


def _split(model: str) -> tuple[list[str], list[str]]:
    """The folders above a MODEL, and the folders that are its name."""
    path = Path(model)
    if not path.exists():
        return [], [model]
    parts = list(path.resolve().parts[1:])
    first = len(parts) - 1
    while first > 0 and (parts[first] in GENERIC_FOLDERS or parts[first].startswith(ONNX_PREFIX)):
        first -= 1
    if parts[-1] == "generator":
        return parts[:first], parts[first:]
    last = max(i for i, part in enumerate(parts) if i == first or (i > first and part.startswith(ONNX_PREFIX)))
    return parts[:first], parts[first : last + 1]

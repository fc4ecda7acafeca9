"""A MODEL as one object."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from electra.errors import CheckpointError
from electra.export.onnx.model import OnnxModel
from electra.modeling.encoders.build import AnyEncoder
from electra.serving.backends import load_model
from electra.serving.predictor import Predictor, Text
from electra.serving.scorer import ScoredText, Scorer
from electra.serving.text_encoder import TextEncoder
from electra.tasks.base import Prediction


class Model:
    """An encoder, its tokenizer and its head, and what can be done with them.

    `encoder, tokenizer = electra.load(MODEL)` gives the two parts.

    Args:
        model: a run, an export, a fine-tuning, an ONNX folder, or a Hugging Face folder or id of a type that is
            read here.
        device: such as "cpu" or "cuda"; None: the GPU where there is one.

    Raises:
        CheckpointError: the model cannot be loaded.
        DataError: its tokenizer cannot be read or lacks a special token.
    """

    def __init__(self, model: str | Path, *, device: str | torch.device | None = None) -> None:
        self.pretrained, self.device = load_model(model), device
        self.tokenizer = self.pretrained.tokenizer

    @property
    def encoder(self) -> AnyEncoder:
        """
        Raises:
            CheckpointError: it is an ONNX folder, which has no encoder for PyTorch.
        """
        if isinstance(self.pretrained, OnnxModel):
            raise CheckpointError("an ONNX folder has no encoder for PyTorch; load the model it was made of")
        return self.pretrained.encoder

    def __iter__(self) -> Iterator[Any]:
        return iter((self.encoder, self.tokenizer))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One embedding a text (N, D): the mean of its states (`TextEncoder.encode`)."""
        return self._encoder.encode(texts)

    def states(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """The states (L, D) of each text's tokens (`TextEncoder`)."""
        return self._encoder(texts)

    def score(self, texts: Sequence[str]) -> list[ScoredText]:
        """How replaced each token looks to a discriminator (`Scorer`).

        Raises:
            CheckpointError: the model is no discriminator.
        """
        return self._scorer(texts)

    def predict(self, texts: Sequence[Text]) -> list[Prediction]:
        """Labels, values, tags or answers of a model that was fine-tuned (`Predictor`).

        Raises:
            CheckpointError: it was not.
        """
        return self._predictor(texts)

    @cached_property
    def _encoder(self) -> TextEncoder:
        return TextEncoder(self.pretrained, device=self.device)

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self.pretrained, device=self.device)

    @cached_property
    def _predictor(self) -> Predictor:
        return Predictor(self.pretrained, device=self.device)


def load(model: str | Path, *, device: str | torch.device | None = None) -> Model:
    """A MODEL: a run, an export, a fine-tuning, or a Hugging Face folder or id.

    Raises:
        CheckpointError: there is no such model, a run has no export yet, or what is there cannot be loaded.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    return Model(model, device=device)

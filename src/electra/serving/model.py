"""A MODEL as one object with everything that it can do."""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from electra.errors import CheckpointError
from electra.export.huggingface import refuse_other_files, save_pretrained
from electra.export.loading import find_masked_lm, find_model
from electra.export.onnx.model import OnnxModel
from electra.export.push import Upload, push_folder
from electra.modeling.device import resolve_device
from electra.modeling.encoders.base import EncoderModule
from electra.serving.backends import describe_head, load_model, name_in_messages
from electra.serving.predictor import Predictor
from electra.serving.scorer import ScoredText, Scorer
from electra.serving.surprisal import SurprisalScorer, SurprisalText
from electra.serving.text_encoder import TextEncoder
from electra.tasks.base import Prediction, Text

logger = logging.getLogger(__name__)


class Model:
    """An encoder, its tokenizer and its head.

    It can be unpacked: `encoder, tokenizer = electra.load(MODEL)`.

    Args:
        model: a run, an export folder, the output of a fine-tuning, an ONNX folder, or a Hugging Face folder or
            id of a supported model type.
        device: auto, cpu, cuda, cuda:1 or mps. None: auto, a CUDA GPU if there is one, else the CPU.
        max_length: maximum number of tokens that are read at once. None: that of the model, or of its task.

    Raises:
        CheckpointError: the model cannot be loaded.
        ConfigError: there is no such device, or the model cannot read `max_length` tokens, or that is too few.
        DataError: its tokenizer cannot be read or lacks a special token.
    """

    def __init__(
        self, model: str | Path, *, device: str | torch.device | None = None, max_length: int | None = None
    ) -> None:
        self.pretrained, self.device = load_model(model, max_length=max_length), device
        if not isinstance(self.pretrained, OnnxModel):
            resolve_device(device)  # a device that is missing is an error here, not at the first text
        self._source = model
        self._masked_lm, self._max_length = find_masked_lm(model), max_length
        self.tokenizer = self.pretrained.tokenizer

    def __repr__(self) -> str:
        parts = [name_in_messages(self._source), describe_head(self.pretrained)]
        if not isinstance(self.pretrained, OnnxModel):
            config, encoder = self.pretrained.encoder.config, self.pretrained.encoder
            numbers = sum(parameter.numel() for parameter in encoder.parameters())
            parts.append(
                f"{config.kind}, layers × width {config.layers} × {config.hidden_size}, {numbers:,} parameters"
            )
        return f"<Model: {', '.join(parts)}>"

    @property
    def encoder(self) -> EncoderModule:
        """The encoder, a PyTorch module.

        Raises:
            CheckpointError: the model is an ONNX folder, which has no PyTorch module.
        """
        if isinstance(self.pretrained, OnnxModel):
            raise CheckpointError(
                "an ONNX folder has no PyTorch encoder; load the model that was exported to ONNX"
            )
        return self.pretrained.encoder

    def __iter__(self) -> Iterator[Any]:
        return iter((self.encoder, self.tokenizer))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One embedding per text (N, D): the mean of its hidden states (`TextEncoder.encode`)."""
        return self._encoder.encode(texts)

    def states(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """The hidden states (L, D) of the tokens of each text (`TextEncoder`)."""
        return self._encoder(texts)

    def score(self, texts: Sequence[str]) -> list[ScoredText]:
        """How likely each token is to have been replaced, by a discriminator (`Scorer`).

        Raises:
            CheckpointError: the model is no discriminator.
        """
        return self._scorer(texts)

    def surprisal(self, texts: Sequence[str]) -> list[SurprisalText]:
        """How surprising each word is, by the masked language model or the one beside it (`SurprisalScorer`).

        Raises:
            CheckpointError: there is no masked language model, or it is an ONNX folder.
        """
        return self._surprisal_scorer(texts)

    def predict(self, texts: Sequence[Text], *, top: int | None = None) -> list[Prediction]:
        """Labels, values, tags or answers of a fine-tuned model (`Predictor`).

        Args:
            top: number of labels in the `scores` of a prediction, the highest first. None: all.

        Raises:
            CheckpointError: the model was not fine-tuned.
            ConfigError: the model does not score labels, and `top` is given.
        """
        return self._predictor(texts, top=top)

    def save(self, folder: str | Path) -> Path:
        """Write the model with its present weights as a folder that electra and transformers load, and return it.

        It has the weights, config.json, the tokenizer and the model card. The masked language model beside a
        discriminator is not part of it; a warning says so.

        Raises:
            CheckpointError: it is an ONNX folder, it has no head that electra can write, or the folder cannot be
                written or has something else than a model.
        """
        folder = Path(folder)
        refuse_other_files(folder)
        self._write(folder)
        if self._masked_lm is not None:
            logger.warning(
                "%s has the discriminator alone; surprisal needs the masked language model that is beside the "
                "original, %s: copy it, too", folder, self._masked_lm,
            )  # fmt: skip
        return folder

    def push(self, repository: str, *, dry_run: bool = False) -> Upload:
        """Save the model, and upload it to the Hugging Face hub (`electra.export.push.push_folder`).

        The masked language model beside a discriminator is not uploaded.

        Args:
            repository: OWNER/NAME; it is created as a private one if there is none.
            dry_run: only list the files; nobody is contacted.

        Raises:
            CheckpointError: as `save`.
            ConfigError: the hub refuses the upload or cannot be reached.
        """
        with tempfile.TemporaryDirectory() as folder:
            self._write(Path(folder))
            return push_folder(Path(folder), repository, dry_run=dry_run)

    def _write(self, folder: Path) -> None:
        if isinstance(self.pretrained, OnnxModel) or self.pretrained.head is None:
            raise CheckpointError(
                f"{name_in_messages(self._source)} cannot be saved: only networks of PyTorch with a head that "
                "electra knows are written; copy the folder of the model"
            )
        save_pretrained(self.pretrained, folder, source=find_model(self._source))

    @cached_property
    def _encoder(self) -> TextEncoder:
        return TextEncoder(self.pretrained, device=self.device)

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self.pretrained, device=self.device)

    @cached_property
    def _surprisal_scorer(self) -> SurprisalScorer:
        source = self._masked_lm or self.pretrained
        return SurprisalScorer(source, device=self.device, max_length=self._max_length)

    @cached_property
    def _predictor(self) -> Predictor:
        return Predictor(self.pretrained, device=self.device)


def load(model: str | Path, *, device: str | torch.device | None = None, max_length: int | None = None) -> Model:
    """Load a MODEL: a run, an export folder, the output of a fine-tuning, or a Hugging Face folder or id.

    Args:
        model: as for `Model`.
        device: as for `Model`.
        max_length: as for `Model`.

    Raises:
        CheckpointError: the model does not exist, is a run without an export, or cannot be loaded.
        ConfigError: the model cannot read `max_length` tokens.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    return Model(model, device=device, max_length=max_length)

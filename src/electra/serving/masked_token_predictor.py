"""Predictions of masked tokens by a masked language model, such as the generator of ELECTRA.

Shapes: n masked tokens of a batch, m masked tokens of one text in it, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.errors import CheckpointError
from electra.serving.backends import LoadedModel, build_backend, head_kind, load_model, name_in_messages
from electra.serving.batching import Batcher, WindowBatch

MAX_LOGIT_ROWS = 512
"""Masked tokens whose logits are in memory at a time: 62 MB with a vocabulary of 30,522."""

Positions = Sequence[int] | NDArray[np.int64]
Group = list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]
"""For each of some texts: its index, some of its positions, and their positions in the flattened batch."""


class MaskedTokenPredictor:
    """Predicts masked tokens of texts of any length.

    Args:
        model: a run, an export folder, a Hugging Face folder or id, or a loaded model. It must be a masked
            language model; in a run of ELECTRA that is RUN/export/generator.
        device: auto, cpu, cuda, cuda:1 or mps. None: auto, a CUDA GPU if there is one, else the CPU.

    Raises:
        CheckpointError: the model cannot be loaded or is no masked language model.
    """

    def __init__(self, model: str | Path | LoadedModel, *, device: str | torch.device | None = None) -> None:
        loaded = load_model(model)
        if head_kind(loaded) != "generator":
            raise CheckpointError(
                f"{name_in_messages(model)} predicts no masked tokens; give a masked language model, such as the "
                "generator of a run: RUN/export/generator"
            )
        self.tokenizer = loaded.tokenizer
        self.backend = build_backend(loaded, device)
        self.batcher = Batcher(loaded, device=self.backend.device)

    def __call__(
        self, ids: Sequence[list[int]], positions: Sequence[Positions], *, batch_tokens: int | None = None
    ) -> Iterator[tuple[int, NDArray[np.int64], Tensor]]:
        """Predict: the index of a text, some of its positions in ascending order, and log-probabilities (m, V).

        The texts are in no particular order, and a text with many positions is split into several results.

        Args:
            ids: the token ids of each text, without special tokens and without masks.
            positions: the tokens of each text that are masked, all of them at once.
            batch_tokens: the maximum number of tokens of a batch, padding included. None: a default for the
                device.
        """
        masked = [self._mask(tokens, where) for tokens, where in zip(ids, positions, strict=True)]
        for batch in self.batcher.batches(masked, batch_tokens=batch_tokens):
            with torch.inference_mode():
                logits = self.backend.vocabulary_logits(batch.ids_BL, batch.mask_BL, **batch.memory)
            for group in self._groups(batch, positions):
                flat_n = torch.from_numpy(np.concatenate([flat_m for _, _, flat_m in group]))
                with torch.inference_mode():
                    log_probabilities_nV = logits(flat_n.to(self.backend.device)).float().log_softmax(-1).cpu()
                parts = log_probabilities_nV.split([len(positions_m) for _, positions_m, _ in group])
                for (text, positions_m, _), log_probabilities_mV in zip(group, parts, strict=True):
                    yield text, positions_m, log_probabilities_mV

    @staticmethod
    def _groups(batch: WindowBatch, positions: Sequence[Positions]) -> Iterator[Group]:
        """The masked positions of a batch in groups of at most `MAX_LOGIT_ROWS`."""
        group: Group = []
        room = MAX_LOGIT_ROWS
        for row, window in enumerate(batch.windows):
            rest_m = np.sort(np.asarray(positions[window.text], np.int64))
            rest_m = rest_m[(rest_m >= window.keep_start) & (rest_m < window.keep_end)]
            flat_start = row * batch.ids_BL.shape[1] + window.before - window.start
            while len(rest_m):
                part_m, rest_m = rest_m[:room], rest_m[room:]
                group.append((window.text, part_m, part_m + flat_start))
                room -= len(part_m)
                if not room:
                    yield group
                    group, room = [], MAX_LOGIT_ROWS
        if group:
            yield group

    def _mask(self, tokens: list[int], positions: Positions) -> list[int]:
        masked = list(tokens)
        for position in positions:
            masked[position] = self.batcher.special.mask
        return masked

"""What a masked language model, or a generator, puts in place of tokens.

Shapes: n masked tokens, m those of one text among them, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.errors import CheckpointError
from electra.serving.backends import LoadedModel, build_backend, head_kind, load_model
from electra.serving.batching import Batcher, WindowBatch

MAX_LOGIT_ROWS = 512
"""Masked tokens whose logits are held at a time: 62 MB of them with a vocabulary of 30,522."""

Part = tuple[int, NDArray[np.int64], NDArray[np.int64]]
"""A text, some of its places, and where these are in the flattened batch."""


class MaskedTokenPredictor:
    """Predicts masked tokens of texts of any length.

    Args:
        model: a run, an export folder, a Hugging Face folder or id, or what was loaded of one; of a masked
            language model, which in a run of ELECTRA is RUN/export/generator.
        device: such as "cpu" or "cuda"; None: the GPU where there is one.

    Raises:
        CheckpointError: the model cannot be loaded, or predicts no masked tokens.
    """

    def __init__(self, model: str | Path | LoadedModel, *, device: str | torch.device | None = None) -> None:
        loaded = load_model(model)
        if head_kind(loaded) != "generator":
            name = model if isinstance(model, str | Path) else "the model"
            raise CheckpointError(
                f"{name} predicts no masked tokens; give a masked language model, or a run's generator: "
                "RUN/export/generator"
            )
        self.tokenizer = loaded.tokenizer
        self.backend = build_backend(loaded, device)
        self.batcher = Batcher(loaded, device=self.backend.device)

    def __call__(
        self,
        ids: Sequence[list[int]],
        places: Sequence[Sequence[int] | NDArray[np.int64]],
        *,
        batch_tokens: int | None = None,
    ) -> Iterator[tuple[int, NDArray[np.int64], Tensor]]:
        """Each text's number, some of its places in rising order, and log-probabilities (n, V) of all tokens.

        Texts come in any order, and one with many places in several parts.

        Args:
            ids: of each text, without special tokens and without masks.
            places: of each text, the tokens that are masked, all at once.
            batch_tokens: that go through the network at once, padding included; None: what suits the device.
        """
        masked = [self._masked(tokens, where) for tokens, where in zip(ids, places, strict=True)]
        for batch in self.batcher.batches(masked, batch_tokens=batch_tokens):
            with torch.inference_mode():
                logits = self.backend.vocabulary_logits(batch.ids_BL, batch.mask_BL, **batch.past)
            for group in self._groups(batch, places):
                positions_n = torch.from_numpy(np.concatenate([positions_m for _, _, positions_m in group]))
                with torch.inference_mode():
                    found_nV = logits(positions_n.to(self.backend.device)).float().log_softmax(-1).cpu()
                sizes = [len(part_m) for _, part_m, _ in group]
                for (text, part_m, _), found_mV in zip(group, found_nV.split(sizes), strict=True):
                    yield text, part_m, found_mV

    @staticmethod
    def _groups(batch: WindowBatch, places: Sequence[Sequence[int] | NDArray[np.int64]]) -> Iterator[list[Part]]:
        """The places of a batch in groups of at most `MAX_LOGIT_ROWS`."""
        group: list[Part] = []
        room = MAX_LOGIT_ROWS
        for row, window in enumerate(batch.windows):
            wanted_n = np.sort(np.asarray(places[window.text], np.int64))
            wanted_n = wanted_n[(wanted_n >= window.keep_start) & (wanted_n < window.keep_end)]
            first_of_row = row * batch.ids_BL.shape[1] + window.before - window.start
            while len(wanted_n):
                part_m, wanted_n = wanted_n[:room], wanted_n[room:]
                group.append((window.text, part_m, part_m + first_of_row))
                room -= len(part_m)
                if not room:
                    yield group
                    group, room = [], MAX_LOGIT_ROWS
        if group:
            yield group

    def _masked(self, tokens: list[int], where: Sequence[int] | NDArray[np.int64]) -> list[int]:
        found = list(tokens)
        for place in where:
            found[place] = self.batcher.special.mask
        return found

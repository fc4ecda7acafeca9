"""What a masked language model, or a generator, puts in place of tokens.

Shapes: n masked tokens, D hidden size, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.errors import CheckpointError
from electra.export.huggingface import Pretrained
from electra.export.loading import load_pretrained
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.recurrence import Past
from electra.serving.batching import Batcher

AT_ONCE = 512
"""Masked tokens whose logits are held at a time: 62 MB of them with a vocabulary of 30,522."""


class WordPredictor:
    """Predicts masked tokens of texts of any length.

    Args:
        model: a run, an export folder, a Hugging Face folder or id, or what was loaded of one; of a masked
            language model, which in a run of ELECTRA is RUN/export/generator.
        device: such as "cpu" or "cuda"; None: the GPU where there is one.

    Raises:
        CheckpointError: the model cannot be loaded, or predicts no masked tokens.
    """

    def __init__(self, model: str | Path | Pretrained, *, device: str | torch.device | None = None) -> None:
        pretrained = model if isinstance(model, Pretrained) else load_pretrained(model)
        if not isinstance(pretrained.head, MaskedLanguageModelHead):
            name = "the model" if isinstance(model, Pretrained) else model
            raise CheckpointError(
                f"{name} predicts no masked tokens; give a masked language model, or a run's generator: "
                "RUN/export/generator"
            )
        self.tokenizer = pretrained.tokenizer
        self.batcher = Batcher(pretrained, device=device)
        self.encoder = pretrained.encoder.to(self.batcher.device)
        self.head = pretrained.head.to(self.batcher.device)

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
        for window, row_LD in self.batcher.rows(masked, self._states, batch_tokens=batch_tokens):
            wanted_n = np.sort(np.asarray(places[window.text], np.int64))
            wanted_n = wanted_n[(wanted_n >= window.keep_start) & (wanted_n < window.keep_end)]
            states_LD = row_LD[window.kept_of_row]
            for first in range(0, len(wanted_n), AT_ONCE):
                part_n = wanted_n[first : first + AT_ONCE]
                yield window.text, part_n, self._log_probabilities(states_LD[part_n - window.keep_start])

    def _masked(self, tokens: list[int], where: Sequence[int] | NDArray[np.int64]) -> list[int]:
        found = list(tokens)
        for place in where:
            found[place] = self.batcher.special.mask
        return found

    def _states(self, ids_BL: Tensor, mask_BL: Tensor | None, **past: Past) -> Tensor:
        return self.encoder(ids_BL, None, mask_BL, **past)

    @torch.inference_mode()
    def _log_probabilities(self, states_nD: NDArray[np.float32]) -> Tensor:
        states = torch.from_numpy(np.ascontiguousarray(states_nD)).to(self.batcher.device)
        logits_nV = self.head.logits(states, self.encoder.embeddings.token.weight)
        return logits_nV.float().log_softmax(-1).cpu()

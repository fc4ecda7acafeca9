"""What an encoder makes of texts: a state for each token, or one embedding for the whole.

Shapes: N texts, L tokens of a text, D hidden size.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from electra.errors import CheckpointError
from electra.export.onnx.model import OnnxModel
from electra.serving.backends import LoadedModel, build_backend, load_model
from electra.serving.batching import Batcher, LongTextMode, Window, check_texts


class TextEncoder:
    """Encodes texts of any length.

    A text longer than the network's input is read in windows that overlap by half, and each token has its state
    from the window that gives it the most context; or window behind window with memory.

    Args:
        model: a run, an export folder, a Hugging Face folder or id, or what was loaded of one; without its head.
        device: such as "cpu" or "cuda"; None: the GPU where there is one.
        long: which of the two (`Batcher`); None: with memory, where the network has one.

    Raises:
        CheckpointError: the model cannot be loaded, has no memory to read with, or gives no states.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        device: str | torch.device | None = None,
        long: LongTextMode | None = None,
    ) -> None:
        loaded = load_model(model)
        if isinstance(loaded, OnnxModel) and "states" not in loaded.facts.outputs:
            name = model if isinstance(model, str | Path) else "the model"
            raise CheckpointError(
                f"{name} is an ONNX model that gives what its head says, no states; for these make one of the "
                "encoder: electra export MODEL --to onnx --part encoder"
            )
        self.tokenizer, self.hidden_size = loaded.tokenizer, loaded.hidden_size
        self.backend = build_backend(loaded, device)
        self.batcher = Batcher(loaded, device=self.backend.device, long=long)

    def __call__(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> list[NDArray[np.float32]]:
        """The states (L, D) of each text, in the order given.

        One state a token of the text, as `Scorer` counts them: special tokens are read but left out, and an empty
        text has none.

        Args:
            batch_tokens: that go through the network at once, padding included; None: what suits the device.

        Raises:
            TypeError: a single text was given where a list of texts belongs.
        """
        ids = self._ids(texts)
        states = [np.empty((len(tokens), self.hidden_size), np.float32) for tokens in ids]
        for window, row_LD in self.batcher.outputs(ids, self.backend.hidden_states, batch_tokens=batch_tokens):
            states[window.text][window.kept] = row_LD[window.kept_in_row]
        return states

    def encode(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> NDArray[np.float32]:
        """One embedding a text (N, D), in the order given: the mean of its states.

        Those of the special token on either side count, as in mean pooling elsewhere (Reimers and Gurevych 2019,
        Sentence-BERT): a model made for that gives its own embeddings here, and an empty text has one too.

        Args, Raises: as calling it.
        """
        ids = self._ids(texts)
        sums_ND = np.zeros((len(ids), self.hidden_size), np.float32)
        for window, row_LD in self.batcher.outputs(ids, self.backend.hidden_states, batch_tokens=batch_tokens):
            sums_ND[window.text] += row_LD[_counted(window, len(ids[window.text]))].sum(0)
        counts_N = np.array([len(tokens) + 2 for tokens in ids], np.float32)
        return sums_ND / counts_N[:, None]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        check_texts(texts)
        return [
            encoding.ids for encoding in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        ]


def _counted(window: Window, tokens: int) -> slice:
    """The kept part of a window's row, with what stands before the text in the first and behind it in the last."""
    kept = window.kept_in_row
    before = window.before if window.keep_start == 0 else 0
    after = window.after if window.keep_end == tokens else 0
    return slice(kept.start - before, kept.stop + after)

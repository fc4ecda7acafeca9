"""Hidden states of the tokens of texts, and one embedding per text.

Shapes: N texts, L tokens of a text, D hidden size.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from electra.errors import CheckpointError
from electra.export.onnx.model import OnnxModel
from electra.serving.backends import LoadedModel, build_backend, load_model, name_in_messages
from electra.serving.batching import Batcher, LongTextMode, Window, check_texts


class TextEncoder:
    """Encodes texts of any length.

    A text that is longer than the network's input is read in windows that overlap by half, and the state of each
    token is from the window in which it has the most context; or in consecutive windows with memory.

    Args:
        model: a run, an export folder, a Hugging Face folder or id, or a loaded model. Its head is not used.
        device: auto, cpu, cuda, cuda:1 or mps. None: auto, a CUDA GPU if there is one, else the CPU.
        long: "windows" or "memory" (`Batcher`). None: with memory if the network has one.
        max_length: maximum number of tokens that are read at once. None: that of the model, or of its task.

    Raises:
        CheckpointError: the model cannot be loaded or gives no hidden states, or `long` is "memory" and it has no
            memory.
        ConfigError: the model cannot read `max_length` tokens, or that is too few.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        device: str | torch.device | None = None,
        long: LongTextMode | None = None,
        max_length: int | None = None,
    ) -> None:
        loaded = load_model(model, max_length=max_length)
        if isinstance(loaded, OnnxModel) and "states" not in loaded.metadata.outputs:
            raise CheckpointError(
                f"{name_in_messages(model)} is an ONNX model that gives the outputs of its head, no hidden "
                "states; export the encoder: electra export MODEL --to onnx --part encoder"
            )
        self.tokenizer, self.hidden_size = loaded.tokenizer, loaded.hidden_size
        self.backend = build_backend(loaded, device)
        self.batcher = Batcher(loaded, device=self.backend.device, long=long)

    def __call__(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> list[NDArray[np.float32]]:
        """The hidden states (L, D) of each text, in the order of the texts.

        There is one state for each token that `Scorer` scores: special tokens are read but left out, so an
        empty text has no states.

        Args:
            batch_tokens: the maximum number of tokens of a batch, padding included. None: a default for the
                device.

        Raises:
            TypeError: a single text was given instead of a list of texts, or a text is no string.
            DataError: a text has broken Unicode.
        """
        ids = self._ids(texts)
        states = [np.empty((len(tokens), self.hidden_size), np.float32) for tokens in ids]
        for window, row_LD in self.batcher.outputs(ids, self.backend.hidden_states, batch_tokens=batch_tokens):
            states[window.text][window.kept] = row_LD[window.kept_in_row]
        return states

    def encode(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> NDArray[np.float32]:
        """One embedding per text (N, D), in the order of the texts: the mean of its hidden states.

        The special tokens at the start and the end are part of the mean, as in Sentence-BERT (Reimers and Gurevych
        2019): models of sentence-transformers with mean pooling give the same embeddings here, and an empty
        text has an embedding, too.

        The arguments and errors are those of `__call__`.
        """
        ids = self._ids(texts)
        sums_ND = np.zeros((len(ids), self.hidden_size), np.float32)
        for window, row_LD in self.batcher.outputs(ids, self.backend.hidden_states, batch_tokens=batch_tokens):
            sums_ND[window.text] += row_LD[_pooled(window, len(ids[window.text]))].sum(0)
        counts_N = np.array([len(tokens) + 2 for tokens in ids], np.float32)
        return sums_ND / counts_N[:, None]

    def cosine_similarity(self, firsts: Sequence[str], seconds: Sequence[str]) -> NDArray[np.float32]:
        """The cosine (N,) of the embeddings of each pair of texts."""
        embeddings_ND = self.encode([*firsts, *seconds])
        embeddings_ND /= np.linalg.norm(embeddings_ND, axis=1, keepdims=True)
        cosines_N: NDArray[np.float32] = (embeddings_ND[: len(firsts)] * embeddings_ND[len(firsts) :]).sum(1)
        return cosines_N

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        check_texts(texts)
        return [
            encoding.ids for encoding in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        ]


def _pooled(window: Window, tokens: int) -> slice:
    """The part of a window's row that is pooled: its kept tokens, and the special tokens of the text."""
    kept = window.kept_in_row
    before = window.before if window.keep_start == 0 else 0
    after = window.after if window.keep_end == tokens else 0
    return slice(kept.start - before, kept.stop + after)

"""Hidden states of words at every layer of an encoder, and statistics of its attention.

A word's state is the mean of its tokens' states, so networks with different vocabularies can be compared on the
same words. Layer 0 is the input of the first block (the embeddings), layer Y the output of the last one.

Shapes: S sentences, N words of all of them, B rows of a batch, L tokens of a row, Y blocks (Z = Y + 1 layers), D
hidden size, H heads, K head size, F statistics of attention (`ATTENTION_STATISTICS`), R distances.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from electra.analysis.attention_scores import SCORES, attention_scores
from electra.errors import CheckpointError
from electra.export.pretrained import Pretrained
from electra.serving.backends import TorchBackend
from electra.serving.batching import Batcher
from electra.tasks.tagging import tokenize_words

ATTENTION_STATISTICS = ("entropy", "uniform", "distance", "first", "last", "previous", "self", "next")
"""Of a token's attention probabilities: their entropy (nats), the entropy of uniform attention, the mean distance
to the attended tokens of the text, and the probabilities of the first special token, the last special token, the
previous token, the token itself and the next token."""


@dataclass(frozen=True)
class WordStates:
    """The states of all words of some sentences.

    Attributes:
        states_ZND: by layer and word; 0 for a word without a token.
        has_N: whether the tokenizer has a token for a word; it drops control characters, for example.
        in_windows: the number of sentences that are longer than the network's input and were read in windows.
    """

    states_ZND: NDArray[np.float32]
    has_N: NDArray[np.bool_]
    in_windows: int


class LayerReader:
    """Reads sentences with one encoder.

    Args:
        device: auto, cpu, cuda, cuda:1 or mps. None: auto, a CUDA GPU if there is one, else the CPU.

    Raises:
        CheckpointError: the model's inputs have no room for a text.
    """

    def __init__(self, pretrained: Pretrained, *, device: str | torch.device | None = None) -> None:
        self.tokenizer = pretrained.tokenizer
        network = TorchBackend(pretrained, device)
        self.encoder = network.encoder
        self.batcher = Batcher(pretrained, device=network.device, long="windows")
        self.attentions = {module for module in self.encoder.modules() if isinstance(module, tuple(SCORES))}

    @property
    def layers(self) -> int:
        """The number of layers (Z): the blocks and the embeddings."""
        return self.encoder.config.layers + 1

    def states(self, sentences: Sequence[Sequence[str]]) -> WordStates:
        """The states of every word at every layer. A sentence longer than the input is read in windows."""
        encodings, D = tokenize_words(sentences, self.tokenizer), self.encoder.config.hidden_size
        lengths = [len(words) for words in sentences]
        starts = np.cumsum([0, *lengths])
        states_ZND = np.zeros((self.layers, int(starts[-1]), D), np.float32)
        counts_N = np.zeros(int(starts[-1]), np.int64)
        ids = [encoding.ids for encoding in encodings]
        for window, row_LZD in self.batcher.outputs(ids, self.all_layers):
            words_L = np.array(encodings[window.text].word_ids, np.int64)[window.kept] + starts[window.text]
            states_NZD = states_ZND.swapaxes(0, 1)  # a view
            np.add.at(states_NZD, words_L, row_LZD[window.kept_in_row])
            np.add.at(counts_N, words_L, 1)
        states_ZND /= np.maximum(counts_N, 1)[:, None]
        return WordStates(states_ZND, counts_N > 0, self.batcher.count_windowed(map(len, ids)))

    def attention(self, sentences: Sequence[Sequence[str]]) -> dict[str, NDArray[np.float64]]:
        """The mean of each of `ATTENTION_STATISTICS` over the texts' tokens, without special ones, by block and
        head (Y, H).

        Raises:
            CheckpointError: the attention of this encoder cannot be read.
        """
        if not self.attentions:
            raise CheckpointError(
                f"the attention of an encoder of kind {self.encoder.config.kind} cannot be read; give a model "
                "whose encoder is part of electra"
            )
        config = self.encoder.config
        totals_YHF, tokens = np.zeros((config.layers, config.heads, len(ATTENTION_STATISTICS))), 0
        ids = [encoding.ids for encoding in tokenize_words(sentences, self.tokenizer)]
        for window, row_LYHF in self.batcher.outputs(ids, self._attention):
            kept = row_LYHF[window.kept_in_row]
            totals_YHF += kept.sum(0, dtype=np.float64)
            tokens += len(kept)
        return dict(zip(ATTENTION_STATISTICS, np.moveaxis(totals_YHF / max(tokens, 1), -1, 0), strict=True))

    def all_layers(self, ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        """The states at every layer (B, L, Z, D)."""
        inputs_of_blocks: list[Tensor] = []
        with _pre_hooks(self.encoder.blocks, lambda _, inputs: inputs_of_blocks.append(inputs[0])):
            last_BLD = self.encoder(ids_BL, None, mask_BL)
        return torch.stack([*inputs_of_blocks, last_BLD], 2)

    def _attention(self, ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        lengths_B = torch.full(ids_BL.shape[:1], ids_BL.shape[1], device=ids_BL.device)
        if mask_BL is not None:
            lengths_B = mask_BL.sum(1)
        statistics: list[Tensor] = []

        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            statistics.append(attention_statistics(attention_scores(module, inputs), lengths_B))

        with _pre_hooks(self.attentions, hook):
            self.encoder(ids_BL, None, mask_BL)
        return torch.stack(statistics, 2)


@contextmanager
def _pre_hooks(modules: Iterable[nn.Module], hook: Callable[..., None]) -> Iterator[None]:
    """Call `hook` with the inputs of each module, in the order in which the network calls the modules.

    For a module that several blocks share, give it once; the hook is called for each block.
    """
    handles = [module.register_forward_pre_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def attention_statistics(scores_BHLL: Tensor, lengths_B: Tensor) -> Tensor:
    """Compute `ATTENTION_STATISTICS` of each token (B, L, H, F), for rows that start and end with a special token.

    A special token is not counted as previous or next. The distance is over the text's tokens alone; it is 0 if a
    token attends to none of them.
    """
    L, device = scores_BHLL.shape[-1], scores_BHLL.device
    probabilities_BHLL = scores_BHLL.softmax(-1)
    positions_L, ends_B1 = torch.arange(L, device=device), lengths_B[:, None] - 1
    text_BL = (positions_L > 0) & (positions_L < ends_B1)
    last_B1L1 = ends_B1[:, None, :, None].expand(-1, scores_BHLL.shape[1], L, 1)
    text_probabilities_BHLL = probabilities_BHLL * text_BL[:, None, None]
    distance_LL = (positions_L[:, None] - positions_L).abs()
    text_mass_BHL = text_probabilities_BHLL.sum(-1)

    def neighbor(offset: int) -> Tensor:
        """The probability of the token at an offset; 0 if it is not a token of the text."""
        probabilities_BHX = text_probabilities_BHLL.diagonal(offset, 2, 3)
        return torch.nn.functional.pad(probabilities_BHX, (max(-offset, 0), max(offset, 0)))

    values = {
        "entropy": torch.special.entr(probabilities_BHLL).sum(-1),
        "uniform": (scores_BHLL > -torch.inf).sum(-1).log(),
        "distance": (text_probabilities_BHLL * distance_LL).sum(-1) / text_mass_BHL.clamp(min=1e-9),
        "first": probabilities_BHLL[..., 0],
        "last": probabilities_BHLL.gather(3, last_B1L1).squeeze(3),
        "previous": neighbor(-1),
        "self": neighbor(0),
        "next": neighbor(1),
    }
    return torch.stack([values[name] for name in ATTENTION_STATISTICS], -1).transpose(1, 2)

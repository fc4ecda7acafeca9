"""The states of words at every layer of an encoder, and what its attention does, side by side with any other's.

A word's state is the mean of its tokens', so two networks with different vocabularies can be asked about the same
words. Layer 0 is what enters the first block (the embeddings), layer Y what the last one gives.

Attention's probabilities are computed here beside the network's own fused kernels, from what each attention layer
is given, so that they are there at all.

Shapes: S sentences, N words of all of them, B rows of a batch, L tokens of a row, Y blocks (Z = Y + 1 layers), D
hidden size, H heads, K head size, F figures of attention (`FIGURES`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Encoding
from torch import Tensor, nn

from electra.export.huggingface import Pretrained
from electra.modeling.kernels.attention import Attention
from electra.modeling.kernels.relative_attention import RelativeAttention
from electra.serving.backends import TorchBackend
from electra.serving.batching import Batcher

FIGURES = ("entropy", "uniform", "distance", "first", "last", "previous", "self", "next")
"""What is said of where a token looks: the entropy of its probabilities (nats), that of looking everywhere alike,
the mean distance of the text's tokens that it looks at, and the shares of the special token in front, of the one
behind, of the token before, itself and the token after."""


@dataclass(frozen=True)
class WordStates:
    """The states of all words of some sentences.

    Attributes:
        states_ZND: by layer and word; 0 where a word has no token.
        has_N: whether the tokenizer has a token for a word; it drops control characters, for example.
        in_windows: how many sentences are longer than the network's input, and were read in windows.
    """

    states_ZND: NDArray[np.float32]
    has_N: NDArray[np.bool_]
    in_windows: int


class LayerReader:
    """Reads sentences with one encoder.

    Args:
        device: such as "cpu" or "cuda"; None: the GPU where there is one.

    Raises:
        CheckpointError: the model's inputs leave no room for a text.
    """

    def __init__(self, pretrained: Pretrained, *, device: str | torch.device | None = None) -> None:
        self.tokenizer = pretrained.tokenizer
        network = TorchBackend(pretrained, device)
        self.encoder = network.encoder
        self.batcher = Batcher(pretrained, device=network.device, long="windows")

    @property
    def layers(self) -> int:
        """Blocks and the embeddings (Z)."""
        return self.encoder.config.layers + 1

    def states(self, sentences: Sequence[Sequence[str]]) -> WordStates:
        """The states of every word at every layer. A sentence longer than the input is read in windows."""
        encodings, D = self._encodings(sentences), self.encoder.config.hidden_size
        lengths = [len(words) for words in sentences]
        starts = np.cumsum([0, *lengths])
        states_ZND = np.zeros((self.layers, int(starts[-1]), D), np.float32)
        counts_N = np.zeros(int(starts[-1]), np.int64)
        ids = [encoding.ids for encoding in encodings]
        for window, row_LZD in self.batcher.outputs(ids, self._states):
            words_L = np.array(encodings[window.text].word_ids, np.int64)[window.kept] + starts[window.text]
            states_NZD = states_ZND.swapaxes(0, 1)  # a view
            np.add.at(states_NZD, words_L, row_LZD[window.kept_in_row])
            np.add.at(counts_N, words_L, 1)
        states_ZND /= np.maximum(counts_N, 1)[:, None]
        return WordStates(states_ZND, counts_N > 0, self.batcher.count_windowed(map(len, ids)))

    def attention(self, sentences: Sequence[Sequence[str]]) -> dict[str, NDArray[np.float64]]:
        """Each of `FIGURES` by block and head (Y, H): the mean over the tokens of the texts, special ones not."""
        config = self.encoder.config
        totals_YHF, tokens = np.zeros((config.layers, config.heads, len(FIGURES))), 0
        ids = [encoding.ids for encoding in self._encodings(sentences)]
        for window, row_LYHF in self.batcher.outputs(ids, self._attention):
            kept = row_LYHF[window.kept_in_row]
            totals_YHF += kept.sum(0, dtype=np.float64)
            tokens += len(kept)
        return dict(zip(FIGURES, np.moveaxis(totals_YHF / max(tokens, 1), -1, 0), strict=True))

    def _encodings(self, sentences: Sequence[Sequence[str]]) -> list[Encoding]:
        # A blank before each word but the first, as in a byte-level BPE's texts; others set one themselves.
        spaced = [[word if i == 0 else f" {word}" for i, word in enumerate(words)] for words in sentences]
        return self.tokenizer.encode_batch(spaced, is_pretokenized=True, add_special_tokens=False)

    def _states(self, ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        found: list[Tensor] = []
        with _listening(self.encoder.blocks, lambda _, inputs: found.append(inputs[0])):
            last_BLD = self.encoder(ids_BL, None, mask_BL)
        return torch.stack([*found, last_BLD], 2)

    def _attention(self, ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        lengths_B = torch.full(ids_BL.shape[:1], ids_BL.shape[1], device=ids_BL.device)
        if mask_BL is not None:
            lengths_B = mask_BL.sum(1)
        found: list[Tensor] = []

        def heard(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found.append(figures(scores(module, inputs), lengths_B))

        attentions = {
            module for module in self.encoder.modules() if isinstance(module, (Attention, RelativeAttention))
        }
        with _listening(attentions, heard):
            self.encoder(ids_BL, None, mask_BL)
        return torch.stack(found, 2)


@contextmanager
def _listening(modules: Iterable[nn.Module], heard: Callable[..., None]) -> Iterator[None]:
    """Call `heard` with what each of the modules is given, in the order in which the network calls them.

    A module that several blocks share is called for each, and has to be named once.
    """
    handles = [module.register_forward_pre_hook(heard) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def scores(module: nn.Module, inputs: Sequence[object]) -> Tensor:
    """The scores (B, H, L, L) of an attention layer before the softmax, given its inputs; -inf at padding."""
    if isinstance(module, RelativeAttention):
        return _relative_scores(module, inputs)
    assert isinstance(module, Attention)
    x_BLD, mask_B11L, *_ = inputs
    assert isinstance(x_BLD, Tensor)
    query_BHLK, key_BHLK, _ = (
        part.unflatten(-1, (module.heads, -1)).transpose(1, 2)
        for part in module.query_key_value(x_BLD).chunk(3, -1)
    )
    scores_BHLL = (query_BHLK @ key_BHLK.mT).float() * query_BHLK.shape[-1] ** -0.5
    return scores_BHLL if mask_B11L is None else scores_BHLL.masked_fill(~mask_B11L, -torch.inf)  # type: ignore[operator]


def _relative_scores(module: RelativeAttention, inputs: Sequence[object]) -> Tensor:
    """The same with relative positions, of rows without memory and in one segment, as `RelativeAttention` does."""
    x_BLD, _, memory, sinusoids_RD, sight = inputs
    assert isinstance(x_BLD, Tensor) and isinstance(sinusoids_RD, Tensor) and memory is None
    heads = (module.heads, x_BLD.shape[-1] // module.heads)
    query_BLHK = module.query(x_BLD).unflatten(-1, heads)
    key_BLHK = module.key_value(x_BLD).chunk(2, -1)[0].unflatten(-1, heads)
    position_RHK = module.position(sinusoids_RD).unflatten(-1, heads)
    by_content_BHLL = torch.einsum("bqhk,bchk->bhqc", query_BLHK + module.content_bias.view(heads), key_BLHK)
    by_distance_BHLR = torch.einsum("bqhk,rhk->bhqr", query_BLHK + module.position_bias.view(heads), position_RHK)
    runs_BHLL = sight.run_BXC()[:, None].expand(*by_distance_BHLR.shape[:3], -1)  # type: ignore[attr-defined]
    scores_BHLL = (by_content_BHLL + by_distance_BHLR.gather(3, runs_BHLL)).float() * heads[1] ** -0.5
    bias_BLL = sight.bias_BXC  # type: ignore[attr-defined]
    return scores_BHLL if bias_BLL is None else scores_BHLL + bias_BLL[:, None]


def figures(scores_BHLL: Tensor, lengths_B: Tensor) -> Tensor:
    """`FIGURES` of each token (B, L, H, F), of rows with a special token in front and one behind.

    A neighbour that is a special token counts as that alone. What a token looks at beside the text's own tokens
    has no distance; one that looks at none of them has the distance 0.
    """
    L, device = scores_BHLL.shape[-1], scores_BHLL.device
    shares_BHLL = scores_BHLL.softmax(-1)
    places_L, ends_B1 = torch.arange(L, device=device), lengths_B[:, None] - 1
    text_BL = (places_L > 0) & (places_L < ends_B1)
    last_B1L1 = ends_B1[:, None, :, None].expand(-1, scores_BHLL.shape[1], L, 1)
    of_text_BHLL = shares_BHLL * text_BL[:, None, None]
    far_LL = (places_L[:, None] - places_L).abs()
    amount_BHL = of_text_BHLL.sum(-1)

    def beside(step: int) -> Tensor:
        """The share of the token so many places further on; 0 where that is none of the text."""
        found = of_text_BHLL.diagonal(step, 2, 3)
        return torch.nn.functional.pad(found, (max(-step, 0), max(step, 0)))

    values = {
        "entropy": torch.special.entr(shares_BHLL).sum(-1),
        "uniform": (scores_BHLL > -torch.inf).sum(-1).log(),
        "distance": (of_text_BHLL * far_LL).sum(-1) / amount_BHL.clamp(min=1e-9),
        "first": shares_BHLL[..., 0],
        "last": shares_BHLL.gather(3, last_B1L1).squeeze(3),
        "previous": beside(-1),
        "self": beside(0),
        "next": beside(1),
    }
    return torch.stack([values[name] for name in FIGURES], -1).transpose(1, 2)

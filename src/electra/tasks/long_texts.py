"""Texts that are longer than the network's input, for heads that read one state per text.

Such a text is one long row, [CLS] text [SEP]. It is split into windows of about equal length, each with its own
[CLS] and [SEP]. A pair is split as if it were one text; its tokens keep their segments.

Shapes: B texts, L length, K windows of all texts, W length of a window, D hidden size, Y blocks, M memory.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderModule, attention_mask
from electra.modeling.encoders.relative import Memory
from electra.modeling.encoders.states import compute_states

LongTextMethod = Literal["windows", "memory"]
LONG_TEXT_METHODS: tuple[str, ...] = get_args(LongTextMethod)


@dataclass(frozen=True)
class Windows:
    """The windows of some texts, those of one text after the other.

    Attributes:
        ids_KW, segment_ids_KW: padded on the right to the longest window.
        lengths_K: length of each window, without padding.
        counts_B: number of windows of each text, at least one.
    """

    ids_KW: Tensor
    segment_ids_KW: Tensor
    lengths_K: Tensor
    counts_B: Tensor

    @property
    def texts_K(self) -> Tensor:
        """The text of each window."""
        return torch.arange(len(self.counts_B), device=self.counts_B.device).repeat_interleave(self.counts_B)


@dataclass(frozen=True)
class LongTexts:
    """How to read texts that are longer than a window.

    Attributes:
        method: windows: each window alone, and the state of the text is the mean of their states. memory: one
            window after the other, each with the memory of the previous ones, and the state of the text is that of
            the last one. Only the last window has a gradient; the memory has none, as in pre-training.
        window: maximum number of tokens of a window, including special ones.
    """

    method: LongTextMethod
    window: int

    def states(self, encoder: EncoderModule, batch: Batch) -> Tensor:
        """Return the state of each text (B, 1, D). A text that fits into one window has that of its row."""
        windows = split_into_windows(batch, self.window)
        return _mean_state(encoder, windows) if self.method == "windows" else _last_state(encoder, windows)


def split_into_windows(batch: Batch, window: int) -> Windows:
    """Split each text into as few windows of at most `window` tokens as possible, of about the same length.

    No window has only a few tokens, because its state would count as much as that of a full window.
    """
    ids_BL, segments_BL, lengths_B = batch.input_ids_BL, batch.segment_ids_BL, batch.lengths_B
    device, tokens_B, room = ids_BL.device, lengths_B - 2, window - 2
    counts_B = ((tokens_B + room - 1) // room).clamp(min=1)
    each_B = (tokens_B + counts_B - 1) // counts_B
    texts_K = torch.arange(len(counts_B), device=device).repeat_interleave(counts_B)
    number_K = torch.arange(len(texts_K), device=device) - (counts_B.cumsum(0) - counts_B)[texts_K]
    before_K = number_K * each_B[texts_K]  # tokens of the text in earlier windows
    sizes_K = torch.minimum(each_B[texts_K], tokens_B[texts_K] - before_K)
    columns_W = torch.arange(int(sizes_K.max()) + 2, device=device)
    is_last_KW = columns_W == sizes_K[:, None] + 1
    # Column 0 is [CLS] at position 0, column 1 follows the tokens of earlier windows; [SEP] is the row's last
    # token.
    positions_KW = (before_K[:, None] + columns_W).clamp(max=ids_BL.shape[1] - 1) * (columns_W > 0)
    ends_K1 = lengths_B[texts_K, None] - 1
    is_final_K1 = number_K[:, None] + 1 == counts_B[texts_K, None]
    # The [SEP] of a window has the segment of the token before it, also if a text of a pair is split there.
    segment_positions_KW = torch.where(
        is_last_KW & ~is_final_K1, positions_KW - 1, torch.where(is_last_KW, ends_K1, positions_KW)
    )
    return Windows(
        ids_BL[texts_K[:, None], torch.where(is_last_KW, ends_K1, positions_KW)],
        segments_BL[texts_K[:, None], segment_positions_KW],
        sizes_K + 2,
        counts_B,
    )


def summary_positions(encoder: EncoderModule, lengths_B: Tensor) -> Tensor:
    """Return the position (B, 1) of the state that represents a row.

    It is that of [CLS], or in a left-to-right network that of the last token, which has seen all others.
    """
    return lengths_B[:, None] - 1 if encoder.config.direction == "left" else torch.zeros_like(lengths_B)[:, None]


def _mean_state(encoder: EncoderModule, windows: Windows) -> Tensor:
    all_K = torch.arange(len(windows.lengths_K), device=windows.lengths_K.device)
    x_K1D = _encode_windows(encoder, windows, all_K, None)
    sums_B1D = x_K1D.new_zeros(len(windows.counts_B), *x_K1D.shape[1:]).index_add(0, windows.texts_K, x_K1D)
    return sums_B1D / windows.counts_B[:, None, None]


def _last_state(encoder: EncoderModule, windows: Windows) -> Tensor:
    """Read all texts in parallel so that they end together: a text with fewer windows starts later."""
    counts_B = windows.counts_B
    order_B = counts_B.argsort(descending=True, stable=True)
    firsts_B, longest = counts_B.cumsum(0) - counts_B, int(counts_B.max())
    memory = Memory(encoder.config.memory_length)
    for left in range(longest, 0, -1):
        texts = order_B[: int((counts_B >= left).sum())]
        if memory.states_YBMD is not None:  # slots of zeros are empty
            Y, B, M, D = memory.states_YBMD.shape
            started = memory.states_YBMD.new_zeros(Y, len(texts) - B, M, D)
            memory.states_YBMD = torch.cat([memory.states_YBMD, started], 1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and left == 1):
            x_B1D = _encode_windows(encoder, windows, (firsts_B + counts_B)[texts] - left, memory)
    return x_B1D[order_B.argsort()]


def _encode_windows(encoder: EncoderModule, windows: Windows, indices: Tensor, memory: Memory | None) -> Tensor:
    """Return the states (windows, 1, D) that represent some of the windows."""
    lengths = windows.lengths_K[indices]
    width = int(lengths.max())
    inputs = windows.ids_KW[indices, :width], windows.segment_ids_KW[indices, :width]
    more: dict[str, Any] = {} if memory is None else {"memory": memory}
    mask, summary = attention_mask(lengths, width), summary_positions(encoder, lengths)
    return compute_states(encoder, *inputs, mask, positions_BN=summary, **more)

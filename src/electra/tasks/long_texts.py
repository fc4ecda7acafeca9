"""Texts longer than an input of the network, for heads that read one state a text.

Such a text is one long row, [CLS] text [SEP], from which windows of about the same length are cut, each with a
[CLS] and a [SEP] of its own. A pair is cut as if it were one text, and tokens keep their segments.

Shapes: B texts, L length, K windows of all texts, W length of a window, D hidden size, Y blocks, M memory.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from electra.data.collate import Batch
from electra.modeling.encoders.bert import attention_mask
from electra.modeling.encoders.build import AnyEncoder
from electra.modeling.encoders.relative import Memory

LongTextMethod = Literal["windows", "memory"]
LONG_TEXT_METHODS: tuple[str, ...] = get_args(LongTextMethod)


@dataclass(frozen=True)
class Windows:
    """The windows of some texts, those of a text one behind the other.

    Attributes:
        ids_KW, segment_ids_KW: padded on the right; lengths_K says where.
        counts_B: how many windows each text has, at least one.
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
    """How texts are read that are longer than a window.

    Attributes:
        way: windows: each by itself, and the state of the text is the mean of theirs. memory: one behind the
            other, each with the memory of those before, and the state of the text is that of the last one. There
            a gradient flows through the last window alone; what is remembered has none, as in pre-training.
        window: tokens of a window at most, special ones included.
    """

    way: LongTextMethod
    window: int

    def states(self, encoder: AnyEncoder, batch: Batch) -> Tensor:
        """The state of each text (B, 1, D). A text that is no longer than a window has that of its row."""
        windows = split_into_windows(batch, self.window)
        return _mean(encoder, windows) if self.way == "windows" else _remembered(encoder, windows)


def split_into_windows(batch: Batch, window: int) -> Windows:
    """As few windows of at most `window` tokens as hold each text, each of about as many tokens.

    So none has a few tokens only, whose state would count as much as that of a full one.
    """
    ids_BL, segments_BL, lengths_B = batch.input_ids_BL, batch.segment_ids_BL, batch.lengths_B
    device, inside_B, room = ids_BL.device, lengths_B - 2, window - 2
    counts_B = ((inside_B + room - 1) // room).clamp(min=1)
    each_B = (inside_B + counts_B - 1) // counts_B
    texts_K = torch.arange(len(counts_B), device=device).repeat_interleave(counts_B)
    number_K = torch.arange(len(texts_K), device=device) - (counts_B.cumsum(0) - counts_B)[texts_K]
    before_K = number_K * each_B[texts_K]  # tokens of the text in earlier windows
    sizes_K = torch.minimum(each_B[texts_K], inside_B[texts_K] - before_K)
    columns_W = torch.arange(int(sizes_K.max()) + 2, device=device)
    last_KW = columns_W == sizes_K[:, None] + 1
    # Column 0 is [CLS] at place 0, column 1 is behind the earlier windows' tokens; [SEP] is the row's last token.
    places_KW = (before_K[:, None] + columns_W).clamp(max=ids_BL.shape[1] - 1) * (columns_W > 0)
    ends_K1 = lengths_B[texts_K, None] - 1
    whole_K1 = number_K[:, None] + 1 == counts_B[texts_K, None]
    # A window's [SEP] is of the segment before it, also where a text of a pair is cut.
    segment_places_KW = torch.where(last_KW & ~whole_K1, places_KW - 1, torch.where(last_KW, ends_K1, places_KW))
    return Windows(
        ids_BL[texts_K[:, None], torch.where(last_KW, ends_K1, places_KW)],
        segments_BL[texts_K[:, None], segment_places_KW],
        sizes_K + 2,
        counts_B,
    )


def summary_positions(encoder: AnyEncoder, lengths_B: Tensor) -> Tensor:
    """The position (B, 1) whose state stands for a row: that of [CLS], or in a network that looks to the left that
    of the last token, which has seen all others."""
    return lengths_B[:, None] - 1 if encoder.config.direction == "left" else torch.zeros_like(lengths_B)[:, None]


def _mean(encoder: AnyEncoder, windows: Windows) -> Tensor:
    x_K1D = _read(encoder, windows, torch.arange(len(windows.lengths_K), device=windows.lengths_K.device), None)
    sums_B1D = x_K1D.new_zeros(len(windows.counts_B), *x_K1D.shape[1:]).index_add(0, windows.texts_K, x_K1D)
    return sums_B1D / windows.counts_B[:, None, None]


def _remembered(encoder: AnyEncoder, windows: Windows) -> Tensor:
    """The texts end together: one with fewer windows begins later, beside those that have begun."""
    counts_B = windows.counts_B
    order_B = counts_B.argsort(descending=True, stable=True)
    firsts_B, longest = counts_B.cumsum(0) - counts_B, int(counts_B.max())
    past = Memory(encoder.config.memory_length)
    for left in range(longest, 0, -1):
        texts = order_B[: int((counts_B >= left).sum())]
        if past.memory_YBMD is not None:  # slots of zeros are empty
            Y, B, M, D = past.memory_YBMD.shape
            begun = past.memory_YBMD.new_zeros(Y, len(texts) - B, M, D)
            past.memory_YBMD = torch.cat([past.memory_YBMD, begun], 1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and left == 1):
            x_B1D = _read(encoder, windows, (firsts_B + counts_B)[texts] - left, past)
    return x_B1D[order_B.argsort()]


def _read(encoder: AnyEncoder, windows: Windows, chosen: Tensor, past: Memory | None) -> Tensor:
    """The states (windows, 1, D) that stand for some of the windows."""
    lengths = windows.lengths_K[chosen]
    width = int(lengths.max())
    inputs = windows.ids_KW[chosen, :width], windows.segment_ids_KW[chosen, :width], attention_mask(lengths, width)
    more = {} if past is None else {"past": past}
    x: Tensor = encoder(*inputs, positions_BN=summary_positions(encoder, lengths), **more)
    return x

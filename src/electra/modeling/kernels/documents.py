"""The attention mask of rows that hold several documents, or one document and padding.

A token attends to the tokens of its own document. Only attention needs to know the documents: all other layers of
an encoder work on single tokens, so they compute little at padding. Attention is computed for groups of documents
of similar length, never with a mask of length × length over a whole row.

Shapes: B batch, L length of rows, T tokens of the batch and little padding, D documents, t tokens of documents
or of a group, p tokens of padding, d documents of a group, l length of the longest of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

SIMILAR_LENGTH = 0.9
"""Documents of a group are at least this share of the longest one. Attention takes time with the square of it."""
LENGTH_STEP = 8
"""The length of padded documents is a multiple of it."""
STEPS_PER_OCTAVE = 8
"""The number of padded documents of a group is one of so many from a power of two to the next one. So is the
number of tokens of a batch."""


@dataclass(frozen=True)
class Group:
    """Consecutive tokens of documents of similar length.

    Attributes:
        documents, length: the padded documents are (d, l). There can be empty ones at the end, and l can be larger
            than the longest document.
        indices_t: index of each token in the padded documents, d × l; None: there is no padding.
        mask_dl: True at tokens, and in empty documents; None: all are tokens.
    """

    documents: int
    length: int
    indices_t: Tensor | None
    mask_dl: Tensor | None

    @property
    def tokens(self) -> int:
        return self.documents * self.length if self.indices_t is None else len(self.indices_t)

    def pad(self, x_tx: Tensor) -> Tensor:
        """Return the values (d, l, ...) of each document, with 0 at padding."""
        if self.indices_t is not None:
            x_tx = _pad(x_tx, self.indices_t, self.documents * self.length)
        return x_tx.unflatten(0, (self.documents, self.length))

    def unpad(self, x_dlx: Tensor) -> Tensor:
        """Return the values (t, ...) of the tokens."""
        x_tx = x_dlx.flatten(0, 1)
        return x_tx if self.indices_t is None else _unpad(x_tx, self.indices_t)


@dataclass(frozen=True)
class DocumentMask:
    """Where the documents of a batch are. Tokens (T) are in the order of groups, documents of a group together.

    At the end of T is as much of the padding as makes T one of a few numbers, so that linear layers have few
    shapes (see `_group` for the reason).

    Attributes:
        batch, length: B and L.
        indices_T: index of each token in the flattened batch: row × L + column.
        positions_BL: position of each token in its document; None: each row is one document, from column 0.
        offsets_D: int32, (D + 1,): the cumulative lengths, 0 to T (`cu_seqlens` of FlashAttention). Padding is one
            document or more there.
        groups: the documents, from the shortest to the longest; one group in the order of rows if each row is one
            document.
        padding: number of the last tokens of T that are padding. Their values have no meaning.
        direction: a token attends to the whole document, or to itself and the tokens to its left, or right.
    """

    batch: int
    length: int
    indices_T: Tensor
    positions_BL: Tensor | None
    offsets_D: Tensor
    groups: tuple[Group, ...]
    padding: int = 0
    direction: Literal["both", "left", "right"] = "both"

    @classmethod
    def of_rows(cls, lengths_B: NDArray[np.int64], length: int) -> Self:
        """Return the mask of rows that are one document each, with padding after it.

        Args:
            lengths_B: tokens of each row.
            length: L, the length of the padded rows.
        """
        inside_BL = np.arange(length) < lengths_B[:, None]
        indices_t = np.flatnonzero(inside_BL)
        group = Group(len(lengths_B), length, torch.from_numpy(indices_t), torch.from_numpy(inside_BL))
        return cls._of_groups(
            (group,), indices_t, lengths_B, positions_BL=None, batch=len(lengths_B), length=length
        )

    @classmethod
    def of_documents(cls, documents_D2: NDArray[np.int64], batch: int, length: int) -> Self:
        """Return the mask of rows with any number of documents.

        Args:
            documents_D2: first position (row × L + column) and length of each document.
            batch, length: B and L.
        """
        starts_D, lengths_D = documents_D2[np.argsort(documents_D2[:, 1], kind="stable")].T
        columns_t = _count_up(lengths_D)
        indices_t = np.repeat(starts_D, lengths_D) + columns_t
        positions_BL = np.zeros((batch, length), np.int64)
        positions_BL.reshape(-1)[indices_t] = columns_t
        groups = tuple(_group(lengths_D[first:last], length) for first, last in _similar_lengths(lengths_D))
        positions = torch.from_numpy(positions_BL)
        return cls._of_groups(groups, indices_t, lengths_D, positions_BL=positions, batch=batch, length=length)

    @classmethod
    def _of_groups(
        cls,
        groups: tuple[Group, ...],
        indices_t: NDArray[np.int64],
        lengths_D: NDArray[np.int64],
        *,
        positions_BL: Tensor | None,
        batch: int,
        length: int,
    ) -> Self:
        """Return a mask of these groups, with some padding.

        Args:
            indices_t: index of each token of a document, in the order of groups.
            lengths_D: the lengths of the documents, in this order.
        """
        is_padding = np.ones(batch * length, bool)
        is_padding[indices_t] = False
        padding_p = np.flatnonzero(is_padding)[: round_to_few(len(indices_t)) - len(indices_t)]
        indices_T = torch.from_numpy(np.concatenate([indices_t, padding_p]))
        offsets_D = _offsets(np.append(lengths_D, _parts(len(padding_p), length)))
        return cls(batch, length, indices_T, positions_BL, offsets_D, groups, len(padding_p))

    @property
    def rows_are_documents(self) -> bool:
        """Whether each row is one document, padded at its end."""
        return self.positions_BL is None

    @property
    def positions(self) -> Tensor:
        """Position of each token in its document (B, L)."""
        if self.positions_BL is not None:
            return self.positions_BL
        return torch.arange(self.length, device=self.indices_T.device).expand(self.batch, -1)

    def unpad(self, x_BLx: Tensor) -> Tensor:
        """Return the values (T, ...) of the tokens."""
        return _unpad(x_BLx.flatten(0, 1), self.indices_T)

    def pad(self, x_Tx: Tensor) -> Tensor:
        """Return the values (B, L, ...) in their rows, with 0 at padding."""
        tokens = len(x_Tx) - self.padding
        padded = _pad(x_Tx[:tokens], self.indices_T[:tokens], self.batch * self.length)
        return padded.unflatten(0, (self.batch, self.length))

    def select(self, x_Tx: Tensor, positions_BN: Tensor) -> Tensor:
        """Return the values (B, N, ...) at some positions of each row; those at padding have no meaning."""
        tokens_BL = torch.zeros(self.batch * self.length, dtype=torch.int64, device=x_Tx.device)
        tokens_BL[self.indices_T] = torch.arange(len(self.indices_T), device=x_Tx.device)
        return x_Tx[tokens_BL.view(self.batch, self.length).gather(1, positions_BN)]

    def roll(self, x_BLD: Tensor, shift: Literal[-1, 1]) -> Tensor:
        """Return the values moved by one position to the right (1) or left (-1) within each document.

        What leaves a document at one end enters it at the other.
        """
        firsts_D, lasts_D = self.indices_T[self.offsets_D[:-1]], self.indices_T[self.offsets_D[1:] - 1]
        targets_D, sources_D = (firsts_D, lasts_D) if shift == 1 else (lasts_D, firsts_D)
        rows_x = torch.arange(self.batch * self.length, device=x_BLD.device).roll(shift)
        rows_x[targets_D] = sources_D
        return x_BLD.flatten(0, 1).index_select(0, rows_x).view_as(x_BLD)

    def attention_mask(self, mask_dl: Tensor | None, length: int) -> Tensor | None:
        """Return True at the keys that each query of a group may attend to, (1 or d, 1, 1 or l, l); None: all.

        Args:
            mask_dl: the mask of the group.
            length: l.
        """
        mask_d11l = None if mask_dl is None else mask_dl[:, None, None]
        if self.direction == "both":
            return mask_d11l
        device = self.indices_T.device
        mask_11ll = torch.ones(1, 1, length, length, dtype=torch.bool, device=device).tril()
        mask_11ll = mask_11ll if self.direction == "left" else mask_11ll.mT
        if mask_d11l is None:
            return mask_11ll
        return (mask_11ll & mask_d11l) | torch.eye(length, dtype=torch.bool, device=device)

    def by_group(self, compute: Callable[..., Tensor], *values_Tx: Tensor) -> Tensor:
        """Return the results (T, ...) of a function of padded documents; they are 0 at padding.

        Args:
            compute: its arguments are the values (d, l, ...) of a group, one for each of `values_Tx`, and their
                mask (d, l); it returns values (d, l, ...).
        """
        sizes = [*(group.tokens for group in self.groups), self.padding]
        results = []
        for group, *parts in zip(self.groups, *(x_Tx.split(sizes)[:-1] for x_Tx in values_Tx), strict=True):
            results.append(group.unpad(compute(*map(group.pad, parts), group.mask_dl)))
        if self.padding:
            results.append(results[0].new_zeros(self.padding, *results[0].shape[1:]))
        return results[0] if len(results) == 1 else torch.cat(results)

    def to(self, device: torch.device) -> "DocumentMask":
        """Return the mask on a device. The copy to an accelerator is asynchronous."""
        if device.type == "cpu":
            return self

        def copy(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True)

        of_groups = [tensor for group in self.groups for tensor in (group.indices_t, group.mask_dl)]
        tensors = [self.indices_T, self.offsets_D, self.positions_BL, *of_groups]
        indices_T, offsets_D, positions_BL, *of_groups = copy_together(tensors, copy)
        assert indices_T is not None and offsets_D is not None
        pairs = zip(of_groups[::2], of_groups[1::2], strict=True)
        groups = [
            replace(group, indices_t=indices_t, mask_dl=mask_dl)
            for group, (indices_t, mask_dl) in zip(self.groups, pairs, strict=True)
        ]
        return replace(
            self, indices_T=indices_T, offsets_D=offsets_D, positions_BL=positions_BL, groups=tuple(groups)
        )  # fmt: skip


AttentionMask = Tensor | DocumentMask | None
"""True at tokens (B, L); or where the documents of a batch are; None: each row is one document without padding."""


def padded_length(longest: int, limit: int) -> int:
    """Return the next multiple of `LENGTH_STEP`, but at most the limit."""
    return min(-(-longest // LENGTH_STEP) * LENGTH_STEP, limit)


def round_to_few(count: int) -> int:
    """Return the smallest of the numbers 0, 1, 2, ... 16, 18, 20, ... 32, 36, ... that is at least `count`."""
    octave = 1 << max((count - 1).bit_length() - 1, 0)
    step = max(1, octave // STEPS_PER_OCTAVE)
    return -(-count // step) * step


def copy_together(tensors: Sequence[Tensor | None], copy: Callable[[Tensor], Tensor]) -> list[Tensor | None]:
    """Return copies of integer and boolean tensors that are made in one call, because each call has its cost."""
    present = [tensor for tensor in tensors if tensor is not None]
    whole = copy(torch.cat([tensor.flatten().long() for tensor in present]))
    parts = iter(whole.split([tensor.numel() for tensor in present]))
    return [None if x is None else next(parts).view(x.shape).to(x.dtype) for x in tensors]


def _count_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, ... for each of several lengths, one after another."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _offsets(lengths_D: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.append(0, np.cumsum(lengths_D)).astype(np.int32))


def _parts(count: int, size: int) -> NDArray[np.int64]:
    """Return the sizes of the parts of `count` things, each of at most `size`."""
    return np.diff(np.append(np.arange(0, count, size), count))


def _similar_lengths(lengths_D: NDArray[np.int64]) -> Sequence[tuple[int, int]]:
    """Return the first document and the one after the last of each group; lengths are ascending."""
    groups, last = [], len(lengths_D)
    while last:
        first = int(np.searchsorted(lengths_D, SIMILAR_LENGTH * lengths_D[last - 1]))
        groups.append((first, last))
        last = first
    return groups[::-1]


def _group(lengths_d: NDArray[np.int64], row_length: int) -> Group:
    """Return a group of documents, padded to one of a few shapes.

    PyTorch keeps a kernel on a CPU for each of the last 1,024 shapes of products, which take a gigabyte or more if
    every batch has new ones.
    """
    count = len(lengths_d)
    documents, length = round_to_few(count), padded_length(int(lengths_d[-1]), row_length)
    if documents == count and int(lengths_d[0]) == length:
        return Group(documents, length, None, None)
    indices_t = np.repeat(np.arange(count) * length, lengths_d) + _count_up(lengths_d)
    visible_d = np.append(lengths_d, np.full(documents - count, length))  # a softmax needs at least one token
    mask_dl = np.arange(length) < visible_d[:, None]
    return Group(documents, length, torch.from_numpy(indices_t), torch.from_numpy(mask_dl))


def _unpad(x: Tensor, indices_T: Tensor) -> Tensor:
    y: Tensor = _Unpad.apply(x, indices_T)  # type: ignore[no-untyped-call]
    return y


def _pad(x_Tx: Tensor, indices_T: Tensor, count: int) -> Tensor:
    y: Tensor = _Pad.apply(x_Tx, indices_T, count)  # type: ignore[no-untyped-call]
    return y


def _scatter(x_Tx: Tensor, indices_T: Tensor, count: int) -> Tensor:
    return x_Tx.new_zeros(count, *x_Tx.shape[1:]).index_copy_(0, indices_T, x_Tx)


class _Unpad(torch.autograd.Function):
    """Indexing whose gradient is copied. PyTorch would add it up, because it does not know that indices differ."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, indices_T: Tensor) -> Tensor:
        ctx.save_for_backward(indices_T)
        ctx.count = len(x)
        return x.index_select(0, indices_T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (indices_T,) = ctx.saved_tensors
        return _scatter(grad, indices_T, ctx.count), None


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, indices_T: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(indices_T)
        return _scatter(x, indices_T, count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (indices_T,) = ctx.saved_tensors
        return grad.index_select(0, indices_T), None, None

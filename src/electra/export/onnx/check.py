"""Does a graph give what its network gives?

Shapes: B batch, L length, N positions.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from electra.data.tokenizer import SpecialTokens
from electra.export.onnx.graph import IDS, MASK, SEGMENTS
from electra.export.onnx.heads import ALLOWED, BEGINS, POSITIONS, OnnxKind
from electra.export.pretrained import Pretrained
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.task_heads import TaskHead
from electra.tasks.base import TaskBatch
from electra.tasks.catalog import load_problem
from electra.tasks.task_model import TaskModel

TOLERANCE = 1e-4
"""A graph whose outputs differ by more computes something else."""
LENGTHS = ((2,), (3, 7, 5), (32, 9), (64, 64, 33, 2), (128, 50))
"""Tokens of each row of the batches that are compared, as far as the network reads so many."""
MASKED = 0.15
"""Share of the tokens whose words are predicted, or where an answer may begin."""
Inputs = dict[str, Tensor]
Network = Callable[[Inputs], dict[str, Tensor]]
"""Without a mask among the inputs there is no padding."""


def samples(pretrained: Pretrained, special: SpecialTokens) -> Iterator[Inputs]:
    """Batches of several sizes and lengths; the last has a row as long as the network reads, or 512 tokens."""
    longest = min(pretrained.max_length, 512)
    for seed, lengths in enumerate((*LENGTHS, (longest, max(2, longest // 3)))):
        yield sample(pretrained, special, [min(length, longest) for length in lengths], seed=seed)


def sample(pretrained: Pretrained, special: SpecialTokens, lengths: Sequence[int], *, seed: int = 0) -> Inputs:
    """A batch of random tokens with padding, segments, and all further inputs.

    Args:
        lengths: tokens of each row, special ones included.
    """
    random = torch.Generator().manual_seed(seed)
    lengths_B = torch.tensor(lengths)
    L = int(lengths_B.max())
    mask_BL = torch.arange(L) < lengths_B[:, None]
    ids_BL = torch.randint(pretrained.encoder.config.vocabulary_size, mask_BL.shape, generator=random)
    ids_BL[:, 0] = special.classify
    segments_BL = (torch.arange(L) >= (lengths_B // 2)[:, None]).long() * mask_BL
    inside_BL = (segments_BL == 1) & (torch.arange(L) < lengths_B[:, None] - 1)
    wanted_BL = mask_BL & (torch.rand(mask_BL.shape, generator=random) < MASKED)
    wanted_BL[0, 0] = True
    begins_BL = inside_BL & (torch.rand(mask_BL.shape, generator=random) < MASKED)
    return {
        IDS: ids_BL.masked_fill(~mask_BL, special.pad),
        MASK: mask_BL,
        SEGMENTS: segments_BL,
        POSITIONS: wanted_BL.flatten().nonzero().squeeze(1),
        ALLOWED: (inside_BL | (torch.arange(L) == 0)).long(),
        BEGINS: begins_BL.long(),
    }


def reference(pretrained: Pretrained, kind: OnnxKind) -> Network:
    """The network as PyTorch computes it, with the graph's inputs and outputs."""
    encoder, head = pretrained.encoder, pretrained.head
    if kind in ("text", "token", "span", "conditional-span"):
        assert pretrained.task is not None and isinstance(head, TaskHead)
        module = TaskModel(encoder, load_problem(pretrained.task), head=head).eval()
        return lambda inputs: module.logits(_batch(inputs))

    def computed(inputs: Inputs) -> Inputs:
        mask_BL = inputs.get(MASK)
        states_BLD = encoder(inputs[IDS], inputs[SEGMENTS], mask_BL)
        found = {"states": states_BLD}
        if kind == "discriminator":
            assert isinstance(head, ReplacedTokenHead)
            found["logits"] = head(states_BLD)
        elif kind == "generator":
            assert isinstance(head, MaskedLanguageModelHead)
            chosen_ND = states_BLD.flatten(0, 1)[inputs[POSITIONS]]
            found["logits"] = head.logits(chosen_ND, encoder.embeddings.token.weight)
        else:
            weights_BL = torch.ones_like(states_BLD[..., 0]) if mask_BL is None else mask_BL.float()
            found["embeddings"] = (states_BLD * weights_BL[..., None]).sum(1) / weights_BL.sum(1, keepdim=True)
        return found

    return computed


def _batch(inputs: Inputs) -> TaskBatch:
    ids_BL, mask_BL = inputs[IDS], inputs.get(MASK)
    lengths_B = torch.full((len(ids_BL),), ids_BL.shape[1]) if mask_BL is None else mask_BL.sum(1)
    targets = {name: inputs[name] for name in (ALLOWED, BEGINS)}
    return TaskBatch(ids_BL, inputs[SEGMENTS], lengths_B, 0, targets=targets)


def difference(wanted: dict[str, Tensor], found: dict[str, Tensor], mask_BL: Tensor) -> float:
    """The largest absolute difference of any output, at tokens; infinite where one lacks what the other has.

    Where the starts of answers are ordered otherwise, since they are as likely, their ends are not compared.
    """
    same_BT = wanted["starts"] == found["starts"] if "starts" in wanted else None
    largest = 0.0
    for name, ours in wanted.items():
        theirs = found[name]
        if ours.shape != theirs.shape:
            return float("inf")
        if name == "starts":
            continue
        chosen: Any = slice(None)
        if name == "end_scores":
            assert same_BT is not None
            chosen = same_BT
        elif ours.shape[:2] == mask_BL.shape and name not in ("start_scores", "embeddings"):
            chosen = mask_BL
        one, other = ours[chosen], theirs[chosen]
        finite = one.isfinite()
        if not torch.equal(finite, other.isfinite()):
            return float("inf")
        if finite.any():
            largest = max(largest, float((one[finite] - other[finite]).abs().max()))
    return largest

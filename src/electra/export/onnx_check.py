"""Does a graph give what its network gives?

Shapes: B batch, L length, N positions.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from electra.data.tokenizer import SpecialTokens
from electra.export.huggingface import Pretrained
from electra.export.onnx_graph import IDS, MASK, SEGMENTS
from electra.export.onnx_heads import ALLOWED, BEGINS, POSITIONS, OnnxKind
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.task_heads import TaskHead
from electra.tasks.base import TaskBatch
from electra.tasks.fine_tuning import FineTuning
from electra.tasks.problems import from_facts

TOLERANCE = 1e-4
"""A graph whose outputs differ by more computes something else."""
LENGTHS = ((2,), (3, 7, 5), (32, 9), (64, 64, 33, 2), (128, 50))
"""Tokens of each row of the batches that are compared, as far as the network reads so many."""
Inputs = dict[str, Tensor]


def samples(pretrained: Pretrained, special: SpecialTokens) -> Iterator[Inputs]:
    """Batches of random tokens of several sizes and lengths, with padding, segments and all further inputs; the
    last one has a row of the network's longest input."""
    random = torch.Generator().manual_seed(0)
    vocabulary, longest = pretrained.encoder.config.vocabulary_size, pretrained.max_length
    longest = min(longest, 512)
    for lengths in (*LENGTHS, (longest, max(2, longest // 3))):
        lengths_B = torch.tensor([min(length, longest) for length in lengths])
        L = int(lengths_B.max())
        mask_BL = torch.arange(L) < lengths_B[:, None]
        ids_BL = torch.randint(vocabulary, (len(lengths), L), generator=random)
        ids_BL[:, 0] = special.classify
        ids_BL = ids_BL.masked_fill(~mask_BL, special.pad)
        segments_BL = (torch.arange(L) >= (lengths_B // 2)[:, None]).long() * mask_BL
        inside_BL = (segments_BL == 1) & (torch.arange(L) < lengths_B[:, None] - 1)
        wanted_BL = mask_BL & (torch.rand(ids_BL.shape, generator=random) < 0.3)
        wanted_BL[0, 0] = True
        begins_BL = inside_BL & (torch.rand(ids_BL.shape, generator=random) < 0.7)
        yield {
            IDS: ids_BL,
            MASK: mask_BL,
            SEGMENTS: segments_BL,
            POSITIONS: wanted_BL.flatten().nonzero().squeeze(1),
            ALLOWED: (inside_BL | (torch.arange(L) == 0)).long(),
            BEGINS: begins_BL.long(),
        }


@torch.inference_mode()
def expected(pretrained: Pretrained, kind: OnnxKind, inputs: Inputs) -> dict[str, Tensor]:
    """What the network gives, by the names of the graph's outputs."""
    encoder, head = pretrained.encoder, pretrained.head
    ids_BL, mask_BL, segments_BL = (inputs[name] for name in (IDS, MASK, SEGMENTS))
    if kind in ("text", "token", "span", "conditional-span"):
        assert pretrained.task is not None and isinstance(head, TaskHead)
        targets = {name: inputs[name] for name in (ALLOWED, BEGINS)}
        batch = TaskBatch(ids_BL, segments_BL, mask_BL.sum(1), 0, targets=targets)
        module = FineTuning(encoder, from_facts(pretrained.task), head=head).eval()
        return module.logits(batch)
    states_BLD = encoder(ids_BL, segments_BL, mask_BL)
    found = {"states": states_BLD}
    if kind == "discriminator":
        assert isinstance(head, ReplacedTokenHead)
        found["logits"] = head(states_BLD)
    elif kind == "generator":
        assert isinstance(head, MaskedLanguageModelHead)
        chosen_ND = states_BLD.flatten(0, 1)[inputs[POSITIONS]]
        found["logits"] = head.logits(chosen_ND, encoder.embeddings.token.weight)
    else:
        weights_BL1 = mask_BL[:, :, None].float()
        found["embeddings"] = (states_BLD * weights_BL1).sum(1) / weights_BL1.sum(1)
    return found


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

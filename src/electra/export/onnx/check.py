"""Compare the outputs of a graph with those of its network.

Shapes: B batch, L length, D hidden size, N masked positions in the flattened batch, T starts of answers.
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
"""Largest difference of outputs that rounding can explain."""
LENGTHS = ((2,), (3, 7, 5), (32, 9), (64, 64, 33, 2), (128, 50))
"""Lengths of the rows of each batch, cut to the longest input of the network."""
SELECTED_SHARE = 0.15
"""Share of the tokens that are masked, and share of the tokens at which an answer may begin."""
Inputs = dict[str, Tensor]
Outputs = dict[str, Tensor]
Network = Callable[[Inputs], Outputs]
"""A network as a function. If the inputs have no mask, there is no padding."""


def sample_batches(pretrained: Pretrained, special: SpecialTokens) -> Iterator[Inputs]:
    """Batches of several sizes and lengths. The last one has a row of the longest input, or of 512 tokens."""
    longest = min(pretrained.max_length, 512)
    for seed, lengths in enumerate((*LENGTHS, (longest, max(2, longest // 3)))):
        yield sample_batch(pretrained, special, [min(length, longest) for length in lengths], seed=seed)


def sample_batch(
    pretrained: Pretrained, special: SpecialTokens, lengths: Sequence[int], *, seed: int = 0
) -> Inputs:
    """A batch of random tokens with padding, two segments, and all further inputs.

    Args:
        lengths: the number of tokens in each row, special tokens included.
    """
    random = torch.Generator().manual_seed(seed)
    lengths_B = torch.tensor(lengths)
    L = int(lengths_B.max())
    mask_BL = torch.arange(L) < lengths_B[:, None]
    ids_BL = torch.randint(pretrained.encoder.config.vocabulary_size, mask_BL.shape, generator=random)
    ids_BL[:, 0] = special.classify
    segments_BL = (torch.arange(L) >= (lengths_B // 2)[:, None]).long() * mask_BL
    answers_BL = (segments_BL == 1) & (torch.arange(L) < lengths_B[:, None] - 1)
    masked_BL = mask_BL & (torch.rand(mask_BL.shape, generator=random) < SELECTED_SHARE)
    masked_BL[0, 0] = True
    begins_BL = answers_BL & (torch.rand(mask_BL.shape, generator=random) < SELECTED_SHARE)
    return {
        IDS: ids_BL.masked_fill(~mask_BL, special.pad),
        MASK: mask_BL,
        SEGMENTS: segments_BL,
        POSITIONS: masked_BL.flatten().nonzero().squeeze(1),
        ALLOWED: (answers_BL | (torch.arange(L) == 0)).long(),
        BEGINS: begins_BL.long(),
    }


def torch_network(pretrained: Pretrained, kind: OnnxKind) -> Network:
    """The network in PyTorch, with the inputs and outputs of the graph."""
    encoder, head = pretrained.encoder, pretrained.head
    if kind in ("text", "token", "span", "conditional-span"):
        assert pretrained.task is not None and isinstance(head, TaskHead)
        module = TaskModel(encoder, load_problem(pretrained.task), head=head).eval()
        return lambda inputs: module.logits(_task_batch(inputs))

    def forward(inputs: Inputs) -> Outputs:
        mask_BL = inputs.get(MASK)
        states_BLD = encoder(inputs[IDS], inputs[SEGMENTS], mask_BL)
        outputs = {"states": states_BLD}
        if kind == "discriminator":
            assert isinstance(head, ReplacedTokenHead)
            outputs["logits"] = head(states_BLD)
        elif kind == "generator":
            assert isinstance(head, MaskedLanguageModelHead)
            states_ND = states_BLD.flatten(0, 1)[inputs[POSITIONS]]
            outputs["logits"] = head.logits(states_ND, encoder.embeddings.token.weight)
        else:
            weights_BL = torch.ones_like(states_BLD[..., 0]) if mask_BL is None else mask_BL.float()
            outputs["embeddings"] = (states_BLD * weights_BL[..., None]).sum(1) / weights_BL.sum(1, keepdim=True)
        return outputs

    return forward


def _task_batch(inputs: Inputs) -> TaskBatch:
    ids_BL, mask_BL = inputs[IDS], inputs.get(MASK)
    lengths_B = torch.full((len(ids_BL),), ids_BL.shape[1]) if mask_BL is None else mask_BL.sum(1)
    targets = {name: inputs[name] for name in (ALLOWED, BEGINS)}
    return TaskBatch(ids_BL, inputs[SEGMENTS], lengths_B, 0, targets=targets)


def max_difference(expected: Outputs, actual: Outputs, mask_BL: Tensor) -> float:
    """The largest absolute difference of any output, without padding.

    It is infinite if shapes differ, or if a value is finite in only one of the two. Starts of answers that are
    equally likely may come in another order; the scores of their ends are then not compared.
    """
    same_start_BT = expected["starts"] == actual["starts"] if "starts" in expected else None
    largest = 0.0
    for name, expected_output in expected.items():
        actual_output = actual[name]
        if expected_output.shape != actual_output.shape:
            return float("inf")
        if name == "starts":
            continue
        compared: Any = slice(None)
        if name == "end_scores":
            assert same_start_BT is not None
            compared = same_start_BT
        elif expected_output.shape[:2] == mask_BL.shape and name not in ("start_scores", "embeddings"):
            compared = mask_BL
        x, y = expected_output[compared], actual_output[compared]
        finite = x.isfinite()
        if not torch.equal(finite, y.isfinite()):
            return float("inf")
        if finite.any():
            largest = max(largest, float((x[finite] - y[finite]).abs().max()))
    return largest

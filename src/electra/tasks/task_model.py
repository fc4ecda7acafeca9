"""An encoder and a head that learn a problem together: what the trainer trains.

Shapes: B batch, L length, D hidden size.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from electra.modeling.encoders.bert import attention_mask, gather_positions
from electra.modeling.encoders.build import AnyEncoder
from electra.modeling.flops import Network, Networks
from electra.modeling.task_heads import TaskHead
from electra.objectives.base import Counts, StepOutput
from electra.tasks.base import Outputs, Problem, Rows, TaskBatch, collate
from electra.tasks.long_texts import LongTexts, summary_positions

Reduction = Literal["mean", "sum"]
CPU_TOKENS, DEVICE_TOKENS = 2048, 16_384
"""Tokens of a batch, padding included, when outputs are wanted: enough for the products' full speed."""


class TaskModel(nn.Module):
    """A problem's network.

    Args:
        reduction: of the answers' losses in a batch. The original's is the sum, which makes the clipping of the
            gradient nearly always active.
        head: None: a new one.
        long: how rows are read that are longer than its windows; None: all at once.
    """

    def __init__(
        self,
        encoder: AnyEncoder,
        problem: Problem,
        *,
        reduction: Reduction = "mean",
        head: TaskHead | None = None,
        long: LongTexts | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.problem, self.reduction, self.long = encoder, problem, reduction, long
        self.head: TaskHead = problem.head(encoder.config) if head is None else head
        assert long is None or self.head.reads_first_only, "heads of tokens read their rows at once"

    def counts(self, batch: TaskBatch) -> Counts:
        """What the losses are divided by."""
        if self.reduction == "sum":
            return {"answers": torch.ones((), device=batch.lengths_B.device)}
        return {"answers": self.problem.answers(batch).float()}

    def forward(self, batch: TaskBatch, counts: Counts | None = None) -> StepOutput:
        counts = counts or self.counts(batch)
        losses_B = self.problem.losses(self.head, self.states(batch), batch)
        if self.reduction == "sum":  # one in all, however many micro-batches are counted
            return StepOutput(losses_B.sum(), {})
        return StepOutput(losses_B.sum() / counts["answers"], {})

    def states(self, batch: TaskBatch) -> Tensor:
        """The states (B, L, D) that the head reads; only one a row (B, 1, D) where that is all.

        The first one is that of [CLS]. In a network that looks to the left, where [CLS] has seen nothing, it is
        that of the last token, for every head: there is no answer is said at the first one, too.
        """
        length = batch.input_ids_BL.shape[1]
        if self.long is not None and length > self.long.window:
            return self.long.states(self.encoder, batch)
        summary_B1 = summary_positions(self.encoder, batch.lengths_B)
        x_BLD: Tensor = self.encoder(
            batch.input_ids_BL,
            batch.segment_ids_BL,
            attention_mask(batch.lengths_B, length),
            positions_BN=summary_B1 if self.head.reads_first_only else None,
            unpadding=batch.unpadding,
        )
        if self.head.reads_first_only or self.encoder.config.direction != "left":
            return x_BLD
        return torch.cat([gather_positions(x_BLD, summary_B1), x_BLD[:, 1:]], 1)

    def logits(self, batch: TaskBatch) -> dict[str, Tensor]:
        """What the head gives for a batch."""
        return self.problem.logits(self.head, self.states(batch), batch)

    @torch.no_grad()
    def outputs(
        self, rows: Rows, *, pad: int, device: torch.device, batch_tokens: int | None = None
    ) -> list[Outputs]:
        """What the problem makes of each row, in order, without dropout; rows of like length are batched."""
        training = self.training
        self.eval()
        batches = self.batches(rows, device=device, batch_tokens=batch_tokens)
        found = compute_outputs(rows, batches, self.logits, self.problem, pad=pad, device=device)
        self.train(training)
        return found

    def batches(
        self, rows: Rows, *, device: torch.device, batch_tokens: int | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """The rows in the batches in which outputs are computed."""
        batch_tokens = batch_tokens or (CPU_TOKENS if device.type == "cpu" else DEVICE_TOKENS)
        # With memory the texts of a batch are read side by side, a window at a time.
        at_once = self.long.window if self.long is not None and self.long.way == "memory" else None
        return batches_by_length(rows, batch_tokens, at_once=at_once)

    def begin_step(self, step: int, steps: int | None) -> None:
        """Every step is alike."""

    def networks(self, length: int) -> Networks:
        wanted, config = 1 / length if self.head.reads_first_only else 1.0, self.encoder.config
        if self.long is None or self.long.way == "windows":  # what it could remember is not asked for
            config = replace(config, memory_length=0)
        return {"encoder": Network.of(config, head="none", wanted_share=wanted)}


def compute_outputs(
    rows: Rows,
    batches: Iterable[NDArray[np.int64]],
    logits: Callable[[TaskBatch], dict[str, Tensor]],
    problem: Problem,
    *,
    pad: int,
    device: torch.device,
) -> list[Outputs]:
    """What a problem makes of each row, in order.

    Args:
        batches: the rows of each.
        logits: what a network's head gives for a batch.
    """
    found: list[Outputs] = [{}] * len(rows)
    for chosen in batches:
        batch = collate(rows, chosen, pad=pad).to(device)
        outputs = problem.outputs(logits(batch), batch)
        arrays = {name: values.float().cpu().numpy() for name, values in outputs.items()}
        for place, row in enumerate(chosen.tolist()):
            found[row] = {name: values[place] for name, values in arrays.items()}
    return found


def batches_by_length(rows: Rows, batch_tokens: int, *, at_once: int | None = None) -> Iterator[NDArray[np.int64]]:
    """The rows in batches of so many tokens at most, the longest first.

    Args:
        at_once: so many tokens of a row are read at a time, and count; None: all.
    """
    order = np.argsort(-rows.lengths, kind="stable")
    first = 0
    while first < len(order):
        longest = int(rows.lengths[order[first]])
        count = max(1, batch_tokens // min(longest, at_once or longest))
        yield order[first : first + count]
        first += count


def layer_depths(module: TaskModel) -> dict[str, int]:
    """How far each parameter is from the output: 0 in the head, 1 in the last block, most in the embeddings.

    Weights that several blocks share are as far as the last of them is.
    """
    layers = module.encoder.config.layers
    found = {}
    last = {id(parameter): name for name, parameter in module.named_parameters(remove_duplicate=False)}
    for first, parameter in module.named_parameters():
        name = last[id(parameter)]
        if name.startswith("head."):
            found[first] = 0
        elif name.startswith("encoder.blocks."):
            found[first] = layers - int(name.split(".")[2])
        else:
            found[first] = layers + 1
    return found


def layer_decay_scales(module: TaskModel, decay: float, *, mode: Literal["paper", "google"]) -> dict[str, float]:
    """Each parameter's share of the learning rate: `decay` to the power of its depth.

    In the original's code the powers are one higher than in the paper for all but the head: decay² in the last
    block.
    """
    more = 1 if mode == "google" else 0
    return {name: decay ** (depth + more) if depth else 1.0 for name, depth in layer_depths(module).items()}

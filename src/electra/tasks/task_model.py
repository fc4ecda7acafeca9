"""The model of a fine-tuning: an encoder and the head of a problem, which the trainer trains together.

Shapes: B batch, L length, D hidden size.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.modeling.encoders.base import EncoderModule, attention_mask, gather_positions
from electra.modeling.encoders.states import compute_states
from electra.modeling.evaluation_mode import evaluation_mode
from electra.modeling.flops import Network, Networks
from electra.modeling.kernels.documents import AttentionMask, padded_length
from electra.modeling.task_heads import TaskHead
from electra.objectives.base import Counts, StepOutput, TrainableModule
from electra.tasks.base import Outputs, Problem, Rows, TaskBatch, collate
from electra.tasks.config import Reduction
from electra.tasks.long_texts import LongTexts, summary_positions

CPU_TOKENS, DEVICE_TOKENS = 2048, 16_384
"""Tokens per batch, including padding, when outputs are computed: enough for the full speed of matrix products."""


class TaskModel(TrainableModule):
    """An encoder and the head of a problem.

    Args:
        reduction: reduction of the losses of a batch. The original code uses the sum, which makes the gradient so
            large that it is nearly always clipped.
        head: None: a new one.
        long: how to read rows that are longer than a window; None: whole rows at once.
    """

    def __init__(
        self,
        encoder: EncoderModule,
        problem: Problem,
        *,
        reduction: Reduction = "mean",
        head: TaskHead | None = None,
        long: LongTexts | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.problem, self.reduction, self.long = encoder, problem, reduction, long
        self.head: TaskHead = problem.build_head(encoder.config) if head is None else head
        assert long is None or self.head.reads_first_only, "heads that read tokens need whole rows"

    def counts(self, batch: TaskBatch) -> Counts:
        """Return the divisor of the losses."""
        if self.reduction == "sum":
            return {"answers": torch.ones((), device=batch.lengths_B.device)}
        return {"answers": self.problem.count_targets(batch).float()}

    def forward(self, batch: TaskBatch, counts: Counts | None = None) -> StepOutput:
        counts = counts or self.counts(batch)
        losses_B = self.problem.losses(self.head, self.states(batch), batch)
        if self.reduction == "sum":  # not divided, however many micro-batches are counted
            return StepOutput(losses_B.sum(), {})
        return StepOutput(losses_B.sum() / counts["answers"], {})

    def states(self, batch: TaskBatch) -> Tensor:
        """Return the states (B, L, D) that the head reads; one per row (B, 1, D) if it reads no more.

        The first state is that of [CLS]. In a left-to-right network, where [CLS] has seen nothing, it is that of
        the last token, for every head: also "no answer" is predicted from the first state.
        """
        length = batch.input_ids_BL.shape[1]
        if self.long is not None and length > self.long.window:
            return self.long.states(self.encoder, batch)
        summary_B1 = summary_positions(self.encoder, batch.lengths_B)
        mask: AttentionMask = attention_mask(batch.lengths_B, length)
        if batch.documents is not None and "document-mask" in self.encoder.config.capabilities:
            mask = batch.documents
        x_BLD = compute_states(
            self.encoder,
            batch.input_ids_BL,
            batch.segment_ids_BL,
            mask,
            positions_BN=summary_B1 if self.head.reads_first_only else None,
        )
        if self.head.reads_first_only or self.encoder.config.direction != "left":
            return x_BLD
        return torch.cat([gather_positions(x_BLD, summary_B1), x_BLD[:, 1:]], 1)

    def logits(self, batch: TaskBatch) -> dict[str, Tensor]:
        """Return the outputs of the head for a batch."""
        return self.problem.logits(self.head, self.states(batch), batch)

    @torch.no_grad()
    def outputs(
        self, rows: Rows, *, pad: int, device: torch.device, batch_tokens: int | None = None
    ) -> list[Outputs]:
        """Return the problem's outputs for each row, in order, without dropout.

        Rows of similar length are in one batch.
        """
        with evaluation_mode(self):
            batches = self.batches(rows, device=device, batch_tokens=batch_tokens)
            outputs = compute_outputs(rows, batches, self.logits, self.problem, pad=pad, device=device)
        return outputs

    def batches(
        self, rows: Rows, *, device: torch.device, batch_tokens: int | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """Yield the rows of each batch in which outputs are computed."""
        batch_tokens = batch_tokens or (CPU_TOKENS if device.type == "cpu" else DEVICE_TOKENS)
        # With memory, the texts of a batch are read in parallel, one window at a time.
        tokens_at_once = self.long.window if self.long is not None and self.long.method == "memory" else None
        return batches_by_length(rows, batch_tokens, tokens_at_once=tokens_at_once)

    def networks(self, length: int) -> Networks:
        share, config = 1 / length if self.head.reads_first_only else 1.0, self.encoder.config
        if self.long is None or self.long.method == "windows":  # the memory is not used
            config = config.without_memory()
        return {"encoder": Network.from_config(config, head="none", output_share=share)}


def compute_outputs(
    rows: Rows,
    batches: Iterable[NDArray[np.int64]],
    logits: Callable[[TaskBatch], dict[str, Tensor]],
    problem: Problem,
    *,
    pad: int,
    device: torch.device,
) -> list[Outputs]:
    """Return a problem's outputs for each row, in order.

    Args:
        batches: the rows of each batch.
        logits: computes the outputs of the head for a batch.
    """
    all_outputs: list[Outputs] = [{}] * len(rows)
    for indices in batches:
        batch = collate(rows, indices, pad=pad).to(device)
        outputs = problem.outputs(logits(batch), batch)
        arrays = {name: values.float().cpu().numpy() for name, values in outputs.items()}
        for position, row in enumerate(indices.tolist()):
            all_outputs[row] = {name: values[position] for name, values in arrays.items()}
    return all_outputs


def batches_by_length(
    rows: Rows, batch_tokens: int, *, tokens_at_once: int | None = None
) -> Iterator[NDArray[np.int64]]:
    """Yield batches of rows with at most `batch_tokens` tokens, padding included, the longest rows first.

    Args:
        tokens_at_once: number of tokens of a row that are read at a time; None: all.
    """
    order = np.argsort(-rows.lengths, kind="stable")
    first = 0
    while first < len(order):
        longest = padded_length(int(rows.lengths[order[first]]), int(rows.lengths[order[0]]))
        count = max(1, batch_tokens // min(longest, tokens_at_once or longest))
        yield order[first : first + count]
        first += count


def layer_depths(model: TaskModel) -> dict[str, int]:
    """Return the distance of each parameter from the output: 0 in the head, 1 in the last block, and so on.

    The embeddings have the largest distance. Weights that several blocks share have the distance of the last of
    these blocks.
    """
    layers = model.encoder.config.layers
    depths = {}
    last = {id(parameter): name for name, parameter in model.named_parameters(remove_duplicate=False)}
    for first, parameter in model.named_parameters():
        name = last[id(parameter)]
        if name.startswith("head."):
            depths[first] = 0
        elif name.startswith("encoder.blocks."):
            depths[first] = layers - int(name.split(".")[2])
        else:
            depths[first] = layers + 1
    return depths


def layer_decay_scales(model: TaskModel, decay: float, *, mode: Literal["paper", "google"]) -> dict[str, float]:
    """Return the factor of each parameter's learning rate: `decay` to the power of its depth.

    In the original code, the power is one higher than in the paper, except for the head: decay² in the last block.
    """
    more = 1 if mode == "google" else 0
    return {name: decay ** (depth + more) if depth else 1.0 for name, depth in layer_depths(model).items()}

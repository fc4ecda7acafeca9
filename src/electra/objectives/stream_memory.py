"""The memory of an encoder (Transformer-XL): states of the rows of a stream, kept from batch to batch.

Shapes: Y blocks, B rows, M slots of the memory, D hidden size.
"""

from typing import Any

import torch
from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig, EncoderModule
from electra.modeling.encoders.relative import Memory
from electra.modeling.encoders.states import compute_states
from electra.modeling.kernels.documents import AttentionMask


class StreamMemory(nn.Module):
    """States of the last tokens of every row of this process. It has no weights; checkpoints save it separately.

    Each micro-batch has its own part. States that are not finite are set to 0, so that a bad step does not affect
    later steps.

    Attributes:
        length: tokens per row in the memory.
        evaluation_length: the same in evaluations; 0: `length`.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config, self.length, self.evaluation_length = config, config.memory_length, 0
        self._restored: Tensor | None = None
        self._parts: dict[int, Memory] = {}

    def encode(
        self,
        encoder: EncoderModule,
        batch: Batch,
        ids_BL: Tensor,
        segment_ids_BL: Tensor | None = None,
        attention_mask: AttentionMask = None,
        *,
        positions_BN: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """Compute the encoder's states with the memory of the batch's rows, and update the memory.

        If the batch is not part of a stream, or the memory has length 0, this is the encoder alone.
        """
        if batch.stream_state is None or not self.length:
            return compute_states(
                encoder, ids_BL, segment_ids_BL, attention_mask, positions_BN=positions_BN, **others
            )
        memory = self._memory_of(batch)
        states: Tensor = encoder(
            ids_BL, segment_ids_BL, attention_mask, positions_BN=positions_BN, **others, memory=memory
        )
        assert memory.states_YBMD is not None
        finite_YBM1 = memory.states_YBMD.isfinite().all(-1, keepdim=True)
        memory.states_YBMD = memory.states_YBMD.where(finite_YBM1, 0.0)
        return states

    def _memory_of(self, batch: Batch) -> Memory:
        assert batch.stream_state is not None
        rows, first = len(batch.input_ids_BL), batch.stream_state.first_row
        memory = self._parts.setdefault(first, Memory(self.length))
        device = batch.input_ids_BL.device
        if memory.states_YBMD is None and self._restored is not None:
            memory.states_YBMD = self._restored[:, first : first + rows].to(device)
            if first + rows == self._restored.shape[1]:  # the last part
                self._restored = None
        if memory.states_YBMD is None:  # the same shape from the first step on, so that only one graph is compiled
            shape = self.config.layers, rows, self.length, self.config.hidden_size
            memory.states_YBMD = torch.zeros(shape, device=device)
        memory.new_document_B = batch.stream_state.new_document_B
        return memory

    def rows(self) -> Tensor | None:
        """The memory of all rows of this process (Y, B, M, D); None: it is empty."""
        parts = [self._parts[first].states_YBMD for first in sorted(self._parts)]
        filled = [part for part in parts if part is not None]
        return torch.cat(filled, 1) if filled else self._restored

    def restore(self, rows_YBMD: Tensor | None) -> None:
        """Replace the memory by one that `rows` returned."""
        self._restored, self._parts = rows_YBMD, {}

    def empty_copy(self) -> "StreamMemory":
        """An empty memory of the same kind, for an evaluation."""
        copy = StreamMemory(self.config)
        copy.length = self.evaluation_length or self.length
        return copy


def stream_memories(module: nn.Module) -> dict[str, StreamMemory]:
    """The memories in a module, by name."""
    return {name: child for name, child in module.named_modules() if isinstance(child, StreamMemory)}

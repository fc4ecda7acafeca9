"""What an encoder remembers of the rows of a stream, from batch to batch.

Shapes: Y blocks, B rows, M slots of the memory, D hidden size.
"""

from typing import Any

import torch
from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig, EncoderModule, compute_states
from electra.modeling.encoders.relative import Memory


class StreamMemory(nn.Module):
    """The past of every row that this process reads. It has no weights; checkpoints keep it beside them.

    Each micro-batch has its own part. What is not finite is forgotten, so that one bad step spoils no later one.

    Attributes:
        length: tokens of each row that are remembered.
        evaluation_length: the same in evaluations; 0: as many.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config, self.length, self.evaluation_length = config, config.memory_length, 0
        self._known: Tensor | None = None
        self._parts: dict[int, Memory] = {}

    def read(
        self,
        encoder: EncoderModule,
        batch: Batch,
        ids_BL: Tensor,
        segment_ids_BL: Tensor | None = None,
        attention_mask_BL: Tensor | None = None,
        *,
        positions_BN: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """What the encoder gives for these inputs, with the past of the batch's rows, which goes on from there.

        Without a stream, or without a memory, it is what the encoder gives by itself.
        """
        if batch.stream_state is None or not self.length:
            return compute_states(
                encoder, ids_BL, segment_ids_BL, attention_mask_BL, positions_BN=positions_BN, **others
            )
        memory = self._before(batch)
        states: Tensor = encoder(
            ids_BL, segment_ids_BL, attention_mask_BL, positions_BN=positions_BN, **others, memory=memory
        )
        assert memory.states_YBMD is not None
        finite_YBM1 = memory.states_YBMD.isfinite().all(-1, keepdim=True)
        memory.states_YBMD = memory.states_YBMD.where(finite_YBM1, 0.0)
        return states

    def _before(self, batch: Batch) -> Memory:
        assert batch.stream_state is not None
        rows, first = len(batch.input_ids_BL), batch.stream_state.first_row
        memory = self._parts.setdefault(first, Memory(self.length))
        device = batch.input_ids_BL.device
        if memory.states_YBMD is None and self._known is not None:
            memory.states_YBMD = self._known[:, first : first + rows].to(device)
            if first + rows == self._known.shape[1]:  # the last part
                self._known = None
        if memory.states_YBMD is None:  # one shape from the first step on, so that one graph is compiled
            shape = self.config.layers, rows, self.length, self.config.hidden_size
            memory.states_YBMD = torch.zeros(shape, device=device)
        memory.new_document_B = batch.stream_state.new_document_B
        return memory

    def rows(self) -> Tensor | None:
        """What is remembered of all rows of this process (Y, B, M, D); None: nothing."""
        parts = [self._parts[first].states_YBMD for first in sorted(self._parts)]
        known = [part for part in parts if part is not None]
        return torch.cat(known, 1) if known else self._known

    def restore(self, rows_YBMD: Tensor | None) -> None:
        """Remember what `rows` gave, and nothing else."""
        self._known, self._parts = rows_YBMD, {}

    def fresh(self) -> "StreamMemory":
        """One that remembers nothing yet, to evaluate with."""
        other = StreamMemory(self.config)
        other.length = self.evaluation_length or self.length
        return other


def stream_memories(module: nn.Module) -> dict[str, StreamMemory]:
    """The memories inside a module, by name."""
    return {name: inside for name, inside in module.named_modules() if isinstance(inside, StreamMemory)}

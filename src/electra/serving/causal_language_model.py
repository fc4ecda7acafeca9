"""A causal language model, and its loss for each token of texts of any length.

Shapes: B documents of a batch, L window, T tokens of a document, N tokens of a window batch, M memory, D hidden
size, V vocabulary, Y blocks. A tensor's name ends with its shape (`ids_BL`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from electra.errors import CheckpointError
from electra.export.pretrained import Pretrained
from electra.modeling.device import resolve_device
from electra.modeling.encoders.relative import RelativeEncoder
from electra.modeling.heads import LanguageModelHead

BATCH_TOKENS = 2048
"""Tokens of a batch: enough for fast matrix products, and the logits are still small."""


@dataclass(frozen=True)
class CausalLanguageModel:
    """An encoder that reads from left to right, with a head that predicts the next token.

    Attributes:
        window: the number of tokens that it read at a time in training.
    """

    encoder: RelativeEncoder
    head: LanguageModelHead
    window: int

    @classmethod
    def from_pretrained(
        cls, pretrained: Pretrained, name: str, *, device: str | torch.device | None = None
    ) -> "CausalLanguageModel":
        """The causal language model of a loaded MODEL.

        Args:
            name: the name of the model in error messages.
            device: the device (`resolve_device`).

        Raises:
            ConfigError: there is no such device.
            CheckpointError: the encoder is bidirectional, or has no language-model head.
        """
        encoder, head = pretrained.encoder, pretrained.head
        if not isinstance(encoder, RelativeEncoder) or "left-to-right" not in encoder.config.capabilities:
            raise CheckpointError(
                f"{name} is bidirectional, so it would see the tokens that it has to predict; give a causal "
                "language model, such as one from electra pretrain txl-tiny"
            )
        if not isinstance(head, LanguageModelHead):
            raise CheckpointError(
                f"{name} has no language-model head; give the export of a run with objective.kind causal-lm"
            )
        resolved = resolve_device(device)
        return cls(encoder.to(resolved).eval(), head.to(resolved).eval(), pretrained.max_length)

    @property
    def device(self) -> torch.device:
        return self.head.bias.device

    def losses(self, states_ND: Tensor, targets_N: Tensor) -> Tensor:
        """The loss -log p of each target (N,), in nats."""
        logits_NV = self.head.logits(states_ND, self.encoder.embeddings.token.weight)
        return F.cross_entropy(logits_NV.float(), targets_N, reduction="none")


@torch.inference_mode()
def compute_token_losses(
    model: CausalLanguageModel, documents: Sequence[Tensor], *, window: int, memory: int
) -> list[Tensor]:
    """The loss of each token (T,) of each document, read in consecutive windows with memory.

    A token attends to the tokens before it in its window and to the states of `memory` earlier tokens, which
    depend on still earlier ones if the network has several blocks. Documents that have ended are left out of
    later windows.

    Args:
        documents: the ids (1 + T,) of each document, with [SEP] first.
        window: the number of tokens of a window.
        memory: the number of tokens in memory; may differ from training. 0: no memory.
    """
    losses: list[list[Tensor]] = [[] for _ in documents]
    order = sorted(range(len(documents)), key=lambda number: -len(documents[number]))
    rows = max(1, BATCH_TOKENS // window)
    for batch in (order[first : first + rows] for first in range(0, len(order), rows)):
        memory_YBMD: Tensor | None = None
        for start in range(0, len(documents[batch[0]]) - 1, window):
            batch = [number for number in batch if len(documents[number]) - 1 > start]
            parts = [documents[number][start : start + window + 1] for number in batch]
            memory_YBMD = None if memory_YBMD is None else memory_YBMD[:, : len(batch)]
            losses_BL, memory_YBMD = forward_window(model, parts, memory_YBMD, memory)
            for number, part, losses_L in zip(batch, parts, losses_BL, strict=True):
                losses[number].append(losses_L[: len(part) - 1])
    return [torch.cat(parts) for parts in losses]


def forward_window(
    model: CausalLanguageModel, parts: Sequence[Tensor], memory_YBMD: Tensor | None, memory: int
) -> tuple[Tensor, Tensor | None]:
    """The losses (B, L) of one window of several documents, on the CPU, and the new memory.

    Args:
        parts: up to 1 + L ids of each document. If a document has fewer, its last losses have no meaning.
        memory_YBMD: the memory of the windows before; None: none.
        memory: the number of tokens in the new memory.
    """
    lengths = [len(part) - 1 for part in parts]
    ids_BL = torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True).to(model.device)
    mask_BL = None
    if min(lengths) < max(lengths):
        positions_L = torch.arange(max(lengths), device=model.device)
        mask_BL = positions_L < torch.tensor(lengths, device=model.device)[:, None]
    output = model.encoder.encode(
        ids_BL[:, :-1], attention_mask_BL=mask_BL, memory_YBMD=memory_YBMD, memory_length=memory
    )
    losses_N = model.losses(output.states_BND.flatten(0, 1), ids_BL[:, 1:].flatten())
    return losses_N.view(len(parts), -1).cpu(), output.memory_YBMD

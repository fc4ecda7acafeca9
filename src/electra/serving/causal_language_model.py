"""A network that predicts each token from those before it, and its losses of texts of any length.

Shapes: B documents read together, L window, T tokens of a document, N chosen tokens, M memory, D hidden size,
V vocabulary, Y blocks. A tensor's name ends with its shape (`ids_BL`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from electra.errors import CheckpointError
from electra.export.huggingface import Pretrained
from electra.modeling.encoders.relative import RelativeEncoder
from electra.modeling.heads import LanguageModelHead

BATCH_TOKENS = 2048
"""Tokens of a batch: enough for the products' full speed, and their logits still fit anywhere."""


@dataclass(frozen=True)
class CausalLanguageModel:
    """A network that predicts each token from those before it.

    Attributes:
        window: tokens that it read at once in training.
    """

    encoder: RelativeEncoder
    head: LanguageModelHead
    window: int

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained, name: str) -> "CausalLanguageModel":
        """That of a MODEL.

        Args:
            name: what messages call it.

        Raises:
            CheckpointError: it looks to both sides, or does not predict words.
        """
        encoder, head = pretrained.encoder, pretrained.head
        if not isinstance(encoder, RelativeEncoder) or encoder.config.direction != "left":
            raise CheckpointError(
                f"{name} looks both ways, so it would see the tokens that it is to predict; give a causal "
                "language model, such as one of electra pretrain txl-tiny"
            )
        if not isinstance(head, LanguageModelHead):
            raise CheckpointError(
                f"{name} has no head that predicts words; give the export of a run with objective.kind causal-lm"
            )
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return cls(encoder.to(device).eval(), head.to(device).eval(), pretrained.max_length)

    @property
    def device(self) -> torch.device:
        return self.head.bias.device

    def losses(self, states_ND: Tensor, targets_N: Tensor) -> Tensor:
        """-log p of each target (N,), in nats."""
        logits_NV = self.head.logits(states_ND, self.encoder.embeddings.token.weight)
        return F.cross_entropy(logits_NV.float(), targets_N, reduction="none")


@torch.inference_mode()
def compute_token_losses(
    model: CausalLanguageModel, documents: Sequence[Tensor], *, window: int, memory: int
) -> list[Tensor]:
    """The loss of each token (T,) of each document, which is read window by window with what is remembered.

    A token sees what is before it in its window, and `memory` tokens before that; in a network of several blocks
    those have seen earlier ones. Rows of a batch that have come to their end are left out of the next windows.

    Args:
        documents: (1 + T,) ids each, with [SEP] first.
        memory: tokens that are remembered of each document, whatever it was in training; 0: none.
    """
    found: list[list[Tensor]] = [[] for _ in documents]
    order = sorted(range(len(documents)), key=lambda number: -len(documents[number]))
    rows = max(1, BATCH_TOKENS // window)
    for batch in (order[first : first + rows] for first in range(0, len(order), rows)):
        remembered_YBMD: Tensor | None = None
        for start in range(0, len(documents[batch[0]]) - 1, window):
            batch = [number for number in batch if len(documents[number]) - 1 > start]
            parts = [documents[number][start : start + window + 1] for number in batch]
            remembered_YBMD = None if remembered_YBMD is None else remembered_YBMD[:, : len(batch)]
            losses_BL, remembered_YBMD = forward_window(model, parts, remembered_YBMD, memory)
            for number, part, losses_L in zip(batch, parts, losses_BL, strict=True):
                found[number].append(losses_L[: len(part) - 1])
    return [torch.cat(parts) for parts in found]


def forward_window(
    model: CausalLanguageModel, parts: Sequence[Tensor], memory_YBMD: Tensor | None, memory: int
) -> tuple[Tensor, Tensor | None]:
    """The losses (B, L) of one window of several documents, on the CPU, and what is then remembered.

    Args:
        parts: up to 1 + L ids of each document; of one with fewer, the last losses mean nothing.
        memory_YBMD: what is remembered of the windows before.
        memory: tokens that are to be remembered.
    """
    lengths = [len(part) - 1 for part in parts]
    ids_BL = torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True).to(model.device)
    mask_BL = None
    if min(lengths) < max(lengths):
        places_L = torch.arange(max(lengths), device=model.device)
        mask_BL = places_L < torch.tensor(lengths, device=model.device)[:, None]
    read = model.encoder.read(
        ids_BL[:, :-1], attention_mask_BL=mask_BL, memory_YBMD=memory_YBMD, memory_length=memory
    )
    losses_N = model.losses(read.states_BND.flatten(0, 1), ids_BL[:, 1:].flatten())
    return losses_N.view(len(parts), -1).cpu(), read.memory_YBMD

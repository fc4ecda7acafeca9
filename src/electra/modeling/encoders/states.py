"""The states of any encoder, whatever its forward pass can do by itself.

Shapes: B batch, L length, N selected positions, D hidden size, d documents of a group, l length of the longest.
"""

from typing import Any

import torch
from torch import Tensor

from electra.modeling.encoders.base import EncoderModule, gather_positions
from electra.modeling.kernels.attention import MASKED_SCORE
from electra.modeling.kernels.documents import AttentionMask, DocumentMask


def compute_states(
    encoder: EncoderModule,
    ids_BL: Tensor,
    segment_ids_BL: Tensor | None = None,
    attention_mask: AttentionMask = None,
    *,
    positions_BN: Tensor | None = None,
    **others: Any,
) -> Tensor:
    """Return the states (B, L, D), or (B, N, D) at `positions_BN`.

    It also works with encoders that lack the capabilities selected-positions and document-mask.
    """
    capabilities = encoder.config.capabilities
    if isinstance(attention_mask, DocumentMask) and "document-mask" not in capabilities:
        states = _compute_states_by_group(encoder, ids_BL, segment_ids_BL, attention_mask, **others)
    elif positions_BN is None or "selected-positions" in capabilities:
        if positions_BN is not None:
            others["positions_BN"] = positions_BN
        selected: Tensor = encoder(ids_BL, segment_ids_BL, attention_mask, **others)
        return selected
    else:
        states = encoder(ids_BL, segment_ids_BL, attention_mask, **others)
    return states if positions_BN is None else gather_positions(states, positions_BN)


def _compute_states_by_group(
    encoder: EncoderModule,
    ids_BL: Tensor,
    segment_ids_BL: Tensor | None,
    documents: DocumentMask,
    inputs_embeds_BLE: Tensor | None = None,
) -> Tensor:
    """Return the states (B, L, D) of an encoder that reads one document a row: one pass for each group."""
    inputs = {"ids_BL": ids_BL, "segment_ids_BL": segment_ids_BL, "inputs_embeds_BLE": inputs_embeds_BLE}
    given = {name: documents.unpad(x_BLx) for name, x_BLx in inputs.items() if x_BLx is not None}

    def compute(*arguments: Tensor | None) -> Tensor:
        *values, mask_dl = arguments
        group = dict(zip(given, values, strict=True))
        ids_dl = group.pop("ids_BL")
        assert ids_dl is not None
        mask = documents.attention_mask(mask_dl, ids_dl.shape[1])
        if mask is not None and documents.direction != "both":
            mask = torch.where(mask[:, 0], 0.0, MASKED_SCORE).expand(len(ids_dl), -1, -1)
        elif mask is not None:
            mask = mask[:, 0, 0]
        states: Tensor = encoder(ids_dl, group.pop("segment_ids_BL", None), mask, **group)
        return states

    return documents.pad(documents.by_group(compute, *given.values()))

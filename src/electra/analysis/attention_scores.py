"""The scores of attention layers before the softmax, computed again from the inputs of a layer, because the
networks' own fused kernels do not return them.

Shapes: B batch, L tokens of a row, D hidden size, H heads, K head size, R distances or rows of a table,
S = 2 L - 1 distances, X queries, C keys.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from electra.modeling.encoders.bert import Attention
from electra.modeling.encoders.deberta import DisentangledAttention
from electra.modeling.encoders.rotary_attention import AttentionInput, RotaryAttention
from electra.modeling.kernels.documents import DocumentMask
from electra.modeling.kernels.local_attention import within_window
from electra.modeling.kernels.relative_attention import RelativeAttention
from electra.modeling.kernels.rotary import rotate


def attention_scores(module: nn.Module, inputs: Sequence[object]) -> Tensor:
    """Compute the scores (B, H, L, L) of an attention layer of a class in `SCORES` from its inputs.

    They are -inf at padding, and at tokens that a query does not see.
    """
    return next(compute for kind, compute in SCORES.items() if isinstance(module, kind))(module, inputs)


def _masked(scores_BHLL: Tensor, mask: object) -> Tensor:
    return scores_BHLL.masked_fill(~mask, -torch.inf) if isinstance(mask, Tensor) else scores_BHLL


def _scores(module: Attention, inputs: Sequence[object]) -> Tensor:
    x_BLD, mask_B11L, *_ = inputs
    assert isinstance(x_BLD, Tensor)
    query_BHLK, key_BHLK, _ = (
        part.unflatten(-1, (module.heads, -1)).transpose(1, 2)
        for part in module.query_key_value(x_BLD).chunk(3, -1)
    )
    return _masked((query_BHLK @ key_BHLK.mT).float() * query_BHLK.shape[-1] ** -0.5, mask_B11L)


def _disentangled_scores(module: DisentangledAttention, inputs: Sequence[object]) -> Tensor:
    """The same with two more terms that depend on the distance (He et al. 2021, section 3.1)."""
    x_BLD, positions, mask_B11L, *_ = inputs
    assert isinstance(x_BLD, Tensor) and isinstance(positions, tuple)
    D, L = x_BLD.shape[-1], x_BLD.shape[1]
    packed_BLGHK = module.query_key_value(x_BLD).unflatten(-1, (3, module.heads, -1))
    query_BHLK, key_BHLK, _ = (x.transpose(1, 2) for x in packed_BLGHK.unbind(2))
    scores_BHLL, terms = query_BHLK @ key_BHLK.mT, 1
    table_RD, rows_S = positions
    places_L = torch.arange(L, device=x_BLD.device)
    rows_LL = rows_S[places_L[:, None] - places_L + L - 1].expand(*scores_BHLL.shape[:2], L, L)
    if module.config.content_to_position:
        keys_RHK = module.project(table_RD, module.position_key, slice(D, 2 * D))
        scores_BHLL = scores_BHLL + (query_BHLK @ keys_RHK.permute(1, 2, 0)).gather(3, rows_LL)
        terms += 1
    if module.config.position_to_content:
        queries_RHK = module.project(table_RD, module.position_query, slice(D))
        products_BHLR = key_BHLK @ queries_RHK.permute(1, 2, 0)
        scores_BHLL = scores_BHLL + products_BHLR.gather(3, rows_LL.mT).mT
        terms += 1
    return _masked(scores_BHLL.float() * (query_BHLK.shape[-1] * terms) ** -0.5, mask_B11L)


def _rotary_scores(module: RotaryAttention, inputs: Sequence[object]) -> Tensor:
    """The same with rotary positions, also where the layer computes windows only."""
    x_BLD, shared, *_ = inputs
    assert isinstance(x_BLD, Tensor) and isinstance(shared, AttentionInput)
    packed_BLGHK = module.query_key_value(x_BLD).unflatten(-1, (3, module.heads, -1))[:, :, :2]
    if shared.angles is not None:
        packed_BLGHK = rotate(packed_BLGHK, *shared.angles)
    query_BHLK, key_BHLK = (x.transpose(1, 2) for x in packed_BLGHK.unbind(2))
    scores_BHLL = (query_BHLK @ key_BHLK.mT).float() * query_BHLK.shape[-1] ** -0.5
    mask = shared.mask
    assert not isinstance(mask, DocumentMask), "rows are read with padding"
    if shared.reach:
        mask = within_window(mask, x_BLD.shape[1], shared.reach, device=x_BLD.device)
    return _masked(scores_BHLL, mask)


def _relative_scores(module: RelativeAttention, inputs: Sequence[object]) -> Tensor:
    """The same with relative positions, for rows without memory and in one segment, as in `RelativeAttention`."""
    x_BLD, _, memory, sinusoids_RD, query_mask = inputs
    assert isinstance(x_BLD, Tensor) and isinstance(sinusoids_RD, Tensor) and memory is None
    heads = (module.heads, x_BLD.shape[-1] // module.heads)
    query_BLHK = module.query(x_BLD).unflatten(-1, heads)
    key_BLHK = module.key_value(x_BLD).chunk(2, -1)[0].unflatten(-1, heads)
    position_RHK = module.position(sinusoids_RD).unflatten(-1, heads)
    by_content_BHLL = torch.einsum("bqhk,bchk->bhqc", query_BLHK + module.content_bias.view(heads), key_BLHK)
    by_distance_BHLR = torch.einsum("bqhk,rhk->bhqr", query_BLHK + module.position_bias.view(heads), position_RHK)
    indices_BHLL = query_mask.distance_indices_BXC()[:, None].expand(*by_distance_BHLR.shape[:3], -1)  # type: ignore[attr-defined]
    scores_BHLL = (by_content_BHLL + by_distance_BHLR.gather(3, indices_BHLL)).float() * heads[1] ** -0.5
    bias_BLL = query_mask.bias_BXC  # type: ignore[attr-defined]
    return scores_BHLL if bias_BLL is None else scores_BHLL + bias_BLL[:, None]


SCORES: Mapping[type[nn.Module], Callable[[Any, Sequence[object]], Tensor]] = {
    Attention: _scores,
    RelativeAttention: _relative_scores,
    RotaryAttention: _rotary_scores,
    DisentangledAttention: _disentangled_scores,
}
"""How the scores of each class of attention layers are computed."""

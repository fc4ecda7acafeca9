"""Which positions are predicted, and what the generator sees there: pure functions of ids and a seed.

Shapes: B batch, L length, N prediction slots a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoder import at


@dataclass(frozen=True)
class MaskingConfig:
    """Dynamic masking: positions are drawn anew at every visit of an example."""

    share: float = 0.15
    """Share of the tokens (special ones left out) that are chosen for prediction."""
    mask_share: float = 0.85
    """Share of the chosen positions that show [MASK]; the rest keep their token, which starts the generator."""

    def problems(self) -> Iterator[str]:
        if not 0 < self.share < 1:
            yield f"share: must lie between 0 and 1, got {self.share}"
        if not 0 < self.mask_share <= 1:
            yield f"mask_share: must lie in (0, 1], got {self.mask_share}"


@dataclass(frozen=True)
class Masking:
    """What was drawn for one batch.

    Every row has the same number of slots, so that shapes are static; a row with fewer candidates leaves
    slots unused. A slot that is unused points at some position, has `used` False, and changes nothing.
    """

    positions_BN: Tensor
    used_BN: Tensor
    masked_BN: Tensor
    """True where a used slot shows [MASK]."""
    input_ids_BL: Tensor
    """The ids with [MASK] in place."""

    def at(self, values_BLx: Tensor) -> Tensor:
        """Values at the slots: (B, L) to (B × N), or (B, L, D) to (B × N, D)."""
        return at(values_BLx, self.positions_BN).flatten(0, 1)


def slots(length: int, share: float) -> int:
    """Prediction slots of a row: int((share + .005) × length), as in the original, and at least 1."""
    return max(1, int((share + 0.005) * length))


def candidates(input_ids_BL: Tensor, special: SpecialTokens) -> Tensor:
    """True at tokens of text: not padding, [CLS], [SEP] or [MASK]. An unknown token is a candidate."""
    excluded = (special.pad, special.classify, special.separate, special.mask)
    is_text_BL = torch.ones_like(input_ids_BL, dtype=torch.bool)
    for token in excluded:
        is_text_BL &= input_ids_BL != token
    return is_text_BL


def draw(
    input_ids_BL: Tensor,
    candidates_BL: Tensor,
    config: MaskingConfig,
    *,
    mask_id: int,
    generator: torch.Generator,
) -> Masking:
    """Choose positions without replacement, uniformly among the candidates of each row.

    A row's count is share × candidates, rounded, at least 1 where it has any candidate, at most its slots
    (paper, section 3.1: m_i ~ unif{1, n}).
    """
    B, L = input_ids_BL.shape
    N = min(slots(L, config.share), L)
    random_BL = torch.rand(B, L, generator=generator, device=input_ids_BL.device)
    # Candidates first (their numbers are >= 0), in random order; what is left over is marked unused.
    positions_BN = random_BL.masked_fill_(~candidates_BL, -1.0).topk(N, dim=1).indices
    available_B = candidates_BL.sum(1)
    wanted_B = (available_B * config.share).round().long().clamp(min=1)
    used_BN = torch.arange(N, device=input_ids_BL.device) < torch.minimum(wanted_B, available_B)[:, None]
    kept_BN = torch.rand(B, N, generator=generator, device=input_ids_BL.device) >= config.mask_share
    masked_BN = used_BN & ~kept_BN
    shown_BN = input_ids_BL.gather(1, positions_BN).masked_fill_(masked_BN, mask_id)
    return Masking(positions_BN, used_BN, masked_BN, input_ids_BL.scatter(1, positions_BN, shown_BN))

"""Which positions are predicted, and what the generator sees there: pure functions of ids and a seed.

Shapes: B batch, L length, N prediction slots a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoder import at


@dataclass(frozen=True)
class MaskingConfig:
    """Dynamic masking: positions are drawn anew at every visit of an example."""

    share: float = 0.15
    """Share of the tokens (special ones left out) that are chosen for prediction."""
    mask_share: float = 0.85
    """Share of the chosen positions that show [MASK]; the rest keep their token, which starts the generator."""
    replacement: bool = False
    """Draw positions with replacement: one drawn twice counts twice in the generator's loss (original: true)."""
    count_special: bool = False
    """Take the share of all tokens of a row, [CLS] and [SEP] included, not of its text alone (original: true)."""
    average_repeats: bool = False
    """Where a position was drawn more than once, write the floored mean of the ids, which may be a token that
    nobody drew, instead of the first of them (original: true)."""
    spare_first_position: bool = False
    """Never write to position 0, which the original uses for unused slots (original: true)."""

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
    """True at the slots that count. Two of a row may hold the same position only under `replacement`."""
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


def inside(batch: Batch) -> Tensor:
    """True at every token of a row, special ones included: not at padding (B, L)."""
    return torch.arange(batch.input_ids_BL.shape[1], device=batch.lengths_B.device) < batch.lengths_B[:, None]


def draw_for(batch: Batch, config: MaskingConfig, special: SpecialTokens, random: torch.Generator) -> Masking:
    """`draw` for a batch of text."""
    return draw(
        batch.input_ids_BL,
        candidates(batch.input_ids_BL, special),
        config,
        tokens_B=batch.lengths_B,
        mask_id=special.mask,
        generator=random,
    )


def draw(
    input_ids_BL: Tensor,
    candidates_BL: Tensor,
    config: MaskingConfig,
    *,
    tokens_B: Tensor,
    mask_id: int,
    generator: torch.Generator,
) -> Masking:
    """Choose positions uniformly among the candidates of each row (paper, section 3.1: m_i ~ unif{1, n}).

    Distinct ones, as many as `chosen` says. The settings of `MaskingConfig` say where the original does otherwise.

    Args:
        candidates_BL: where a position may be chosen.
        tokens_B: tokens of each row, special ones included.
    """
    B, L = input_ids_BL.shape
    N = min(slots(L, config.share), L)
    device = input_ids_BL.device
    if config.replacement:
        weights_BL = candidates_BL.float()
        weights_BL[:, 0] += weights_BL.sum(1) == 0  # a row without candidates: something to draw, for unused slots
        positions_BN = torch.multinomial(weights_BL, N, replacement=True, generator=generator)
    else:
        random_BL = torch.rand(B, L, generator=generator, device=device)
        # Candidates first (their numbers are >= 0), in random order; what is left over is marked unused.
        positions_BN = random_BL.masked_fill_(~candidates_BL, -1.0).topk(N, dim=1).indices
    used_BN = torch.arange(N, device=device) < chosen(candidates_BL, tokens_B, config)[:, None]
    kept_BN = torch.rand(B, N, generator=generator, device=device) >= config.mask_share
    masked_BN = used_BN & ~kept_BN
    written_BN = masked_BN & (positions_BN > 0) if config.spare_first_position else masked_BN
    shown_BL = torch.zeros_like(input_ids_BL).scatter_add_(1, positions_BN, written_BN.long()) > 0
    return Masking(positions_BN, used_BN, masked_BN, input_ids_BL.masked_fill(shown_BL, mask_id))


def chosen(candidates_BL: Tensor, tokens_B: Tensor, config: MaskingConfig) -> Tensor:
    """How many positions of each row are chosen (B,)."""
    available_B = candidates_BL.sum(1)
    counted_B = tokens_B if config.count_special else available_B
    most = min(slots(candidates_BL.shape[1], config.share), candidates_BL.shape[1])
    wanted_B = (counted_B * config.share).round().long().clamp(1, most)
    return wanted_B * (available_B > 0) if config.replacement else torch.minimum(wanted_B, available_B)


def write(ids_BL: Tensor, new_n: Tensor, masking: Masking, config: MaskingConfig) -> Tensor:
    """The ids with new ones, B × N of them, at the used slots."""
    new_BN, positions_BN, used_BN = new_n.view_as(masking.positions_BN), masking.positions_BN, masking.used_BN
    if config.spare_first_position:
        used_BN = used_BN & (positions_BN > 0)
    zeros_BL = torch.zeros_like(ids_BL)
    count_BL = zeros_BL.scatter_add(1, positions_BN, used_BN.long())
    if config.average_repeats or not config.replacement:  # a position that was drawn once has the mean of one
        total_BL = zeros_BL.scatter_add(1, positions_BN, new_BN * used_BN)
        return torch.where(count_BL > 0, total_BL // count_BL.clamp(min=1), ids_BL)
    N = positions_BN.shape[1]
    order_BN = torch.arange(N, device=ids_BL.device).expand_as(positions_BN).where(used_BN, N)
    first_BL = torch.full_like(ids_BL, N).scatter_reduce(1, positions_BN, order_BN, "amin")
    return torch.where(count_BL > 0, new_BN.gather(1, first_BL.clamp(max=N - 1)), ids_BL)

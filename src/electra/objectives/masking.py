"""Which positions are predicted, and what is seen there: pure functions of ids and of a seed a row.

Shapes: B batch, L length, N prediction slots a row, V vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoders.base import attention_mask, gather_positions
from electra.objectives.row_rng import Purpose, uniforms
from electra.objectives.vocabulary import Vocabulary

WHOLE_WORDS = ("words", "ngrams")
"""Kinds that must know where words begin."""
PASSES = 3
"""How often whole words or spans are looked for that fill what is left of a row's share."""


@dataclass(frozen=True)
class MaskingConfig:
    """Where the text is predicted, and what stands there instead."""

    kind: Literal["uniform", "frequency", "words", "spans", "ngrams"] = "uniform"
    """uniform: every token is as likely. frequency: rare tokens are likelier (see frequency_power). words: whole
    words, as many as fit (of a row so short that none fits into its share, none). spans: stretches of tokens of
    random length (see span_length). ngrams: stretches of 1 to ngram_length whole words, of n of them in proportion
    to 1 / n (ALBERT)."""
    frequency_power: float = 0.5
    """For kind frequency: a token is drawn in proportion to its frequency to minus this power."""
    span_length: float = 3.0
    """For kind spans: tokens of a stretch in the mean (a geometric distribution)."""
    ngram_length: int = 3
    """For kind ngrams: words of the longest stretch."""
    copies: int = 0
    """Static masking: an example has only so many masks, which take turns (RoBERTa's account of BERT: 10). 0: it
    is masked anew at every visit."""
    share: float = 0.15
    """Share of the tokens (special ones left out) that are chosen for prediction."""
    mask_share: float = 0.85
    """Share of the chosen positions that show [MASK]; the rest keep their token, which starts the generator."""
    random_share: float = 0.0
    """Share of the chosen positions that show any token of the vocabulary (BERT: .1, beside a mask_share of
    .8)."""
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
        if not 0 <= self.random_share <= 1 - self.mask_share + 1e-9:
            yield f"random_share: must lie between 0 and 1 - mask_share, got {self.random_share}"
        if self.copies < 0:
            yield f"copies: must not be negative, got {self.copies}"
        if not self.span_length >= 1:
            yield f"span_length: must be at least 1, got {self.span_length}"
        if self.ngram_length < 1:
            yield f"ngram_length: must be at least 1, got {self.ngram_length}"
        if not self.frequency_power >= 0:
            yield f"frequency_power: must not be negative, got {self.frequency_power}"
        if self.replacement and self.random_share:
            yield "random_share: is not for replacement, where a position may be two things at once"
        if self.replacement and self.kind != "uniform":
            yield f"replacement: is for kind uniform, which the original has; kind is {self.kind}"


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
        return gather_positions(values_BLx, self.positions_BN).flatten(0, 1)


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


def non_padding(batch: Batch) -> Tensor:
    """True at every token of a row, special ones included: not at padding (B, L)."""
    return torch.arange(batch.input_ids_BL.shape[1], device=batch.lengths_B.device) < batch.lengths_B[:, None]


def attention_mask_of(batch: Batch) -> Tensor | None:
    """True at tokens (B, L), where others may look; None where there is no padding, as in windows of a stream."""
    if batch.stream_state is not None:
        return None
    return attention_mask(batch.lengths_B, batch.input_ids_BL.shape[1])


def draw_masks(batch: Batch, config: MaskingConfig, vocabulary: Vocabulary) -> Masking:
    """Choose positions of each row and put [MASK], the token itself, or another one there.

    Distinct positions, as many as `chosen` says (of words and spans, as many as fit into that), drawn uniformly
    among the candidates (paper, section 2: m_i ~ unif{1, n}) or as the settings of `MaskingConfig` say.
    """
    ids_BL, special = batch.input_ids_BL, vocabulary.special
    L = ids_BL.shape[1]
    text_BL, seeds_B = candidates(ids_BL, special), batch.row_seeds
    wanted_B = chosen(text_BL, batch.lengths_B, config)
    if config.replacement:
        positions_BN, used_BN = _with_replacement(text_BL, wanted_B, seeds_B, slots(L, config.share))
    else:
        numbers_BL = uniforms(seeds_B, Purpose.POSITIONS, L)
        if config.kind == "frequency":
            numbers_BL = _weighted(numbers_BL, ids_BL, vocabulary, config.frequency_power)
        order_BL = numbers_BL.masked_fill(~text_BL, -torch.inf)
        if config.kind in ("words", "spans", "ngrams"):
            order_BL = _whole(order_BL, _starts(ids_BL, text_BL, seeds_B, config, vocabulary), wanted_B)
        positions_BN, used_BN = choose(order_BL, wanted_B, min(slots(L, config.share), L))
    kept_BN = uniforms(seeds_B, Purpose.KEPT, positions_BN.shape[1])
    masked_BN = used_BN & (kept_BN < config.mask_share)
    written_BN = masked_BN & (positions_BN > 0) if config.spare_first_position else masked_BN
    shown_BL = torch.zeros_like(ids_BL).scatter_add_(1, positions_BN, written_BN.long()) > 0
    shown_ids_BL = ids_BL.masked_fill(shown_BL, special.mask)
    if config.random_share:
        other_BN = used_BN & ~masked_BN & (kept_BN < config.mask_share + config.random_share)
        random_BN = any_token(uniforms(seeds_B, Purpose.OTHER_TOKENS, positions_BN.shape[1]), vocabulary)
        shown_ids_BL = shown_ids_BL.scatter(
            1, positions_BN, random_BN.where(other_BN, gather_positions(shown_ids_BL, positions_BN))
        )
    return Masking(positions_BN, used_BN, masked_BN, shown_ids_BL)


def choose(order_BL: Tensor, wanted_B: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The positions with the largest numbers in each row (B, N), and which of them are wanted and not -inf."""
    numbers_BN, positions_BN = order_BL.topk(most, dim=1)
    enough_BN = torch.arange(most, device=order_BL.device) < wanted_B[:, None]
    return positions_BN, enough_BN & (numbers_BN > -torch.inf)


def any_token(uniforms_x: Tensor, vocabulary: Vocabulary) -> Tensor:
    """Ids in the shape of the numbers: any but the special ones with equal chances."""
    return vocabulary.usable_n[(uniforms_x * len(vocabulary.usable_n)).long()]


def _with_replacement(text_BL: Tensor, wanted_B: Tensor, seeds_B: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Any candidate at each slot; a row without one has position 0, unused."""
    ranks_BL = text_BL.cumsum(1)
    wanted_rank_BN = (uniforms(seeds_B, Purpose.POSITIONS, most) * ranks_BL[:, -1:]).long()
    positions_BN = torch.searchsorted(ranks_BL, wanted_rank_BN, right=True).clamp_(max=text_BL.shape[1] - 1)
    positions_BN = positions_BN * (ranks_BL[:, -1:] > 0)
    return positions_BN, torch.arange(most, device=text_BL.device) < wanted_B[:, None]


def _weighted(numbers_BL: Tensor, ids_BL: Tensor, vocabulary: Vocabulary, power: float) -> Tensor:
    """Numbers whose largest are a draw in proportion to weights, without replacement (Efraimidis and Spirakis
    2006)."""
    assert vocabulary.counts_V is not None
    weights_BL = (vocabulary.counts_V[ids_BL].double() + 1.0) ** -power
    return (numbers_BL.double().clamp_(min=2.0**-25).log() / weights_BL).float()


def _starts(
    ids_BL: Tensor, text_BL: Tensor, seeds_B: Tensor, config: MaskingConfig, vocabulary: Vocabulary
) -> Tensor:
    """True where a word or a span begins; what is no text stands alone."""
    before_BL = text_BL.roll(1, 1)
    before_BL[:, 0] = False
    if config.kind in WHOLE_WORDS:
        assert vocabulary.continues_V is not None
        begins_BL = ~vocabulary.continues_V[ids_BL]
        if config.kind == "ngrams":
            words_BL = begins_BL.long().cumsum(1)
            first_BL = ngrams(uniforms(seeds_B, Purpose.SPANS, ids_BL.shape[1]), config.ngram_length)
            begins_BL &= first_BL.gather(1, (words_BL - 1).clamp(min=0))
    else:
        begins_BL = uniforms(seeds_B, Purpose.SPANS, ids_BL.shape[1]) < 1 / config.span_length
    return begins_BL | ~text_BL | ~before_BL


def ngrams(uniforms_BL: Tensor, longest: int) -> Tensor:
    """Which words begin a stretch (B, L), where one of n words comes with a chance in proportion to 1 / n."""
    weights_n = 1 / torch.arange(1, longest + 1, device=uniforms_BL.device)
    lengths_BL = 1 + torch.searchsorted((weights_n / weights_n.sum()).cumsum(0)[:-1], uniforms_BL, right=True)
    starts_BL = (lengths_BL.cumsum(1) - lengths_BL).clamp(max=uniforms_BL.shape[1])
    first_BL = torch.zeros_like(uniforms_BL, dtype=torch.bool)
    return F.pad(first_BL, (0, 1)).scatter(1, starts_BL, True)[:, :-1]


def _whole(order_BL: Tensor, starts_BL: Tensor, wanted_B: Tensor) -> Tensor:
    """Numbers by which whole groups come first, those that fit, and -inf at all others.

    Groups are taken in the order of their first position's number. One that is larger than what is left of a row's
    share is passed over, and smaller ones behind it are looked for.
    """
    places_L = torch.arange(order_BL.shape[1], device=order_BL.device)
    first_BL = places_L.where(starts_BL, 0).cummax(1).values
    sorted_BL, by_BL = order_BL.gather(1, first_BL).sort(dim=1, descending=True, stable=True)
    group_BL = first_BL.gather(1, by_BL)
    sizes_BL = torch.zeros_like(first_BL).scatter_add_(1, first_BL, torch.ones_like(first_BL)).gather(1, group_BL)
    last_BL = (
        torch.zeros_like(first_BL)
        .scatter_reduce_(1, group_BL, places_L.expand_as(group_BL), "amax", include_self=False)
        .gather(1, group_BL)
    )  # where in the order a group ends
    used_BL = torch.zeros_like(starts_BL)
    for _ in range(PASSES):
        left_B1 = wanted_B[:, None] - used_BL.sum(1, keepdim=True)
        fits_BL = ~used_BL & (sizes_BL <= left_B1) & (sorted_BL > -torch.inf)
        used_BL = used_BL | (fits_BL & (fits_BL.cumsum(1).gather(1, last_BL) <= left_B1))
    chosen_BL = torch.zeros_like(used_BL).scatter(1, by_BL, used_BL)
    return order_BL.masked_fill(~chosen_BL, -torch.inf)


def chosen(candidates_BL: Tensor, tokens_B: Tensor, config: MaskingConfig) -> Tensor:
    """How many positions of each row are chosen (B,)."""
    available_B = candidates_BL.sum(1)
    counted_B = tokens_B if config.count_special else available_B
    most = min(slots(candidates_BL.shape[1], config.share), candidates_BL.shape[1])
    wanted_B = (counted_B * config.share).round().long().clamp(1, most)
    return wanted_B * (available_B > 0) if config.replacement else torch.minimum(wanted_B, available_B)


def replace_tokens(ids_BL: Tensor, new_n: Tensor, masking: Masking, config: MaskingConfig) -> Tensor:
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

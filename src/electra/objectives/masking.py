"""Masking: which positions are predicted, and what the input shows there. Pure functions of ids and row seeds.

Shapes: B batch, L length, N prediction slots a row, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.device import widest_float
from electra.modeling.encoders.base import attention_mask, gather_positions
from electra.modeling.kernels.documents import AttentionMask, DocumentMask
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.row_rng import Purpose, uniforms
from electra.objectives.vocabulary import Vocabulary

WHOLE_WORDS = ("words", "ngrams")
"""Kinds that need to know where words begin."""
PASSES = 3
"""Passes over a row that choose whole words or spans, each for the number of predictions that is left."""


@dataclass(frozen=True)
class Masking:
    """The chosen positions of a batch, and its masked ids.

    Every row has the same number of prediction slots, so that shapes are static. A row with fewer chosen positions
    has unused slots. An unused slot has some position and `used_BN` False, and has no effect.
    """

    positions_BN: Tensor
    used_BN: Tensor
    """True at the slots that are used. Two slots of a row can have the same position only with `replacement`."""
    masked_BN: Tensor
    """True at the used slots that show [MASK]."""
    input_ids_BL: Tensor
    """The ids with [MASK]."""

    def gather(self, values_BLx: Tensor) -> Tensor:
        """Values at the slots: (B, L) to (B × N), or (B, L, D) to (B × N, D)."""
        return gather_positions(values_BLx, self.positions_BN).flatten(0, 1)


def max_predictions(length: int, share: float) -> int:
    """Number of prediction slots per row: int((share + .005) × length), as in the original, and at least 1."""
    return max(1, int((share + 0.005) * length))


def text_mask(input_ids_BL: Tensor, special: SpecialTokens) -> Tensor:
    """True at tokens of text (B, L): not at padding, [CLS], [SEP] or [MASK]. An unknown token is text."""
    excluded = (special.pad, special.classify, special.separate, special.mask)
    is_text_BL = torch.ones_like(input_ids_BL, dtype=torch.bool)
    for token in excluded:
        is_text_BL &= input_ids_BL != token
    return is_text_BL


def non_padding(batch: Batch) -> Tensor:
    """True at all tokens, including special ones, False at padding (B, L)."""
    return torch.arange(batch.input_ids_BL.shape[1], device=batch.lengths_B.device) < batch.lengths_B[:, None]


def attention_mask_of(batch: Batch) -> AttentionMask:
    """The attention mask of a batch; None: there is no padding, as in a stream."""
    if batch.stream_state is not None:
        return None
    if batch.documents_D2 is not None:
        documents = DocumentMask.of_documents(batch.documents_D2.numpy(), *batch.input_ids_BL.shape)
        return documents.to(batch.input_ids_BL.device)
    return attention_mask(batch.lengths_B, batch.input_ids_BL.shape[1])


def draw_masks(batch: Batch, config: MaskingConfig, vocabulary: Vocabulary) -> Masking:
    """Choose positions of each row and put [MASK], the token itself, or a random token there.

    The positions are distinct (unless `replacement`) and drawn uniformly among tokens of text (paper, section 2:
    m_i ~ unif{1, n}), or as `MaskingConfig` says. Their number is `count_predictions`, or fewer if whole words or
    spans do not fill it.
    """
    ids_BL, special = batch.input_ids_BL, vocabulary.special
    L = ids_BL.shape[1]
    text_BL, seeds_B = text_mask(ids_BL, special), batch.row_seeds
    counts_B = count_predictions(text_BL, batch.lengths_B, config)
    if config.replacement:
        slots = max_predictions(L, config.share)
        positions_BN, used_BN = _draw_with_replacement(text_BL, counts_B, seeds_B, slots)
    else:
        scores_BL = uniforms(seeds_B, Purpose.POSITIONS, L)
        if config.kind == "frequency":
            scores_BL = _frequency_scores(scores_BL, ids_BL, vocabulary, config.frequency_power)
        scores_BL = scores_BL.masked_fill(~text_BL, -torch.inf)
        if config.kind in ("words", "spans", "ngrams"):
            starts_BL = _group_starts(ids_BL, text_BL, seeds_B, config, vocabulary)
            scores_BL = _keep_whole_groups(scores_BL, starts_BL, counts_B)
        positions_BN, used_BN = top_positions(scores_BL, counts_B, min(max_predictions(L, config.share), L))
    uniforms_BN = uniforms(seeds_B, Purpose.MASK_OR_KEEP, positions_BN.shape[1])
    masked_BN = used_BN & (uniforms_BN < config.mask_share)
    written_BN = masked_BN & (positions_BN > 0) if config.spare_first_position else masked_BN
    shown_BL = torch.zeros_like(ids_BL).scatter_add_(1, positions_BN, written_BN.long()) > 0
    shown_ids_BL = ids_BL.masked_fill(shown_BL, special.mask)
    if config.random_share:
        is_random_BN = used_BN & ~masked_BN & (uniforms_BN < config.mask_share + config.random_share)
        random_BN = random_tokens(uniforms(seeds_B, Purpose.RANDOM_TOKENS, positions_BN.shape[1]), vocabulary)
        shown_ids_BL = shown_ids_BL.scatter(
            1, positions_BN, random_BN.where(is_random_BN, gather_positions(shown_ids_BL, positions_BN))
        )
    return Masking(positions_BN, used_BN, masked_BN, shown_ids_BL)


def top_positions(scores_BL: Tensor, counts_B: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """Return the positions with the largest scores in each row (B, N), and which of them are used (B, N).

    Args:
        scores_BL: -inf at positions that cannot be chosen.
        counts_B: number of positions to use in each row.
        slots: N, the number of positions to return.
    """
    largest_BN, positions_BN = scores_BL.topk(slots, dim=1)
    enough_BN = torch.arange(slots, device=scores_BL.device) < counts_B[:, None]
    return positions_BN, enough_BN & (largest_BN > -torch.inf)


def random_tokens(uniforms_x: Tensor, vocabulary: Vocabulary) -> Tensor:
    """Random ids in the shape of the random numbers; all except special ones are equally likely."""
    return vocabulary.usable_n[(uniforms_x * len(vocabulary.usable_n)).long()]


def _draw_with_replacement(
    text_BL: Tensor, counts_B: Tensor, seeds_B: Tensor, slots: int
) -> tuple[Tensor, Tensor]:
    """Draw a position of text for each slot; a row without text gets position 0, unused."""
    ranks_BL = text_BL.cumsum(1)
    wanted_rank_BN = (uniforms(seeds_B, Purpose.POSITIONS, slots) * ranks_BL[:, -1:]).long()
    positions_BN = torch.searchsorted(ranks_BL, wanted_rank_BN, right=True).clamp_(max=text_BL.shape[1] - 1)
    positions_BN = positions_BN * (ranks_BL[:, -1:] > 0)
    return positions_BN, torch.arange(slots, device=text_BL.device) < counts_B[:, None]


def _frequency_scores(scores_BL: Tensor, ids_BL: Tensor, vocabulary: Vocabulary, power: float) -> Tensor:
    """Scores (B, L) whose largest entries are a weighted sample without replacement (Efraimidis and Spirakis
    2006).

    The weight of a token is its frequency to minus `power`.
    """
    assert vocabulary.counts_V is not None
    dtype = widest_float(ids_BL.device)
    weights_BL = (vocabulary.counts_V[ids_BL].to(dtype) + 1.0) ** -power
    return (scores_BL.to(dtype).clamp(min=2.0**-25).log() / weights_BL).float()


def _group_starts(
    ids_BL: Tensor, text_BL: Tensor, seeds_B: Tensor, config: MaskingConfig, vocabulary: Vocabulary
) -> Tensor:
    """True where a word or span begins (B, L); each token that is not text is a group of its own."""
    before_BL = text_BL.roll(1, 1)
    before_BL[:, 0] = False
    if config.kind in WHOLE_WORDS:
        assert vocabulary.continues_V is not None
        begins_BL = ~vocabulary.continues_V[ids_BL]
        if config.kind == "ngrams":
            words_BL = begins_BL.long().cumsum(1)
            first_BL = ngram_starts(uniforms(seeds_B, Purpose.SPANS, ids_BL.shape[1]), config.ngram_length)
            begins_BL &= first_BL.gather(1, (words_BL - 1).clamp(min=0))
    else:
        begins_BL = uniforms(seeds_B, Purpose.SPANS, ids_BL.shape[1]) < 1 / config.span_length
    return begins_BL | ~text_BL | ~before_BL


def ngram_starts(uniforms_BL: Tensor, longest: int) -> Tensor:
    """Which words begin a span (B, L); a span has n words with a probability proportional to 1 / n."""
    weights_n = 1 / torch.arange(1, longest + 1, device=uniforms_BL.device)
    lengths_BL = 1 + torch.searchsorted((weights_n / weights_n.sum()).cumsum(0)[:-1], uniforms_BL, right=True)
    starts_BL = (lengths_BL.cumsum(1) - lengths_BL).clamp(max=uniforms_BL.shape[1])
    first_BL = torch.zeros_like(uniforms_BL, dtype=torch.bool)
    return F.pad(first_BL, (0, 1)).scatter(1, starts_BL, True)[:, :-1]


def _keep_whole_groups(scores_BL: Tensor, starts_BL: Tensor, counts_B: Tensor) -> Tensor:
    """Set the scores of all positions to -inf, except those of whole groups that fit into the number of
    predictions.

    Groups are chosen in descending order of the score of their first position. A group that is larger than the
    number of predictions left is skipped, and later, smaller groups are tried.
    """
    positions_L = torch.arange(scores_BL.shape[1], device=scores_BL.device)
    first_BL = positions_L.where(starts_BL, 0).cummax(1).values
    sorted_BL, by_BL = scores_BL.gather(1, first_BL).sort(dim=1, descending=True, stable=True)
    group_BL = first_BL.gather(1, by_BL)
    sizes_BL = torch.zeros_like(first_BL).scatter_add_(1, first_BL, torch.ones_like(first_BL)).gather(1, group_BL)
    last_BL = (
        torch.zeros_like(first_BL)
        .scatter_reduce_(1, group_BL, positions_L.expand_as(group_BL), "amax", include_self=False)
        .gather(1, group_BL)
    )  # the index of the last position of each group in sorted order
    used_BL = torch.zeros_like(starts_BL)
    for _ in range(PASSES):
        left_B1 = counts_B[:, None] - used_BL.sum(1, keepdim=True)
        fits_BL = ~used_BL & (sizes_BL <= left_B1) & (sorted_BL > -torch.inf)
        used_BL = used_BL | (fits_BL & (fits_BL.cumsum(1).gather(1, last_BL) <= left_B1))
    chosen_BL = torch.zeros_like(used_BL).scatter(1, by_BL, used_BL)
    return scores_BL.masked_fill(~chosen_BL, -torch.inf)


def count_predictions(text_BL: Tensor, tokens_B: Tensor, config: MaskingConfig) -> Tensor:
    """Number of positions to choose in each row (B,)."""
    available_B = text_BL.sum(1)
    counted_B = tokens_B if config.count_special else available_B
    slots = min(max_predictions(text_BL.shape[1], config.share), text_BL.shape[1])
    counts_B = (counted_B * config.share).round().long().clamp(1, slots)
    return counts_B * (available_B > 0) if config.replacement else torch.minimum(counts_B, available_B)


def replaced_labels(ids_BL: Tensor, original_ids_BL: Tensor) -> Tensor:
    """The labels of a discriminator: True where a token was replaced (B, L).

    A sample that happens to be the original token counts as original (paper, section 2).
    """
    return ids_BL != original_ids_BL


def replace_tokens(ids_BL: Tensor, new_n: Tensor, masking: Masking, config: MaskingConfig) -> Tensor:
    """The ids with new ids (B × N) at the positions of used slots (B, L)."""
    new_BN, positions_BN, used_BN = new_n.view_as(masking.positions_BN), masking.positions_BN, masking.used_BN
    if config.spare_first_position:
        used_BN = used_BN & (positions_BN > 0)
    zeros_BL = torch.zeros_like(ids_BL)
    count_BL = zeros_BL.scatter_add(1, positions_BN, used_BN.long())
    if config.average_repeats or not config.replacement:  # the mean of one id is the id
        total_BL = zeros_BL.scatter_add(1, positions_BN, new_BN * used_BN)
        return torch.where(count_BL > 0, total_BL // count_BL.clamp(min=1), ids_BL)
    N = positions_BN.shape[1]
    order_BN = torch.arange(N, device=ids_BL.device).expand_as(positions_BN).where(used_BN, N)
    first_BL = torch.full_like(ids_BL, N).scatter_reduce(1, positions_BN, order_BN, "amin")
    return torch.where(count_BL > 0, new_BN.gather(1, first_BL.clamp(max=N - 1)), ids_BL)

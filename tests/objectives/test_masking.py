"""Masking against a slow plain version, and its shares over many draws."""

import pytest
import torch

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.objectives.masking import (
    Masking,
    MaskingConfig,
    draw_masks,
    max_predictions,
    ngram_starts,
    replace_tokens,
    text_mask,
)
from electra.objectives.row_rng import Purpose, uniforms
from electra.objectives.vocabulary import Vocabulary

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
VOCABULARY = Vocabulary(SPECIAL, 300)


def text(rows: list[int], length: int) -> torch.Tensor:
    """Rows of [CLS] words [SEP] with the given numbers of words, padded."""
    ids_BL = torch.zeros(len(rows), length, dtype=torch.long)
    for row, words in enumerate(rows):
        ids_BL[row, : words + 2] = torch.tensor([2, *range(10, 10 + words), 3])
    return ids_BL


def batch(ids_BL: torch.Tensor, *, seed: int) -> Batch:
    return Batch(ids_BL, torch.zeros_like(ids_BL), (ids_BL != 0).sum(1), seed=1000 * seed)


def drawn(ids_BL: torch.Tensor, config: MaskingConfig, *, seed: int) -> Masking:
    return draw_masks(batch(ids_BL, seed=seed), config, VOCABULARY)


def plain_draw(ids_BL: torch.Tensor, config: MaskingConfig, seed: int) -> list[dict[int, bool]]:
    """For each row, {position: shows [MASK]}: the same rule, one position at a time, from the same numbers."""
    B, L = ids_BL.shape
    N = max_predictions(L, config.share)
    seeds_B = batch(ids_BL, seed=seed).row_seeds
    order_BL, keep_BN = uniforms(seeds_B, Purpose.POSITIONS, L), uniforms(seeds_B, Purpose.MASK_OR_KEEP, N)
    drawn = []
    for row in range(B):
        text_positions = [p for p in range(L) if int(ids_BL[row, p]) not in (0, 2, 3, 4)]
        by_number = sorted(text_positions, key=lambda p: -float(order_BL[row, p]))
        wanted = min(max(1, round(len(text_positions) * config.share)), N, len(text_positions))
        chosen = by_number[:wanted]
        drawn.append({p: float(keep_BN[row, i]) < config.mask_share for i, p in enumerate(chosen)})
    return drawn


@pytest.mark.parametrize(("length", "share"), [(32, 0.15), (128, 0.15), (64, 0.25)])
def test_it_equals_the_plain_version(length: int, share: float) -> None:
    ids_BL = text([length - 2, length // 2, 7, 3, 1, 0], length)
    config = MaskingConfig(share=share, mask_share=0.7)
    masking = drawn(ids_BL, config, seed=1)
    plain = plain_draw(ids_BL, config, 1)
    for row, expected in enumerate(plain):
        used = masking.used_BN[row]
        found = dict(
            zip(masking.positions_BN[row][used].tolist(), masking.masked_BN[row][used].tolist(), strict=True)
        )
        assert found == expected
        shown = ids_BL[row].clone()
        for position, is_mask in expected.items():
            if is_mask:
                shown[position] = 4
        assert torch.equal(masking.input_ids_BL[row], shown)


def test_shares_over_many_draws() -> None:
    ids_BL = text([126] * 64, 128)
    config = MaskingConfig()
    counts_L, masked, chosen = torch.zeros(128), 0, 0
    for seed in range(60):
        masking = drawn(ids_BL, config, seed=seed)
        assert (masking.used_BN.sum(1) == round(126 * 0.15)).all()
        counts_L += torch.bincount(masking.positions_BN[masking.used_BN], minlength=128)
        masked, chosen = masked + int(masking.masked_BN.sum()), chosen + int(masking.used_BN.sum())
    assert masked / chosen == pytest.approx(0.85, abs=0.01)
    assert counts_L[0] == counts_L[127] == 0
    expected = chosen / 126  # every token of text is chosen equally often
    chi_square = ((counts_L[1:127] - expected) ** 2 / expected).sum()
    assert chi_square < 175  # the 99.8th percentile for 125 degrees of freedom; without replacement it is less


def test_positions_of_a_row_are_distinct_and_text() -> None:
    ids_BL = text([30, 5, 12], 32)
    text_BL = text_mask(ids_BL, SPECIAL)
    for seed in range(20):
        masking = drawn(ids_BL, MaskingConfig(share=0.5), seed=seed)
        for row in range(3):
            positions = masking.positions_BN[row]
            assert len(set(positions.tolist())) == len(positions)
            assert text_BL[row][positions[masking.used_BN[row]]].all()


def test_unknown_tokens_are_candidates_and_special_ones_are_not() -> None:
    assert text_mask(torch.tensor([[2, 1, 9, 4, 3, 0]]), SPECIAL).tolist() == [
        [False, True, True, False, False, False]
    ]


def test_an_empty_row_changes_nothing() -> None:
    ids_BL = text([0], 16)
    masking = drawn(ids_BL, MaskingConfig(), seed=0)
    assert not masking.used_BN.any() and torch.equal(masking.input_ids_BL, ids_BL)


def test_the_number_of_slots_is_that_of_the_paper() -> None:
    assert (max_predictions(128, 0.15), max_predictions(512, 0.15), max_predictions(512, 0.25)) == (19, 79, 130)


FAITHFUL = MaskingConfig(
    share=0.4, replacement=True, count_special=True, average_repeats=True, spare_first_position=True
)


def test_with_replacement_a_row_without_text_has_no_position() -> None:
    masking = drawn(text([0, 8], 10), FAITHFUL, seed=0)
    assert not masking.used_BN[0].any() and masking.used_BN[1].any()
    assert masking.positions_BN[0].eq(0).all()


def test_with_replacement_a_position_may_repeat_and_all_are_equally_likely() -> None:
    ids_BL = text([8] * 400, 10)
    masking = drawn(ids_BL, FAITHFUL, seed=0)
    assert (masking.used_BN.sum(1) == 4).all()  # .4 of ten tokens, of which eight are text
    distinct = sum(len(set(row.tolist())) for row in masking.positions_BN) / 400
    assert distinct == pytest.approx(8 * (1 - (7 / 8) ** 4), rel=0.03)
    counts_L = torch.bincount(masking.positions_BN.flatten(), minlength=10)
    assert counts_L[0] == counts_L[9] == 0
    assert (counts_L[1:9] - 200).abs().max() < 50
    shown_BL = torch.zeros_like(ids_BL, dtype=torch.bool)
    for row in range(400):
        shown_BL[row, masking.positions_BN[row][masking.masked_BN[row]]] = True
    assert torch.equal(masking.input_ids_BL, ids_BL.masked_fill(shown_BL, 4))


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("spare", [True, False])
def test_the_id_at_a_position_that_was_drawn_twice(average: bool, spare: bool) -> None:
    config = MaskingConfig(replacement=True, average_repeats=average, spare_first_position=spare)
    ids_BL = torch.tensor([[20, 21, 22, 23, 24]])
    positions_BN = torch.tensor([[3, 1, 3, 0, 2]])
    used_BN = torch.tensor([[True, True, True, True, False]])
    masking = Masking(positions_BN, used_BN, used_BN, ids_BL)
    found = replace_tokens(ids_BL, torch.tensor([50, 60, 55, 70, 80]), masking, config)
    assert found.tolist() == [[20 if spare else 70, 60, 22, 52 if average else 50, 24]]


def test_distinct_positions_are_written_as_they_are() -> None:
    ids_BL = text([30, 5, 12], 32)
    masking = drawn(ids_BL, MaskingConfig(), seed=3)
    new_n = torch.arange(1000, 1000 + masking.used_BN.numel())
    found_BL, expected_BL = replace_tokens(ids_BL, new_n, masking, MaskingConfig()), ids_BL.clone()
    for row, slot in masking.used_BN.nonzero().tolist():
        expected_BL[row, masking.positions_BN[row, slot]] = new_n.view_as(masking.used_BN)[row, slot]
    assert torch.equal(found_BL, expected_BL)


def rates(
    config: MaskingConfig, ids_BL: torch.Tensor, vocabulary: Vocabulary, *, seeds: int = 200
) -> torch.Tensor:
    """How often each position is chosen (B, L)."""
    counts_BL = torch.zeros(ids_BL.shape)
    for seed in range(seeds):
        masking = draw_masks(batch(ids_BL, seed=seed), config, vocabulary)
        counts_BL.scatter_add_(1, masking.positions_BN, masking.used_BN.float())
    return counts_BL / seeds


def test_rare_tokens_are_chosen_more_often() -> None:
    ids_BL = torch.tensor([[2, *[10] * 10, *[20] * 10, 3]])
    counts_V = torch.ones(300, dtype=torch.long)
    counts_V[10], counts_V[20] = 899, 99
    vocabulary = Vocabulary(SPECIAL, 300, counts_V=counts_V)
    found = rates(MaskingConfig(kind="frequency", share=0.1), ids_BL, vocabulary, seeds=200)[0]
    # the weights are 900^-.5 and 100^-.5, that is 1 : 3; two of twenty are drawn
    assert float(found[11:21].sum() / found[1:11].sum()) == pytest.approx(3, rel=0.2)
    assert float(found.sum()) == pytest.approx(2)


def test_words_are_chosen_whole_and_as_many_as_fit() -> None:
    # words of three, one, two, four and one tokens; ids from 200 on go on with the word before them
    row = [2, 10, 200, 201, 11, 12, 202, 13, 203, 204, 205, 14, 3]
    continues_V = torch.arange(300) >= 200
    vocabulary = Vocabulary(SPECIAL, 300, continues_V=continues_V)
    words = [{1, 2, 3}, {4}, {5, 6}, {7, 8, 9, 10}, {11}]
    seen = set()
    for seed in range(100):
        masking = draw_masks(
            batch(torch.tensor([row]), seed=seed), MaskingConfig(kind="words", share=0.3), vocabulary
        )
        chosen = set(masking.positions_BN[masking.used_BN].tolist())
        taken = [word for word in words if word & chosen]
        assert chosen == set().union(*taken) and len(chosen) in (2, 3)  # three tokens are wanted
        seen.add(frozenset(chosen))
    assert {frozenset({1, 2, 3}), frozenset({4, 5, 6}), frozenset({5, 6, 11})} <= seen
    assert not any({7, 8} & chosen for chosen in seen)  # four tokens never fit


def test_ngrams_are_whole_words_of_the_distribution_of_albert() -> None:
    # words of two tokens each; odd ids go on with the word before them
    continues_V = torch.arange(500) % 2 == 1
    vocabulary = Vocabulary(SPECIAL, 500, continues_V=continues_V)
    row = torch.tensor([[2, *range(10, 410), 3]])
    for seed in range(20):
        found = draw_masks(batch(row, seed=seed), MaskingConfig(kind="ngrams", share=0.02), vocabulary)
        places = sorted(found.positions_BN[found.used_BN].tolist())
        assert len(places) == 8, "as many as a row's share"
        words = sorted({(place - 1) // 2 for place in places})
        assert [2 * word + 1 + half for word in words for half in (0, 1)] == places, "whole words"
    begins_BL = ngram_starts(torch.rand(100, 600, generator=torch.Generator().manual_seed(0)), 3)
    lengths = torch.cat([row.nonzero().squeeze(1).diff() for row in begins_BL])
    shares = lengths.bincount().double() / len(lengths)
    torch.testing.assert_close(shares, torch.tensor([0, 6, 3, 2]).double() / 11, atol=0.01, rtol=0)


def test_spans_have_the_configured_mean_length() -> None:
    ids_BL = text([126] * 64, 128)
    stretches, chosen = 0, 0
    for seed in range(20):
        masking = draw_masks(batch(ids_BL, seed=seed), MaskingConfig(kind="spans", span_length=4.0), VOCABULARY)
        used_BL = torch.zeros(64, 128).scatter_add_(1, masking.positions_BN, masking.used_BN.float()) > 0
        stretches += int((used_BL & ~used_BL.roll(1, 1)).sum())
        chosen += int(used_BL.sum())
        assert not used_BL[:, 0].any() and not used_BL[:, 127].any()
    assert chosen / (20 * 64) == pytest.approx(round(126 * 0.15), rel=0.05)
    assert 2.5 < chosen / stretches < 4.5  # long ones are passed over where they do not fit


def test_random_tokens_have_their_share() -> None:
    ids_BL = text([126] * 64, 128)
    masked = kept = other = 0
    for seed in range(20):
        masking = drawn(ids_BL, MaskingConfig(mask_share=0.8, random_share=0.1), seed=seed)
        shown, true = masking.gather(masking.input_ids_BL), masking.gather(ids_BL)
        used = masking.used_BN.flatten()
        masked += int((shown[used] == 4).sum())
        kept += int((shown[used] == true[used]).sum())
        other += int(((shown != true) & (shown != 4))[used].sum())
        assert not torch.isin(shown[used & (shown != 4)], torch.tensor([0, 1, 2, 3])).any()
    total = masked + kept + other
    assert masked / total == pytest.approx(0.8, abs=0.02)
    assert other / total == pytest.approx(0.1, abs=0.01)


def test_the_masks_of_a_row_do_not_depend_on_the_batch() -> None:
    ids_BL = text([30, 12, 20], 32)
    whole = batch(ids_BL, seed=5)
    alone = Batch(ids_BL[1:2], ids_BL[1:2], whole.lengths_B[1:2], seed=99, seeds_B=whole.row_seeds[1:2])
    for kind in ("uniform", "spans"):
        config = MaskingConfig(kind=kind)  # type: ignore[arg-type]
        one, other = draw_masks(whole, config, VOCABULARY), draw_masks(alone, config, VOCABULARY)
        assert torch.equal(one.positions_BN[1], other.positions_BN[0])
        assert torch.equal(one.input_ids_BL[1], other.input_ids_BL[0])


def test_shares_may_sum_to_one_in_spite_of_rounding() -> None:
    assert 0.2 > 1 - 0.8 and not list(MaskingConfig(mask_share=0.8, random_share=0.2).problems())
    (problem,) = MaskingConfig(mask_share=0.8, random_share=0.21).problems()
    assert problem == "random_share: must lie between 0 and 1 - mask_share, got 0.21"

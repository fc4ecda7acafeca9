"""Errors by group, compared with plain loops; bias and difficulty are distinguished if both are known."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from electra.analysis.corruption import CorruptedTokens
from electra.analysis.group_bootstrap import GroupBootstrap
from electra.analysis.parts_of_speech import (
    Grouping,
    Observations,
    QuantileBins,
    evaluate_groups,
    fit_error_effects,
    most_suspected_tokens,
)
from electra.analysis.tagged_tokens import TaggedTokens

TOKENS, SENTENCES = 600, 60


def draw_of(seed: int, *, tokens: int = TOKENS, sentences: int = SENTENCES) -> CorruptedTokens:
    """A draw of the same text for every seed, with other positions and fakes."""
    text = np.random.default_rng(0)
    draw = np.random.default_rng(seed)
    original_N = text.integers(5, 50, tokens)
    clean_N = text.normal(-2, 2, tokens).astype(np.float32)
    masked_N = draw.random(tokens) < 0.3
    corrupted_N = np.where(masked_N, draw.integers(5, 12, tokens), original_N)
    count = int(masked_N.sum())
    return CorruptedTokens(
        text_N=np.arange(tokens) * sentences // tokens,
        position_N=np.zeros(tokens, np.int64),
        original_N=original_N,
        corrupted_N=corrupted_N,
        masked_N=masked_N,
        logits_N=np.round(draw.normal(-1, 2, tokens), 1).astype(np.float32),
        clean_logits_N=clean_N,
        original_log_probability_n=np.log(draw.random(count)).astype(np.float32),
        sampled_log_probability_n=np.log(draw.random(count)).astype(np.float32),
        entropy_n=draw.random(count).astype(np.float32),
        rank_n=np.zeros(count, np.int64),
    )


def test_results_of_each_group_equal_plain_loops() -> None:
    draws = [draw_of(1), draw_of(2)]
    group_N = np.arange(TOKENS) % 3
    grouping = Grouping("kind", ("a", "b", "nothing", "c"), np.where(group_N == 2, 3, group_N))
    actual = list(
        evaluate_groups(
            Observations.from_draws(draws), grouping, bootstrap=GroupBootstrap(SENTENCES, count=20), logit=-0.5
        )
    )
    assert [one["name"] for one in actual] == ["a", "b", "c"]
    for number, one in enumerate(actual):
        clean = [draws[0].clean_logits_N[i] for i in range(TOKENS) if group_N[i] == number]
        untouched, fakes, original, drawn, entropy, same = [], [], [], [], [], []
        for each in draws:
            slot = 0
            for i in range(TOKENS):
                is_fake, slot_here = each.original_N[i] != each.corrupted_N[i], slot
                slot += int(each.masked_N[i])
                if group_N[i] != number:
                    continue
                (fakes if is_fake else untouched).append(each.logits_N[i])
                if each.masked_N[i]:
                    original.append(each.original_log_probability_n[slot_here])
                    entropy.append(each.entropy_n[slot_here])
                    same.append(not is_fake)
                    drawn += [each.sampled_log_probability_n[slot_here]] * int(is_fake)
        assert (one["tokens"], one["places"], one["fakes"]) == (len(clean), len(original), len(fakes))
        expected = {
            "clean_suspected": np.mean(np.array(clean) > -0.5),
            "clean_logit": np.mean(clean),
            "untouched_suspected": np.mean(np.array(untouched) > -0.5),
            "untouched_logit": np.mean(untouched),
            "missed": np.mean(np.array(fakes) <= -0.5),
            "fake_logit": np.mean(fakes),
            "original_probability": np.mean(np.exp(original)),
            "original_log_probability": np.mean(original),
            "entropy": np.mean(entropy),
            "same": np.mean(same),
            "fake_log_probability": np.mean(drawn),
            "auc": roc_auc_score([0] * len(untouched) + [1] * len(fakes), untouched + fakes),
        }
        for key, value in expected.items():
            assert one[key]["value"] == pytest.approx(value, abs=1e-5), key
            assert one[key]["low"] <= one[key]["value"] <= one[key]["high"], key


def test_intervals_resample_whole_sentences() -> None:
    draws, group_N = [draw_of(1), draw_of(2)], np.arange(TOKENS) % 2
    resamples = GroupBootstrap(SENTENCES, count=25, seed=4)
    actual = list(
        evaluate_groups(
            Observations.from_draws(draws), Grouping("kind", ("a", "b"), group_N), bootstrap=resamples, logit=-0.5
        )
    )
    sentence_M = np.tile(draws[0].text_N, 2)
    logits_M, fake_M = (
        np.concatenate([getattr(one, name) for one in draws]) for name in ("logits_N", "replaced_N")
    )
    for number, one in enumerate(actual):
        drawn: dict[str, list[float]] = {"missed": [], "untouched_logit": [], "auc": []}
        for row in resamples.weights_RS:
            weights_M = row[sentence_M] * np.tile(group_N == number, 2)
            drawn["missed"].append(np.average(logits_M <= -0.5, weights=weights_M * fake_M))
            drawn["untouched_logit"].append(np.average(logits_M, weights=weights_M * ~fake_M))
            drawn["auc"].append(roc_auc_score(fake_M, logits_M, sample_weight=weights_M))
        for key, values in drawn.items():
            expected = np.quantile(values, [0.025, 0.975]).tolist()
            assert [one[key]["low"], one[key]["high"]] == pytest.approx(expected), key


def made(seed: int, *, bias: float) -> tuple[Observations, list[Grouping]]:
    """Two tags, the second with more probable fakes; a probable fake is missed more often, and those of the second
    tag by `bias` more. Fakes have one of two probabilities, so that a bin holds fakes of one difficulty."""
    tokens, sentences = 20_000, 400
    one = replace(draw_of(3, tokens=tokens, sentences=sentences), masked_N=np.ones(tokens, bool))
    draw = np.random.default_rng(seed)
    tag_N = draw.integers(0, 2, tokens)
    likely_N = draw.random(tokens) < np.array([0.2, 0.8])[tag_N]
    log_probability_N = np.where(likely_N, -1.0, -6.0)
    missed_N = draw.random(tokens) < 0.2 + 0.4 * likely_N + bias * tag_N
    one = replace(
        one,
        corrupted_N=one.original_N + 1,
        logits_N=np.where(missed_N, -1, 1).astype(np.float32),
        original_log_probability_n=np.full(tokens, -3.0),  # says nothing about the fake
        sampled_log_probability_n=log_probability_N,
        entropy_n=np.ones(tokens, np.float32),
    )
    place_N = draw.integers(0, 2, tokens)
    return Observations.from_draws([one]), [
        Grouping("tag", ("a", "b"), tag_N),
        Grouping("place", ("x", "y"), place_N),
    ]


@pytest.mark.parametrize("bias", [0.0, 0.2])
def test_at_equal_difficulty_only_the_bias_remains(bias: float) -> None:
    observed, groupings = made(4, bias=bias)
    a, b = evaluate_groups(observed, groupings[0], bootstrap=GroupBootstrap(400, count=50), logit=0.0)
    assert b["missed"]["value"] - a["missed"]["value"] == pytest.approx(0.24 + bias, abs=0.03)
    equal = [one["missed_at_equal_difficulty"]["value"] for one in (a, b)]
    assert equal[1] - equal[0] == pytest.approx(bias, abs=0.03)
    assert a["covered"]["missed"] == b["covered"]["missed"] == pytest.approx(1)


def test_effects_are_the_bias_alone() -> None:
    """Over many texts, because one may deviate by chance: 0 without a bias, and intervals cover the bias."""
    actual = [fit_error_effects(*made(seed, bias=0.0), logit=0.0)["missed"] for seed in range(20)]
    second = [next(one for one in effect["tag"] if one["level"] == "b") for effect in actual]
    assert abs(np.mean([one["value"] for one in second])) < 0.015
    assert sum(one["low"] < 0 < one["high"] for one in second) >= 16
    assert [*actual[0]] == ["tag", "place", "generator's probability"]
    unlikely, likely = actual[0]["generator's probability"]
    assert likely["low"] > unlikely["high"]
    biased = fit_error_effects(*made(0, bias=0.2), logit=0.0)["missed"]
    assert next(one for one in biased["tag"] if one["level"] == "b")["low"] > 0.3


def test_without_errors_or_fakes_there_are_no_results() -> None:
    one = draw_of(1)
    one = replace(one, corrupted_N=one.original_N, clean_logits_N=one.clean_logits_N - 99)
    observed, every = Observations.from_draws([one]), Grouping("all", ("all",), np.zeros(TOKENS, np.int64))
    (actual,) = evaluate_groups(observed, every, bootstrap=GroupBootstrap(SENTENCES, count=9), logit=0.0)
    assert actual["fakes"] == 0 and actual["same"]["value"] == 1.0
    assert {actual[key] for key in ("missed", "auc", "missed_at_equal_difficulty", "fake_logit")} == {None}
    assert fit_error_effects(observed, [every], logit=0.0) == {"missed": None, "clean_suspected": None}


def test_tokens_with_fewer_than_ten_occurrences_are_not_the_most_suspected() -> None:
    tokenizer = Tokenizer(WordLevel({f"word{number}": number for number in range(26)}))
    counts = [9] * 13 + [10] + [11] * 12
    suspected = [9] * 13 + [5] + [1] * 12
    original_N = np.repeat(np.arange(26), counts)
    clean_N = np.concatenate([np.arange(count) < yes for count, yes in zip(counts, suspected, strict=True)])
    draw = replace(draw_of(1, tokens=len(original_N)), original_N=original_N, clean_logits_N=clean_N - 0.5)
    none_N = np.zeros(len(original_N), np.int64)
    tokens = TaggedTokens([], ("DET",), none_N, none_N, none_N, none_N, none_N, len(none_N), 0)
    first, *others = most_suspected_tokens(tokenizer, tokens, draw, logit=0.0)
    assert first == {"token": "word13", "tag": "DET", "tokens": 10, "rate": 0.5}
    assert [(one["token"], one["rate"]) for one in others] == [(f"word{14 + i}", 1 / 11) for i in range(11)]


def test_quantile_bins() -> None:
    values = np.log(np.random.default_rng(0).random(1000))
    bins = QuantileBins.assign(values)
    assert np.bincount(bins.bin_n).tolist() == [100] * 10 and len(bins.names) == 10
    assert bins.names[0].startswith("up to 0.1") and bins.names[-1].endswith(" to 1")
    assert (np.diff(bins.bin_n[np.argsort(values)]) >= 0).all()
    equal = QuantileBins.assign(np.zeros(5))  # all in one bin
    assert len({*equal.bin_n.tolist()}) == 1 and max(equal.bin_n) < len(equal.names)

"""Quality by position and gains by distance, against plain versions and readers that are known."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from small_model import TEXTS, write_model

from electra.analysis import long_inputs
from electra.analysis.long_inputs import (
    DiscriminatorReader,
    MaskedReader,
    measure_needle,
    position_ranges,
    rare_words,
    sample_needles,
    usable_distances,
)
from electra.errors import DataError
from electra.export.loading import load_pretrained
from electra.modeling.encoders.modernbert import ModernBertConfig
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.serving.backends import load_model
from electra.serving.masked_token_predictor import MaskedTokenPredictor

metrics = pytest.importorskip("sklearn.metrics")

LENGTH = 150


def model(folder: Path, head: type) -> Path:
    return write_model(folder, encoder=ModernBertConfig, head=head, max_positions=200, local_window=8)


def rows(folder: Path, count: int = 6) -> list[list[int]]:
    tokenizer = load_pretrained(folder).tokenizer
    words = " ".join(TEXTS * 20).split()
    random = np.random.default_rng(0)
    texts = [" ".join(random.permutation(words)) for _ in range(count)]
    return [tokenizer.encode(text, add_special_tokens=False).ids[:LENGTH] for text in texts]


def test_ranges_and_distances_fit_a_row() -> None:
    assert [*position_ranges(300)] == [(0, 128), (128, 256), (256, 300)]
    assert usable_distances(510) == [16, 32, 64, 128, 256] and usable_distances(20) == [16]
    for length in (20, 65, 510):
        needles = sample_needles([[1] * length], np.arange(5, 50), count=200, seed=0)
        assert min(needle.position for needle in needles) >= max(usable_distances(length))
        assert max(needle.position for needle in needles) == length - 1


def test_rare_words_are_the_least_frequent_tokens_that_were_seen() -> None:
    counts = np.array([0, 4, 5, 6, 7, 8, 100, 900])
    assert rare_words(counts, [3]).tolist() == [2, 4, 5]
    with pytest.raises(DataError, match="fewer than three rare tokens"):
        rare_words(np.array([0, 4, 900]), [])


def test_a_row_has_the_word_twice_or_another_word_before_it() -> None:
    ids = [[7, 8, 9] * 20, [10] * 60]
    needles = sample_needles(ids, np.arange(7, 20), count=3, seed=0)
    assert [needle.document for needle in needles] == [0, 0, 0, 1, 1, 1]
    for needle in needles:
        before = ids[needle.document]
        assert needle.word not in before and needle.other not in before and needle.word != needle.other
        for same, early in ((True, needle.word), (False, needle.other)):
            row = needle.row(before, 16, same=same)
            changed = {place: token for place, token in enumerate(row) if token != before[place]}
            assert changed == {needle.position - 16: early, needle.position: needle.word}


class NearReader(MaskedReader):
    """Knows a word that was at most 40 tokens before."""

    def __init__(self) -> None:
        pass

    def originality(self, rows: Sequence[list[int]], positions: Sequence[int]) -> np.ndarray:
        known = [row[place] in row[max(0, place - 40) : place] for row, place in zip(rows, positions, strict=True)]
        return np.array(known, float) - 5


def test_the_gain_is_that_of_a_reader_with_a_known_reach() -> None:
    ids = [[7] * 200, [8] * 200, [9] * 200]
    needles = sample_needles(ids, np.arange(20, 60), count=4, seed=0)
    measured = [
        measure_needle(NearReader(), ids, needles, distance, resamples=20, seed=0)
        for distance in usable_distances(200)
    ]
    assert [(one["distance"], one["gain"]) for one in measured] == [(16, 1.0), (32, 1.0), (64, 0.0), (128, 0.0)]
    assert measured[0]["pairs"] == 12 and measured[0]["interval"] == [1.0, 1.0]


def test_a_masked_language_model_is_read_at_once_and_in_windows(tmp_path: Path) -> None:
    folder = model(tmp_path / "generator", MaskedLanguageModelHead)
    ids, whole = rows(folder), load_model(folder, max_length=LENGTH + 2)
    reader = MaskedReader(whole, load_model(folder, max_length=20))
    parts = reader.by_position(ids, share=0.2, seed=0)
    assert [(part["first"], part["last"]) for part in parts] == [(0, 127), (128, 149)]
    assert sum(part["tokens"] for part in parts) == 30 * len(ids)
    assert all(part["at_once"] != part["in_windows"] for part in parts)
    assert all(
        part["at_once"] == part["in_windows"]
        for part in MaskedReader(whole, whole).by_position(ids, share=0.2, seed=0)
    )
    special = reader.predictors[0].batcher.special
    masked = [special.classify, *ids[0], special.separate]
    masked[1 + 140] = special.mask
    pretrained = load_pretrained(folder)
    with torch.inference_mode():
        state = pretrained.encoder(torch.tensor([masked]))[:, 141]
        assert isinstance(pretrained.head, MaskedLanguageModelHead)
        logits = pretrained.head.logits(state, pretrained.encoder.embeddings.token.weight)
    expected = float(logits.log_softmax(-1)[0, ids[0][140]])
    assert reader.originality(ids[:1], [140])[0] == pytest.approx(expected, abs=1e-5)


def test_a_range_has_the_mean_loss_of_all_its_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader(MaskedReader):
        predictors = (None, None)  # type: ignore[assignment]

        def __init__(self) -> None:
            pass

    def minus_position(_: object, __: object, masked: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [-positions.astype(float) for positions in masked]

    monkeypatch.setattr(long_inputs, "_log_probabilities", minus_position)
    parts = Reader().by_position([[7] * LENGTH] * 2, share=1.0, seed=0)
    assert [part["at_once"] for part in parts] == [np.arange(128).mean(), np.arange(128, LENGTH).mean()]


def test_a_discriminator_has_the_area_of_scikit_learn(tmp_path: Path) -> None:
    folder = model(tmp_path / "discriminator", ReplacedTokenHead)
    generator = MaskedTokenPredictor(model(tmp_path / "generator", MaskedLanguageModelHead))
    ids = rows(folder)
    reader = DiscriminatorReader(load_model(folder), generator, window=200)
    parts = reader.by_position(ids, share=0.2, seed=0)
    assert [part["tokens"] for part in parts] == [128 * len(ids), 22 * len(ids)]
    assert all(part["at_once"] == pytest.approx(part["in_windows"]) for part in parts)
    from electra.analysis.corruption import corrupt_texts

    tokens = corrupt_texts(reader.scorer, generator, ids, share=0.2, seed=0)
    late = tokens.position_N >= 128
    area = metrics.roc_auc_score(tokens.replaced_N[late], tokens.logits_N[late])
    assert parts[1]["at_once"] == pytest.approx(area)
    assert reader.originality(ids[:1], [3])[0] == -reader.scorer.logits(ids[:1])[0][3]

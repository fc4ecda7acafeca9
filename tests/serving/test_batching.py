"""Every token is computed once, with context and with little padding."""

import random
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from electra.errors import CheckpointError, DataError
from electra.export.pretrained import Pretrained
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.preparation.tokenizer_training import train_tokenizer
from electra.serving.batching import Batcher, batch_boundaries, check_texts, overlapping_windows


def batcher(max_length: int) -> Batcher:
    tokenizer = train_tokenizer(["a cat"], vocabulary_size=20)
    config = BertConfig(layers=1, hidden_size=4, embedding_size=4, heads=1, vocabulary_size=20)
    pretrained = Pretrained(BertEncoder(config), None, tokenizer, None, max_length)
    return Batcher(pretrained, device="cpu")


@pytest.mark.parametrize("size", [1, 2, 3, 14, 15, 510])
@pytest.mark.parametrize("tokens", [0, 1, 2, 13, 14, 15, 16, 99, 1500])
def test_windows_keep_every_token_once_with_context(tokens: int, size: int) -> None:
    actual = overlapping_windows(7, tokens, size)
    assert actual, "an empty text has one too"
    kept = [position for window in actual for position in range(window.keep_start, window.keep_end)]
    assert kept == list(range(tokens))
    for window in actual:
        assert window.text == 7
        assert 0 <= window.start <= window.keep_start <= window.keep_end <= window.end <= tokens
        assert window.end - window.start <= size
        for position in range(window.keep_start, window.keep_end):
            assert position - window.start >= min(position, size // 4)
            assert window.end - 1 - position >= min(tokens - 1 - position, (size - 1) // 4)


def test_batches_fit_the_budget_and_contain_all_rows() -> None:
    draw = random.Random(0)
    texts = [[draw.randrange(100, 200) for _ in range(draw.randrange(60))] for _ in range(300)]
    shapes = []

    def network(ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        shapes.append(ids_BL.shape)
        mask_BL = torch.ones_like(ids_BL, dtype=torch.bool) if mask_BL is None else mask_BL
        assert not ids_BL[~mask_BL].any(), "[PAD] is 0"
        return ids_BL.float()

    reader = batcher(40)
    special = reader.special
    actual = [np.full(len(ids), np.nan) for ids in texts]
    for window, row in reader.outputs(texts, network, batch_tokens=400):
        ids = texts[window.text][window.start : window.end]
        assert row.dtype == np.float32 and row.tolist() == [special.classify, *ids, special.separate]
        actual[window.text][window.kept] = row[window.kept_in_row]
    assert [row.tolist() for row in actual] == texts
    assert all(rows * length <= 400 for rows, length in shapes)
    assert len(shapes) < len(texts) / 6
    tokens = sum(window.length for i, ids in enumerate(texts) for window in overlapping_windows(i, len(ids), 38))
    assert tokens < sum(rows * length for rows, length in shapes) < 1.03 * tokens


@pytest.mark.parametrize("call", [0, 3, 20, 1000])
def test_batch_boundaries_have_the_lowest_cost(call: int) -> None:
    draw = random.Random(call)
    for _ in range(20):
        lengths = sorted((draw.randrange(2, 30) for _ in range(draw.randrange(10))), reverse=True)
        actual = batch_boundaries(lengths, 60, call)
        assert actual[0] == 0 and actual[-1] == len(lengths)

        def cost(ends: Sequence[int], lengths: list[int] = lengths) -> float:
            batches = [lengths[first:end] for first, end in pairwise(ends)]
            if any(len(batch) > 1 and batch[0] * len(batch) > 60 for batch in batches):
                return float("inf")
            return sum(batch[0] * len(batch) + call for batch in batches)

        every = (
            (0, *inner, len(lengths))
            for count in range(len(lengths))
            for inner in combinations(range(1, len(lengths)), count)
        )
        assert not lengths or cost(actual) == min(map(cost, every))


def test_rows_of_one_length_need_no_mask() -> None:
    masks = []

    def network(ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        masks.append(mask_BL)
        return ids_BL.float()

    assert len(list(batcher(40).outputs([[7, 8]] * 3, network))) == 3
    assert masks == [None]


def test_only_texts_longer_than_the_input_are_counted_as_read_in_windows() -> None:
    """Two of the tokens of an input are special."""
    assert [batcher(10).count_windowed([tokens]) for tokens in (0, 7, 8, 9, 100)] == [0, 0, 0, 1, 1]


def test_inputs_too_short_for_any_text_are_refused() -> None:
    with pytest.raises(CheckpointError, match="inputs of 2 tokens are too short for any text"):
        batcher(2)


@pytest.mark.parametrize(("texts", "error", "message"), [
    ("a text", TypeError, r"give a list of texts: \['a text'\]"),
    (iter(["a text"]), TypeError, r"not an iterator: list\(texts\)"),
    (["one", None], TypeError, "text 2 is None, not a string"),
    ([("one", "two")], TypeError, r"text 1 is \('one', 'two'\), not a string"),
    (["one", "t\ud800o"], DataError, "text 2: broken Unicode at character 2; it must be valid UTF-8"),
])  # fmt: skip
def test_what_is_no_list_of_texts_is_refused(texts: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_texts(texts)  # type: ignore[arg-type]


def test_the_parts_of_a_text_are_texts() -> None:
    check_texts(["one", ("two", "three"), ["a", "b", "ü"]], parts=True)
    with pytest.raises(DataError, match="text 1: broken Unicode at character 1"):
        check_texts([("two", "\udce9")], parts=True)

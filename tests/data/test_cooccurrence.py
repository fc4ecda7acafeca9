"""Token embeddings from counts: similar tokens have similar embeddings."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from electra.data.cooccurrence import cooccurrence_table
from electra.data.shards import Split


@dataclass(frozen=True)
class Tokens:
    tokens: npt.NDArray[np.uint16]


def split(*shards: npt.NDArray[np.int64]) -> Split:
    return Split([Tokens(shard.astype(np.uint16)) for shard in shards])  # type: ignore[list-item]


def sentences(count: int, seed: int) -> npt.NDArray[np.int64]:
    """article (5, 6), noun (10-19), verb (20-29), stop (7), again and again."""
    random = np.random.default_rng(seed)
    rows = [random.integers(low, high, count) for low, high in ((5, 7), (10, 20), (20, 30), (7, 8))]
    return np.stack(rows, 1).ravel()


def test_tokens_of_one_kind_are_similar_and_the_product_predicts_the_next() -> None:
    table = cooccurrence_table(split(sentences(4000, 0), sentences(4000, 1)), vocabulary_size=40, size=8)
    direction = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-9)
    alike = direction @ direction.T
    assert alike[10:20, 10:20].min() > 0.9 > 0.6 > alike[10:20, 20:30].max()
    follows = table[:, :4] @ table[:, 4:].T
    assert follows[10:20, 20:30].mean() > follows[20:30, 10:20].mean() + 1.0  # verbs follow nouns, not the reverse


def test_rows_have_equal_norms_and_missing_tokens_have_zeros() -> None:
    table = cooccurrence_table(split(sentences(1000, 0)), vocabulary_size=40, size=8)
    norms = np.linalg.norm(table, axis=1)
    assert np.allclose(norms[10:30], np.sqrt(8), rtol=1e-5)
    assert not norms[30:].any() and not norms[:5].any()
    assert table.dtype == np.float32 and table.shape == (40, 8)


def test_it_equals_the_plain_version() -> None:
    ids = np.random.default_rng(0).geometric(0.2, 3000).clip(max=10) - 1
    counts_VV = np.zeros((10, 10))
    for distance in (1, 2):
        for first, second in zip(ids[:-distance], ids[distance:], strict=True):
            counts_VV[first, second] += 1 / distance
    by_second_V = counts_VV.sum(0) ** 0.75
    expected_VV = np.outer(counts_VV.sum(1), by_second_V / by_second_V.sum())
    left, values, right = np.linalg.svd(np.log(np.maximum(counts_VV, 1e-99) / expected_VV).clip(min=0))
    plain = np.concatenate([left * np.sqrt(values), right.T * np.sqrt(values)], 1)
    plain *= np.sqrt(20) / np.linalg.norm(plain, axis=1, keepdims=True)
    table = cooccurrence_table(split(ids), vocabulary_size=10, size=20)
    assert np.allclose(table @ table.T, plain @ plain.T, rtol=1e-3, atol=1e-3)  # signs of vectors are arbitrary


def test_it_is_the_same_every_time() -> None:
    one, two = (cooccurrence_table(split(sentences(500, 0)), vocabulary_size=40, size=8) for _ in range(2))
    assert np.array_equal(one, two)

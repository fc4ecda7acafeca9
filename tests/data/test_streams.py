"""Windows of a stream: every token once in its order, and rows that continue from batch to batch."""

import numpy as np
import pytest

from electra.data.packing import PackingConfig, pack
from electra.data.streams import SEPARATOR, StreamOrder
from electra.errors import ConfigError

SEPARATE = -1
rng = np.random.default_rng(0)


def read(lengths: list[list[int]], length: int) -> tuple[list[list[int]], list[int]]:
    """Return the windows of documents with sentences of these lengths, and the whole stream."""
    sentences = np.array([n for document in lengths for n in document], np.int64)
    document_ends = np.cumsum(np.array([len(document) for document in lengths], np.int64))
    config = PackingConfig(builder="stream", sequence_length=length)
    shard = pack(np.cumsum(sentences), document_ends, config, rng=rng)
    assert np.array_equal(shard.segment_ends[:, 0], shard.segment_ends[:, 1])
    windows, first = [], 0
    for past in shard.segment_ends[:, 0].tolist():
        tokens: list[int] = []
        for start, count in shard.spans[first:past].tolist():
            tokens += [SEPARATE] if start == SEPARATOR else range(start, start + count)
        windows.append(tokens)
        first = past
    stream, token = [], 0
    for document in lengths:
        if count := sum(document):
            stream += [*range(token, token + count), SEPARATE]
            token += count
    return windows, stream


@pytest.mark.parametrize("length", [13, 14, 20, 33])
@pytest.mark.parametrize(
    "lengths",
    [
        [[5, 8], [1], [30, 0, 40], [13], [12]],
        [[0], [], [13], [0], [26], [12], [27]],
        [[12], [12], [12], [13]],
        rng.integers(0, 40, (30, 3)).tolist(),
    ],
)
def test_windows_are_the_stream_each_with_the_next_token(lengths: list[list[int]], length: int) -> None:
    windows, stream = read(lengths, length)
    assert len(windows) == (len(stream) - 1) // length
    for number, window in enumerate(windows):
        assert window == stream[number * length : number * length + length + 1]


@pytest.mark.parametrize("lengths", [[], [[]], [[0]], [[5]], [[12]], [[6], [5]]])
def test_too_little_text_gives_no_window(lengths: list[list[int]]) -> None:
    assert read(lengths, 13)[0] == []


def test_a_row_continues_and_starts_again_after_an_epoch() -> None:
    order = StreamOrder(windows=23, batch_size=4)
    epochs, windows = order.locate(np.arange(4 * 12), seed=3)
    by_step = windows.reshape(12, 4)
    assert np.array_equal(by_step[0], [0, 5, 10, 15])
    for step in range(1, 12):
        assert order.restarts(step) == (step % 5 == 0)
        assert np.array_equal(by_step[step], by_step[0] if step % 5 == 0 else by_step[step - 1] + 1)
    assert np.array_equal(epochs, np.arange(48) // 20)
    assert order.epochs(30) == 1.5


def test_fewer_windows_than_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"3 windows, fewer than the 4 rows .* a smaller train\.batch_size"):
        StreamOrder(windows=3, batch_size=4)
    assert StreamOrder(windows=4, batch_size=4).steps == 1

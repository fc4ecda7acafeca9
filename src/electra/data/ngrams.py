"""Which tokens stand between which two tokens in the training text, as one sorted array.

Shapes: M places in the text, V vocabulary.
"""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from electra.data.shards import Split

TOKENS = 8_000_000
"""Number of tokens that are read, from the beginning of the training part. Each takes 8 bytes in memory."""


def trigram_table(split: Split, *, size: int, special: Collection[int]) -> npt.NDArray[np.int64]:
    """Return the trigrams of a text, sorted by first token, then last, then middle one (M), int64.

    The trigram (a, b, c) is stored as (a × size + c) × size + b. So all tokens that follow `a`, and among them all
    that stand between `a` and `c`, are next to each other, each as often as in the text: an element drawn
    uniformly from such a range is a draw from the distribution of the text.

    Args:
        size: a number above all token ids, up to 2,000,000.
        special: ids of special tokens; trigrams with one in the middle are left out.
    """
    codes, count = [], 0
    for shard in split.shards:
        ids = np.asarray(shard.tokens[: TOKENS - count], dtype=np.int64)
        count += len(ids)
        is_text = ~np.isin(ids[1:-1], list(special))
        codes.append(((ids[:-2] * size + ids[2:]) * size + ids[1:-1])[is_text])
    table_M = np.concatenate(codes)
    table_M.sort()
    return table_M

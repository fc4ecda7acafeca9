"""Which tokens stand between which two tokens in the training text, as one sorted array.

Shapes: M places in the text, V vocabulary.
"""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from electra.data.shards import Split
from electra.errors import DataError

TOKENS = 8_000_000
"""Number of tokens that are read, in proportion from the beginning of each shard. Each takes 8 bytes in memory."""
LARGEST_VOCABULARY = 2_000_000
"""The code of a trigram would not fit into 64 bits beyond."""


def trigram_table(split: Split, *, size: int, special: Collection[int]) -> npt.NDArray[np.int64]:
    """Return the trigrams of a text, sorted by first token, then last, then middle one (M), int64.

    The trigram (a, b, c) is stored as (a × size + c) × size + b. So all tokens that follow `a`, and among them all
    that stand between `a` and `c`, are next to each other, each as often as in the text: an element drawn
    uniformly from such a range is a draw from the distribution of the text.

    Args:
        size: a number above all token ids.
        special: ids of special tokens; trigrams with one in the middle are left out.

    Raises:
        DataError: the text has no trigram, or the vocabulary is too large.
    """
    if size > LARGEST_VOCABULARY:
        raise DataError(
            f"a vocabulary of {size:,} entries is too large for trigrams (at most {LARGEST_VOCABULARY:,}); "
            "choose other objective.fakes"
        )
    share = min(1.0, TOKENS / max(split.tokens, 1))
    codes = [np.zeros(0, dtype=np.int64)]
    for shard in split.shards:
        ids = np.asarray(shard.tokens[: round(share * len(shard.tokens))], dtype=np.int64)
        is_text = ~np.isin(ids[1:-1], list(special))
        codes.append(((ids[:-2] * size + ids[2:]) * size + ids[1:-1])[is_text])
    table_M = np.concatenate(codes)
    if not len(table_M):
        raise DataError(
            "the training text has no three tokens in a row to draw replaced tokens from; give it more text"
        )
    table_M.sort()
    return table_M

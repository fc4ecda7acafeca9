"""Token embeddings from co-occurrence counts: a factorization of which tokens follow each other closely.

A network that starts from random embeddings spends its first million tokens on learning which words are similar
and which occur together. Counting shows it in seconds (Levy and Goldberg, "Neural Word Embedding as Implicit
Matrix Factorization", 2014).

Shapes: V vocabulary, E embedding size.
"""

import mmap

import numpy as np
import numpy.typing as npt

from electra.data.shards import Split
from electra.errors import ConfigError

WINDOW = 2
"""Maximum distance of two tokens that are counted as close."""
TOKENS = 4_000_000
"""Number of tokens that are counted, from the beginning of the training part."""
SMOOTHING = 0.75
"""Power of the counts of the second token: otherwise rare tokens would weigh too much (Levy et al. 2015, 3.1)."""
CHUNK = 1_000_000
"""Tokens that are counted at once."""
ADDRESS_SPACE = 768 << 20
"""Bytes that must be free for scipy and scikit-learn. With less, their OpenBLAS can wait forever for memory."""


def cooccurrence_table(split: Split, *, vocabulary_size: int, size: int) -> npt.NDArray[np.float32]:
    """Return embeddings (V, E) from the positive pointwise mutual information of "a, then b".

    The first half of a row describes what follows the token, the second half what precedes it: the left and the
    right vectors of the leading singular triples, each times the root of the singular value. So the product of the
    first half of a and the second half of b is how much more often than by chance b follows a. A masked language
    model needs this to predict a neighbor. Every row has the same norm, the root of E, so that frequent tokens do
    not dominate; tokens that do not occur get rows of zeros.

    Raises:
        ConfigError: a limit leaves less than `ADDRESS_SPACE`.
    """
    _require_address_space()
    from scipy.sparse import csr_matrix, diags
    from sklearn.utils.extmath import randomized_svd

    counts_VV = csr_matrix((vocabulary_size, vocabulary_size), dtype=np.float64)
    counted = 0
    for shard in split.shards:
        for start in range(0, min(len(shard.tokens), TOKENS - counted), CHUNK):
            ids = np.asarray(shard.tokens[start : start + CHUNK], dtype=np.int64)
            for distance in range(1, WINDOW + 1):
                pairs = (ids[:-distance], ids[distance:])
                weights = np.full(len(pairs[0]), 1.0 / distance)
                counts_VV += csr_matrix((weights, pairs), shape=counts_VV.shape)
        counted += len(shard.tokens)
        if counted >= TOKENS:
            break
    total = max(float(counts_VV.sum()), 1.0)
    first_V = np.asarray(counts_VV.sum(1)).ravel()
    second_V = np.asarray(counts_VV.sum(0)).ravel() ** SMOOTHING
    second_V *= total / max(float(second_V.sum()), 1.0)
    by_first_VV, by_second_VV = (diags(1.0 / np.maximum(counts, 1e-12)) for counts in (first_V, second_V))
    information_VV = (by_first_VV @ counts_VV @ by_second_VV * total).tocsr()
    information_VV.data = np.maximum(np.log(information_VV.data), 0.0)
    information_VV.eliminate_zeros()
    half = min(size // 2, vocabulary_size)
    left_VE, values_E, right_EV = randomized_svd(information_VV, n_components=half, n_iter=4, random_state=0)
    roots_E = np.sqrt(values_E)
    table_VE = np.zeros((vocabulary_size, size))
    table_VE[:, :half], table_VE[:, half : 2 * half] = left_VE * roots_E, right_EV.T * roots_E
    norms_V1 = np.linalg.norm(table_VE, axis=1, keepdims=True)
    return (table_VE * np.sqrt(size) / np.where(norms_V1 > 1e-6, norms_V1, np.inf)).astype(np.float32)


def _require_address_space() -> None:
    """Check that a limit (`ulimit -v`) leaves enough for the libraries. Nothing is used by this.

    Raises:
        ConfigError: it does not.
    """
    try:
        mmap.mmap(-1, ADDRESS_SPACE).close()
    except OSError as error:
        raise ConfigError(
            f"init.token_table: cooccurrence needs {ADDRESS_SPACE >> 20} MiB of address space, and there is not "
            "enough memory; allow more (ulimit -v), or set init.token_table to random, which needs none"
        ) from error

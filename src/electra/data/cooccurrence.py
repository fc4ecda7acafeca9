"""A token table from counts: which tokens stand near each other, factorised.

A network that starts from random embeddings first spends a million tokens on learning which words are alike.
Counting tells it in seconds (Levy and Goldberg, "Neural Word Embedding as Implicit Matrix Factorization", 2014).

Shapes: V vocabulary, E embedding size.
"""

import numpy as np
import numpy.typing as npt

from electra.data.shards import Split

WINDOW = 2
"""Tokens to either side that count as near."""
TOKENS = 8_000_000
"""As much text is counted, from the beginning of the training part."""
SMOOTHING = 0.75
"""Power of the context counts: rare contexts would otherwise look too telling (Levy et al. 2015, section 3.1)."""
CHUNK = 1_000_000
"""Tokens that are counted at once."""


def cooccurrence_table(split: Split, *, vocabulary_size: int, size: int) -> npt.NDArray[np.float32]:
    """Embeddings (V, E) of every token: the positive pointwise mutual information of near tokens, factorised.

    Rows are E leading left singular vectors, each times the root of its singular value, so that two rows' product
    approximates how much more often than by chance their tokens meet. The table is scaled to a standard deviation
    of 1. Tokens that were not seen get rows of zeros.
    """
    from scipy.sparse import csr_matrix, diags
    from sklearn.utils.extmath import randomized_svd

    counts_VV = csr_matrix((vocabulary_size, vocabulary_size), dtype=np.float64)
    seen = 0
    for shard in split.shards:
        for start in range(0, min(len(shard.tokens), TOKENS - seen), CHUNK):
            ids = np.asarray(shard.tokens[start : start + CHUNK], dtype=np.int64)
            for distance in range(1, WINDOW + 1):
                ones = np.ones(len(ids) - distance)
                pairs = (ids[:-distance], ids[distance:])
                counts_VV += csr_matrix((ones, pairs), shape=counts_VV.shape)
        seen += len(shard.tokens)
        if seen >= TOKENS:
            break
    counts_VV = (counts_VV + counts_VV.T).tocsr()
    token_V = np.asarray(counts_VV.sum(1)).ravel()
    context_V = token_V**SMOOTHING
    context_V *= token_V.sum() / max(context_V.sum(), 1.0)
    inverse = [diags(1.0 / np.maximum(weights, 1e-12)) for weights in (token_V, context_V)]
    information_VV = (inverse[0] @ counts_VV @ inverse[1] * token_V.sum()).tocsr()
    information_VV.data = np.maximum(np.log(information_VV.data), 0.0)
    information_VV.eliminate_zeros()
    left_VE, values_E, _ = randomized_svd(information_VV, n_components=size, n_iter=4, random_state=0)
    table_VE = left_VE * np.sqrt(values_E)
    return (table_VE / max(float(table_VE.std()), 1e-12)).astype(np.float32)

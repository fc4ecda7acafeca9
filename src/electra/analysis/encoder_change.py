"""How much of an encoder is left in the network that was continued from it.

Both networks read the same held-out tokens. For each block, a linear map from the states of the continued network
to those of the original, a ridge regression fitted on half of the documents, says on the other half how much of
the original can still be read. The same map from the original's token embeddings says how much of it needs no
blocks. A network from which no more can be read than that has kept the vocabulary and nothing else.

The last blocks always change much, because every objective makes its own last states.

Shapes: N tokens, M tokens for the test, Z layers (the embeddings and each block), D hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
import torch
from numpy.typing import NDArray

from electra.analysis.geometry import linear_cka
from electra.analysis.held_out_text import sample_document_rows
from electra.analysis.layers import LayerReader
from electra.data.shards import Split
from electra.errors import DataError
from electra.export.pretrained import Pretrained

DOCUMENTS, ROW_TOKENS = 64, 128
"""At most so many documents are read, and so many tokens of each: 8,192 tokens, some seconds a network."""
ALPHA = 10.0
"""The penalty of the ridge regression, on standardized states."""

States = NDArray[np.float32]


@dataclass(frozen=True)
class EncoderChange:
    """How far a network is from the one that it was continued from, block by block.

    Attributes:
        similarity: linear CKA of the states of both (`geometry`): 1 if only a rotation and a scale have changed.
        recovered: the share of the variance of the original's states that a linear map of the network's states
            predicts, on held-out documents.
        from_tokens: the same for a linear map of the original's token embeddings.
    """

    similarity: tuple[float, ...]
    recovered: tuple[float, ...]
    from_tokens: tuple[float, ...]

    @property
    def overwritten(self) -> bool:
        """Whether no more of the original is left than its token embeddings tell."""
        return not mean(self.recovered) > mean(self.from_tokens)

    def __str__(self) -> str:
        blocks = " ".join(f"{100 * max(0.0, share):.0f}" for share in self.recovered)
        return (
            f"{100 * max(0.0, mean(self.recovered)):.0f}% of the original's states can be read from its states "
            f"(by block: {blocks}; from the token embeddings alone {100 * mean(self.from_tokens):.0f}%; "
            f"mean CKA {mean(self.similarity):.2f})"
        )


def measure_encoder_changes(
    original: Pretrained,
    continued: Sequence[Pretrained],
    split: Split,
    *,
    device: str | torch.device | None = None,
) -> list[EncoderChange]:
    """Compare each of the continued networks with the original.

    Args:
        continued: networks with the shape and the vocabulary of `original`.
        split: held-out tokens of that vocabulary.

    Raises:
        DataError: the split has fewer than two documents that are long enough.
    """
    lengths = [network.trained_length or network.max_length for network in (original, *continued)]
    row = min(ROW_TOKENS, *(length - 2 for length in lengths))  # two special tokens
    rows = sample_document_rows(split, documents=DOCUMENTS, length=ROW_TOKENS, row=row, seed=0)
    test_N = np.repeat(rows.documents, [len(ids) for ids in rows.ids]) % 2 == 1
    if not test_N.any():
        raise DataError("the held-out text has only one document that is long enough")
    original_ZND = _states(original, rows.ids, device)

    def recovered(states_ND: States, original_ND: States) -> float:
        return explained_variance(states_ND[~test_N], original_ND[~test_N], states_ND[test_N], original_ND[test_N])

    tokens_ND, *blocks = original_ZND
    from_tokens = tuple(recovered(tokens_ND, block_ND) for block_ND in blocks)
    changes = []
    for network in continued:
        pairs = list(zip(_states(network, rows.ids, device)[1:], blocks, strict=True))
        similarity = tuple(float(linear_cka([ours], [theirs])[0, 0]) for ours, theirs in pairs)
        changes.append(EncoderChange(similarity, tuple(recovered(*pair) for pair in pairs), from_tokens))
    return changes


def explained_variance(x_ND: States, y_ND: States, test_x_MD: States, test_y_MD: States) -> float:
    """The share of the variance of `test_y_MD` that a ridge regression of y on x predicts.

    It is negative if the mean of y is a better prediction.
    """
    mean_D, deviation_D = x_ND.mean(0), x_ND.std(0) + 1e-6
    scaled_ND, scaled_MD = (((x - mean_D) / deviation_D).astype(np.float64) for x in (x_ND, test_x_MD))
    mean_y_D = y_ND.mean(0, dtype=np.float64)
    gram_DD = scaled_ND.T @ scaled_ND + ALPHA * np.eye(len(mean_D))
    weights_DD = np.linalg.solve(gram_DD, scaled_ND.T @ (y_ND - mean_y_D))
    errors_MD = test_y_MD - mean_y_D - scaled_MD @ weights_DD
    deviations_MD = test_y_MD - test_y_MD.mean(0, dtype=np.float64)
    return float(1 - (errors_MD**2).sum() / (deviations_MD**2).sum())


def _states(
    pretrained: Pretrained, rows: list[list[int]], device: str | torch.device | None
) -> NDArray[np.float32]:
    """The states (Z, N, D) of the tokens of all rows."""
    reader = LayerReader(pretrained, device=device)
    states = [np.empty(0, np.float32)] * len(rows)
    for window, row_LZD in reader.batcher.outputs(rows, reader.all_layers):
        states[window.text] = row_LZD[window.kept_in_row]
    return np.ascontiguousarray(np.concatenate(states).swapaxes(0, 1))

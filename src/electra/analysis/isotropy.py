"""How evenly the states of words fill their space, layer by layer.

Shapes: N words, D hidden size.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Isotropy:
    """Figures of the states of one layer.

    Attributes:
        cosine: the mean over all pairs of words (Ethayarajh 2019, section 4.1): 0 where they point everywhere.
        participation: (sum of the covariance's eigenvalues)^2 / sum of their squares: as many dimensions as would
            give that if they were used alike.
        effective_rank: e to the entropy of the eigenvalues' shares (Roy and Vetterli 2007).
        score: IsoScore (Rudman et al. 2022), from 0 (one dimension) to 1 (all alike). Their steps amount to
            (participation - 1) / (D - 1).
        norm: the mean length of a state.
    """

    cosine: float
    participation: float
    effective_rank: float
    score: float
    norm: float

    @classmethod
    def of(cls, states_ND: NDArray[np.float32]) -> "Isotropy":
        """That of the states (N, D) of two words or more."""
        x_ND = states_ND.astype(np.float64)
        N, D = x_ND.shape
        norms_N = np.linalg.norm(x_ND, axis=1)
        units_ND = x_ND / np.maximum(norms_N, 1e-12)[:, None]
        cosine = ((units_ND.sum(0) ** 2).sum() - (norms_N > 0).sum()) / (N * (N - 1))
        spread_D = np.maximum(np.linalg.eigvalsh(np.cov(x_ND, rowvar=False).reshape(D, D)), 0)
        if not spread_D.sum() > 0:  # all words have one state
            return cls(float(cosine), 1.0, 1.0, 0.0, float(norms_N.mean()))
        shares_D = spread_D / spread_D.sum()
        participation = 1 / float((shares_D**2).sum())
        seen = shares_D[shares_D > 0]
        return cls(
            float(cosine), participation, float(np.exp(-(seen * np.log(seen)).sum())),
            (participation - 1) / max(D - 1, 1), float(norms_N.mean()),
        )  # fmt: skip

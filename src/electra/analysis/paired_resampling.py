"""Bootstrap: what would have been measured on other examples of the same kind.

Each resample draws as many examples as there are, with replacement, and is kept as how often it drew each: a sum
over the drawn examples is then a product of matrices, and several figures are taken of the same draws (paired).

Shapes: R resamples, N examples.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def drawn(examples: int, *, resamples: int, generator: np.random.Generator) -> Floats:
    """How often each resample draws each example (R, N); every row sums to N."""
    counts: Floats = generator.multinomial(examples, np.full(examples, 1 / examples), size=resamples).astype(float)
    return counts


def interval(values_R: Floats) -> list[float]:
    """From where to where the middle 95 % of a figure's resamples lie; undefined ones (nan) are left out."""
    low, high = np.nanquantile(values_R, [0.025, 0.975]).tolist()
    return [low, high]

"""What makes a discriminator's probabilities right: a correction of its log-odds, kept beside the model.

It is fitted on text with replaced tokens (`electra.analysis.calibration`), of which more are replaced than are
wrong in real text. For text with another share the log-odds are shifted by the log of the ratio of the prior odds
(Saerens et al. 2002, equation 2.4; Elkan 2001), which is right as far as only the share differs.

Shapes: N tokens, K knots.
"""

import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from electra import durable
from electra.data.shards import file_sha256
from electra.errors import CheckpointError
from electra.export.huggingface import OLD_WEIGHTS, WEIGHTS
from electra.export.loading import find
from electra.export.onnx.graph import is_onnx
from electra.json_files import json_text, read_json, understood

CALIBRATION_FILE = "calibration.json"

CalibrationKind = Literal["none", "temperature", "platt", "isotonic"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """A correction of log-odds.

    Attributes:
        kind: none; temperature: times `slope`; platt: times `slope`, plus `intercept`; isotonic: a rising curve of
            probabilities with straight parts between `knots`.
        prior: the share of replaced tokens in the text that it was fitted on.
        slope, intercept: of temperature and platt.
        knots, heights: log-odds (K,), rising, and the probability at each, inside 0 and 1; of isotonic.
        target_prior: the share that is expected in the text that is read; None: `prior`.
    """

    kind: CalibrationKind
    prior: float
    slope: float = 1.0
    intercept: float = 0.0
    knots: tuple[float, ...] = ()
    heights: tuple[float, ...] = ()
    target_prior: float | None = None

    def __call__(self, log_odds_N: NDArray[np.floating[Any]]) -> Floats:
        """The corrected log-odds (N,)."""
        x_N = np.asarray(log_odds_N, np.float64)
        if self.kind == "isotonic":
            p_N = np.interp(x_N, self.knots, self.heights)
            x_N = np.log(p_N) - np.log1p(-p_N)
        elif self.kind != "none":
            x_N = self.slope * x_N + self.intercept
        return x_N if self.target_prior is None else shift_prior(x_N, self.prior, self.target_prior)

    def with_target_prior(self, prior: float | None) -> "Calibration":
        """The same for text of which another share is wrong."""
        return replace(self, target_prior=prior)

    @classmethod
    def load(cls, model: str | Path) -> "Calibration":
        """That which `electra analyze calibrate --store` put beside a MODEL.

        Raises:
            CheckpointError: there is none, it cannot be read, or it was made for other weights.
        """
        folder = find(model)
        if is_onnx(folder):
            raise CheckpointError(
                f"{model} is an ONNX folder, which takes no {CALIBRATION_FILE}; give the model it was made of"
            )
        file = folder / CALIBRATION_FILE
        if not file.is_file():
            raise CheckpointError(
                f"{model} has no {CALIBRATION_FILE}; make one: electra analyze calibrate {model} "
                "--data DATA --store"
            )
        facts = read_json(file)
        if facts.get("weights") != _weights(folder):
            raise CheckpointError(
                f"{file} was made for other weights than those beside it; make it again: electra analyze "
                f"calibrate {model} --data DATA --store"
            )
        with understood(file):
            named = {field.name: facts[field.name] for field in fields(cls) if field.name != "target_prior"}
            found = cls(**named | {name: tuple(map(float, named[name])) for name in ("knots", "heights")})
            found._check()
        return found

    def _check(self) -> None:
        """Raises a ValueError where the figures are no correction."""
        numbers = (self.slope, self.intercept, *self.knots)
        if self.kind not in ("none", "temperature", "platt", "isotonic") or not all(map(math.isfinite, numbers)):
            raise ValueError(f"kind {self.kind!r}, or its numbers")
        if not all(0 < share < 1 for share in (self.prior, *self.heights)) or len(self.knots) != len(self.heights):
            raise ValueError("a prior, or a height, outside 0 and 1")
        if self.kind == "isotonic" and not self.knots:
            raise ValueError("knots")

    def save(self, model: str | Path) -> Path:
        """Put it beside the weights of a MODEL, which must be a folder; the file that it is in."""
        folder = find(model)
        facts = {name: value for name, value in asdict(self).items() if name != "target_prior"}
        durable.write_text(folder / CALIBRATION_FILE, json_text({**facts, "weights": _weights(folder)}))
        return folder / CALIBRATION_FILE


def shift_prior(log_odds_N: Floats, prior: float, target_prior: float) -> Floats:
    """Log-odds as they are where another share is positive, and nothing else is different."""
    return (
        log_odds_N + (math.log(target_prior) - math.log1p(-target_prior)) - (math.log(prior) - math.log1p(-prior))
    )


def _weights(folder: Path) -> str:
    """The sha256 of a model's weights: a correction is worth nothing with others."""
    return file_sha256(next(path for name in (WEIGHTS, OLD_WEIGHTS) if (path := folder / name).is_file()))

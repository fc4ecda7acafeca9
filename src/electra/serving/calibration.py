"""Calibration of a discriminator: a correction of its log-odds, stored in a file next to the model.

It is fitted on text with replaced tokens (`electra.analysis.calibration`). In such text the share of replaced
tokens is larger than the share of wrong tokens in real text. For text with another share, the log-odds are
shifted by the log of the ratio of the prior odds (Saerens et al. 2002, equation 2.4; Elkan 2001). That is exact
if nothing but the share differs.

Shapes: N tokens, K knots.
"""

import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from electra.data.shards import file_sha256
from electra.errors import CheckpointError
from electra.export.loading import find_model
from electra.export.onnx.graph import is_onnx
from electra.export.weights_file import WEIGHTS
from electra.json_files import raise_if_damaged, read_json, write_json

CALIBRATION_FILE = "calibration.json"

CalibrationKind = Literal["none", "temperature", "platt", "isotonic"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """A correction of log-odds.

    Attributes:
        kind: "none"; "temperature": slope * x; "platt": slope * x + intercept; "isotonic": a piecewise linear,
            increasing function from log-odds to probabilities.
        prior: the share of replaced tokens in the text that it was fitted on.
        slope, intercept: the parameters of temperature and Platt scaling.
        knots, heights: the parameters of isotonic regression: log-odds (K,) in ascending order, and the
            probability at each, above 0 and below 1.
        target_prior: the share that is expected in the text to be scored. None: `prior`.
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
        """The same correction for text in which another share of the tokens is wrong."""
        return replace(self, target_prior=prior)

    @classmethod
    def load(cls, model: str | Path) -> "Calibration":
        """Load the calibration that `electra analyze calibrate --store` saved next to a MODEL.

        Raises:
            CheckpointError: the model has no calibration, the file cannot be read, or it is for other weights.
        """
        folder = find_model(model)
        if is_onnx(folder):
            raise CheckpointError(
                f"{model} is an ONNX folder, which has no {CALIBRATION_FILE}; give the model that it was "
                "exported from"
            )
        file = folder / CALIBRATION_FILE
        if not file.is_file():
            raise CheckpointError(
                f"{model} has no {CALIBRATION_FILE}; create it: electra analyze calibrate {model} "
                "--data DATA --store"
            )
        content = read_json(file)
        if content.get("weights") != _weights(folder):
            raise CheckpointError(
                f"{file} is for other weights than those of the model; create it again: electra analyze "
                f"calibrate {model} --data DATA --store"
            )
        with raise_if_damaged(file):
            values = {field.name: content[field.name] for field in fields(cls) if field.name != "target_prior"}
            calibration = cls(**values | {name: tuple(map(float, values[name])) for name in ("knots", "heights")})
            calibration._check()
        return calibration

    def _check(self) -> None:
        """Raise a ValueError if the values are no correction."""
        numbers = (self.slope, self.intercept, *self.knots)
        if self.kind not in ("none", "temperature", "platt", "isotonic") or not all(map(math.isfinite, numbers)):
            raise ValueError(f"kind {self.kind!r} or its numbers")
        if not all(0 < share < 1 for share in (self.prior, *self.heights)) or len(self.knots) != len(self.heights):
            raise ValueError("a prior or a height that is not between 0 and 1")
        if self.kind == "isotonic" and not self.knots:
            raise ValueError("knots")

    def save(self, model: str | Path) -> Path:
        """Save it next to the weights of a MODEL, which must be a folder. Returns the path of the file."""
        folder = find_model(model)
        content = {name: value for name, value in asdict(self).items() if name != "target_prior"}
        content["weights"] = _weights(folder)
        write_json(folder / CALIBRATION_FILE, content, indent=2, ensure_ascii=False)
        return folder / CALIBRATION_FILE


def shift_prior(log_odds_N: Floats, prior: float, target_prior: float) -> Floats:
    """The log-odds in text with another share of positives that is otherwise the same."""
    return (
        log_odds_N + (math.log(target_prior) - math.log1p(-target_prior)) - (math.log(prior) - math.log1p(-prior))
    )


def _weights(folder: Path) -> str:
    """The SHA-256 of a model's weights, because a correction is valid for these weights only."""
    return file_sha256(folder / WEIGHTS)

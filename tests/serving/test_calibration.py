"""A calibration is saved, loaded, checked, and used by a scorer."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_model import TEXTS, write_model

from electra.errors import CheckpointError
from electra.serving.calibration import CALIBRATION_FILE, Calibration
from electra.serving.scorer import Scorer

PLATT = Calibration("platt", 0.15, 0.5, -0.25)
CURVE = Calibration("isotonic", 0.2, knots=(-1.0, 0.0, 2.0), heights=(0.1, 0.3, 0.8))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "small")


@pytest.mark.parametrize("calibration", [PLATT, CURVE, Calibration("temperature", 0.1, 2.0)])
def test_a_saved_calibration_is_loaded(model: Path, calibration: Calibration) -> None:
    assert calibration.save(model) == model / CALIBRATION_FILE
    assert Calibration.load(model) == calibration
    assert Calibration.load(model.parent) == calibration  # a MODEL can also be the folder above it


def test_corrections_by_hand() -> None:
    x = np.array([-3.0, 0.0, 1.0])
    np.testing.assert_allclose(PLATT(x), [-1.75, -0.25, 0.25])
    np.testing.assert_allclose(1 / (1 + np.exp(-CURVE(x))), [0.1, 0.3, 0.55])
    np.testing.assert_allclose(Calibration("none", 0.15)(x), x)
    # Odds of 3 : 17 in training, of 1 : 19 where it is used.
    np.testing.assert_allclose(np.exp(PLATT.with_target_prior(0.05)(x) - PLATT(x)), (1 / 19) / (3 / 17))


def test_a_scorer_corrects_logits_and_probabilities(model: Path) -> None:
    raw, corrected = Scorer(model, device="cpu")(TEXTS), Scorer(model, device="cpu", calibration=PLATT)(TEXTS)
    for one, other in zip(raw, corrected, strict=True):
        assert other.logits.dtype == np.float32
        np.testing.assert_allclose(other.logits, 0.5 * one.logits - 0.25, atol=1e-6)
        np.testing.assert_allclose(other.probabilities, 1 / (1 + np.exp(-other.logits)), atol=1e-6)


def test_a_missing_calibration_has_a_hint(model: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no calibration.json; create it: electra analyze calibrate"):
        Calibration.load(model)


def test_a_calibration_of_other_weights_is_refused(model: Path, tmp_path: Path) -> None:
    PLATT.save(model)
    with (model / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    with pytest.raises(CheckpointError, match="is for other weights"):
        Calibration.load(model)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"prior": 0},
        {"slope": "steep"},
        {"slope": None},
        {"knots": 5},
        {"kind": "isotonic"},
        {"heights": [0.5]},
    ],
)
def test_a_damaged_file_is_refused(model: Path, change: dict[str, object]) -> None:
    PLATT.save(model)
    fields = json.loads((model / CALIBRATION_FILE).read_text())
    (model / CALIBRATION_FILE).write_text(json.dumps(fields | change))
    with pytest.raises(CheckpointError, match="a file is damaged"):
        Calibration.load(model)
    (model / CALIBRATION_FILE).write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Calibration.load(model)

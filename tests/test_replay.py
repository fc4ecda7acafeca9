"""Recorded steps of google-research/electra, replayed (benchmarks/replay.py)."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from electra.pretraining.config import build_objective

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests/golden"


@pytest.fixture
def replaying(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("replay")


@pytest.mark.parametrize("name", ["electra", "electra_all_tied", "mlm", "electric"])
def test_five_steps_are_those_of_the_original(replaying: ModuleType, name: str) -> None:
    rows = {row.name: row for row in replaying.replay(RECORDED / name)}
    assert rows["final parameters"].tensors > 30 and rows["total_loss"].tensors == 5
    assert rows["gradients"].tensors == rows["final parameters"].tensors
    for row in rows.values():
        assert row.difference < 1e-5, row


def altered(folder: Path, out: Path, *, name: str, change: float) -> Path:
    """A copy of a recording with one number changed."""
    out.mkdir()
    (out / "config.json").write_text((folder / "config.json").read_text())
    with np.load(folder / "replay.npz") as stored:
        arrays = {key: stored[key] for key in stored.files}
    arrays[name] = arrays[name].copy()
    arrays[name].flat[0] += change * np.abs(arrays[name]).max()
    np.savez(out / "replay.npz", **arrays)
    return out


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("step2/mlm_logits", "mlm_logits"),
        ("step4/disc_probs", "disc_probs"),
        ("step0/grad/electra/encoder/layer_1/output/dense/kernel", "gradients"),
        ("step0/grad/generator_predictions/LayerNorm/gamma", "gradients"),
        ("final/electra/embeddings/position_embeddings", "final parameters"),
    ],
)
def test_a_single_changed_number_is_detected(replaying: ModuleType, tmp_path: Path, name: str, row: str) -> None:
    folder = altered(RECORDED / "electra", tmp_path / "altered", name=name, change=1e-3)
    rows = {actual.name: actual for actual in replaying.replay(folder)}
    assert rows.pop(row).difference > 5e-4
    assert all(actual.difference < 1e-5 for actual in rows.values())


@pytest.mark.parametrize("kind", ["electra", "electric"])
def test_a_generator_with_embeddings_of_its_own_has_their_names_and_width(
    replaying: ModuleType, kind: str
) -> None:
    settings = json.loads((RECORDED / kind / "config.json").read_text()) | {"untied_generator_embeddings": True}
    towers = ["generator"] if kind == "electra" else ["generator_ltr", "generator_rtl"]
    tables = {f"init/{tower}/embeddings/word_embeddings": np.zeros((400, 16)) for tower in towers}
    objective = build_objective(replaying.settings_of(settings, tables), replaying.SPECIAL)
    actual = {name: parameter for parameter, names in replaying.names(objective) for name in names}
    for tower in towers:
        assert actual[f"{tower}/embeddings/word_embeddings"].shape == (400, 16)
        assert actual[f"{tower}/embeddings/LayerNorm/gamma"].shape == (16,)
        assert f"{tower}/embeddings_project/kernel" not in actual  # as wide as the generator


def test_settings_are_those_of_the_recording(replaying: ModuleType) -> None:
    settings = json.loads((RECORDED / "electra" / "config.json").read_text())
    settings |= {"generator_hidden_size": 0.5, "generator_layers": 0.5, "mask_prob": 0.25, "temperature": 0.7}
    config = replaying.settings_of(settings | {"disallow_correct": True, "disc_weight": 10.0}, {})
    assert (config.generator.hidden_size, config.generator.layers) == (32, 1)
    assert (config.masking.share, config.objective.temperature) == (0.25, 0.7)
    assert config.objective.disallow_correct and config.objective.discriminator_weight == 10.0
    assert config.objective.kind == "replaced-token"

"""The study of electra-plus compares the presets that users take."""

from dataclasses import asdict
from pathlib import Path

import pytest

from electra.pretraining.config import load_config
from electra.studies.config import load_study


@pytest.mark.parametrize("size", ["nano", "tiny", "mini"])
@pytest.mark.parametrize(("arm", "preset"), [("plus", "electra-plus"), ("electra", "electra")])
def test_arms_are_the_presets(arm: str, preset: str, size: str, tmp_path: Path) -> None:
    study = load_study("recipe", base=f"electra-{size}")
    file = tmp_path / "arm.toml"
    file.write_text(study.arm_toml(next(one for one in study.arms if one.name == arm), tmp_path))
    run = {"data": "data", "out": "out", "train.steps": 10}
    assert asdict(load_config(str(file), run)) == asdict(load_config(f"{preset}-{size}", run))


def test_other_arms_of_the_new_network_differ_from_it_in_the_objective_and_masks_only(tmp_path: Path) -> None:
    study, configs = load_study("recipe"), {}
    for arm in study.arms:
        file = tmp_path / f"{arm.name}.toml"
        file.write_text(study.arm_toml(arm, tmp_path))
        configs[arm.name] = asdict(load_config(str(file), {"data": "data", "out": "out", "train.steps": 10}))
    for name in ("generator", "masked-lm"):
        different = {section for section, value in configs["plus"].items() if configs[name][section] != value}
        assert different == {"objective", "masking"}

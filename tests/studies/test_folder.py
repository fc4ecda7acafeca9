"""study.json: the settings of arms that are stored, and studies that an earlier version began."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from electra.config import load_config, overrides_of
from electra.data.shards import TokenData
from electra.errors import CheckpointError
from electra.pretraining.config import PretrainConfig
from electra.studies.arms import ArmConfigs, StudySetup, load_arm_config
from electra.studies.config import Contrast, load_study, study_names
from electra.studies.folder import _changed_settings, check_matches, open_study

ARCHIVES = Path(__file__).parents[2] / "docs/studies"


@pytest.mark.parametrize("name", study_names())
def test_the_stored_settings_of_every_packaged_arm_give_its_config(name: str, tmp_path: Path) -> None:
    study = load_study(name)
    for arm in study.arms:
        (path := tmp_path / f"{arm.name}.toml").write_text(study.arm_toml(arm, tmp_path))
        config = load_config(PretrainConfig, path, ["model.vocabulary_size=400"])
        assert load_config(PretrainConfig, overrides=overrides_of(_changed_settings(config))) == config


def _archive(name: str, tmp_path: Path, arms: tuple[str, ...]) -> tuple[StudySetup, ArmConfigs, dict[str, Any]]:
    """A study whose archive is in docs/studies, with the configs of some arms as they are now."""
    stored = json.loads((ARCHIVES / name / "runs.jsonl").read_text(encoding="utf-8").splitlines()[0])
    base = str(ARCHIVES / name / stored["base"]) if stored["base"].endswith(".toml") else stored["base"]
    study = replace(load_study(stored["study"]).with_arms(arms), base=base)
    setup = StudySetup(
        out=ARCHIVES / name, study=study, data=tmp_path, budget=stored["budget"], flops=stored["flops"],
        tasks=None, suite=(), task_seeds=1,
    )  # fmt: skip
    configs = {}
    for arm in study.arms:
        shape = {"model.vocabulary_size": stored["arms"][arm.name]["settings"]["model.vocabulary_size"]}
        configs[arm.name] = load_arm_config(setup, arm, {"train.steps": 1_000, **shape}, folder=tmp_path)
    return setup, configs, stored


@pytest.mark.parametrize(
    ("name", "arms"),
    [
        ("albert", ()),
        ("budget", ()),
        ("encoders", ("bert", "roberta", "albert", "transformer-xl", "xlnet", "xlnet-memory")),
        ("recurrence", ()),
        ("roberta", ("bert", "dynamic", "full-sentences")),
        ("training-algorithm", ()),
    ],
)
def test_a_study_that_an_earlier_version_began_can_be_continued(
    name: str, arms: tuple[str, ...], tmp_path: Path
) -> None:
    """It has model.positions in place of model.kind, and settings of other objectives."""
    setup, configs, stored = _archive(name, tmp_path, arms)
    data = cast(TokenData, SimpleNamespace(fingerprint=stored["data"]))
    check_matches(setup, configs, data, stored)
    arm = setup.study.control
    before = stored["arms"][arm]["settings"]["optimizer.warmup_steps"]
    assert configs[arm].optimizer.warmup(500) == before == 100
    stored["arms"][arm]["settings"]["masking.share"] = 0.3
    with pytest.raises(CheckpointError, match=rf"runs of another arm {arm}.*\n  masking\.share: 0\.3 before"):
        check_matches(setup, configs, data, stored)


def test_stored_settings_that_are_no_longer_valid_are_named(tmp_path: Path) -> None:
    setup, configs, stored = _archive("budget", tmp_path, ())
    stored["arms"]["bert"]["settings"]["masking.shore"] = 0.3
    with pytest.raises(CheckpointError, match=r"masking\.shore: 0\.3 before, the default now"):
        check_matches(setup, configs, cast(TokenData, SimpleNamespace(fingerprint=stored["data"])), stored)


def test_a_study_that_is_continued_gets_the_contrasts_of_its_file(tmp_path: Path) -> None:
    setup, configs, stored = _archive("budget", tmp_path, ())
    data = cast(TokenData, SimpleNamespace(fingerprint=stored["data"]))
    (out := tmp_path / "out").mkdir()
    (out / "study.json").write_text(json.dumps(stored), encoding="utf-8")
    gain = Contrast("gain", "of ELECTRA", (setup.study.arms[1].name,), (setup.study.control,))
    open_study(replace(setup, out=out, study=replace(setup.study, contrasts=(gain,))), configs, data)
    written = json.loads((out / "study.json").read_text(encoding="utf-8"))["contrasts"]
    assert written == {"gain": {"says": "of ELECTRA", "plus": list(gain.plus), "minus": list(gain.minus)}}

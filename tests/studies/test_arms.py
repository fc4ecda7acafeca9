"""The config of an arm."""

from pathlib import Path

from electra.studies.arms import StudySetup, load_arm_config
from electra.studies.config import load_study
from electra.studies.finetuning import finetune_config

STUDY = """title = "two"
base = "electra-nano"
control = "one"
[arms.one]
says = "one"
[arms.one.set]
"tracking.on_event" = "touch broken"
[arms.two]
says = "two"
"""


def test_a_study_starts_no_command_of_its_files(tmp_path: Path) -> None:
    (path := tmp_path / "mine.toml").write_text(STUDY)
    study = load_study(str(path))
    setup = StudySetup(
        out=tmp_path / "out", study=study, data=tmp_path, budget=1e9, flops=1e9, tasks=tmp_path, suite=(),
        task_seeds=1, finetune_settings=("tracking.on_event=touch broken",),
    )  # fmt: skip
    arm = load_arm_config(setup, study.arms[0], {}, folder=tmp_path / "arms")
    assert arm.tracking.on_event == "" and 'on_event = "touch broken"' in (tmp_path / "arms/one.toml").read_text()
    assert finetune_config(setup, "cola", model=tmp_path, out=tmp_path / "task").tracking.on_event == ""


def test_the_device_is_that_of_the_arm_before_that_of_the_study(tmp_path: Path) -> None:
    (path := tmp_path / "mine.toml").write_text(
        STUDY.replace('"tracking.on_event" = "touch broken"', '"train.device" = "cpu"')
    )
    study = load_study(str(path))
    setup = StudySetup(
        out=tmp_path / "out", study=study, data=tmp_path, budget=1e9, flops=1e9, tasks=None, suite=(),
        task_seeds=1, device="mps",
    )  # fmt: skip
    configs = [load_arm_config(setup, arm, {}, folder=tmp_path / "arms") for arm in study.arms]
    assert [config.train.device for config in configs] == ["cpu", "mps"]

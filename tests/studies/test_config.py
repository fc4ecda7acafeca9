"""Studies as TOML files: the files that they name."""

from pathlib import Path

import pytest

from electra.studies.config import load_study

STUDY = """title = "one"
base = "base.toml"
control = "one"
[arms.one]
says = "one"
"""


def test_a_study_finds_its_base_beside_it_and_the_command_line_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "base.toml").write_text('extends = "electra-nano"\n')
    (tmp_path / "there/mine.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path / "here")
    assert load_study("../there/mine.toml").base == str(tmp_path / "there/base.toml")
    assert load_study("../there/mine.toml", base="base.toml").base == str(tmp_path / "here/base.toml")


def test_an_arm_has_its_place_in_the_picture(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('extends = "electra-nano"\n')
    (path := tmp_path / "mine.toml").write_text(STUDY + 'line = "by width"\nx = 0.25\n')
    [arm] = load_study(str(path)).arms
    assert (arm.line, arm.x) == ("by width", 0.25)

"""Checks of the settings of a run that need no torch."""

from dataclasses import fields
from pathlib import Path

import pytest

from electra.config import COMMAND_LINE, load_config
from electra.config_fields import OTHER_NAMES, hint_for_other_section, settings
from electra.errors import ConfigError
from electra.pretraining.config import PretrainConfig
from electra.pretraining.early_check import SECTIONS_WITH_TORCH, EarlyConfig, check_early


def test_it_knows_the_fields_of_a_run() -> None:
    of_run, early = ({field.name: field.type for field in fields(cls)} for cls in (PretrainConfig, EarlyConfig))
    assert list(early) == list(of_run)
    assert {name for name in early if early[name] != of_run[name]} == SECTIONS_WITH_TORCH


@pytest.mark.parametrize(
    "overrides",
    [
        ["optimiser.x=3"],
        ["optimizer.lr=3", "trian.steps=5", "packing.builder=nope"],
        ["train.steps"],
        ["learning_rate=1"],
        ["train.precision=fp16", "masking.share=2"],
    ],
)
def test_it_says_what_the_whole_check_says(overrides: list[str]) -> None:
    with pytest.raises(ConfigError) as whole:
        load_config(PretrainConfig, "electra-tiny", overrides, overrides_from=COMMAND_LINE)
    with pytest.raises(ConfigError) as early:
        check_early("electra-tiny", overrides)
    assert str(early.value) == str(whole.value)


def test_names_without_a_section_get_the_hint_of_the_whole_check() -> None:
    names = {setting.name.rpartition(".")[2] for setting in settings(PretrainConfig)} | OTHER_NAMES.keys()
    refused = 0
    for name in names - {field.name for field in fields(PretrainConfig)}:
        try:
            check_early("electra-tiny", [f"{name}=1"])
        except ConfigError as error:
            hint = hint_for_other_section(PretrainConfig, name)
            assert f"{name}: there is no such setting{hint}" in str(error)
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("other", ["model.nope=1", "hidden_size=64"])
def test_problems_that_only_the_whole_check_knows_are_left_to_it(other: str, tmp_path: Path) -> None:
    """All problems are shown together."""
    check_early("electra-tiny", ["optimizer.lr=3", other])
    (tmp_path / "mine.toml").write_text('extends = "electra-tiny"\n[objective]\nnope = 1\n')
    check_early(tmp_path / "mine.toml", ["optimizer.lr=3"])


def test_a_file_without_these_sections_is_checked(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "electra-tiny"\n[train]\nstpes = 1\n')
    with pytest.raises(ConfigError, match=r"train.stpes: there is no such setting; did you mean --train.steps\?"):
        check_early(tmp_path / "mine.toml", [])

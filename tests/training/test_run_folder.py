"""A run can only be resumed with its own config."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from electra import durable
from electra.config import load_config, to_toml
from electra.errors import CheckpointError, ConfigError
from electra.pretraining.config import PretrainConfig
from electra.training.run_folder import RunFolder, check_out_folder, open_run, require_same_config, stored_config


@dataclass(frozen=True)
class Section:
    steps: int | None = None
    """Length."""
    rate: float = 0.1
    """Speed."""


@dataclass(frozen=True)
class Settings:
    data: Path = Path("here")
    """Where the data lies."""
    train: Section = field(default_factory=Section)


def test_a_new_folder_is_made_and_found_again(tmp_path: Path) -> None:
    run = open_run(tmp_path / "a" / "run", fresh=False)
    durable.write_text(run.config, to_toml(Settings()))
    assert open_run(tmp_path / "a" / "run", fresh=False) == run


def test_fresh_starts_beside_and_deletes_nothing(tmp_path: Path) -> None:
    first = open_run(tmp_path / "run", fresh=True)
    durable.write_text(first.config, "kept")
    second, third = open_run(tmp_path / "run", fresh=True), open_run(tmp_path / "run", fresh=True)
    assert [run.path.name for run in (first, second, third)] == ["run", "run-2", "run-3"]
    assert first.config.read_text() == "kept"


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"not empty and is not a run \(it has thesis\.tex\)"):
        open_run(tmp_path, fresh=False)


@pytest.mark.parametrize("below", ["", "run", "a/run"])
def test_a_file_and_a_path_below_one_are_refused(tmp_path: Path, below: str) -> None:
    (file := tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=f"^{file} is a file; give another --out"):
        check_out_folder(RunFolder(file / below))


def test_a_folder_without_permission_to_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda folder, mode: not (folder == tmp_path and mode == os.W_OK))
    with pytest.raises(CheckpointError, match=f"^{tmp_path}: there is no permission to write here; give another"):
        open_run(tmp_path / "new" / "run", fresh=False)


def test_open_settings_agree_with_the_values_of_the_run(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", fresh=False)
    stored = Settings(train=Section(steps=500))
    durable.write_text(run.config, to_toml(stored))
    wanted = Settings(data=Path("elsewhere"))
    assert require_same_config(run, wanted, settled={"train.steps": None}, ignore=("data",)) == replace(
        stored, data=wanted.data
    )


def test_every_difference_is_listed(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", fresh=False)
    durable.write_text(run.config, to_toml(Settings(train=Section(steps=500))))
    wanted = replace(Settings(), train=Section(steps=600, rate=0.2))
    with pytest.raises(CheckpointError) as caught:
        require_same_config(run, wanted, settled={"train.steps": None}, ignore=("data",))
    assert "train.steps: the run has 500, asked for 600" in str(caught.value)
    assert "train.rate: the run has 0.1, asked for 0.2" in str(caught.value)
    assert "--fresh" in str(caught.value)


def test_a_setting_without_a_value_is_not_called_none(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", fresh=False)
    durable.write_text(run.config, to_toml(Settings(train=Section(steps=500))))
    with pytest.raises(CheckpointError, match=r"train\.steps: the run has 500, asked for no value"):
        require_same_config(run, Settings(), settled={}, ignore=())


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        (["objective.kind=masked-lm"], "objective.kind: the run has 'replaced-token', asked for 'masked-lm'"),
        (
            ["model.kind=relative", "objective.kind=causal-lm", "model.direction=left"],
            "model.kind: the run has 'bert', asked for 'relative'",
        ),
    ],
)
def test_a_config_of_another_kind_differs_by_its_kind(
    settings: list[str], difference: str, tmp_path: Path
) -> None:
    """Settings that only one of the two kinds has are not listed."""
    run = open_run(tmp_path / "run", fresh=False)
    overrides = ["init.attention=random", "masking.share=0.2"]
    first = load_config(PretrainConfig, "electra-nano", ["init.attention=random"])
    second = load_config(PretrainConfig, "electra-nano", [*overrides, *settings])
    for stored, wanted, names in ((first, second, difference), (second, first, "masking.share: the run has 0.2")):
        durable.write_text(run.config, to_toml(stored))
        with pytest.raises(CheckpointError) as caught:
            require_same_config(run, wanted, settled={}, ignore=())
        assert names in str(caught.value) and "masking.share" in str(caught.value)
        assert "discriminator_weight" not in str(caught.value) and "direction" not in str(caught.value)


def test_of_a_damaged_config_the_newest_copy_that_can_be_read_is_named(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", fresh=False)
    durable.write_text(run.config, "[train")
    with pytest.raises(ConfigError, match=r"config\.toml"):
        stored_config(run, Settings)
    for step, content in ((10, to_toml(Settings())), (20, to_toml(Settings())), (30, "[train")):
        (copy := run.checkpoints / f"step-{step:08d}" / "config.toml").parent.mkdir(parents=True)
        durable.write_text(copy, content)
    with pytest.raises(CheckpointError, match=f"a checkpoint has a copy: cp {run.checkpoints}/step-00000020/"):
        stored_config(run, Settings)

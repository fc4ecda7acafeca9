"""The settings of runs: written for people, and which of them differ."""

from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from electra.config import to_table
from electra.registry import objectives
from electra.reports.settings import different_settings, format_setting, has_generator


def write_configs(path: Path, *configs: str) -> dict[str, Path]:
    """Folders with these configs, by name: a, b, ..."""
    folders = {}
    for name, config in zip("abcd", configs, strict=False):
        folders[name] = path / name
        folders[name].mkdir()
        (folders[name] / "config.toml").write_text(config, encoding="utf-8")
    return folders


def rows(table: Table) -> dict[str, list[str]]:
    """The cells of each row, by its first one."""
    lines = zip(*(column.cells for column in table.columns), strict=True)
    return {str(first): [str(cell) for cell in others] for first, *others in lines}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (15.0, "15"),
        (0.0003, "0.0003"),
        (1e-05, "1e-5"),
        (2.5e-10, "2.5e-10"),
        (1e16, "1e16"),
        (True, "true"),
        (512, "512"),
        ("none", "none"),
        (["a", 1.0, False], "[a, 1, false]"),
        ([], "[]"),
    ],
)
def test_settings_are_written_for_people(value: Any, expected: str) -> None:
    assert format_setting(value) == expected


def test_settings_of_another_kind_are_left_out(tmp_path: Path) -> None:
    folders = write_configs(
        tmp_path,
        'out = "1"\n[objective]\nkind = "replaced-token"\ntop_k = 0\nweight = 1.0\n[init]\nrun = "x"\n',
        'out = "2"\n[objective]\nkind = "masked-lm"\nweight = 2.5\n',
    )
    [table] = different_settings(folders)
    assert rows(table) == {
        "objective.kind": ["replaced-token", "masked-lm"],
        "objective.weight": ["1", "2.5"],
        "init.run": ["x", "–"],
    }
    assert table.title == "3 settings that differ"
    assert table.caption == ("Left out: settings that differ only because not every kind of objective has them.")


def test_settings_in_which_runs_of_one_kind_differ_are_shown(tmp_path: Path) -> None:
    adam = '[objective]\nkind = "replaced-token"\ntop_k = {}\n[optimizer]\nkind = "adam"\nbeta = 0.9\n'
    muon = '[objective]\nkind = "masked-lm"\nexact = true\n[optimizer]\nkind = "muon"\n'
    [table] = different_settings(write_configs(tmp_path, adam.format(0), adam.format(5), muon))
    assert rows(table) == {
        "objective.kind": ["replaced-token", "replaced-token", "masked-lm"],
        "objective.top_k": ["0", "5", "–"],
        "optimizer.kind": ["adam", "adam", "muon"],
    }
    assert str(table.caption).endswith("not every kind of objective or optimizer has them.")


def test_a_setting_that_only_some_runs_of_a_kind_have_is_shown(tmp_path: Path) -> None:
    settings = ('kind = "masked-lm"\ntop_k = 5\nexact = true', 'kind = "masked-lm"\nexact = false', 'kind = "x"')
    [table] = different_settings(write_configs(tmp_path, *(f"[objective]\n{one}\n" for one in settings)))
    assert list(rows(table)) == ["objective.kind", "objective.top_k", "objective.exact"]
    assert rows(table)["objective.exact"] == ["true", "false", "–"] and table.caption is None


def test_equal_settings_have_no_table(tmp_path: Path) -> None:
    assert (
        different_settings(write_configs(tmp_path, 'out = "1"\nepochs = 3\n', 'out = "2"\nepochs = 3.0\n')) == []
    )


@pytest.mark.parametrize("kind", objectives.names())
def test_the_settings_tell_whether_a_generator_loss_is_that_of_a_generator(kind: str) -> None:
    config = objectives.get(kind)()
    settings = to_table(config)
    assert has_generator({"objective": settings}) == (config.has_generator or "generator_weight" not in settings)
    assert has_generator({})

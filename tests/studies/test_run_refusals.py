"""Studies that cannot be run, or differ from the one in the folder, are refused before anything runs."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from small_study import command

from electra.cli import main
from electra.commands.study import run
from electra.config import check
from electra.errors import CheckpointError, ConfigError, DataError
from electra.studies.plan import StudyPlan

pytestmark = pytest.mark.usefixtures("without_transformers")


def test_an_arm_whose_settings_changed_is_refused(study_file: Path, data_folder: Path, tmp_path: Path) -> None:
    run(command(study_file, data_folder, tmp_path, arms=("bert",)))
    study_file.write_text(study_file.read_text() + 'set = { "masking.share" = 0.3 }\n')
    with pytest.raises(CheckpointError, match="runs of another arm bert"):
        run(command(study_file, data_folder, tmp_path))


def test_a_base_may_not_set_the_length_of_runs(study_file: Path, data_folder: Path, tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    base.write_text(base.read_text().replace("[train]", "[train]\nminutes = 1.0", 1))
    with pytest.raises(ConfigError, match=r"electra: train\.minutes"):
        run(command(study_file, data_folder, tmp_path))


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ({"budget": 2e6}, "too small; an arm needs"),
        ({"budget": -1.0}, "must be above 0, got -1"),
        ({"arms": ("electre",)}, "has no arm electre; it has electra, bert"),
        ({"tasks": Path("nowhere")}, "there is no folder nowhere"),
        ({"seeds": 0}, "--seeds: must be at least 1, got 0"),
        ({"budget": math.inf}, "must be a finite number, got inf"),
        ({"tasks": Path(), "suite": ("chunkin",)}, "--suite: there is no task 'chunkin'; did you mean 'chunking'"),
        ({"tasks": Path(), "suite": ("cola", "cola")}, "--suite: cola is named twice"),
        ({"tasks": Path(), "suite": ("cola:",)}, "after the colon comes a fraction"),
        ({"tune": ("train.epochs=1",)}, "--tune: needs --tasks"),
        ({"tasks": Path()}, "chunking has no folder chunking-conll2000"),
    ],
)
def test_invalid_options_are_refused_before_anything_runs(
    study_file: Path, data_folder: Path, tmp_path: Path, others: dict[str, Any], problem: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=problem):
        check(options := command(study_file, data_folder, tmp_path, **others))
        run(options)
    assert not (tmp_path / "out/runs").exists()


def test_another_budget_or_other_data_is_refused(study_file: Path, data_folder: Path, tmp_path: Path) -> None:
    run(command(study_file, data_folder, tmp_path, arms=("bert",)))
    with pytest.raises(CheckpointError, match="was started with a budget"):
        run(command(study_file, data_folder, tmp_path, budget=2e9))
    stored = tmp_path / "out/study.json"
    stored.write_text(stored.read_text().replace('"data": "', '"data": "other'))
    with pytest.raises(CheckpointError, match="other data"):
        run(command(study_file, data_folder, tmp_path))


def test_an_arm_without_a_discriminator_has_no_auc_to_reach(
    study_file: Path, data_folder: Path, tmp_path: Path
) -> None:
    study_file.write_text(
        study_file.read_text().replace(
            "[arms.electra]", 'reached = { "eval/unigram_auc" = [0.6] }\n[arms.electra]', 1
        )
    )
    with pytest.raises(ConfigError, match="bert: masked-lm has no discriminator"):
        run(command(study_file, data_folder, tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('control = "electra"', 'control = "electro"', "there is no arm 'electro'; did you mean 'electra'"),
        ("title", "tilte", "did you mean 'title'"),
        ("paper = 85.0", 'set = { "train.seed" = 3 }', "train.seed is set by the study"),
        ("paper = 85.0", "papers = 3", "did you mean 'paper'"),
        ('["objectives/masked-lm"]', '"objectives/masked-lm"', "arms.bert.extends: must be a list"),
        ("paper =", "shares = 0.5\npaper =", "shares: must be a list"),
        ("paper =", "shares = [2]\npaper =", "shares: must be above 0"),
        ("paper =", "reached = 3\npaper =", "reached: must be a table, in braces, got 3"),
        ("paper =", "shares = [0.5, 0.5]\npaper =", "shares: one is given twice"),
        ("[arms.electra]", '[arms."a/b"]\n[arms.electra]', "arms.a/b: a name may have letters"),
        ("paper = 85.0", 'paper = { "0.50" = 3 }', "arms.electra.paper: there is no share 0.50; there are"),
        ("paper =", 'reached = { "eval/unigram_auc" = ["a"] }\npaper =', "must be a list of numbers"),
        ('["chunking"]', '["nope"]', "tasks: there is no task 'nope'"),
        ("paper = 85.0", 'paper = "hi"', "arms.electra.paper: must be a number, got 'hi'"),
        ("paper = 85.0", 'paper = { "1" = "hi" }', "arms.electra.paper: must be a number for each share"),
        ("paper = 85.0", 'x = "left"', "arms.electra.x: must be a number, got 'left'"),
        (
            "[arms.electra]",
            '[contrasts.a]\nplus = ["bert"]\nminus = []\n[arms.electra]',
            "contrasts.a: needs as many arms in plus as in minus, got ['bert'] and []",
        ),
        (
            "[arms.electra]",
            '[contrasts.a]\nplus = ["bart"]\nminus = ["bert"]\n[arms.electra]',
            "contrasts.a: there is no arm 'bart'; did you mean 'bert'",
        ),
        ("[arms.electra]", '[contrasts.a]\nplus = "bert"\n[arms.electra]', "contrasts.a.plus: must be a list"),
        ("paper = 85.0", 'control = "bart"', "arms.electra.control: there is no arm 'bart'; did you mean 'bert'"),
    ],
)
def test_an_invalid_study_file_is_refused(
    study_file: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, problem: str
) -> None:
    study_file.write_text(study_file.read_text().replace(old, new, 1))
    assert main(["study", str(study_file), "--data", "D", "--out", "O"]) == 2
    assert problem in capsys.readouterr().err


def test_all_problems_of_a_study_file_are_shown_together(
    study_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = study_file.read_text().replace("title", "titel").replace('control = "electra"', 'control = "electro"')
    study_file.write_text(text + 'set = { "objective.temprature" = 2 }\nsay = "x"\n')
    assert main(["study", str(study_file), "--data", "D", "--out", "O"]) == 2
    shown = capsys.readouterr().err
    for problem in (
        "titel: there is no such setting; did you mean 'title'",
        "title: is missing",
        "control: there is no arm 'electro'",
        "arms.bert.set: there is no setting 'objective.temprature'; did you mean 'objective.temperature'",
        "arms.bert.say: there is no such setting; did you mean 'says'",
    ):
        assert problem in shown


def test_an_unknown_base_is_refused_once(study_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", str(study_file), "--base", "nope", "--data", "D", "--out", "O"]) == 2
    assert capsys.readouterr().err.startswith("electra: --base: no preset and no file is called 'nope'")


def test_a_folder_of_something_else_is_refused(study_file: Path, data_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not empty and holds no study"):
        run(command(study_file, data_folder, tmp_path, out=data_folder))


def test_an_unknown_study_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "objective", "--data", "D", "--out", "O"]) == 2
    assert "did you mean 'objectives'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            '[arms.third]\nextends = ["objectives/masked-ml"]',
            "arm third of two: .*did you mean 'objectives/masked-lm'",
        ),
        ('set = { "packing.sequence_length" = 16 }', r"bert: packing\.sequence_length is 16, and \d+ in electra"),
        ('set = { "objective.kind" = "replaced-token" }', "bert: has the same settings as electra"),
        (
            'set = { "objective.temperature" = 2 }',
            "1 problem in arm bert of two:\n.*objective.temperature: is for replaced-token",
        ),
    ],
)
def test_arms_that_cannot_be_compared_are_named(
    study_file: Path, data_folder: Path, tmp_path: Path, settings: str, problem: str
) -> None:
    study_file.write_text(study_file.read_text() + settings + "\n")
    with pytest.raises(ConfigError, match=problem):
        run(command(study_file, data_folder, tmp_path))
    assert not (tmp_path / "out/runs").exists()


def test_with_own_rows_arms_may_pack_the_text_in_different_ways(
    study_file: Path, data_folder: Path, tmp_path: Path
) -> None:
    text = study_file.read_text() + 'set = { "packing.builder" = "full-sentences" }\n'
    study_file.write_text(text)
    with pytest.raises(ConfigError, match=r"bert: packing.builder is 'full-sentences'.* own_rows = true at"):
        run(command(study_file, data_folder, tmp_path))
    study_file.write_text("own_rows = true\n" + text)
    assert isinstance(run(command(study_file, data_folder, tmp_path, dry_run=True)), StudyPlan)
    study_file.write_text("own_rows = 1\n" + text)
    with pytest.raises(ConfigError, match="own_rows: must be true or false, got 1"):
        run(command(study_file, data_folder, tmp_path))


def test_a_study_keeps_its_tasks_and_its_base(
    study_file: Path, tasks: Path, data_folder: Path, tmp_path: Path
) -> None:
    run(command(study_file, data_folder, tmp_path, arms=("bert",)))
    stored = tmp_path / "out/study.json"
    record = json.loads(stored.read_text())
    stored.write_text(json.dumps(record | {"suite": ["chunking", "cola"]}))
    with pytest.raises(CheckpointError, match="--suite may add tasks, but it lacks cola"):
        run(command(study_file, data_folder, tmp_path, tasks=tasks, suite=("chunking",)))
    with pytest.raises(DataError, match="cola has no folder"):  # left out, it is that of before
        run(command(study_file, data_folder, tmp_path, tasks=tasks))
    with pytest.raises(CheckpointError, match="was started with --base"):
        run(command(study_file, data_folder, tmp_path, base="electra-nano"))
    study_file.write_text(
        study_file.read_text().replace("[arms.electra]", "shares = [0.5, 1.0]\n[arms.electra]", 1)
    )
    with pytest.raises(CheckpointError, match=r"was started with shares = \[1.0\], not \[0.5, 1.0\]"):
        run(command(study_file, data_folder, tmp_path))
    stored.write_text(json.dumps(record)[:-5])
    with pytest.raises(CheckpointError, match=r"study\.json is damaged"):
        run(command(study_file, data_folder, tmp_path))


def test_default_settings_are_not_stored(study_file: Path, data_folder: Path, tmp_path: Path) -> None:
    run(command(study_file, data_folder, tmp_path))
    stored = tmp_path / "out/study.json"
    settings = json.loads(stored.read_text())["arms"]["electra"]["settings"]
    assert settings["model.layers"] == 1 and "objective.temperature" not in settings, "which has its default"
    study_file.write_text(study_file.read_text() + 'set = { "masking.share" = 0.3 }\n')
    with pytest.raises(CheckpointError, match=r"another arm bert.*\n  masking\.share: 0\.4 before, 0\.3 now"):
        run(command(study_file, data_folder, tmp_path))


def test_a_budget_that_is_too_small_names_one_that_is_large_enough(
    study_file: Path, data_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="give at least") as raised:
        run(command(study_file, data_folder, tmp_path, budget=1e7))
    enough = float(str(raised.value).split("give at least ")[1].split(" FLOPs")[0])
    assert isinstance(run(command(study_file, data_folder, tmp_path, budget=enough, dry_run=True)), StudyPlan)

"""Which folders can be reported, and what errors say about the others."""

from pathlib import Path

import pytest

from electra.errors import CheckpointError
from electra.reports.folders import kind_of, reportable_folders


def runs(folder: Path, *names: str) -> list[Path]:
    """Folders of runs below a folder."""
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "metrics.jsonl").write_text("", encoding="utf-8")
    return [folder / name for name in names]


def message_of(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        kind_of(folder)
    return str(caught.value)


def fine_tuning(folder: Path) -> Path:
    for name in ("model", "seed-0"):
        (folder / name).mkdir(parents=True)
    (folder / "results.json").write_text('{"seeds": []}', encoding="utf-8")
    (folder / "config.toml").write_text("", encoding="utf-8")
    (folder / "seed-0/metrics.jsonl").write_text("", encoding="utf-8")
    return folder


def test_a_missing_folder_and_a_file_are_told_from_others(tmp_path: Path) -> None:
    assert "there is no such folder" in message_of(tmp_path / "nowhere")
    (tmp_path / "log.txt").write_text("", encoding="utf-8")
    assert f"is a file; give a folder, such as {tmp_path}" in message_of(tmp_path / "log.txt")


def test_runs_below_a_folder_are_named(tmp_path: Path) -> None:
    runs(tmp_path, "a", "b", "c", "d", "e")
    assert message_of(tmp_path).endswith(
        f"itself, but a, b, c and 2 more below it do; give electra report {tmp_path}/*"
    )
    (tmp_path / "log.txt").write_text("", encoding="utf-8")
    given = " ".join(str(tmp_path / name) for name in "abc")
    assert message_of(tmp_path).endswith(f"electra report {given} ..."), "a shell's * would give log.txt, too"


def test_runs_below_come_before_what_is_above(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}", encoding="utf-8")  # any file of this name
    runs(tmp_path / "mine", "a")
    assert "but a below it does" in message_of(tmp_path / "mine")


def test_runs_two_levels_below_are_named(tmp_path: Path) -> None:
    runs(tmp_path, "small/run")
    assert message_of(tmp_path).endswith(f"but small/run below it does; give electra report {tmp_path}/*/*")


def test_a_suggested_command_is_quoted_for_a_shell(tmp_path: Path) -> None:
    folder = tmp_path / "my runs"
    runs(folder, "a", "b c")
    assert message_of(folder).endswith(f"give electra report '{folder}'/*")
    (folder / "log.txt").write_text("", encoding="utf-8")
    assert message_of(folder).endswith(f"give electra report '{folder}/a' '{folder}/b c'")
    (folder / "a/export").mkdir()
    assert message_of(folder / "a/export").endswith(f"give '{folder}/a'")


RESUMED = "has no results yet; the same `electra finetune` command resumes it"


def test_the_seeds_of_an_unfinished_fine_tuning_are_no_pre_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = fine_tuning(tmp_path / "OUT")
    (out / "results.json").unlink()
    assert message_of(out) == f"{out}: this fine-tuning {RESUMED}"
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, out / "seed-0"):
        assert message_of(folder).endswith(f"; the fine-tuning OUT {RESUMED}")
    runs(tmp_path, "RUN")
    assert message_of(tmp_path).endswith(f"but RUN below it does; give electra report {tmp_path}/RUN")


def test_pre_trainings_may_have_the_names_of_seeds(tmp_path: Path) -> None:
    for run in runs(tmp_path, "seed-0", "seed-1"):
        (run / "config.toml").write_text('[objective]\nkind = "masked-lm"\n', encoding="utf-8")
        assert kind_of(run) == "pre-training"
    assert message_of(tmp_path).endswith(f"but seed-0, seed-1 below it do; give electra report {tmp_path}/*")


def test_the_seeds_of_a_study_are_no_fine_tuning(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}", encoding="utf-8")
    arm = tmp_path / "runs/electra"
    (arm / "1/seed-0").mkdir(parents=True)
    assert message_of(arm).endswith(f"it is a part of a study: give {tmp_path}")


@pytest.mark.parametrize("part", ["model", "seed-0", "seed-0/checkpoints", "onnx-int8"])
def test_a_part_of_a_fine_tuning_is_refused_with_its_folder(part: str, tmp_path: Path) -> None:
    folder = fine_tuning(tmp_path / "CLS")
    (folder / part).mkdir(exist_ok=True)
    assert message_of(folder / part).endswith(f"it is a part of a fine-tuning: give {folder}")


def test_other_folders_below_results_are_no_part_of_a_fine_tuning(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("[]", encoding="utf-8")  # any file of this name
    (tmp_path / "model").mkdir()
    assert "give a folder that `electra pretrain`" in message_of(tmp_path / "model")
    other = fine_tuning(tmp_path / "CLS") / "notes"
    other.mkdir()
    assert "give a folder that `electra pretrain`" in message_of(other)


def test_prepared_data_are_said_to_be_prepared_data(tmp_path: Path) -> None:
    data = fine_tuning(tmp_path / "CLS") / "model/my data"
    data.mkdir()
    (data / "manifest.json").write_text("{}", encoding="utf-8")
    assert message_of(data) == (
        f"{data} is prepared data, not a run; give a run that was trained on it: electra pretrain PRESET "
        f"--data '{data}' --out RUN"
    )


def test_an_export_of_a_run_is_refused_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [run] = runs(tmp_path, "RUN")
    (run / "export/discriminator").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert message_of(Path("RUN/export/discriminator")).endswith("a part of a pre-training: give RUN")


def test_the_same_folder_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = runs(tmp_path, "a", "b")
    monkeypatch.chdir(tmp_path)
    assert reportable_folders([second, first, Path("b"), tmp_path / "a/../b"]) == [second, first]

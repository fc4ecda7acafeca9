"""`electra pretrain --profile`: where a step's time goes."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from small_run import command, config
from torch.autograd import DeviceType

from electra.cli import main
from electra.objectives.generator_objective import GeneratorObjective
from electra.pretraining.profile import TABLE_ROWS, Operation, Profile, operations, profile_steps


def test_a_profile_is_sorted_by_time_and_has_a_trace(data_folder: Path, tmp_path: Path) -> None:
    profile = profile_steps(config(data_folder, tmp_path / "run", "train.steps=9"), 2)
    seconds = [operation.seconds for operation in profile.operations]
    assert seconds == sorted(seconds, reverse=True) and seconds[-1] >= 0
    by_name = {operation.name: operation for operation in profile.operations}
    assert by_name["aten::_fused_adamw_"].calls == 2 * 2  # steps, and groups with and without decay
    events = json.loads(profile.trace.read_text())["traceEvents"]
    assert sum(event.get("name") == "aten::_fused_adamw_" for event in events) == 2 * 2
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["profile"]


def test_the_table_of_a_profile_is_of_one_step() -> None:
    many = [Operation("mm", 0.6, 8), *(Operation("add", 0.02, 4) for _ in range(TABLE_ROWS + 9))]
    (console := Console(width=100, record=True)).print(Profile(Path("t"), torch.device("cpu"), 4, many))
    shown = console.export_text()
    assert shown.startswith("4 steps on cpu, 245.0 ms of operations per step")
    cells = [[cell for cell in line.split() if cell != "│"] for line in shown.splitlines()]
    assert ["mm", "61.2%", "150.0", "2"] in cells and ["all", "others", "20.4%", "50.0"] in cells


@pytest.mark.parametrize(("kind", "step"), [("replaced-token", 4), ("two-stage", 7)])
def test_a_profile_is_of_the_middle_of_the_last_stage(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, step: int
) -> None:
    begun: list[tuple[int, int | None]] = []
    begin_step = GeneratorObjective.begin_step
    monkeypatch.setattr(
        GeneratorObjective, "begin_step", lambda self, *at: begun.append(at) or begin_step(self, *at)
    )
    settings = "train.steps=9", f"objective.kind={kind}", "objective.sharing=none", "generator.width=1"
    profile_steps(config(data_folder, tmp_path / "run", *settings), 1)
    assert begun[-1] == (step, 9)


def test_a_profile_keeps_nothing_else(
    data_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(command(data_folder, run, "--profile", "1")) == 0
    shown, logged = capfd.readouterr()
    assert "share" in shown and "all others" in shown and "trace.json" in shown
    assert "USDT" not in shown + logged
    assert sum("aten::" in line for line in shown.splitlines()) <= TABLE_ROWS
    assert main(command(data_folder, run, "--train.steps", "2")) == 0
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file() and "profile" not in file.parts}
    assert main(command(data_folder, run, "--profile", "1")) == 0
    assert before == {file: file.read_bytes() for file in before}


@pytest.mark.parametrize("arguments", [["0"], ["1", "--dry-run"], ["2", "--fresh"]])
def test_a_profile_of_no_steps_is_refused(
    arguments: list[str], data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(data_folder, tmp_path / "run", "--profile", *arguments)) == 2
    assert "--profile: give a number of steps" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_profile_of_a_card_counts_its_kernels_once() -> None:
    def event(key: str, device: DeviceType, seconds: float, *, annotation: bool = False) -> SimpleNamespace:
        return SimpleNamespace(
            key=key, device_type=device, self_cpu_time_total=7e6, self_device_time_total=1e6 * seconds, count=1,
            is_user_annotation=annotation,
        )  # fmt: skip

    events = [
        event("aten::mm", DeviceType.CPU, 2.0), event("gemm", DeviceType.CUDA, 2.0),
        event("Optimizer.step", DeviceType.CUDA, 3.0, annotation=True), event("adam", DeviceType.CUDA, 3.0),
    ]  # fmt: skip
    found = [(operation.name, operation.seconds) for operation in operations(events, on_cpu=False)]
    assert found == [("adam", 3.0), ("gemm", 2.0)]

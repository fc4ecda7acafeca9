"""`electra export RUN`: only one process at a time writes to a folder."""

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_run import config

from electra import folder_lock
from electra.cli import main
from electra.export.loading import load_pretrained
from electra.folder_lock import acquire
from electra.pretraining.run import pretrain


@pytest.fixture(scope="module")
def run(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(config(data_folder, tmp_path_factory.mktemp("export") / "run", "train.steps=2")).run


def test_a_second_export_to_a_folder_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["export", str(run), "--out", str(tmp_path / "out")]
    with acquire(tmp_path / "out"):
        assert main(command) == 2
        assert "is exporting; wait for its end, or give another --out" in capsys.readouterr().err
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["taken.json"]
    assert main(command) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"discriminator", "generator"}
    load_pretrained(tmp_path / "out")


def test_a_run_waits_at_its_end_for_an_export_of_its_checkpoint(
    run: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (run / "export/discriminator/config.json").unlink()
    with contextlib.ExitStack() as lock:
        assert lock.enter_context(acquire(run / "export"))
        clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=lambda _: lock.close())
        monkeypatch.setattr(folder_lock, "time", clock)
        pretrain(config(data_folder, run, "train.steps=2"))
    assert "export: another process is exporting; waiting for its end" in caplog.text
    load_pretrained(run)

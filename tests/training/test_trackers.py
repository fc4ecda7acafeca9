"""Trackers get the metrics of a run, and can never stop it. The real libraries run in their local modes."""

import json
import sqlite3
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from small_run import command

from electra.cli import main
from electra.errors import MissingExtraError
from electra.training import trackers
from electra.training.config import TrackingConfig
from electra.training.trackers import require_tracker
from electra.training.tracking import Tracking, scalars

METRICS = [{"step": step, "loss": 4.0 / step, "eval/auc": 0.5, "text": "not a number"} for step in (1, 2, 3)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "small"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('data = "DATA"\n[train]\nsteps = 3\nbatch_size = 8\n')
    return folder


def write(run: Path, tracker: Any, metrics: list[dict[str, Any]]) -> None:
    config = TrackingConfig(tensorboard=False, tracker=tracker)
    tracking = Tracking(run, config, resume_at=0, resume_step=0)
    for one in metrics:
        tracking.write_metrics(one)
    tracking.close()


class Recorder:
    """A tracker that keeps what it gets."""

    def __init__(self, failing: str = "") -> None:
        self.failing, self.got, self.closed = failing, list[tuple[dict[str, float], int]](), False

    def __call__(self, run: Path) -> "Recorder":
        self._fail("start")
        return self

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._fail("log")
        self.got.append((dict(numbers), step))

    def close(self) -> None:
        self._fail("close")
        self.closed = True

    def _fail(self, where: str) -> None:
        if where == self.failing:
            raise RuntimeError(f"no server\nat {where}")


def use(monkeypatch: pytest.MonkeyPatch, recorder: Any) -> None:
    monkeypatch.setattr(trackers, "STARTS", {"mlflow": recorder})


def test_a_tracker_gets_what_tensorboard_gets(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, recorder := Recorder())
    write(run, "mlflow", METRICS)
    assert recorder.got == [(scalars(one), one["step"]) for one in METRICS]
    assert recorder.got[1] == ({"train/loss": 2.0, "eval/auc": 0.5}, 2)
    assert recorder.closed


@pytest.mark.parametrize("where", ["start", "log", "close"])
def test_a_tracker_that_fails_is_one_warning(
    where: str, run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use(monkeypatch, Recorder(failing=where))
    write(run, "mlflow", METRICS)
    assert [record.getMessage() for record in caplog.records] == [
        "mlflow failed, and the run continues without it: no server"
    ]
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_tracker_that_hangs_stops_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answered = threading.Event()

    def hang(run: Path) -> Recorder:
        answered.wait()
        return Recorder()

    use(monkeypatch, hang)
    monkeypatch.setattr(trackers, "CLOSE_SECONDS", 0.0)
    write(run, "mlflow", METRICS)
    assert "mlflow does not answer" in caplog.text
    answered.set()


def test_a_run_ends_well_although_its_tracker_fails(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use(monkeypatch, Recorder(failing="log"))
    monkeypatch.setattr(trackers, "require", lambda *_: None)
    out = tmp_path / "run"
    arguments = command(data_folder, out, "--train.steps", "6")
    assert main([*arguments, "--tracking.tracker", "mlflow"]) == 0
    assert "continues without it" in caplog.text
    assert json.loads((out / "ended.json").read_text())["how"] == "finished"
    assert main([*arguments, "--tracking.tracker", "none"]) == 0  # the tracker may differ


def test_a_library_that_is_missing_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    require_tracker("none")
    with pytest.raises(
        MissingExtraError, match=r"tracking.tracker = 'wandb' needs wandb; install the extra: pip.*wandb"
    ):
        require_tracker("wandb")


def records(path: Path) -> Iterator[bytes]:
    """The records of an offline run, a LevelDB log: each has a header with checksum, length and kind."""
    data = path.read_bytes()
    assert len(data) < 2**15  # one block
    start = 7  # of the file's own header
    while start < len(data):
        _, length, kind = struct.unpack_from("<IHB", data, start)
        assert kind == 1  # a whole record
        yield data[start + 7 : start + 7 + length]
        start += 7 + length


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("wandb", reason="needs the extra wandb (70 MiB)")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    for _ in range(2):  # the second is the resumed run
        write(run, "wandb", METRICS)
    assert not caplog.records
    files = sorted((run / "wandb").glob("offline-run-*/*.wandb"))
    assert len({path.stem for path in files}) == 1  # one id
    found, settings = {}, {}
    for data in (record for path in files for record in records(path)):
        record = Record()
        record.ParseFromString(data)
        values = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
        if "step" in values:
            found[int(values["step"])] = float(values["train/loss"])
        settings |= {item.key: item.value_json for item in record.run.config.update}
    assert found == {1: 4.0, 2: 2.0, 3: 4.0 / 3}
    assert settings["train.batch_size"] == "8"


@pytest.mark.filterwarnings("ignore")
def test_mlflow_local(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow (56 MiB)")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    write(run, "mlflow", METRICS[:2])
    write(run, "mlflow", METRICS[2:])
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("electra")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.data.params["train.batch_size"] == "8" and found.info.status == "FINISHED"
    history = client.get_metric_history(found.info.run_id, "train/loss")
    assert {one.step: one.value for one in history} == {1: 4.0, 2: 2.0, 3: 4.0 / 3}


@pytest.mark.filterwarnings("ignore")
def test_trackio_local(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason="needs the extra trackio (33 MiB)")
    write(run, "trackio", METRICS[:2])
    write(run, "trackio", METRICS[2:])
    database = sqlite3.connect(tmp_path / "trackio" / "electra.db")
    rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
    database.close()
    assert len({name for name, *_ in rows}) == 1 and rows[0][0].startswith("runs/small-")
    assert {step: json.loads(metrics)["train/loss"] for _, step, metrics in rows} == {1: 4.0, 2: 2.0, 3: 4.0 / 3}

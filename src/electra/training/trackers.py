"""Weights & Biases, MLflow or Trackio: the metrics of a run for one of them, which can never stop the run.

A tracker works in a thread of its own, so that training does not wait for a network. Whatever it raises becomes
one warning, and the run goes on without it. Its account, server and project come from its environment variables.
"""

import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from electra.config import read_file
from electra.errors import require
from electra.json_files import read_json, write_json
from electra.training.config import TrackerName
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

PROJECT = "electra"
"""Project, or experiment, of runs if the environment names none."""
RUN_FILE = "tracker.json"
"""In the folder of a run: what the trackers call it, so that a resumed run continues there."""
CLOSE_SECONDS = 30.0
"""Seconds that a run waits at its end for its tracker."""


class Tracker(Protocol):
    """One run in a tracker. All its methods are called in the same thread."""

    def log(self, scalars: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


def require_tracker(name: TrackerName) -> None:
    """Check that the library of a tracker is installed.

    Raises:
        MissingExtraError: it is not.
    """
    if name != "none":
        require(f"tracking.tracker = {name!r}", name, name)


class BackgroundTracker:
    """Sends the metrics of a run to a tracker, in a thread of its own.

    Args:
        name: a tracker that is installed.
        run: the run's folder, with its config.
    """

    def __init__(self, name: TrackerName, run: Path) -> None:
        self.name = name
        self._waiting: queue.SimpleQueue[tuple[dict[str, float], int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, args=(STARTS[name], run), name=name, daemon=True)
        self._thread.start()

    def log(self, scalars: dict[str, float], step: int) -> None:
        """Send metrics, by name, without waiting until they have arrived."""
        self._waiting.put((scalars, step))

    def close(self) -> None:
        """Wait until everything has arrived, but no longer than `CLOSE_SECONDS`."""
        self._waiting.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            logger.warning("%s does not answer; the last metrics may be missing there", self.name)

    def _work(self, start: Callable[[Path], Tracker], run: Path) -> None:
        try:
            tracker = start(run)
            while (next_one := self._waiting.get()) is not None:
                tracker.log(*next_one)
            tracker.close()
        except (Exception, SystemExit) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            logger.warning("%s failed, and the run continues without it: %s", self.name, reason)


def _start_wandb(run: Path) -> Tracker:
    import wandb

    # Only metrics and the config are sent: no code, no changes in the working copy, nothing from the console.
    settings = wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True)
    opened = wandb.init(
        project=None if _environment("WANDB_PROJECT") else PROJECT, name=_run_name(run), dir=run, resume="allow",
        id=_stored_id(run, "wandb", lambda: secrets.token_hex(4)), config=_settings(run), settings=settings,
    )  # fmt: skip
    opened.define_metric("*", step_metric="step")  # its own step must grow, and a run may go back to a checkpoint
    if opened.url:
        logger.info("Weights & Biases: %s", opened.url)
    return _Wandb(opened)


class _Wandb:
    def __init__(self, run: Any) -> None:
        self.run = run

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        self.run.log({**scalars, "step": step})

    def close(self) -> None:
        self.run.finish()


def _start_mlflow(run: Path) -> Tracker:
    import mlflow
    from mlflow.entities import Param

    client, experiment = mlflow.MlflowClient(), _environment("MLFLOW_EXPERIMENT_NAME") or PROJECT

    def create() -> str:
        known = client.get_experiment_by_name(experiment)
        number = known.experiment_id if known else client.create_experiment(experiment)
        created: str = client.create_run(number, run_name=_run_name(run)).info.run_id
        settings = [Param(name, str(value)) for name, value in _settings(run).items()]
        for first in range(0, len(settings), _MOST_PARAMS):
            client.log_batch(created, params=settings[first : first + _MOST_PARAMS])
        return created

    return _Mlflow(client, _stored_id(run, "mlflow", create))


_MOST_PARAMS = 100
"""Settings that MLflow takes in one request."""


class _Mlflow:
    def __init__(self, client: Any, run_id: str) -> None:
        self.client, self.run_id = client, run_id
        client.update_run(run_id, status="RUNNING")

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, step) for name, value in scalars.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def close(self) -> None:
        self.client.set_terminated(self.run_id)


def _start_trackio(run: Path) -> Tracker:
    import trackio

    name = _stored_id(run, "trackio", lambda: f"{_run_name(run)}-{secrets.token_hex(3)}")
    opened = trackio.init(
        project=_environment("TRACKIO_PROJECT") or PROJECT, name=name, resume="allow", config=_settings(run),
        embed=False, auto_log_gpu=False, auto_log_cpu=False,
    )  # fmt: skip
    return _Trackio(opened)


class _Trackio:
    def __init__(self, run: Any) -> None:
        self.run = run

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        self.run.log(dict(scalars), step=step)

    def close(self) -> None:
        self.run.finish()


STARTS: Mapping[TrackerName, Callable[[Path], Tracker]] = {
    "wandb": _start_wandb,
    "mlflow": _start_mlflow,
    "trackio": _start_trackio,
}
"""Open the run of a folder, new or resumed, by the name of the tracker."""


def _environment(name: str) -> str | None:
    return os.environ.get(name) or None


def _run_name(run: Path) -> str:
    """The last two folders of a run: the seeds of a fine-tuning have the same names."""
    return "/".join(run.resolve().parts[-2:])


def _stored_id(run: Path, tracker: str, create: Callable[[], str]) -> str:
    """What a tracker calls a run, from the run's folder; a new run is created, and its name is stored there."""
    path = run / RUN_FILE
    ids = read_json(path, optional=True)
    if tracker not in ids:
        ids[tracker] = create()
        write_json(path, ids)
    return str(ids[tracker])


def _settings(run: Path) -> dict[str, Any]:
    """Every setting of the run by its dotted name."""
    settings: dict[str, Any] = {}
    for name, value in read_file(RunFolder(run).config).items():
        settings |= (
            {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
        )
    return settings

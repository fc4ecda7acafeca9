"""Fine-tune a pre-trained encoder for a task, with one seed or several."""

import logging
import signal
from dataclasses import asdict, replace
from pathlib import Path

from electra import durable
from electra.config import load_config, to_toml
from electra.errors import CheckpointError, ConfigError
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.export import export_model
from electra.finetuning.results import (
    MAY_CHANGE,
    FinetuneResult,
    load_finished_seeds,
    write_predictions,
)
from electra.finetuning.seed_run import remove_checkpoints, run_seed
from electra.finetuning.setup import FinetuneSetup, build_setup
from electra.folder_lock import hold
from electra.json_files import read_json, write_json
from electra.objectives.metric_labels import metric_label
from electra.serving.predictor import Predictor
from electra.training.events import EventHook, open_event_hook
from electra.training.progress_bar import progress_bar, shows_bar
from electra.training.run_folder import RunFolder, check_out_folder, environment, open_run, require_same_config
from electra.training.tracking import log_file
from electra.training.trainer import Outcome

logger = logging.getLogger(__name__)


def finetune(config: FinetuneConfig, *, fresh: bool = False, progress: bool | None = None) -> FinetuneResult:
    """Run a fine-tuning, or resume it.

    Args:
        fresh: start in a new folder next to `config.out` if that exists.
        progress: show a progress bar of each seed on stderr, the one thing that is printed. None: in a terminal or
            a notebook, unless the log shows the progress (level INFO, as on the command line).

    Raises:
        ElectraError: the config, the data, the model or the folder cannot be used.
    """
    if not isinstance(config, FinetuneConfig):
        raise ConfigError(f"finetune needs a config, got {config!r}; make one: electra.load_task_config(SETTINGS)")
    out = config.out
    if out is None:
        raise ConfigError("out: is missing; give --out, the folder to write to")
    shown = shows_bar(progress)  # before the log file, for which the level is INFO
    if not fresh:
        check_out_folder(RunFolder(out))  # before the data are read, which can take minutes
        config = _keep_precision(config, RunFolder(out))
    setup = build_setup(config)  # finds what is wrong with the data before a folder is made
    run = open_run(out, fresh=fresh)
    with hold(run.path, work="fine-tuning"), log_file(run.log):
        if run.config.exists():
            require_same_config(run, setup.config, settled={}, ignore=(*MAY_CHANGE, "seed", "seeds"))
        durable.write_text(run.config, to_toml(setup.config))
        write_json(run.environment, environment())
        with open_event_hook(run, config.tracking.on_event) as on_event:
            result = train_seeds(setup, run.path, on_event, bar=shown)
            if result.stopped_by is not None:
                on_event("stopped", f"by {signal.Signals(result.stopped_by).name}")
                return result
            predicted = predict_other_splits(setup, run.path, result.best.seed)
            write_json(run.path / "results.json", {**result.to_dict(setup), "predicted": predicted})
            best = result.best
            message = f"{metric_label(result.metric)} {best.metrics[result.metric]:.4f}, seed {best.seed}"
            on_event("finished", message, best.steps)
    return result


def train_seeds(setup: FinetuneSetup, out: Path, on_event: EventHook, *, bar: bool) -> FinetuneResult:
    """Train every seed that is not finished, and export the best model."""
    config, problem = setup.config, setup.task.problem
    finished = [
        one.with_metrics_of(setup.other_fingerprints) for one in load_finished_seeds(out, config, setup.identity)
    ]
    for split in setup.scored_splits:
        if missing := [one.seed for one in finished if split not in one.others and not one.diverged]:
            logger.warning(
                "%s is new or has changed since seed %s was finished, so it has no metric; to have one, train "
                "again next to this with --fresh", split, ", ".join(map(str, missing)),
            )  # fmt: skip
    result = FinetuneResult(out, setup.task.name, problem.metric, finished)
    for seed in range(config.seed, config.seed + config.seeds):
        if any(one.seed == seed for one in result.seeds):
            logger.info("seed %s is finished already", seed)
            remove_checkpoints(out / f"seed-{seed}")  # a kill may have left them
            continue
        folder = out / f"seed-{seed}"
        with progress_bar(f"seed {seed}", shown=bar) as on_report:
            ended = run_seed(setup, seed, folder, on_event, on_report)
        if isinstance(ended, Outcome):
            return replace(result, stopped_by=ended.stopped_by)
        of_seed = ended.result
        result = result.with_seed(of_seed)
        if result.best is of_seed and not of_seed.diverged:
            compared = export_model(setup, ended.model, out, of_seed)
            logger.info("exported the model%s", f": {compared}" if compared else "")
        write_json(folder / "result.json", asdict(of_seed))
        remove_checkpoints(folder)
        failed = f" – failed: {of_seed.failed}" if of_seed.failed else ""
        value = of_seed.metrics[problem.metric]
        logger.info("seed %s: %s %.4f%s", seed, metric_label(problem.metric), value, failed)
    return result


def predict_other_splits(setup: FinetuneSetup, out: Path, best_seed: int) -> dict[str, str]:
    """Write the best model's predictions of all splits but train and dev.

    Splits that results.json lists with the same fingerprint and the same best seed are not predicted again.

    Returns:
        Fingerprints of the splits.
    """
    stored = read_json(out / "results.json", optional=True)
    done = stored.get("predicted", {}) if stored.get("best_seed") == best_seed else {}
    splits = setup.other_fingerprints
    missing = [split for split in splits if done.get(split) != splits[split]]
    if missing and (out / "model").is_dir():  # there is none if every seed diverged
        predictor = Predictor(out, device=setup.device)
        for split in missing:
            predictions = predictor.predict_rows(setup.task.splits[split], setup.rows[split])
            write_predictions(out, split, predictions)
    return splits


def _keep_precision(config: FinetuneConfig, run: RunFolder) -> FinetuneConfig:
    """Return the config with the precision of the run in the folder, if the config leaves it to a measurement.

    Raises:
        CheckpointError: the folder has another kind of run.
    """
    if not run.config.is_file():
        return config
    try:
        stored = load_config(FinetuneConfig, run.config)
    except ConfigError as error:
        raise CheckpointError(f"{run.path} is the folder of another kind of run; give another --out") from error
    if config.train.precision != "auto":
        return config
    return replace(config, train=replace(config.train, precision=stored.train.precision))

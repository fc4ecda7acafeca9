"""From a pre-trained encoder to one that does a task, judged over several seeds."""

import logging
import statistics
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from electra import durable
from electra.config import load_config, to_toml
from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError, ConfigError
from electra.export.loading import load_pretrained
from electra.finetuning.config import FinetuneConfig, resolve
from electra.finetuning.export import export_model
from electra.finetuning.load_task import load_task
from electra.finetuning.results import MAY_CHANGE, SeedResult, load_finished_seeds, write_predictions
from electra.finetuning.seed_run import DEV, FinetuneSetup, fingerprint, remove_checkpoints, run_seed
from electra.json_files import read_json, write_json
from electra.serving.predictor import Predictor
from electra.tasks.base import InputSpec
from electra.training.allocator import keep_freed_memory
from electra.training.device import resolve_device
from electra.training.precision import Precision, choose_precision
from electra.training.run_folder import RunFolder, agree, environment, open_run
from electra.training.tracking import log_file
from electra.training.trainer import Outcome

logger = logging.getLogger(__name__)

SHOWN = 6
"""Figures that the table on the console has room for; all are in results.json."""
UNKNOWN = 0.1
"""Of a split's tokens: a share above which little of the text reaches the model."""


def build_setup(config: FinetuneConfig) -> FinetuneSetup:
    """Data, model and precision of a fine-tuning, and its config with nothing left open.

    Raises:
        ElectraError: the config, the data or the model cannot be used as they are.
    """
    device = resolve_device(config.train.device)
    task = load_task(config)
    for note in task.notes:
        logger.info("%s: %s", task.name, note)
    pretrained = load_pretrained(config.model)
    config = resolve(
        config, pretrained.encoder.config, task, longest=pretrained.max_length,
    )  # fmt: skip
    reading = InputSpec(pretrained.tokenizer, config.data.read_length)
    examples = {**task.splits, "train": task.training_examples(task.splits["train"])}
    rows = {split: task.problem.encode(there, reading) for split, there in examples.items()}
    for split, found in rows.items():
        if found.cut:
            logger.info(
                "%s: %s of %s examples of %s are too long and were cut (%s tokens a row; the model reads %s)",
                task.name, f"{len(found.cut):,}", f"{len(examples[split]):,}", split, config.data.read_length,
                pretrained.max_length,
            )  # fmt: skip
        unknown = int((found.ids == special_tokens(pretrained.tokenizer).unknown).sum())
        if unknown > UNKNOWN * len(found.ids):
            logger.warning(
                "%s: %.0f %% of the tokens of %s are unknown to the model, which reads them all as [UNK]; its "
                "vocabulary was made for other text", task.name, 100 * unknown / len(found.ids), split,
            )  # fmt: skip
    if device.type == "cpu":
        keep_freed_memory()
    setting = FinetuneSetup(config, task, rows, pretrained, Precision("float32", "", 0.0), device)
    precision = choose_precision(config.train.precision, device, setting.step())
    logger.info("%s on %s: %s", precision.name, device, precision.reason)
    config = replace(config, train=replace(config.train, precision=precision.name))
    return replace(setting, config=config, precision=precision)


def finetune(config: FinetuneConfig, *, fresh: bool = False) -> "FinetuneResult":
    """Run a config, or go on with it; `fresh` starts beside what is there.

    Raises:
        ElectraError: the config, the data, the model or the folder cannot be used as they are.
    """
    out = config.out
    if out is None:
        raise ConfigError("out: is missing; give --out, the folder to write to")
    if not fresh:
        config = _settled(config, RunFolder(out))
    setting = build_setup(config)  # whatever is wrong with the data is said before a folder is made
    folder = open_run(out, fresh=fresh)
    if folder.config.exists():
        agree(folder, setting.config, settled={}, ignore=(*MAY_CHANGE, "seed", "seeds"))
    with log_file(folder.log):
        durable.write_text(folder.config, to_toml(setting.config))
        write_json(folder.environment, environment())
        before = load_finished_seeds(folder.path, setting.config, setting.identity)
        found = FinetuneResult(folder.path, setting.task.name, setting.task.problem.metric, before)
        for seed in range(config.seed, config.seed + config.seeds):
            if any(result.seed == seed for result in found.seeds):
                logger.info("seed %s was finished before", seed)
                continue
            place = folder.path / f"seed-{seed}"
            ended = run_seed(setting, seed, place)
            if isinstance(ended, Outcome):
                return replace(found, stopped_by=ended.stopped_by)
            result = ended.result
            found = replace(found, seeds=sorted([*found.seeds, result], key=lambda one: one.seed))
            if found.best is result and not result.diverged:
                export_model(setting, ended.module, folder.path, result)
            write_json(place / "result.json", asdict(result))
            remove_checkpoints(place)
            logger.info("seed %s: %s %.4f%s", seed, found.metric, result.metrics[found.metric], _flag(result))
        facts = {**found.facts(setting), "predicted": _predict_others(setting, folder.path, found.best.seed)}
        write_json(folder.path / "results.json", facts)
    return found


def _predict_others(setting: FinetuneSetup, out: Path, best: int) -> dict[str, str]:
    """Let the best model predict all splits but train and dev, save where results.json says that it has.

    Returns:
        Fingerprints of the splits.
    """
    before = read_json(out / "results.json", optional=True)
    done = before.get("predicted", {}) if before.get("best_seed") == best else {}
    splits = {split: fingerprint(rows) for split, rows in setting.rows.items() if split not in ("train", DEV)}
    missing = [split for split in splits if done.get(split) != splits[split]]
    if missing and (out / "model").is_dir():  # not if every seed diverged
        predictor = Predictor(out, device=setting.device)
        for split in missing:
            write_predictions(out, split, predictor.predict_rows(setting.task.splits[split], setting.rows[split]))
    return splits


def _settled(config: FinetuneConfig, folder: RunFolder) -> FinetuneConfig:
    """The config with the precision that the fine-tuning in its folder began in, where it leaves that open.

    Raises:
        CheckpointError: the folder is another kind of run's.
    """
    if not folder.config.is_file():
        return config
    try:
        stored = load_config(FinetuneConfig, folder.config)
    except ConfigError as error:
        raise CheckpointError(f"{folder.path} holds a run that is no fine-tuning; give another --out") from error
    if config.train.precision != "auto":
        return config
    return replace(config, train=replace(config.train, precision=stored.train.precision))


def _flag(result: SeedResult) -> str:
    return f" – failed: {result.failed}" if result.failed else ""


@dataclass(frozen=True)
class FinetuneResult:
    """What came of a fine-tuning's seeds."""

    out: Path
    task: str
    metric: str
    seeds: list[SeedResult]
    stopped_by: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0, or 128 + the signal's number, as shells have it."""
        return 128 + self.stopped_by if self.stopped_by else 0

    @property
    def best(self) -> SeedResult:
        """The seed with the best figure; a failed one comes behind all others, one that diverged last."""
        return max(self.seeds, key=lambda one: (one.failed is None, not one.diverged, one.metrics[self.metric]))

    @property
    def failed(self) -> int:
        """How many seeds count as failed."""
        return sum(result.failed is not None for result in self.seeds)

    def values(self, name: str) -> list[float]:
        """A figure of every seed, failed ones too."""
        return [result.metrics[name] for result in self.seeds]

    def facts(self, setting: FinetuneSetup) -> dict[str, Any]:
        """What results.json holds."""
        values = self.values(self.metric)
        return {
            "task": self.task,
            "metric": self.metric,
            "median": statistics.median(values),
            "mean": statistics.mean(values),
            "standard_deviation": statistics.stdev(values) if len(values) > 1 else None,
            "failed": self.failed,
            "seeds": [{k: v for k, v in asdict(result).items() if k != "identity"} for result in self.seeds],
            "best_seed": self.best.seed,
            "pretrained": setting.config.model,
            "model": None if self.best.diverged else "model",
            "examples": {split: len(examples) for split, examples in setting.task.splits.items()},
            "notes": list(setting.task.notes),
        }

    def __rich__(self) -> RenderableType:
        if self.stopped_by is not None:
            return f"{self.out}: stopped after {len(self.seeds)} seeds; the same command goes on"
        names = [name for name in self.seeds[0].metrics if "/" not in name][:SHOWN]
        table = Table("seed", *names, "", title=f"{self.task} on {DEV}", title_justify="left")
        for result in self.seeds:
            failed = f"failed: {result.failed}" if result.failed else ""
            table.add_row(str(result.seed), *(f"{result.metrics[name]:.4f}" for name in names), failed)
        if len(self.seeds) > 1:
            table.add_section()
            for words, of in (
                ("median", statistics.median),
                ("mean", statistics.mean),
                ("deviation", statistics.stdev),
            ):
                table.add_row(words, *(f"{of(self.values(name)):.4f}" for name in names), "")
        others = []
        for split in set.intersection(*(set(result.others) for result in self.seeds)):
            median = statistics.median(result.others[split][self.metric] for result in self.seeds)
            others.append(f"{split}: {self.metric} {median:.4f}")
        places = [f"results: {self.out / 'results.json'}"]
        if (self.out / "model").is_dir():
            places.append(f"best model: {self.out / 'model'}")
        return Group(table, *others, *places, *self.notes)

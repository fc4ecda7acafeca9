"""`electra finetune`: the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from electra.config import load_config, overrides_of
from electra.errors import ConfigError

if TYPE_CHECKING:
    from electra.finetuning.config import FinetuneConfig
    from electra.finetuning.dry_run import FinetunePlan
    from electra.finetuning.glue import GlueResult
    from electra.finetuning.run import FinetuneResult

MNLI = "mnli"
"""With --task glue, what --init-from-task names."""


@dataclass(frozen=True)
class FinetuneCommand:
    """The command line of `electra finetune`."""

    model: tyro.conf.Positional[str]
    """A run, an export, or a Hugging Face folder or id of a type that is read here."""
    task: str | None = None
    """A task by name, or a TOML file that describes one."""
    data: Path | None = None
    """The folder of the task's data; for GLUE, the folder that holds its folders; a table of your own."""
    out: Path | None = None
    """The folder of the results. What is there is resumed."""
    kind: Literal["classification", "pair", "multilabel", "regression", "tagging"] | None = None
    """What a table of your own, or tagged text, asks for."""
    seeds: int | None = None
    """How many runs; the results name median, mean and standard deviation."""
    seed: int | None = None
    """The first of the seeds."""
    init_from_task: str | None = None
    """Start from the encoder of this fine-tuning in place of MODEL (the paper: RTE and STS-B from MNLI); with
    --task glue say mnli, and those two start from the MNLI model of the same run."""
    fraction: float | None = None
    """Learn from this share of the training data only, drawn anew for each seed."""
    shots: int | None = None
    """Learn from so many examples of each label only, drawn anew for each seed."""
    submission: Path | None = None
    """Write the predictions of the test parts in GLUE's layout into this zip file."""
    fresh: bool = False
    """Start beside OUT (OUT-2, OUT-3, …) instead of resuming what is there."""
    dry_run: bool = False
    """Take a few steps, print the resolved config, time and memory, and stop."""
    overrides: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Any setting of the config, as `--section.name VALUE`."""


def run(command: FinetuneCommand) -> FinetuneResult | GlueResult | FinetunePlan:
    """Fine-tune an encoder for a task, with one seed or several, and keep the best model.

    Tasks by name: cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli (or glue: all that are there); squad,
    squad2; chunking, ner-conll2003, ner-wnut17, ner-bc5cdr, upos, xpos, ged. For a table of your own give --kind
    and name its columns. Every setting (docs/reference/configuration.md) can be given as --section.name VALUE.

    Examples:
        electra finetune RUN --task cola --data GLUE --out OUT --seeds 5
        electra finetune RUN --kind classification --data reviews.csv --data.text review --data.label stars --out O
    """
    from electra.finetuning.dry_run import plan_finetuning
    from electra.finetuning.glue import finetune_glue, write_submission
    from electra.finetuning.run import finetune
    from electra.tasks import glue

    config = read_command(command)
    if command.submission is not None and not command.submission.parent.is_dir():
        raise ConfigError(f"--submission: there is no folder {command.submission.parent}")
    if config.task == "glue" and config.kind == "named":
        if command.dry_run:
            raise ConfigError("--dry-run: takes one task at a time; name it in place of glue")
        if command.init_from_task not in (None, MNLI):
            raise ConfigError(f"--init-from-task: with --task glue only {MNLI} can be named")
        found = finetune_glue(config, from_mnli=command.init_from_task == MNLI, fresh=command.fresh)
        return _submitted(found, command.submission)
    if command.dry_run:
        return plan_finetuning(config)
    name = glue.canonical_name(config.task)
    if command.submission is not None and name is None:
        raise ConfigError("--submission: is for the tasks of GLUE")
    result = finetune(config, fresh=command.fresh)
    if command.submission is not None and name is not None and not result.exit_code:
        notes = write_submission(command.submission, {name: result.out})
        return replace(result, notes=[f"submission: {command.submission}", *notes])
    return result


def _submitted(found: GlueResult, path: Path | None) -> GlueResult:
    from electra.finetuning.glue import write_submission

    if path is None or found.exit_code:
        return found
    notes = write_submission(path, {name: result.out for name, result in found.results.items()})
    return replace(found, submission=path, notes=notes)


def read_command(command: FinetuneCommand) -> FinetuneConfig:
    """The config that a command line asks for: the TOML file of the task, if it is one, under all options."""
    from electra.finetuning.config import FinetuneConfig

    is_file = command.task is not None and (Path(command.task).suffix == ".toml" or Path(command.task).is_file())
    if is_file and not Path(command.task or "").is_file():
        raise ConfigError(f"--task: there is no file {command.task}")
    from_mnli = command.init_from_task == MNLI and (command.task == "glue" or is_file)
    named: dict[str, Any] = {
        "model": command.model if from_mnli else command.init_from_task or command.model,
        "task": None if is_file else command.task,
        "kind": command.kind, "seeds": command.seeds, "seed": command.seed, "out": command.out,
        "data.path": command.data, "data.fraction": command.fraction, "data.shots": command.shots,
    }  # fmt: skip
    given = overrides_of({name: value for name, value in named.items() if value is not None})
    config = load_config(FinetuneConfig, command.task if is_file else None, [*command.overrides, *given])
    if is_file:
        file = Path(command.task or "")
        config = _beside(replace(config, task=config.task or file.stem), file)
    return config


def _beside(config: FinetuneConfig, file: Path) -> FinetuneConfig:
    """The config with data that lie beside the file that names them, where they do not lie where one stands."""
    path = config.data.path
    if path is None or path.exists() or not (file.parent / path).exists():
        return config
    return replace(config, data=replace(config.data, path=file.parent / path))

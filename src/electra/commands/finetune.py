"""`electra finetune`: fine-tune an encoder for a task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from electra.config import COMMAND_LINE, load_config, overrides_of
from electra.config_fields import override_names, refuse_contradictions
from electra.errors import ConfigError, in_option

if TYPE_CHECKING:
    from electra.finetuning.config import FinetuneConfig
    from electra.finetuning.dry_run import FinetuneEstimate
    from electra.finetuning.glue import GlueResult
    from electra.finetuning.results import FinetuneResult

MNLI = "mnli"
"""Value of --init-from-task together with --task glue."""


@dataclass(frozen=True)
class FinetuneCommand:
    """The command line of `electra finetune`."""

    model: tyro.conf.Positional[str]
    """A run, an export, a Hugging Face folder or id of a supported type, or the included model wiki-tiny."""
    task: str | None = None
    """Name of a task, or a TOML file that describes one."""
    data: Path | None = None
    """Folder of the task's data. For GLUE, the folder that contains its folders. For your own data, a table.
    Required, here or in the TOML file."""
    out: Path | None = None
    """Folder of the results. An existing fine-tuning is resumed. Required, here or in the TOML file."""
    kind: str | None = None
    """Kind of problem, for your own data: classification, pair, multilabel, regression, tagging or answering."""
    seeds: int | None = None
    """Number of runs with different seeds (default: 1). The results have median, mean and standard deviation."""
    seed: int | None = None
    """First of the seeds (default: 0)."""
    init: Literal["pretrained", "random"] | None = None
    """Start from the weights of MODEL (the default), or from random ones in a network of its shape, to see what
    pre-training gains."""
    init_from_task: str | None = None
    """Start from the encoder of this fine-tuning instead of MODEL (the paper starts RTE and STS-B from MNLI). With
    --task glue, give mnli: RTE and STS-B then start from the MNLI model of the same run."""
    fraction: float | None = None
    """Train on this share of the training data only. Each seed has its own random sample."""
    shots: int | None = None
    """Train on this number of examples of each label only. Each seed has its own random sample."""
    submission: Path | None = None
    """Write the predictions of the test splits to this zip file, in GLUE's format."""
    device: str | None = None
    """Device to compute on, the setting train.device: auto, cpu, cuda, cuda:1 or mps. Default: that of the config,
    auto: a CUDA GPU if there is one, else the CPU."""
    fresh: bool = False
    """Start next to OUT (OUT-2, OUT-3, …) instead of resuming the existing fine-tuning."""
    dry_run: bool = False
    """Measure a few steps, print the resolved config, time and memory, and stop."""
    overrides: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Any setting of the config, as `--section.name VALUE`."""


def run(command: FinetuneCommand) -> FinetuneResult | GlueResult | FinetuneEstimate:
    """Fine-tune an encoder for a task, with one seed or several, and keep the best model.

    Tasks by name: cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli (or glue: all of them that have data);
    squad, squad2; chunking, ner-conll2003, ner-wnut17, ner-bc5cdr, upos, xpos, ged. For your own table, give
    --kind and, if their names are unusual, its columns: --data.text, --data.pair, --data.label. Every setting
    (docs/reference/configuration.md) can be given as --section.name VALUE.

    Examples:
        electra finetune RUN --task cola --data GLUE --out OUT --seeds 5
        electra finetune RUN --kind classification --data reviews.csv --out OUT
    """
    _check_paths(command)
    from electra.finetuning.load_task import find_task
    from electra.tasks import glue

    config = read_command(command)
    is_all_of_glue = config.task == "glue" and config.kind == "named"
    if not is_all_of_glue:
        find_task(config)  # a wrong name is refused before torch is imported, which takes seconds
    from electra.export.loading import find_model
    from electra.finetuning.dry_run import dry_run
    from electra.finetuning.glue import finetune_glue, write_submission
    from electra.finetuning.run import finetune
    from electra.modeling.device import check_device

    check_device(command.device or "auto")  # below, a message would name train.device
    if command.init_from_task is not None and config.init == "random":
        raise ConfigError("--init random: starts from no other weights; leave --init-from-task out")
    if command.init_from_task == config.model:
        with in_option("--init-from-task"):
            find_model(config.model)
    if command.submission is not None and not command.submission.parent.is_dir():
        raise ConfigError(f"--submission: there is no folder {command.submission.parent}")
    if command.dry_run:
        if is_all_of_glue:
            raise ConfigError("--dry-run: works for one task at a time; name it instead of glue")
        return dry_run(config)
    result: FinetuneResult | GlueResult
    if is_all_of_glue:
        if command.init_from_task not in (None, MNLI):
            raise ConfigError(f"--init-from-task: with --task glue, only {MNLI} can be given")
        result = finetune_glue(config, from_mnli=command.init_from_task == MNLI, fresh=command.fresh)
        folders = {name: task.out for name, task in result.results.items()}
    else:
        name = glue.canonical_name(config.task)
        if command.submission is not None and name is None:
            raise ConfigError("--submission: is only for the tasks of GLUE")
        result = finetune(config, fresh=command.fresh)
        folders = {name or config.task: result.out}
    if command.submission is None or result.exit_code:
        return result
    notes = write_submission(command.submission, folders)
    return replace(result, notes=[f"submission: {command.submission}", *notes])


def _check_paths(command: FinetuneCommand) -> None:
    """Check that the data and the folder of the results are given, before torch is imported, which takes seconds.

    Raises:
        ConfigError: one of them is missing, and there is no file that may have it.
    """
    given = override_names(command.overrides)
    missing = []
    if not command.data and not given & {"data.path", "data.train"}:
        missing.append("--data, the data of the task")
    if not command.out and not command.dry_run and "out" not in given:
        missing.append("--out, the folder to write to")
    if missing and not _names_file(command):
        raise ConfigError(f"a fine-tuning needs {' and '.join(missing)}")


def _names_file(command: FinetuneCommand) -> bool:
    """Whether --task is a TOML file."""
    file = Path(command.task or "")
    return command.task is not None and (file.suffix == ".toml" or file.is_file())


def read_command(command: FinetuneCommand) -> FinetuneConfig:
    """Return the config of a command line: the TOML file of the task, if it is one, and the options on top of
    it."""
    from electra.finetuning.config import FinetuneConfig

    file = Path(command.task or "")
    is_file = _names_file(command)
    if is_file and not file.is_file():
        raise ConfigError(f"--task: there is no file {file}")
    from_mnli = command.init_from_task == MNLI and (command.task == "glue" or is_file)
    options: dict[str, Any] = {
        "model": command.model if from_mnli else command.init_from_task or command.model,
        "task": None if is_file else command.task,
        "init": command.init,
        "kind": command.kind, "seeds": command.seeds, "seed": command.seed, "out": command.out,
    }  # fmt: skip
    with_other_name = {
        "train.device": ("device", command.device),
        "data.path": ("data", command.data),
        "data.fraction": ("fraction", command.fraction),
        "data.shots": ("shots", command.shots),
    }
    refuse_contradictions(with_other_name, command.overrides)
    options |= {setting: value for setting, (_, value) in with_other_name.items()}
    given = overrides_of({name: value for name, value in options.items() if value is not None})
    config = load_config(
        FinetuneConfig, file if is_file else None, [*command.overrides, *given], overrides_from=COMMAND_LINE
    )
    config = replace(config, tracking=config.tracking.trusted(override_names(command.overrides)))
    return _resolve_data_path(replace(config, task=config.task or file.stem), file) if is_file else config


def _resolve_data_path(config: FinetuneConfig, file: Path) -> FinetuneConfig:
    """Return the config with its data relative to the file that names them, if they are not in the current
    folder."""
    path = config.data.path
    if path is None or path.exists() or not (file.parent / path).exists():
        return config
    return replace(config, data=replace(config.data, path=file.parent / path))

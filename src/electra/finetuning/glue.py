"""Fine-tune for all tasks of GLUE, one after the other, and write files for its server."""

import json
import logging
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table

from electra.errors import CheckpointError, ConfigError, DataError
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.results import FinetuneResult
from electra.finetuning.run import finetune
from electra.json_files import write_json
from electra.objectives.metric_labels import metric_label
from electra.tasks import glue
from electra.training.run_folder import RunFolder, open_run

logger = logging.getLogger(__name__)

FROM_MNLI = ("rte", "sts-b")
"""Tasks with little data. For its submissions, the paper starts them from the model of MNLI."""
CONFIG_TEXT = 'task = "glue"\n'
"""Contents of config.toml in the folder that holds the tasks' folders."""
NOT_IN_AVERAGE = ("wnli",)
"""Tasks that do not count in the average, as in the paper: WNLI's dev set is adversarial to its training set."""


@dataclass(frozen=True)
class GlueResult:
    """The results of the tasks.

    Attributes:
        absent: tasks without data, by the name of their folder.
    """

    out: Path
    results: dict[str, FinetuneResult]
    absent: list[str]
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """That of the task that was stopped, else 0."""
        return next((result.exit_code for result in self.results.values() if result.exit_code), 0)

    @property
    def average(self) -> float | None:
        """Average of the medians, without WNLI."""
        medians = [self.median(name) for name in self.results if name not in NOT_IN_AVERAGE]
        return statistics.mean(medians) if medians else None

    def median(self, name: str) -> float:
        """Return the median of a task's metric over the seeds."""
        result = self.results[name]
        return statistics.median(result.values(result.metric))

    def __rich__(self) -> RenderableType:
        if self.exit_code:
            return f"{self.out}: stopped during {list(self.results)[-1]}; the same command resumes it"
        names = list(self.results)
        table = Table("", *(glue.TASKS[name].folder for name in names), "average", title_justify="left",
                      title="GLUE dev, median of the seeds")  # fmt: skip
        average = "–" if self.average is None else f"{100 * self.average:.1f}"
        table.add_row("", *(f"{100 * self.median(name):.1f}" for name in names), average)
        table.add_row("metric", *(metric_label(self.results[name].metric) for name in names), "without WNLI")
        failed = [self.results[name].failed for name in names]
        if any(failed):
            table.add_row("failed runs", *(str(number) for number in failed), str(sum(failed)))
        lines = [f"no data: {', '.join(self.absent)}; {glue.SOURCE}"] if self.absent else []
        return Group(table, *lines, *self.notes, f"results: {self.out / 'results.json'}")


def finetune_glue(config: FinetuneConfig, *, from_mnli: bool, fresh: bool = False) -> GlueResult:
    """Fine-tune for every task that has its training and dev files, each in its own folder.

    Args:
        from_mnli: start RTE and STS-B from the model of MNLI.

    Raises:
        ConfigError: the data or the output folder is not named, or there is no MNLI to start from.
        DataError: there is no task, or its data cannot be used.
    """
    data, out = config.data.path, config.out
    if out is None or data is None:
        raise ConfigError("give --data, the folder that holds GLUE's folders, and --out, the folder to write to")
    present = [name for name, task in glue.TASKS.items() if task.is_complete(data)]
    if not present:
        raise DataError(f"{data}: no task of GLUE has its train.tsv and dev.tsv here; {glue.SOURCE}")
    if from_mnli and "mnli" not in present:
        raise ConfigError(f"--init-from-task mnli: {data} has no MNLI to train on; {glue.SOURCE}")
    for name in present:  # find what is wrong with the data before anything is trained
        glue.TASKS[name].load_task(name, config.data, config.head)
    folder = open_run(out, fresh=fresh).path
    config_file = RunFolder(folder).config
    if config_file.is_file() and config_file.read_text(encoding="utf-8") != CONFIG_TEXT:
        raise CheckpointError(f"{folder} is the folder of another run; give another --out")
    config_file.write_text(CONFIG_TEXT, encoding="utf-8")
    results: dict[str, FinetuneResult] = {}
    for name in sorted(present, key=lambda name: name != "mnli"):
        model = str(folder / "mnli" / "model") if from_mnli and name in FROM_MNLI else config.model
        results[name] = finetune(replace(config, task=name, model=model, out=folder / name))
        if results[name].exit_code:
            return GlueResult(folder, results, [])
    absent = [task.folder for name, task in glue.TASKS.items() if name not in present]
    result = GlueResult(folder, {name: results[name] for name in glue.TASKS if name in results}, absent)
    content = {
        "task": "glue",
        "metric": "average",
        "median": result.average,
        "tasks": {
            name: {"metric": one.metric, "median": result.median(name), "failed": one.failed}
            for name, one in results.items()
        },
        "absent": absent,
    }
    write_json(folder / "results.json", content)
    return result


def write_submission(path: Path, folders: dict[str, Path]) -> list[str]:
    """Write a zip file with the predictions of the test splits, and return remarks about what is missing.

    Args:
        folders: the fine-tuning of each task.

    Raises:
        DataError: there are no predictions, or the file cannot be written.
    """
    texts: dict[str, str] = {}
    missing: list[str] = []
    for name, task in glue.TASKS.items():
        for split, file in task.submission_files().items():
            predictions = folders[name] / f"{split}.jsonl" if name in folders else None
            if predictions is None or not predictions.is_file():
                missing.append(file)
                continue
            with predictions.open(encoding="utf-8") as lines:
                texts[file] = glue.submission_text([json.loads(line) for line in lines])
    if not texts:
        raise DataError(f"{path}: no test split was predicted, so there is nothing to submit; {glue.SOURCE}")
    glue.write_submission(path, texts)
    return [f"the server also needs {', '.join(missing)}"] if missing else []

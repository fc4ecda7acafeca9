"""All of GLUE that is there, one fine-tuning after the other, and files for its server."""

import json
import logging
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table

from electra.errors import CheckpointError, ConfigError, DataError
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.run import FinetuneResult, finetune
from electra.json_files import write_json
from electra.tasks import glue
from electra.training.run_folder import RunFolder, open_run

logger = logging.getLogger(__name__)

FROM_MNLI = ("rte", "sts-b")
"""Tasks with little data, which the paper starts from the model of MNLI for its submissions."""
MARK = 'task = "glue"\n'
"""What stands in the config.toml of the folder that holds the tasks' folders."""
LEFT_OUT = ("wnli",)
"""Not in the average, as in the paper: its dev set is made against its training set."""


@dataclass(frozen=True)
class GlueResult:
    """The results of the tasks, and those that could not be run."""

    out: Path
    results: dict[str, FinetuneResult]
    absent: list[str]
    submission: Path | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """That of the task that was stopped, else 0."""
        return next((result.exit_code for result in self.results.values() if result.exit_code), 0)

    @property
    def stopped(self) -> bool:
        """Whether a signal ended it."""
        return self.exit_code != 0

    @property
    def average(self) -> float | None:
        """Of the medians, without WNLI."""
        medians = [self.median(name) for name in self.results if name not in LEFT_OUT]
        return statistics.mean(medians) if medians else None

    def median(self, name: str) -> float:
        """Of a task's headline figure over the seeds."""
        result = self.results[name]
        return statistics.median(result.values(result.metric))

    def __rich__(self) -> RenderableType:
        if self.stopped:
            return f"{self.out}: stopped in {list(self.results)[-1]}; the same command goes on"
        names = list(self.results)
        table = Table("", *(glue.TASKS[name].folder for name in names), "average", title_justify="left",
                      title="GLUE dev, median of the seeds")  # fmt: skip
        average = "–" if self.average is None else f"{100 * self.average:.1f}"
        table.add_row("", *(f"{100 * self.median(name):.1f}" for name in names), average)
        table.add_row("metric", *(self.results[name].metric for name in names), "without WNLI")
        failed = [self.results[name].failed for name in names]
        if any(failed):
            table.add_row("failed runs", *(str(number) for number in failed), str(sum(failed)))
        lines = [f"not there: {', '.join(self.absent)}; {glue.SOURCE}"] if self.absent else []
        if self.submission:
            lines.append(f"submission: {self.submission}")
        return Group(table, *lines, *self.notes, f"results: {self.out / 'results.json'}")


def finetune_glue(config: FinetuneConfig, *, from_mnli: bool, fresh: bool = False) -> GlueResult:
    """Fine-tune for every task whose training and dev files are there, each in a folder of its own.

    Args:
        from_mnli: start RTE and STS-B from the model of MNLI.

    Raises:
        ConfigError: there is no MNLI to start from.
        DataError: no task is there.
    """
    if config.out is None or config.data.path is None:
        raise ConfigError("give --data, the folder that holds GLUE's folders, and --out, the folder to write to")
    here = [name for name in glue.TASKS if glue.TASKS[name].is_complete(config.data.path)]
    if not here:
        raise DataError(f"{config.data.path}: no task of GLUE has its train.tsv and dev.tsv here; {glue.SOURCE}")
    if from_mnli and "mnli" not in here:
        raise ConfigError(f"--init-from-task mnli: {config.data.path} has no MNLI to train on; {glue.SOURCE}")
    for name in here:  # what is wrong with the data is said before anything is trained
        glue.TASKS[name].load_task(name, config.data, config.head)
    folder = open_run(config.out, fresh=fresh).path
    mark = RunFolder(folder).config
    if mark.is_file() and mark.read_text(encoding="utf-8") != MARK:
        raise CheckpointError(f"{folder} holds another run; give another --out")
    mark.write_text(MARK, encoding="utf-8")
    results: dict[str, FinetuneResult] = {}
    for name in sorted(here, key=lambda name: name != "mnli"):
        model = str(folder / "mnli" / "model") if from_mnli and name in FROM_MNLI else config.model
        results[name] = finetune(replace(config, task=name, model=model, out=folder / name))
        if results[name].exit_code:
            return GlueResult(folder, results, [])
    absent = [glue.TASKS[name].folder for name in glue.TASKS if name not in here]
    found = GlueResult(folder, {name: results[name] for name in glue.TASKS if name in results}, absent)
    facts = {
        "task": "glue",
        "metric": "average",
        "median": found.average,
        "tasks": {
            name: {"metric": result.metric, "median": found.median(name), "failed": result.failed}
            for name, result in results.items()
        },
        "absent": absent,
    }
    write_json(folder / "results.json", facts)
    return found


def write_submission(path: Path, folders: dict[str, Path]) -> list[str]:
    """Zip the predictions of the test parts that fine-tunings wrote; what is missing comes back as notes.

    Raises:
        DataError: there is nothing to submit, or the file cannot be written.
    """
    texts: dict[str, str] = {}
    missing: list[str] = []
    for name in glue.TASKS:
        for split, file in glue.TASKS[name].submission_files().items():
            predictions = folders[name] / f"{split}.jsonl" if name in folders else None
            if predictions is None or not predictions.is_file():
                missing.append(file)
                continue
            with predictions.open(encoding="utf-8") as lines:
                texts[file] = glue.submission_text([json.loads(line) for line in lines])
    if not texts:
        raise DataError(f"{path}: no test part was predicted, so there is nothing to submit; {glue.SOURCE}")
    glue.write_submission(path, texts)
    return [f"the server also wants {', '.join(missing)}"] if missing else []

"""GLUE: its official TSV files with their irregularities, the settings of its tasks, and files for submission.

The files are those of https://gluebenchmark.com: one folder per task. They are read without quoting, because
quotation marks are part of the text. A line that lacks a column (QQP has some) is skipped and counted, but it is
an error in a test split.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from electra import durable
from electra.errors import DataError
from electra.readers.lines import check_is_text, read_lines

if TYPE_CHECKING:
    from electra.tasks.base import Prediction, Task
    from electra.tasks.classification import Classification
    from electra.tasks.config import DataConfig, HeadConfig
    from electra.tasks.regression import Regression
    from electra.tasks.texts import TextExample

SOURCE = "the official files are at https://gluebenchmark.com/tasks, one folder per task"
NLI = ("contradiction", "entailment", "neutral")
BINARY = ("0", "1")
AX = "AX"
_COLA_COLUMNS = {"label": 1, "sentence": 3}
"""Columns of CoLA's train.tsv and dev.tsv, which have no header."""


@dataclass(frozen=True)
class GlueTask:
    """One task of GLUE.

    Attributes:
        folder: its name in the official download.
        texts: the columns of the texts.
        label: the column of the label.
        labels: in the order of the network's outputs; empty: the label is a number from 0 to 5.
        metrics: GLUE's metrics; the first one is that of the paper's tables.
        submission: name of the file for the test split in a submission.
        splits: file names without their ending, by split.
        headerless: splits whose files have no header.
        default_epochs: the original's number of epochs.
        symmetric: a pair means the same in the other order; runs train on both orders.
        diagnostic: models of this task also predict the diagnostic set AX.
    """

    folder: str
    texts: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    submission: str
    splits: Mapping[str, str]
    headerless: tuple[str, ...] = ()
    default_epochs: int = 3
    symmetric: bool = False
    diagnostic: bool = False
    data_settings = ()

    def load_task(self, name: str, data: DataConfig, head: HeadConfig) -> Task:
        """Load all splits that there are.

        Raises:
            DataError: a file that training needs is missing, or a file cannot be read.
        """
        from electra.tasks.base import Task
        from electra.tasks.classification import Classification
        from electra.tasks.regression import Regression

        path = data.path or Path()
        if (folder := self.find_folder(path)) is None:
            raise DataError(f"{path}: there is no folder {self.folder}; {SOURCE}")
        if missing := [f"{self.splits[split]}.tsv" for split in ("train", "dev") if not self._file(folder, split)]:
            raise DataError(f"{folder}: {' and '.join(missing)} of {self.folder} missing; {SOURCE}")
        splits: dict[str, list[TextExample]] = {}
        notes: list[str] = []
        for split in self.splits:
            if file := self._file(folder, split):
                splits[split] = self._read(file, split, notes)
        if self.diagnostic and (file := _find_diagnostic(folder)):
            splits["diagnostic"] = self._read(file, "test", notes)
        if self.symmetric:
            notes.append("runs train on both orders of every pair")
        pair = len(self.texts) == 2
        problem: Classification | Regression
        if self.labels:
            problem = Classification(self.metrics, head.text, pair, self.labels)
        else:
            problem = Regression(self.metrics, head.text, pair, low=0.0, high=5.0)
        notes += [
            f"{split}: {len(examples):,} examples{problem.describe_answers(examples)}"
            for split, examples in splits.items()
        ]
        return Task(name, problem, splits, tuple(notes), self.symmetric, self.default_epochs)

    def find_folder(self, data: Path) -> Path | None:
        """Return the folder of the task in the download; or `data` itself if it has the files."""
        if data.is_dir():
            for folder in sorted(data.iterdir()):
                if folder.is_dir() and _normalize(folder.name) == _normalize(self.folder):
                    return folder
            if self._file(data, "dev"):
                return data
        return None

    def is_complete(self, data: Path) -> bool:
        """Return whether the download has the folder of the task with the files for training."""
        folder = self.find_folder(data)
        return folder not in (None, data) and all(self._file(folder, split) for split in ("train", "dev"))

    def submission_files(self) -> dict[str, str]:
        """Return the name of the file in a submission for each split that is predicted."""
        files = {"test": f"{self.submission}.tsv"}
        if "test-mismatched" in self.splits:
            files["test-mismatched"] = f"{self.submission.removesuffix('-m')}-mm.tsv"
        if self.diagnostic:
            files["diagnostic"] = f"{AX}.tsv"
        return files

    def _file(self, folder: Path, split: str) -> Path | None:
        path = folder / f"{self.splits[split]}.tsv"
        return path if path.is_file() else None

    def _read(self, path: Path, split: str, notes: list[str]) -> list[TextExample]:
        """Return the examples of a file. Those of a test split have no answers, whatever the file has."""
        from electra.tasks.texts import TextExample

        check_is_text(path)
        is_test = split.startswith("test")
        lines = read_lines(path)
        columns: dict[str, int] = dict(_COLA_COLUMNS)
        if split not in self.headerless:
            header = _decode(path, *next(lines, (1, b""))).split("\t")
            columns = {name.strip(): column for column, name in enumerate(header)}
        needed = [*self.texts, *([] if is_test else [self.label])]
        if missing := [name for name in needed if name not in columns]:
            raise DataError(
                f"{path}: no column {', '.join(map(repr, missing))}; the columns are "
                f"{', '.join(map(repr, columns))}; {SOURCE}"
            )
        examples: list[TextExample] = []
        short = 0
        for number, line in lines:
            fields = _decode(path, number, line).split("\t")
            if len(fields) <= max(columns[name] for name in needed):
                if is_test and line:  # predictions are submitted by number
                    raise DataError(f"{path}:{number}: the line lacks a column; {SOURCE}")
                short += any(field.strip() for field in fields)
                continue
            texts = [fields[columns[name]].strip() for name in self.texts]
            answer = None if is_test else self._answer(path, number, fields[columns[self.label]].strip())
            examples.append(TextExample(texts[0], texts[1] if len(texts) > 1 else None, answer))
        if not examples:
            raise DataError(f"{path}: the file has no examples; {SOURCE}")
        if short:
            notes.append(f"{path.name}: {short} lines lack a column and are skipped")
        return examples

    def _answer(self, path: Path, number: int, text: str) -> float:
        if self.labels:
            if text not in self.labels:
                raise DataError(
                    f"{path}:{number}: the label should be one of {', '.join(self.labels)}, got {text!r}"
                )
            return self.labels.index(text)
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not 0 <= value <= 5:
            raise DataError(f"{path}:{number}: the score should be a number from 0 to 5, got {text!r}")
        return value


_SPLITS = {"train": "train", "dev": "dev", "test": "test"}
TASKS: dict[str, GlueTask] = {
    "cola": GlueTask(
        "CoLA", ("sentence",), "label", BINARY, ("matthews", "accuracy"), "CoLA", _SPLITS, ("train", "dev")
    ),
    "sst-2": GlueTask("SST-2", ("sentence",), "label", BINARY, ("accuracy",), "SST-2", _SPLITS),
    "mrpc": GlueTask(
        "MRPC", ("#1 String", "#2 String"), "Quality", BINARY, ("accuracy", "f1"), "MRPC", _SPLITS, symmetric=True
    ),
    "sts-b": GlueTask(
        "STS-B", ("sentence1", "sentence2"), "score", (), ("spearman", "pearson"), "STS-B", _SPLITS,
        default_epochs=10, symmetric=True,
    ),
    "qqp": GlueTask(
        "QQP", ("question1", "question2"), "is_duplicate", BINARY, ("accuracy", "f1"), "QQP", _SPLITS
    ),
    "mnli": GlueTask(
        "MNLI", ("sentence1", "sentence2"), "gold_label", NLI, ("accuracy",), "MNLI-m",
        {
            "train": "train", "dev": "dev_matched", "dev-mismatched": "dev_mismatched",
            "test": "test_matched", "test-mismatched": "test_mismatched",
        },
        diagnostic=True,
    ),
    "qnli": GlueTask(
        "QNLI", ("question", "sentence"), "label", ("entailment", "not_entailment"), ("accuracy",), "QNLI", _SPLITS
    ),
    "rte": GlueTask(
        "RTE", ("sentence1", "sentence2"), "label", ("entailment", "not_entailment"), ("accuracy",), "RTE",
        _SPLITS, default_epochs=10,
    ),
    "wnli": GlueTask("WNLI", ("sentence1", "sentence2"), "label", BINARY, ("accuracy",), "WNLI", _SPLITS),
}  # fmt: skip
"""The tasks by name. AX, the diagnostic set, has no training data; a model of MNLI predicts it."""


def canonical_name(name: str) -> str | None:
    """Return the key of a task in `TASKS` for a name in any case, with or without hyphens."""
    return next((known for known in TASKS if _normalize(known) == _normalize(name)), None)


def submission_text(predictions: Sequence[Prediction]) -> str:
    """Return the predictions of a test split in the official format."""
    lines = ["index\tprediction"]
    for index, prediction in enumerate(predictions):
        if "value" in prediction:
            lines.append(f"{index}\t{min(5.0, max(0.0, prediction['value'])):.3f}")
        else:
            lines.append(f"{index}\t{prediction['label']}")
    return "\n".join(lines) + "\n"


def write_submission(path: Path, texts: Mapping[str, str]) -> None:
    """Write the zip file that the benchmark's server accepts.

    Args:
        texts: contents by file name.

    Raises:
        DataError: it cannot be written.
    """

    def write(partial: Path) -> None:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in sorted(texts.items()):
                archive.writestr(name, text)

    try:
        durable.write(path, write)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error})") from error


def _normalize(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _find_diagnostic(folder: Path) -> Path | None:
    """Return the file of AX, which is in MNLI's folder or in a folder next to it."""
    siblings = [folder.parent / name for name in ("AX", "ax", "diagnostic")]
    files = [place / "diagnostic.tsv" for place in (*siblings, folder)]
    return next((file for file in files if file.is_file()), None)


def _decode(path: Path, number: int, line: bytes | None) -> str:
    try:
        return (line or b"").decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: invalid UTF-8 ({error.reason}); {SOURCE}") from error

"""GLUE: the official TSV files with their irregularities, the tasks' settings, and files for submission.

The files are what https://gluebenchmark.com hands out: a folder a task. They are read without quoting, since
quotation marks in them are text; a line that lacks a column (QQP has some) is passed over and counted, but refused
in a test part.
"""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from electra import durable
from electra.errors import DataError
from electra.readers.files import check_is_text, read_lines
from electra.tasks.base import Prediction, Task
from electra.tasks.classification import Classification, Regression, TextExample, TextHeadKind
from electra.tasks.tabular import describe_labels

SOURCE = "the official files come from https://gluebenchmark.com/tasks, a folder a task"
NLI = ("contradiction", "entailment", "neutral")
BINARY = ("0", "1")


@dataclass(frozen=True)
class Spec:
    """One task of GLUE.

    Attributes:
        folder: its name in the official download.
        texts: the columns of the texts, by name; in files without a header, by number.
        label: the column of the answer, likewise.
        labels: in the order of the network's outputs; none for a number from 0 to 5.
        metrics: those that GLUE judges it by; the first is the one of the paper's tables.
        splits: the files, without their ending, by split.
        headerless: splits whose file has no line with the names of the columns.
        paper_epochs: the original's epochs of training.
        symmetric: a pair in the other order means the same, and both orders are trained on.
    """

    folder: str
    texts: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    submission: str
    splits: Mapping[str, str]
    headerless: tuple[str, ...] = ()
    paper_epochs: int = 3
    symmetric: bool = False


_USUAL = {"train": "train", "dev": "dev", "test": "test"}
SPECS: dict[str, Spec] = {
    "cola": Spec(
        "CoLA", ("sentence",), "label", BINARY, ("matthews", "accuracy"), "CoLA", _USUAL, ("train", "dev")
    ),
    "sst-2": Spec("SST-2", ("sentence",), "label", BINARY, ("accuracy",), "SST-2", _USUAL),
    "mrpc": Spec(
        "MRPC", ("#1 String", "#2 String"), "Quality", BINARY, ("accuracy", "f1"), "MRPC", _USUAL, symmetric=True
    ),
    "sts-b": Spec(
        "STS-B", ("sentence1", "sentence2"), "score", (), ("spearman", "pearson"), "STS-B", _USUAL,
        paper_epochs=10, symmetric=True,
    ),
    "qqp": Spec(
        "QQP", ("question1", "question2"), "is_duplicate", BINARY, ("accuracy", "f1"), "QQP", _USUAL
    ),
    "mnli": Spec(
        "MNLI", ("sentence1", "sentence2"), "gold_label", NLI, ("accuracy",), "MNLI-m",
        {
            "train": "train", "dev": "dev_matched", "dev-mismatched": "dev_mismatched",
            "test": "test_matched", "test-mismatched": "test_mismatched",
        },
    ),
    "qnli": Spec(
        "QNLI", ("question", "sentence"), "label", ("entailment", "not_entailment"), ("accuracy",), "QNLI", _USUAL
    ),
    "rte": Spec(
        "RTE", ("sentence1", "sentence2"), "label", ("entailment", "not_entailment"), ("accuracy",), "RTE", _USUAL,
        paper_epochs=10,
    ),
    "wnli": Spec("WNLI", ("sentence1", "sentence2"), "label", BINARY, ("accuracy",), "WNLI", _USUAL),
}  # fmt: skip
"""The tasks by name. AX, the diagnostic set, has no training data: a model of MNLI predicts it."""

AX = "AX"
_HEADERLESS = {"label": 1, "sentence": 3}  # the columns of CoLA's train.tsv and dev.tsv


def canonical_name(name: str) -> str | None:
    """The task's name as it stands in `SPECS`, whatever case and hyphens it is written with."""
    plain = name.lower().replace("-", "").replace("_", "")
    return next((known for known in SPECS if known.replace("-", "") == plain), None)


def folder_of(name: str, data: Path) -> Path | None:
    """The folder of a task inside the download; or the given one, where it holds the files itself."""
    spec = SPECS[name]
    plain = spec.folder.lower().replace("-", "")
    if data.is_dir():
        for folder in sorted(data.iterdir()):
            if folder.is_dir() and folder.name.lower().replace("-", "").replace("_", "") == plain:
                return folder
        if (data / f"{spec.splits['dev']}.tsv").is_file():
            return data
    return None


def load_glue_task(name: str, data: Path, *, head_kind: TextHeadKind = "linear") -> Task:
    """A task with all its splits that are there.

    Raises:
        DataError: files that training needs are missing, or one cannot be read.
    """
    spec, folder = SPECS[name], folder_of(name, data)
    if folder is None:
        raise DataError(f"{data}: there is no folder {spec.folder} here; {SOURCE}")
    missing = [f"{spec.splits[split]}.tsv" for split in ("train", "dev") if not _file(folder, spec, split)]
    if missing:
        raise DataError(f"{folder}: {' and '.join(missing)} of {spec.folder} missing; {SOURCE}")
    splits: dict[str, list[TextExample]] = {}
    notes: list[str] = []
    for split in spec.splits:
        if path := _file(folder, spec, split):
            splits[split] = _read(path, spec, split, notes)
    if name == "mnli" and (path := _diagnostic(folder)):
        splits["diagnostic"] = _read(path, spec, "test", notes)
    if spec.symmetric:
        notes.append("every pair is trained on in both orders")
    problem: Classification | Regression
    if spec.labels:
        problem = Classification(spec.metrics, head_kind, len(spec.texts) == 2, spec.labels)
    else:
        problem = Regression(spec.metrics, head_kind, len(spec.texts) == 2, low=0.0, high=5.0)
    notes += [
        f"{split}: {len(found):,} examples{describe_labels(problem, found)}" for split, found in splits.items()
    ]
    return Task(name, problem, splits, tuple(notes), spec.symmetric)


def _file(folder: Path, spec: Spec, split: str) -> Path | None:
    path = folder / f"{spec.splits[split]}.tsv"
    return path if path.is_file() else None


def _diagnostic(folder: Path) -> Path | None:
    """AX lies beside MNLI, in a folder of one of two names, or in it."""
    beside = [folder.parent / name for name in ("AX", "ax", "diagnostic")]
    return next((path for one in (*beside, folder) if (path := one / "diagnostic.tsv").is_file()), None)


def _read(path: Path, spec: Spec, split: str, notes: list[str]) -> list[TextExample]:
    """The examples of a file. Those of a split called test have no answers, whatever the file says."""
    check_is_text(path)
    lines = read_lines(path)
    names: dict[str, int] = dict(_HEADERLESS)
    if split not in spec.headerless:
        header = _decoded(path, *next(lines, (1, b""))).split("\t")
        names = {name.strip(): column for column, name in enumerate(header)}
    wanted = [*spec.texts, *([] if split.startswith("test") else [spec.label])]
    if absent := [name for name in wanted if name not in names]:
        raise DataError(
            f"{path}: no column {', '.join(map(repr, absent))}; the columns are {', '.join(map(repr, names))}; "
            f"{SOURCE}"
        )
    examples: list[TextExample] = []
    short = 0
    for number, line in lines:
        fields = _decoded(path, number, line).split("\t")
        if len(fields) <= max(names[name] for name in wanted):
            if split.startswith("test") and line:  # predictions are handed in by number
                raise DataError(f"{path}:{number}: the line lacks a column; {SOURCE}")
            short += any(field.strip() for field in fields)
            continue
        texts = [fields[names[name]].strip() for name in spec.texts]
        answer = (
            None if split.startswith("test") else _answer(path, number, spec, fields[names[spec.label]].strip())
        )
        examples.append(TextExample(texts[0], texts[1] if len(texts) > 1 else None, answer))
    if not examples:
        raise DataError(f"{path}: there are no examples in it; {SOURCE}")
    if short:
        notes.append(f"{path.name}: {short} lines lack a column and were passed over")
    return examples


def _decoded(path: Path, number: int, line: bytes | None) -> str:
    try:
        return (line or b"").decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: broken UTF-8 ({error.reason}); {SOURCE}") from error


def _answer(path: Path, number: int, spec: Spec, text: str) -> float:
    if not spec.labels:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not 0 <= value <= 5:
            raise DataError(f"{path}:{number}: the score should be a number from 0 to 5, found {text!r}")
        return value
    if text not in spec.labels:
        raise DataError(f"{path}:{number}: the label should be one of {', '.join(spec.labels)}, found {text!r}")
    return spec.labels.index(text)


def submission_text(predictions: Sequence[Prediction]) -> str:
    """A file of predictions for the test set, in the official layout."""
    lines = ["index\tprediction"]
    for index, prediction in enumerate(predictions):
        if "value" in prediction:
            lines.append(f"{index}\t{min(5.0, max(0.0, prediction['value'])):.3f}")
        else:
            lines.append(f"{index}\t{prediction['label']}")
    return "\n".join(lines) + "\n"


def submission_files(name: str) -> dict[str, str]:
    """The name of the file in a submission for each split that is predicted."""
    spec = SPECS[name]
    files = {"test": f"{spec.submission}.tsv"}
    if name == "mnli":
        files |= {"test-mismatched": "MNLI-mm.tsv", "diagnostic": f"{AX}.tsv"}
    return files


def write_submission(path: Path, texts: Mapping[str, str]) -> None:
    """The zip file that the benchmark's server takes.

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

"""The user's own tables: texts and labels in columns of .csv, .tsv, .jsonl or .parquet files."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.errors import DataError, caller_name, did_you_mean
from electra.readers.base import known_endings
from electra.readers.read import is_table, read_records
from electra.tasks import json_splits
from electra.tasks.base import Task
from electra.tasks.config import DataConfig
from electra.tasks.subsampling import stratified_split, stratify
from electra.tasks.table_columns import PAIR_COLUMNS, find_columns
from electra.tasks.texts import SHOWN_LABELS, TextExample, TextProblem, describe_untested_labels

MAX_LABELS = 1000
"""Maximum number of labels. A column with more values is probably not the column of the labels."""
SPLIT_NAMES = {
    "train": ("train",),
    "dev": ("dev", "devel", "valid", "validation", "val"),
    "test": ("test",),
}
"""The first or the last word of the name of a split's file, as in train.csv and sts-train.tsv."""
SENTEVAL_FILES = (
    "*.pos", "*.neg", "*.objective", "*.subjective", "train_5500.label", "sentiment-train", "*/sentiment-train",
    "SICK_train.txt",
)  # fmt: skip
"""Files of SentEval's tasks, which are no tables by their names."""
SPLIT_SEED = 0
"""Seed of the dev split that is taken from train: the same for all runs."""


@dataclass(frozen=True)
class TableRow:
    """A row of a table: its place for messages, its text or texts, and its label as it is in the file.

    Attributes:
        label_column: None: the file has no columns.
    """

    place: str
    first: str
    second: str | None
    label: Any
    label_column: str | None = None

    @property
    def has_label(self) -> bool:
        return self.label is not None and bool(str(self.label).strip())

    def example(self, answer: float | tuple[int, ...] | None) -> TextExample:
        """Return the row as an example with this answer."""
        return TextExample(self.first, self.second, answer)


@dataclass(frozen=True)
class Table:
    """The rows of a task's files by split, `train` at least, and remarks for the log."""

    splits: Mapping[str, list[TableRow]]
    notes: tuple[str, ...]

    @property
    def has_pairs(self) -> bool:
        return self.splits["train"][0].second is not None


def read_table(data: DataConfig, *, pairs: bool | None = None) -> Table:
    """Return the rows of all files of a task.

    Args:
        pairs: whether the rows have two texts. None: if the columns of the training file have such names.

    Raises:
        DataError: a file, a column or a text cannot be used; the first one is named.
    """
    notes: list[str] = []
    if data.path is not None and data.path.is_file() and data.path.suffix == json_splits.SUFFIX:
        return _read_json(data.path, data, pairs=pairs)
    files = find_files(data)
    splits: dict[str, list[TableRow]] = {}
    no_labels: Sequence[str] = ()
    for split in sorted(files, key=list(SPLIT_NAMES).index):  # train first, which decides about pairs
        rows = splits[split] = list(_read_rows(files[split], data, split, notes, pairs=pairs, no_labels=no_labels))
        if not rows:
            raise DataError(f"{files[split]}: the file has no rows")
        pairs = rows[0].second is not None
        if split == "train":
            names = next(read_records(files[split]))[1]
            no_labels = [name for name in names if name != rows[0].label_column]
    return Table(splits, tuple(notes))


def _read_json(path: Path, data: DataConfig, *, pairs: bool | None) -> Table:
    """Return the rows of a task in one .json file.

    Raises:
        DataError: the file has another layout, a text cannot be used, or a setting does not apply.
    """
    given = [f"data.{name}" for name in (*SPLIT_NAMES, "text", "pair", "label") if getattr(data, name) is not None]
    if given or pairs:
        raise DataError(
            f"{path}: a task in one .json file has lists of [text, label], no columns and no pairs; "
            + (f"leave {', '.join(given)} out" if given else "give --kind classification, or another format")
        )
    rows = json_splits.read_json_splits(path, _split_of)
    if not rows.get("train"):
        raise DataError(f"{path}: there is no training text; a task in one file is {json_splits.LAYOUT}")
    splits = {
        split: [
            TableRow(place, _check_text(text, place, "text"), None, label) for place, text, label in rows[split]
        ]
        for split in SPLIT_NAMES
        if rows.get(split)
    }
    return Table(splits, ())


def read_test_texts(path: Path) -> list[tuple[str, Any]]:
    """Return the texts and labels of the test split of a task in one .json file.

    Raises:
        DataError: the file has another layout or no test split, or a text cannot be used.
    """
    rows = json_splits.read_json_splits(path, _split_of).get("test")
    if not rows:
        raise DataError(f"{path}: there is no test text; a task in one file is {json_splits.LAYOUT}")
    return [(_check_text(text, place, "text"), label) for place, text, label in rows]


def build_table_task(
    name: str, problem: TextProblem, examples: Mapping[str, list[TextExample]], table: Table, *, dev_share: float
) -> Task:
    """Return the task of a table's examples. Without a dev file, dev is a stratified part of train.

    Raises:
        DataError: no part can be split off.
    """
    splits, notes = dict(examples), []
    if "dev" not in splits:
        train = splits["train"]
        groups = stratify([example.answer for example in train], dev_share)
        kept, held_out = stratified_split(groups, dev_share, seed=SPLIT_SEED)
        if not len(held_out):
            file = file_of(table.splits["train"])
            raise DataError(f"{file}: no label occurs twice, so no dev part can be split off; give a dev file")
        splits |= {"dev": [train[i] for i in held_out], "train": [train[i] for i in kept]}
        notes = [f"no dev file: {len(held_out):,} of the {len(train):,} training rows are used for it"]
    notes += [
        f"{split}: {len(rows):,} row{'s' * (len(rows) != 1)}{problem.describe_answers(rows)}"
        for split, rows in splits.items()
    ]
    if labels := getattr(problem, "labels", ()):
        notes += describe_untested_labels(labels, splits["train"], splits["dev"])
    return Task(name, problem, splits, (*notes, *table.notes))


def find_files(
    data: DataConfig, *, fits: Callable[[Path], bool] = is_table, remedy: str | None = None
) -> dict[str, Path]:
    """Return the file of each split: the named one, else the one of the folder with such a name.

    If the data are a single file, it is `train`.

    Args:
        fits: whether a file of the folder has the right format.
        remedy: what to do if a folder has no training file. None: advice for tables.

    Raises:
        DataError: there is no training file, a named file is missing, or two files could be the same split.
    """
    path = data.path or Path()
    if path.is_file():
        folder, files = path.parent, {"train": path}
    elif path.is_dir():
        folder, files = path, {}
        candidates = [file for file in sorted(path.iterdir()) if file.is_file() and fits(file)]
        for split, names in SPLIT_NAMES.items():
            matching = [file for file in candidates if _words(file.name)[0] in names]
            matching = matching or [file for file in candidates if _words(file.name)[-1] in names]
            if len(matching) > 1 and not getattr(data, split):
                listed = ", ".join(file.name for file in matching)
                raise DataError(
                    f"{path}: there are {len(matching)} files for {split}: {listed}; choose one with "
                    f"--data.{split} FILE"
                )
            if matching:
                files[split] = matching[0]
    else:
        raise DataError(f"{path}: there is no such file or folder")
    for split in SPLIT_NAMES:
        if (name := getattr(data, split)) is not None:
            if not (folder / name).is_file():
                raise DataError(f"data.{split}: there is no file {folder / name}")
            files[split] = folder / name
    if "train" not in files:
        raise DataError(f"{path}: there is no training file; {remedy or _remedy_for_layout(path)}")
    return files


def _remedy_for_layout(folder: Path) -> str:
    """Return what to do with a folder that has no table to train on."""
    remedy = (
        "name one train.csv, or choose the files with --data.train FILE, --data.dev FILE and --data.test FILE "
        f"({known_endings(tables=True)})"
    )
    if found := sorted(path for pattern in SENTEVAL_FILES for path in folder.glob(pattern)):
        listed = ", ".join(path.relative_to(folder).as_posix() for path in found[:3])
        files, them = ("this file is", "it") if len(found) == 1 else ("these files are", "them")
        return (
            f"{remedy}. If {files} SentEval's ({listed}), docs/guides/finetuning.md (Other layouts) says how to "
            f"make a table of {them}"
        )
    if whole := min(folder.glob(f"*{json_splits.SUFFIX}"), default=None):
        option = caller_name("--data", "`data.path`")
        return f"{remedy}. If {whole.name} has all splits, as CLINC150's, give it itself: {option} {whole}"
    return remedy


def order_labels(labels: Sequence[str], file: str) -> tuple[str, ...]:
    """Return the distinct labels in order: by value if all are numbers, else alphabetically.

    Raises:
        DataError: there is only one label, or there are too many.
    """
    counts = Counter(labels)
    if len(counts) > MAX_LABELS or (len(labels) >= 100 and len(counts) > len(labels) / 2):
        raise DataError(
            f"{file}: {len(counts):,} different labels in {len(labels):,} rows; is this the right column? Name it "
            "with --data.label; if the labels are numbers to predict, give --kind regression"
        )
    if len(counts) < 2:
        raise DataError(f"{file}: there is only one label, {next(iter(counts), '')!r}; nothing can be learned")
    try:
        numeric = all(math.isfinite(float(label)) for label in counts)  # "nan" has no order
    except ValueError:
        numeric = False
    return tuple(sorted(counts, key=float if numeric else None))


def label_index(label: str, indices: Mapping[str, int], place: str) -> int:
    """Return the number of a label.

    Raises:
        DataError: the training rows do not have it.
    """
    if label not in indices:
        known = list(indices)
        raise DataError(
            f"{place}: the label {label!r} does not occur in train{did_you_mean(label, known)}; the labels are "
            f"{', '.join(known[:SHOWN_LABELS])}"
        )
    return indices[label]


def file_of(rows: Sequence[TableRow]) -> str:
    """Return the name of the file that rows come from."""
    return rows[0].place.rpartition(":")[0]


def _read_rows(
    path: Path, data: DataConfig, split: str, notes: list[str], *, pairs: bool | None, no_labels: Sequence[str]
) -> Iterator[TableRow]:
    """Yield the rows of a file. Rows of the test split may lack the label. `notes` gets the columns used."""
    columns: tuple[str, str | None, str | None] | None = None
    for line, record in read_records(path):
        if columns is None:
            columns = find_columns(
                path, list(record), data, pairs=pairs, needs_label=split != "test", no_labels=no_labels
            )
            notes.append(f"{split}: {_describe_columns(columns, list(record))}")
        text, pair, label = columns
        place = f"{path}:{line}"
        first = _check_text(record.get(text), place, text)
        second = None if pair is None else _check_text(record.get(pair), place, pair)
        yield TableRow(place, first, second, None if label is None else record.get(label), label)


def _describe_columns(columns: tuple[str, str | None, str | None], names: Sequence[str]) -> str:
    """Return the columns that are used, and one that could be a second text and is not."""
    text = f"columns {', '.join(repr(name) for name in columns if name is not None)}"
    if columns[1] is not None:
        return f"{text} (pairs of texts)"
    other = next((name for name in names if name.lower() in PAIR_COLUMNS and name not in columns), None)
    return text if other is None else f"{text}; to read {other!r} as the second text, set data.pair to it"


def _check_text(value: Any, place: str, column: str) -> str:
    if value is None:
        raise DataError(f"{place}: the text in column {column!r} is missing; fill in or remove this row")
    if not isinstance(value, str):
        raise DataError(
            f"{place}: the text in column {column!r} is {type(value).__name__}, not a string; fix this row"
        )
    if not value or value.isspace():
        raise DataError(f"{place}: the text in column {column!r} is empty; fill in or remove this row")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can contain half a surrogate pair
        raise DataError(
            f"{place}: invalid Unicode in column {column!r} ({error.reason} at character {error.start}); "
            "fix this row"
        ) from error
    return value


def _split_of(name: str) -> str | None:
    """Return the split that a list of a .json file belongs to, by the last word of its name, as in oos_train."""
    return next((split for split, names in SPLIT_NAMES.items() if _words(name)[-1] in names), None)


def _words(name: str) -> list[str]:
    return name.lower().split(".")[0].replace("_", "-").split("-")

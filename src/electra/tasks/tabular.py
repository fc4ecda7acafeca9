"""Anyone's own table: columns of texts and answers in .csv, .tsv, .jsonl or .parquet files.

The labels are found in the training part and ordered: numbers by size, words by the alphabet. Where there is no
file for dev, a stratified part of the training file becomes it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from electra.config import did_you_mean
from electra.errors import DataError
from electra.readers.base import known_endings
from electra.readers.read import is_table, read_records
from electra.tasks.base import Task
from electra.tasks.classification import (
    Classification,
    Multilabel,
    Regression,
    TextExample,
    TextHeadKind,
    TextProblem,
)
from electra.tasks.subsampling import stratified_split, stratify
from electra.tasks.table_columns import Columns

TableKind = Literal["classification", "pair", "multilabel", "regression"]
LABELS = 1000
"""More labels than this are taken for a mistake."""
SHOWN = 12
"""Labels whose share is shown."""
SPLITS = {
    "train": ("train",),
    "dev": ("dev", "devel", "valid", "validation", "val"),
    "test": ("test",),
}
"""What a file's name may begin with, by split."""


@dataclass(frozen=True)
class _Row:
    place: str
    first: str
    second: str | None
    answer: Any


def load_table_task(
    name: str,
    files: Mapping[str, Path],
    *,
    kind: TableKind,
    columns: Columns,
    dev_share: float,
    seed: int,
    head_kind: TextHeadKind = "linear",
) -> Task:
    """A task of one's own.

    Args:
        files: by split; `train` at least.
        dev_share: of the training rows that become `dev` where there is no such file.
        seed: of that cut.

    Raises:
        DataError: a file, a column, a text or an answer is not as it must be; the first of each kind is named.
    """
    notes: list[str] = []
    taken: list[str] = []
    splits = {split: list(_rows(path, kind, columns, split, taken)) for split, path in files.items()}
    for split, path in files.items():
        if not splits[split]:
            raise DataError(f"{path}: there are no rows in it")
    problem: TextProblem
    if kind == "regression":
        problem, examples = _numbers(splits, head_kind)
    elif kind == "multilabel":
        problem, examples = _label_sets(splits, head_kind, columns.separator)
    else:
        problem, examples = _labels(splits, head_kind)
    if "dev" not in examples:
        answers = [example.answer for example in examples["train"]]
        kept, cut = stratified_split(stratify(answers, dev_share), dev_share, seed=seed)
        if not len(cut):
            raise DataError(
                f"{files['train']}: no label occurs twice, so none can be cut for dev; give a dev file"
            )
        examples["dev"] = [examples["train"][i] for i in cut]
        examples["train"] = [examples["train"][i] for i in kept]
        notes.append(
            f"no file for dev: {len(cut):,} of the {len(kept) + len(cut):,} training rows were cut for it"
        )
    notes += [
        f"{split}: {len(found):,} rows{describe_labels(problem, found)}" for split, found in examples.items()
    ]
    return Task(name, problem, examples, (*notes, *taken))


def find_files(
    data: Path, named: Mapping[str, str | None], *, fits: Callable[[Path], bool] = is_table
) -> dict[str, Path]:
    """The file of each split: those named, else those of a folder whose names say so; a file alone is `train`.

    Raises:
        DataError: there is nothing to train on, a named file is missing, or two files could be one split.
    """
    if data.is_file():
        found = {"train": data}
        folder = data.parent
    elif data.is_dir():
        folder, found = data, {}
        tables = [path for path in sorted(data.iterdir()) if path.is_file() and fits(path)]
        for split, beginnings in SPLITS.items():
            fitting = [
                path
                for path in tables
                if path.name.lower().split(".")[0].replace("_", "-").split("-")[0] in beginnings
            ]
            if len(fitting) > 1 and not named.get(split):
                names = ", ".join(path.name for path in fitting)
                raise DataError(
                    f"{data}: which file is {split}? There are {names}; name one with --data.{split} FILE"
                )
            if fitting:
                found[split] = fitting[0]
    else:
        raise DataError(f"{data}: there is no such file or folder")
    for split, name in named.items():
        if name is None:
            continue
        path = folder / name
        if not path.is_file():
            raise DataError(f"data.{split}: there is no file {path}")
        found[split] = path
    if "train" not in found:
        raise DataError(
            f"{data}: no file to train on; call one train.csv or name it with --data.train FILE "
            f"({known_endings(tables=True)})"
        )
    return found


def _rows(path: Path, kind: TableKind, columns: Columns, split: str, taken: list[str]) -> Iterator[_Row]:
    """The rows of a file with their texts as they must be; those of test may lack the answer.

    Args:
        taken: gets the columns that were taken, for a person to read.
    """
    names: tuple[str, str | None, str | None] | None = None
    paired = kind == "pair" or columns.pair is not None
    for line, record in read_records(path):
        if names is None:
            names = columns.found(path, list(record), pairs=paired, needs_label=split != "test")
            taken.append(f"{split}: the columns {', '.join(repr(name) for name in names if name)}")
        text, pair, label = names
        place = f"{path}:{line}"
        first = _text(record.get(text), place, text)
        second = None if pair is None else _text(record.get(pair), place, pair)
        yield _Row(place, first, second, None if label is None else record.get(label))


def _text(value: Any, place: str, column: str) -> str:
    if not isinstance(value, str):
        raise DataError(
            f"{place}: the text in column {column!r} is {type(value).__name__}, not a string; mend this row"
        )
    if not value or value.isspace():
        raise DataError(f"{place}: the text in column {column!r} is empty; fill or remove this row")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can spell half a surrogate pair
        raise DataError(
            f"{place}: broken Unicode in column {column!r} ({error.reason} at character {error.start}); "
            "mend this row"
        ) from error
    return value


def _labels(
    splits: Mapping[str, list[_Row]], head_kind: TextHeadKind
) -> tuple[Classification, dict[str, list[TextExample]]]:
    known = [_label(row.answer, row.place) for row in splits["train"]]
    labels = _ordered(known, splits["train"][0].place)
    numbers = {label: number for number, label in enumerate(labels)}
    examples = {
        split: [
            TextExample(row.first, row.second, None if answer is None else _known(answer, numbers, row.place))
            for row, answer in zip(rows, _answers(rows, split), strict=True)
        ]
        for split, rows in splits.items()
    }
    metrics = ("accuracy", "macro_f1", *(("matthews",) if len(labels) == 2 else ()))
    return Classification(metrics, head_kind, _paired(splits), labels), examples


def _label_sets(
    splits: Mapping[str, list[_Row]], head_kind: TextHeadKind, separator: str
) -> tuple[Multilabel, dict[str, list[TextExample]]]:
    def several(row: _Row) -> list[str]:
        value = row.answer
        parts = value if isinstance(value, list) else str(value if value is not None else "").split(separator)
        return [str(part).strip() for part in parts if str(part).strip()]

    labels = _ordered([label for row in splits["train"] for label in several(row)], splits["train"][0].place)
    numbers = {label: number for number, label in enumerate(labels)}
    examples = {
        split: [
            TextExample(
                row.first,
                row.second,
                None
                if split == "test" and row.answer in (None, "")
                else tuple(sorted(_known(label, numbers, row.place) for label in several(row))),
            )
            for row in rows
        ]
        for split, rows in splits.items()
    }
    return Multilabel(("micro_f1", "macro_f1", "accuracy"), head_kind, _paired(splits), labels), examples


def _numbers(
    splits: Mapping[str, list[_Row]], head_kind: TextHeadKind
) -> tuple[Regression, dict[str, list[TextExample]]]:
    def number(row: _Row) -> float:
        try:
            value = float(row.answer)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise DataError(
                f"{row.place}: the answer should be a number, found {row.answer!r}; mend or remove this row"
            )
        return value

    examples = {
        split: [
            TextExample(
                row.first, row.second, None if split == "test" and row.answer in (None, "") else number(row)
            )
            for row in rows
        ]
        for split, rows in splits.items()
    }
    values = [number(row) for row in splits["train"]]
    low, high = min(values), max(values)
    if low == high:
        raise DataError(f"{splits['train'][0].place}: every answer is {low:g}; there is nothing to learn")
    return Regression(("spearman", "pearson", "error"), head_kind, _paired(splits), low, high), examples


def _paired(splits: Mapping[str, list[_Row]]) -> bool:
    return splits["train"][0].second is not None


def _label(value: Any, place: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip():
        raise DataError(f"{place}: the label is missing; fill or remove this row")
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # parquet turns a column of whole numbers with a gap into floats
    return str(value).strip()


def _answers(rows: Sequence[_Row], split: str) -> list[str | None]:
    """The labels of a split; test may have none, in which case none of it is used."""
    if split == "test" and any(row.answer is None or not str(row.answer).strip() for row in rows):
        return [None] * len(rows)
    return [_label(row.answer, row.place) for row in rows]


def _ordered(found: Sequence[str], place: str) -> tuple[str, ...]:
    """The labels in order: as numbers where all are, else by the alphabet."""
    counts = Counter(found)
    if len(counts) > LABELS or (len(found) >= 100 and len(counts) > len(found) / 2):
        raise DataError(
            f"{place.rpartition(':')[0]}: {len(counts):,} different labels in {len(found):,} rows; "
            "is it the right column? Name it with --data.label; for numbers give --kind regression"
        )
    if len(counts) < 2:
        raise DataError(
            f"{place.rpartition(':')[0]}: there is only one label, {next(iter(counts), '')!r}; nothing to learn"
        )
    try:
        numbers = all(math.isfinite(float(label)) for label in counts)  # "nan" has no place in an order
    except ValueError:
        numbers = False
    return tuple(sorted(counts, key=float if numbers else None))


def _known(label: str, numbers: Mapping[str, int], place: str) -> int:
    if label not in numbers:
        raise DataError(
            f"{place}: the label {label!r} does not occur in the training part"
            f"{did_you_mean(label, list(numbers))}; it has {', '.join(list(numbers)[:SHOWN])}"
        )
    return numbers[label]


def describe_labels(problem: TextProblem, examples: Sequence[TextExample]) -> str:
    """How often each label occurs."""
    answers = [example.answer for example in examples]
    if any(answer is None for answer in answers):
        return ", without answers"
    if isinstance(problem, Regression):
        values = np.array(answers, np.float64)
        return f", mean {values.mean():.3g}, from {values.min():.3g} to {values.max():.3g}"
    each = [answer if isinstance(answer, tuple) else (answer,) for answer in answers]
    counts = Counter(problem.labels[int(number)] for numbers in each for number in numbers if number is not None)
    shown = [f"{label} {count / len(answers):.1%}" for label, count in counts.most_common(SHOWN)]
    return f"; {', '.join(shown)}" + (f", and {len(counts) - SHOWN} more" if len(counts) > SHOWN else "")

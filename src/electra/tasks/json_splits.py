"""A whole task in one .json file, as CLINC150 is distributed: for each split a list of [text, label]."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra.errors import DataError

SUFFIX = ".json"
LAYOUT = '{"train": [["a text", "its label"], ...], "val": [...], "test": [...]}'


def read_json_splits(path: Path, split_of: Callable[[str], str | None]) -> dict[str, list[tuple[str, Any, Any]]]:
    """Return the rows of each split: their place for messages, text and label.

    Several lists can belong to a split: CLINC150 has the sentences without an intent in `oos_train` and so on,
    with the label oos. They follow in the order of the file.

    Args:
        split_of: the split for the name of a list, or None.

    Raises:
        DataError: the file has another layout, or a list that belongs to no split.
    """
    try:
        lists = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(lists, dict):
        raise DataError(f"{path}: expected an object with a list for each split, as {LAYOUT}; or give .jsonl")
    splits: dict[str, list[tuple[str, Any, Any]]] = {}
    for name, rows in lists.items():
        split = split_of(name)
        if split is None:
            raise DataError(f"{path}: {name!r} is the name of no split; a task in one file is {LAYOUT}")
        if not isinstance(rows, list):
            raise DataError(f"{path}: {name!r} is no list; a task in one file is {LAYOUT}")
        for number, row in enumerate(rows, start=1):
            place = f"{path}:{name}[{number}]"
            if not isinstance(row, list) or len(row) != 2:
                raise DataError(f"{place}: expected [text, label], got {str(row)[:60]}")
            splits.setdefault(split, []).append((place, *row))
    return splits

"""Data sets of the Hugging Face hub, read row by row without downloading them whole."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from electra.errors import DataError, require
from electra.readers.base import DETECTION_RECORDS, Item, choose_text_column, make_document

PREFIX = "hub:"
"""How the name of a data set begins: hub:NAME, or hub:NAME:CONFIG."""


def read_hub(name: str, column: str) -> Iterator[Item]:
    """Yield the documents and rejects of the train split.

    Raises:
        DataError: the data set cannot be read, or the library `datasets` is missing.
    """
    for number, row in enumerate(_rows(name), 1):
        yield make_document(row.get(column), name, number)


def find_hub_column(name: str, column: str | None) -> str:
    """Return the column that holds the text (see `choose_text_column`)."""
    rows = list(islice(_rows(name), DETECTION_RECORDS))
    return choose_text_column(name, list(rows[0]) if rows else [], rows, column)


def _rows(name: str) -> Iterator[dict[str, Any]]:
    require(f"{name}: reading a data set of the Hugging Face hub", "hub", "datasets")
    import datasets

    path, _, config = name.removeprefix(PREFIX).partition(":")
    try:
        yield from datasets.load_dataset(path, config or None, split="train", streaming=True)
    except Exception as error:  # whatever the hub, the network or a data set's own files can raise
        raise DataError(f"{name}: the data set cannot be read ({type(error).__name__}: {error})") from error

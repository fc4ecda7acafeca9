"""The peer of our data path: rows of one length in Arrow, read with `datasets` and torch's DataLoader.

What a skilled user has after tokenizing and grouping: input_ids, token_type_ids and attention_mask in the types
of transformers' tokenizers, memory-mapped, `with_format`, shuffled, with torch's default collator. Nothing of
electra is used.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datasets import Dataset, load_from_disk
from torch import Tensor
from torch.utils.data import DataLoader

Form = Literal["torch", "numpy"]
FORMS: tuple[Form, ...] = ("torch", "numpy")


def write(tokens: npt.NDArray[np.uint16], out: Path, *, length: int, classify: int, separate: int) -> None:
    """Cut the ids into rows [CLS] ids [SEP] of one length; the remainder is dropped."""
    rows, inner = len(tokens) // (length - 2), length - 2
    ids = np.full((rows, length), separate, dtype=np.int32)
    ids[:, 0], ids[:, 1:-1] = classify, tokens[: rows * inner].reshape(rows, inner)
    columns: dict[str, npt.NDArray[Any]] = {"input_ids": ids, "token_type_ids": np.zeros(ids.shape, np.int8)}
    columns["attention_mask"] = np.ones(ids.shape, np.int8)
    ends = pa.array(np.arange(0, ids.size + 1, length, dtype=np.int32))
    lists = {name: pa.ListArray.from_arrays(ends, pa.array(values.ravel())) for name, values in columns.items()}
    Dataset(pa.table(lists)).save_to_disk(out)


def batches(folder: Path, *, rows: int, workers: int, form: Form) -> Iterator[dict[str, Tensor]]:
    """Shuffled batches without end."""
    dataset = load_from_disk(folder).with_format(form)
    loader = DataLoader(dataset, batch_size=rows, shuffle=True, num_workers=workers, drop_last=True)
    while True:
        yield from loader

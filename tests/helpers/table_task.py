"""Tasks of tables that a test writes."""

import json
from pathlib import Path
from typing import Any

from electra.registry import tasks
from electra.tasks.base import Task
from electra.tasks.config import DataConfig, HeadConfig


def read(kind: Any, files: dict[str, Path], *, dev_share: float = 0.1, **columns: Any) -> Task:
    """The task of files in one folder."""
    names: dict[str, Any] = {split: file.name for split, file in files.items()}
    data = DataConfig(path=next(iter(files.values())).parent, dev_share=dev_share, **names, **columns)
    task: Task = tasks.get(kind).load_task("mine", data, HeadConfig())
    return task


def read_texts(kind: Any, tmp_path: Path, **texts: str) -> Task:
    """The task of .csv files, one per split."""
    for split, text in texts.items():
        (tmp_path / f"{split}.csv").write_text(text)
    return read(kind, {split: tmp_path / f"{split}.csv" for split in texts})


def read_records(kind: Any, tmp_path: Path, records: list[dict[str, Any]], **columns: Any) -> Task:
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return read(kind, {"train": path}, **columns)

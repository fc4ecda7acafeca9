"""SQuAD 1.1 and 2.0 by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from electra.errors import DataError

if TYPE_CHECKING:
    from electra.tasks.base import Task
    from electra.tasks.config import DataConfig, HeadConfig


@dataclass(frozen=True)
class Squad:
    """SQuAD, version 1.1 or 2.0."""

    version: str
    data_settings = ("train", "dev")

    def load_task(self, name: str, data: DataConfig, head: HeadConfig) -> Task:
        """Load the official files, or the files in their format that the settings name.

        Raises:
            DataError: a file is missing or damaged.
        """
        from electra.tasks.question_answering import QuestionAnswering, load_question_files
        from electra.tasks.squad_files import SOURCE

        folder = data.path or Path()
        names = [f"{split}-v{self.version}.json" for split in ("train", "dev")]
        if not folder.is_dir() or data.train is not None:
            return QuestionAnswering.load_task(name, data, head)
        if data.dev is not None:
            return QuestionAnswering.load_task(name, replace(data, train=names[0]), head)
        if missing := [file for file in names if not (folder / file).is_file()]:
            raise DataError(f"{folder}: {' and '.join(missing)} missing; {SOURCE}")
        return load_question_files(
            f"squad-{self.version}", folder / names[0], folder / names[1], pointer=head.span
        )


TASKS = {"squad": Squad("1.1"), "squad2": Squad("2.0")}
"""The versions by the name of the task."""

"""The progress of an unfinished preparation: progress.json, written at every commit and deleted at the end."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from electra.errors import DataError
from electra.json_files import write_json
from electra.preparation.deduplication import DuplicateCounter
from electra.preparation.document_batches import Batch, Position
from electra.preparation.survey import HeldoutRule

PROGRESS = "progress.json"
DEFAULT_FILTERS = {"deduplicate": False, "least_characters": 0, "most_characters": 0, "language": []}
"""Options that are only stored if they differ from these."""


@dataclass
class Progress:
    """The state of an unfinished preparation. Its fields are the keys of progress.json."""

    options: dict[str, Any]
    """The settings and sources that the result depends on."""
    heldout: HeldoutRule | None = None
    """None until the survey is done and the tokenizer is written."""
    total_characters: int | None = None
    """Characters in the corpus, including documents that are left out; None: the survey did not read all of it."""
    position: Position = (0, 0)
    documents: int = 0
    characters: int = 0
    read: int = 0
    """Characters, including those of documents that are left out."""
    unknown: int = 0
    rejects: int = 0
    rejects_bytes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    writers: dict[str, Any] = field(default_factory=dict)
    duplicates: DuplicateCounter = field(default_factory=DuplicateCounter)

    @classmethod
    def open(cls, folder: Path, options: dict[str, Any]) -> Self:
        """Read the progress in a folder, or start a new one.

        Raises:
            DataError: the folder holds another preparation, or the file is damaged.
        """
        path = folder / PROGRESS
        if not path.is_file():
            return cls(options)
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            check_same_options(folder, state["options"], options)
            modulus, counts = state.pop("duplicates")
            heldout = state.pop("heldout")
            return cls(
                **{
                    **state,
                    "position": tuple(state["position"]),
                    "left_out": Counter(state["left_out"]),
                },
                heldout=HeldoutRule(**heldout) if heldout else None,
                duplicates=DuplicateCounter((modulus, {int(key): count for key, count in counts.items()})),
            )
        except DataError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: damaged ({error!r}); delete {folder} and run the command again") from error

    def add(self, batch: Batch, *, unknown: int, rejects_bytes: int) -> None:
        """Count a batch that has been written."""
        self.position = batch.end
        self.documents += len(batch.hashes)
        self.characters += batch.characters
        self.read += batch.characters_read
        self.unknown += unknown
        self.rejects += len(batch.rejects)
        self.rejects_bytes += rejects_bytes
        self.left_out.update(batch.left_out)
        for document in batch.hashes:
            self.duplicates.add(document)

    def save(self, folder: Path) -> None:
        """Replace the file in one step."""
        state = {name: value for name, value in vars(self).items() if name not in ("heldout", "duplicates")}
        state["heldout"] = asdict(self.heldout) if self.heldout else None
        state["duplicates"] = [self.duplicates.modulus, self.duplicates.counts]
        write_json(folder / PROGRESS, state, indent=None)


def check_same_options(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """
    Raises:
        DataError: the options of a folder differ from those given now.
    """
    before, now = DEFAULT_FILTERS | before, DEFAULT_FILTERS | now
    differing = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if differing:
        changes = "; ".join(f"{name}: {before.get(name)!r} there, {now.get(name)!r} now" for name in differing)
        raise DataError(
            f"{folder} was prepared with other options ({changes}); give another --out, or delete the folder"
        )

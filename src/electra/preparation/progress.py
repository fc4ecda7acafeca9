"""What `electra prepare` has done so far: progress.json, written at every commit, gone at the end."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from electra.errors import DataError
from electra.json_files import write_json
from electra.preparation.document_batches import Batch, Position
from electra.preparation.survey import DuplicateCounter, HeldoutRule

PROGRESS = "progress.json"
NOT_FILTERED = {"deduplicate": False, "least_characters": 0, "most_characters": 0, "language": []}
"""Options that are written down only where they are others than these."""


@dataclass
class Progress:
    """The state of an unfinished preparation; everything that a resumed one needs, and JSON."""

    options: dict[str, Any]
    """What the result depends on: the settings and the sources."""
    heldout: HeldoutRule | None = None
    """Known once the survey is done and the tokenizer written."""
    total_characters: int | None = None
    """Characters in the corpus, with those that are left out, if the survey saw all of it."""
    position: Position = (0, 0)
    documents: int = 0
    characters: int = 0
    read: int = 0
    """Characters, with those of documents that are left out."""
    unknown: int = 0
    rejects: int = 0
    rejects_bytes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    writers: dict[str, Any] = field(default_factory=dict)
    duplicates: DuplicateCounter = field(default_factory=DuplicateCounter)

    @classmethod
    def open(cls, folder: Path, options: dict[str, Any]) -> Self:
        """The progress in a folder, or a fresh one.

        Raises:
            DataError: when the folder holds another preparation, or the file is damaged.
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
        """Counts a batch that has been written."""
        self.position = batch.end
        self.documents += len(batch.hashes)
        self.characters += batch.characters
        self.read += batch.read
        self.unknown += unknown
        self.rejects += len(batch.rejects)
        self.rejects_bytes += rejects_bytes
        self.left_out.update(batch.left_out)
        for identity in batch.hashes:
            self.duplicates.add(identity)

    def save(self, folder: Path) -> None:
        """Replaces the file in one step."""
        state = {name: value for name, value in vars(self).items() if name not in ("heldout", "duplicates")}
        state["heldout"] = asdict(self.heldout) if self.heldout else None
        state["duplicates"] = [self.duplicates.modulus, self.duplicates.counts]
        write_json(folder / PROGRESS, state, indent=None)


def check_same_options(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """
    Raises:
        DataError: naming what differs between the options of a folder and those given now.
    """
    before, now = NOT_FILTERED | before, NOT_FILTERED | now
    differing = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if differing:
        changes = "; ".join(f"{name}: {before.get(name)!r} there, {now.get(name)!r} now" for name in differing)
        raise DataError(f"{folder} was prepared with other options ({changes}); give another --out, or delete it")

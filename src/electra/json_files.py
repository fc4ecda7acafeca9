"""JSON files that hold one object."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from electra.errors import CheckpointError, ElectraError


def read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """The object in a JSON file; an optional file that is not there is an empty one.

    Raises:
        CheckpointError: it cannot be read, or holds something else.
    """
    if optional and not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object, found {type(value).__name__}")
    return value


@contextmanager
def understood(where: Path) -> Iterator[None]:
    """What is read from files in the block may lack something, or hold something else than it should.

    Raises:
        CheckpointError: it did.
    """
    try:
        yield
    except ElectraError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{where}: a file lacks or garbles {error}; put back a copy of it") from error


def json_text(value: dict[str, Any]) -> str:
    """An object as those files are written."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

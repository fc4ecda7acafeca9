"""JSON files of Hugging Face folders."""

import json
from pathlib import Path
from typing import Any

from electra.errors import CheckpointError


def read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """The object in a JSON file; an optional file that is not there is an empty one.

    Raises:
        CheckpointError: it cannot be read, or holds something else.
    """
    if optional and not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object, found {type(value).__name__}")
    return value


def json_text(value: dict[str, Any]) -> str:
    """An object as those files are written."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

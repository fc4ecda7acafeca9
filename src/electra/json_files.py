"""JSON files that hold one object: read, checked and written."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from electra import durable
from electra.errors import CheckpointError, ElectraError, is_out_of_memory

MAX_BYTES = 1 << 26
"""Maximum size of a JSON file (64 MiB), because it is read as a whole."""


def read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one if the file is optional and does not exist.

    Raises:
        CheckpointError: the file cannot be read, or holds something else.
    """
    if optional and not path.is_file():
        return {}
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise ValueError(f"it has {size >> 20:,} MiB, at most {MAX_BYTES >> 20} are allowed")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object, found {type(value).__name__}")
    return value


@contextmanager
def raise_if_damaged(where: Path) -> Iterator[None]:
    """Turn a missing key or a wrong type in the block into an error about a damaged file.

    Args:
        where: the file or folder that the block uses.

    Raises:
        CheckpointError: in place of KeyError, TypeError, ValueError, AttributeError, IndexError, and of errors of
            arithmetic and of PyTorch about impossible sizes.
    """
    try:
        yield
    except ElectraError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        if is_out_of_memory(error):  # the sizes in the file are absurd, or the machine is small
            raise CheckpointError(
                f"{where}: there is not enough memory ({reason}); allow more (ulimit -v) or, if the file asks for "
                "too much because it is damaged, restore a copy of it"
            ) from error
        raise CheckpointError(f"{where}: a file is damaged ({reason}); restore a copy of it") from error


def write_json(path: Path, value: object, *, indent: int | None = 1, ensure_ascii: bool = True) -> None:
    """Write a JSON file atomically (`electra.durable`)."""
    durable.write_text(path, json_text(value, indent=indent, ensure_ascii=ensure_ascii))


def utf8(text: str) -> bytes:
    """Encode a JSON text. Bytes of a file's name that are not UTF-8, which Python keeps as lone surrogates,
    become escapes of JSON; they are read again as the same name."""
    return text.encode("utf-8", "backslashreplace")


def json_text(value: object, *, indent: int | None = 2, ensure_ascii: bool = False) -> str:
    """Return a value as the text of a JSON file, by default in the layout of transformers' files."""
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii) + "\n"

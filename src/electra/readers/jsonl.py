"""JSON lines: one JSON object per line."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from electra.readers.base import Record, Reject, TableReader, register_reader
from electra.readers.lines import decode_lines, read_lines


@register_reader
class JsonLinesReader(TableReader):
    """Reads .jsonl and .ndjson files."""

    name, endings = "jsonl", (".jsonl", ".ndjson")

    def read_records(self, path: Path, columns: Sequence[str] | None = None) -> Iterator[Record | Reject]:
        for number, line in decode_lines(str(path), read_lines(path)):
            if isinstance(line, Reject):
                yield line
            elif line and not line.isspace():
                values = _parse(line)
                if isinstance(values, str):
                    yield Reject(str(path), number, values)
                else:
                    yield Record(values, str(path), number)


def _parse(line: str) -> dict[str, Any] | str:
    """Return the object in a line, or the reason why there is none."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        return f"broken JSON ({error.msg.removesuffix(' at')} at column {error.colno})"
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; nested thousands deep
        return f"broken JSON ({error})"
    return value if isinstance(value, dict) else "the line is JSON but not an object"

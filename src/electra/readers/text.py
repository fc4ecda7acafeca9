"""Plain text: documents are separated by blank lines, or a file is one document."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from electra.readers.base import Document, Item, Reader, ReadOptions, Reject, register_reader
from electra.readers.lines import decode_lines, read_lines

MAX_DOCUMENT = 1 << 24
"""Maximum number of characters in a document (16.8 million); the text after them starts another document."""


@register_reader
class TextReader(Reader):
    """Reads .txt files."""

    name, endings = "text", (".txt",)

    def read_documents(self, path: Path, options: ReadOptions) -> Iterator[Item]:
        collected: list[str] = []
        first, size = 1, 0
        for number, line in decode_lines(str(path), read_lines(path)):
            if isinstance(line, Reject):
                yield line
                continue
            ends = options.documents == "blank-line" and (not line or line.isspace())
            if (ends or size + len(line) > MAX_DOCUMENT) and collected:
                yield Document("\n".join(collected), str(path), first)
                collected, size = [], 0
            if line and not line.isspace():
                first = first if collected else number
                collected.append(line)
                size += len(line)
        if collected:
            yield Document("\n".join(collected), str(path), first)

    def read_texts(self, path: Path, options: ReadOptions) -> Iterator[Item]:
        """Yield every line that is not blank."""
        return texts_of_lines(str(path), read_lines(path))


def texts_of_lines(source: str, lines: Iterable[tuple[int, bytes | None]]) -> Iterator[Item]:
    """Yield every line that is not blank as a text."""
    for number, line in decode_lines(source, lines):
        if isinstance(line, Reject):
            yield line
        elif (text := line.rstrip("\r\n")) and not text.isspace():
            yield Document(text, source, number)

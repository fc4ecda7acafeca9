"""The bytes and lines of files, decompressed; errors of damaged files are `DataError`s."""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from electra.errors import DataError
from electra.readers.base import Reject

BROKEN_UTF8 = "broken UTF-8"
"""Beginning of the reason of a reject that is not UTF-8."""
CONVERT_ENCODING = (
    "if the whole file is in another encoding, convert it, as with: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
)
"""Second remedy where a line is not UTF-8: often all lines are in another encoding."""
MAX_LINE = 1 << 25
"""Maximum bytes in a line (32 MiB). A longer line is a reject; it is read in pieces, so memory stays bounded."""


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read its bytes, decompressed if the name ends in .gz or .zst.

    Raises:
        DataError: the file cannot be read, also later inside the `with` block.
    """
    damage: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
    try:
        if path.suffix == ".gz":
            file = cast(IO[bytes], gzip.open(path))  # noqa: SIM115 (closed below)
        elif path.suffix == ".zst":
            import zstandard

            damage = (*damage, zstandard.ZstdError)
            file = io.BufferedReader(_ZstandardFrames(path), 1 << 20)
        else:
            file = path.open("rb", buffering=1 << 20)
        with file:
            yield file
    except damage as error:
        raise DataError(f"{path}: the compressed file is damaged or cut short ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def check_is_text(path: Path) -> None:
    """Check the beginning of a file.

    Raises:
        DataError: the file is not text in UTF-8 (but UTF-16, or binary), or cannot be decompressed.
    """
    with open_file(path) as file:
        head = file.read(1 << 16)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: the file is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW")
    if b"\0" in head or head.startswith(b"%PDF-"):
        raise DataError(f"{path}: a binary file, not text (it holds null bytes or is a PDF); leave it out")


def read_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines of a file with their numbers from 1, without line ends; None for a line above `MAX_LINE`."""
    with open_file(path) as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE and not line.endswith(b"\n"):
                while (piece := file.readline(1 << 20)) and not piece.endswith(b"\n"):
                    pass
                yield number, None
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield number, line.rstrip(b"\r\n")


def decode_lines(source: str, lines: Iterable[tuple[int, bytes | None]]) -> Iterator[tuple[int, str | Reject]]:
    """Decode numbered lines, as `read_lines` yields them; a line that is too long or not UTF-8 is a reject."""
    for number, raw in lines:
        if raw is None:
            yield number, Reject(source, number, f"the line is longer than {MAX_LINE >> 20} MiB")
            continue
        try:
            yield number, raw.decode()
        except UnicodeDecodeError as error:
            yield number, Reject(source, number, f"{BROKEN_UTF8} ({error.reason} at byte {error.start})")


def encoding_hint(reason: str) -> str:
    """Return a second remedy for a line that was rejected for this reason, as the end of a sentence."""
    return f"; or, {CONVERT_ENCODING}" if reason.startswith(BROKEN_UTF8) else ""


def _start_frame() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


class _ZstandardFrames(io.RawIOBase):
    """The decompressed bytes of all frames of a .zst file; unlike zstandard's own reader it notices a cut file."""

    # A piece is decompressed in memory; a block of one repeated byte takes 4 bytes for 128 KiB.
    COMPRESSED_PIECE = 1 << 10

    def __init__(self, path: Path) -> None:
        self.file = path.open("rb")
        self.frame = _start_frame()
        self.started = False
        self.decompressed = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.decompressed:
            piece = (self.frame.unused_data if self.frame.eof else b"") or self.file.read(self.COMPRESSED_PIECE)
            if not piece:
                if self.started and not self.frame.eof:
                    raise EOFError("the last frame has no end")
                return 0
            if self.frame.eof:
                self.frame = _start_frame()
            self.started = True
            self.decompressed = memoryview(self.frame.decompress(piece))
        count = min(len(buffer), len(self.decompressed))
        buffer[:count], self.decompressed = self.decompressed[:count], self.decompressed[count:]
        return count

    def close(self) -> None:
        self.file.close()
        super().close()

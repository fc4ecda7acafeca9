import gzip
import importlib.machinery
import io
import json
import sys
import tracemalloc
import types
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import zstandard

from electra.errors import DataError, MissingExtraError
from electra.preparation.corpus import find_sources
from electra.readers import text
from electra.readers.base import Document, DocumentRule, Item, Reject


def items(path: Path, *, column: str | None = None, documents: DocumentRule = "blank-line") -> list[Item]:
    (source,) = find_sources([str(path)], out=path.parent / "out", text_column=column)
    return list(source.read(documents))


def texts(path: Path, *, column: str | None = None, documents: DocumentRule = "blank-line") -> list[str]:
    return [item.text for item in items(path, column=column, documents=documents) if isinstance(item, Document)]


def packed(path: Path, content: bytes) -> Path:
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(path.suffix, bytes)
    path.write_bytes(pack(content))
    return path


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_a_blank_line_or_the_end_of_the_file_ends_a_document(tmp_path: Path, packing: str) -> None:
    path = packed(tmp_path / f"a.txt{packing}", "\ufeffOne\ntwo\r\n\n \t\nThrée\n\n".encode())
    assert items(path) == [Document("One\ntwo", str(path), 1), Document("Thrée", str(path), 5)]
    assert texts(path, documents="file") == ["One\ntwo\nThrée"]


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_json_lines(tmp_path: Path, packing: str) -> None:
    path = packed(tmp_path / f"a.jsonl{packing}", b'{"id": "x", "text": "One\\ntwo"}\n\n{"text": "Thr\\u00e9e"}')
    assert items(path) == [Document("One\ntwo", str(path), 1), Document("Thrée", str(path), 3)]


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv(tmp_path: Path, packing: str, delimiter: str) -> None:
    rows = [["id", "Text"], ["1", '"One, two\n; three"'], ["2", '"four ""five"""'], ["3", "six" * 100_000]]
    path = packed(tmp_path / f"a.csv{packing}", "\n".join(delimiter.join(row) for row in rows).encode())
    assert texts(path) == ["One, two\n; three", 'four "five"', "six" * 100_000]


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_parquet(tmp_path: Path, packing: str) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    buffer = io.BytesIO()
    pq.write_table(pa.table({"n": [1, 2, 3], "body": ["One", None, "Three"]}), buffer)
    path = packed(tmp_path / f"a.parquet{packing}", buffer.getvalue())
    reject = Reject(str(path), 2, "the text is NoneType, not a string")
    assert items(path) == [Document("One", str(path), 1), reject, Document("Three", str(path), 3)]


def test_a_zst_file_of_several_frames_is_read_to_its_end(tmp_path: Path) -> None:
    frames = [zstandard.ZstdCompressor().compress(f"document {i}\n\n".encode()) for i in range(3)]
    (tmp_path / "a.txt.zst").write_bytes(b"".join(frames))
    assert texts(tmp_path / "a.txt.zst") == ["document 0", "document 1", "document 2"]


def test_folders_and_patterns_in_order_without_the_output(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name in ("b.txt", "a/c.jsonl", "a/d.csv.gz", "out/rejects.jsonl", ".hidden.txt", "picture.png"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        packed(path, {"c": b'{"text": "x"}', "d": b"text\nx"}.get(path.name[0], b"x"))
    names = [Path(source.name).name for source in find_sources([str(tmp_path)], out=out)]
    assert names == ["c.jsonl", "d.csv.gz", "b.txt"]
    both = find_sources([str(tmp_path / "**/*.txt"), str(tmp_path / "b.txt")], out=out)
    assert [Path(source.name).name for source in both] == [".hidden.txt", "b.txt"]


def test_standard_input_is_kept_and_its_format_is_detected(tmp_path: Path) -> None:
    (lines,) = find_sources(["-"], out=tmp_path / "1", stdin=io.BytesIO(b'\n {"text": "One"}\n'))
    assert [item.text for item in lines.read() if isinstance(item, Document)] == ["One"]
    (plain,) = find_sources(["-"], out=tmp_path / "2", stdin=io.BytesIO(b"One\n\nTwo"))
    assert len(list(plain.read())) == 2
    (again,) = find_sources(["-"], out=tmp_path / "2", stdin=io.BytesIO(b"Three"))
    assert again == plain, "a resumed run has the input of the first"
    with pytest.raises(DataError, match="Standard input is empty"):
        find_sources(["-"], out=tmp_path / "3", stdin=io.BytesIO(b""))


def test_a_data_set_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(path: str, name: str | None, *, split: str, streaming: bool) -> Iterator[dict[str, object]]:
        asked.append((path, name, split, streaming))
        return iter([{"url": "u", "content": "One"}, {"url": "u", "content": None}])

    datasets: Any = types.ModuleType("datasets")
    datasets.__spec__, datasets.load_dataset = importlib.machinery.ModuleSpec("datasets", None), load_dataset
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    (source,) = find_sources(["hub:someone/texts:en"], out=tmp_path)
    assert source.column == "content" and asked == [("someone/texts", "en", "train", True)]
    first, second = source.read()
    assert first == Document("One", "hub:someone/texts:en", 1) and isinstance(second, Reject)
    with pytest.raises(DataError, match="no column 'text'; the columns are 'url', 'content'"):
        find_sources(["hub:someone/texts:en"], out=tmp_path, text_column="text")


def test_a_missing_datasets_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r'pip install "electra\[hub\]"'):
        find_sources(["hub:x"], out=tmp_path)


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"title": "long long title", "Text": "short"}, "Text"),
        ({"body": "b", "text": "t"}, "text"),
        ({"text": None, "content": "c"}, "content"),
        ({"id": "abc", "n": 5, "words": "the longest of all"}, "words"),
    ],
)
def test_the_text_column_is_found(tmp_path: Path, row: dict[str, object], column: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    (source,) = find_sources([str(tmp_path / "a.jsonl")], out=tmp_path / "out")
    assert source.column == column


def test_bad_lines_become_rejects_with_their_place(tmp_path: Path) -> None:
    lines = [
        b'{"text": "good"}',
        b'{"text": "cut',
        b'{"text": "\xff"}',
        b"[1, 2]",
        b'{"title": "no text"}',
        b'{"text": 5}',
        b'{"text": " "}',
        b'{"text": "half \\ud800 pair"}',
        b"[" * 100_000,
        b'{"text": ' + b"1" * 10_000 + b"}",
        b'{"text": "\\ud83d\\udea2 good"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    actual = items(tmp_path / "a.jsonl")
    assert [item.line for item in actual] == list(range(1, 12))
    assert [item.text for item in actual if isinstance(item, Document)] == ["good", "🚢 good"]
    reasons = [item.reason for item in actual if isinstance(item, Reject)]
    expected = [
        "broken JSON (Unterminated string",
        "broken UTF-8 (invalid start byte at byte 10)",
        "the line is JSON but not an object",
        "no key 'text'; the keys are 'title'",
        "the text is int, not a string",
        "the text is empty",
        "broken Unicode (surrogates not allowed at character 5)",
        "broken JSON (maximum recursion depth",
        "broken JSON (Exceeds the limit",
    ]
    assert all(reason.startswith(start) for reason, start in zip(reasons, expected, strict=True)), reasons


def test_bad_lines_of_text_and_csv(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"One\n\xe9t\xe9\ntwo\n")
    reject, document = items(tmp_path / "a.txt")
    assert reject == Reject(str(tmp_path / "a.txt"), 2, "broken UTF-8 (invalid continuation byte at byte 0)")
    assert isinstance(document, Document) and document.text == "One\ntwo"

    (tmp_path / "a.csv").write_bytes(b'id,text\n1,One\n2\n3,\xff\n4,"Two\nlines"\n5,\n6,Three\n')
    actual = [
        (item.line, item.reason if isinstance(item, Reject) else item.text) for item in items(tmp_path / "a.csv")
    ]
    assert actual == [
        (2, "One"),
        (3, "1 fields, but the header has 2"),
        (4, "broken UTF-8 (invalid start byte at byte 2)"),
        (6, "Two\nlines"),
        (7, "the text is empty"),
        (8, "Three"),
    ]


def test_a_line_of_200_megabytes_is_a_reject_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as writer:
        writer.write(b"before\n\n")
        for _ in range(200):
            writer.write(b"x" * 1_000_000)
        writer.write(b"\n\nafter\n")
    tracemalloc.start()
    actual = items(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert actual[1] == Reject(str(path), 3, "the line is longer than 32 MiB")
    assert [item.text for item in actual if isinstance(item, Document)] == ["before", "after"]
    assert peak < 150_000_000


def test_a_text_without_blank_lines_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_DOCUMENT", 10)
    (tmp_path / "a.txt").write_text("12345\n12345\n12345\n1234567890123\n1")
    assert texts(tmp_path / "a.txt", documents="file") == ["12345\n12345", "12345", "1234567890123", "1"]
    (tmp_path / "a.txt").write_text("1234567\n\n12\n34\n")
    assert texts(tmp_path / "a.txt") == ["1234567", "12\n34"], "each document has the whole size"


def refused(tmp_path: Path, name: str, content: bytes, **options: str) -> str:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        items(tmp_path / name, **options)  # type: ignore[arg-type]
    assert name in str(caught.value)
    return str(caught.value)


def test_bad_files_are_refused_with_the_reason(tmp_path: Path) -> None:
    assert "a binary file" in refused(tmp_path, "a.txt", bytes(range(256)))
    assert "a binary file" in refused(tmp_path, "b.txt", b"%PDF-1.7 ...")
    assert "UTF-16" in refused(tmp_path, "c.txt", "text".encode("utf-16"))
    assert "no record in the first lines (line 2: broken JSON" in refused(tmp_path, "d.jsonl", b"\n{oh\n")
    wrong = refused(tmp_path, "e.jsonl", b'{"title": "x", "body": "y"}', column="text")
    assert "no column 'text'; the columns are 'title', 'body'" in wrong
    assert "the columns are 'id', 'text'" in refused(tmp_path, "f.csv", b"id,text\n1,x\n", column="body")
    assert "no column holds text (the columns are 'n')" in refused(tmp_path, "g.jsonl", b'{"n": 1}')
    assert "damaged or cut short" in refused(tmp_path, "h.txt.gz", gzip.compress(b"text" * 1000)[:-9])
    assert "damaged or cut short" in refused(tmp_path, "i.txt.zst", zstandard.compress(b"text" * 1000)[:-5])
    assert "damaged or cut short" in refused(tmp_path, "j.txt.zst", b"no zstandard at all")
    assert "not a parquet file" in refused(tmp_path, "k.parquet", b"no parquet at all")
    assert "convert it to .jsonl" in refused(tmp_path, "l.json", b"[]")
    assert "unknown file format" in refused(tmp_path, "m.docx", b"PK")
    assert "The corpus is empty" in refused(tmp_path, "n.txt", b"")


def test_damage_late_in_a_file_stops_the_reading(tmp_path: Path) -> None:
    random = Random(0)
    lines = "".join(json.dumps({"text": str(random.random())}) + "\n" for _ in range(20_000))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode())[:-20])
    with pytest.raises(DataError, match=r"a\.jsonl\.gz: the compressed file is damaged or cut short"):
        items(tmp_path / "a.jsonl.gz")


def test_missing_sources_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/picture.png").write_bytes(b"")
    for name, message in {
        "nothing.txt": "no such file or folder",
        "*.txt": "no file matches the pattern",
        "folder": r"no file of a known format; known formats are \.csv",
    }.items():
        with pytest.raises(DataError, match=message):
            find_sources([str(tmp_path / name)], out=tmp_path / "out")
    with pytest.raises(DataError, match="No corpus was named"):
        find_sources([], out=tmp_path / "out")

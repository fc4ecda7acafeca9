"""Tables of every format give the same records; errors name the bad row."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from electra.errors import DataError
from electra.readers.read import read_records

ROWS = [
    {"text": "a quiet town", "label": "yes"},
    {"text": 'the "old" clock, again', "label": "no"},
    {"text": "два слова\tand a tab", "label": "yes"},
    {"text": "two\nlines", "label": "no"},
]


def table(ending: str, rows: list[dict[str, Any]]) -> bytes:
    """Return the bytes of a file, written by other libraries."""
    if ending == ".jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    if ending == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), buffer)
        return buffer.getvalue()
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(
        stream, list(rows[0]), delimiter="," if ending == ".csv" else "\t", lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


CUT_SHORT = gzip.compress(b"text\none\n" * 99, mtime=0)[:-9]
PACKED = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_gives_the_same_records(ending: str, packing: str, tmp_path: Path) -> None:
    path = tmp_path / f"table{ending}{packing}"
    path.write_bytes(PACKED[packing](table(ending, ROWS)))
    assert [row for _, row in read_records(path)] == ROWS


def test_quotation_marks_are_text_if_every_line_of_a_tab_table_is_a_row(tmp_path: Path) -> None:
    """As in the files of GLUE; a completely quoted field loses its quotation marks."""
    lines = [
        "text\tlabel",
        '"Stop!" she said\tyes',
        'an open "mark\tno',
        '"quoted ""so"""\t"no"',
        '"open\tyes',
        '"\tno',
    ]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    assert [tuple(row.values()) for _, row in read_records(tmp_path / "a.tsv")] == [
        ('"Stop!" she said', "yes"), ('an open "mark', "no"), ('quoted "so"', "no"), ('"open', "yes"), ('"', "no"),
    ]  # fmt: skip
    assert [line for line, _ in read_records(tmp_path / "a.tsv")] == [2, 3, 4, 5, 6]


def test_a_quoted_field_of_a_tab_table_may_have_tabs(tmp_path: Path) -> None:
    """Then lines are not rows, and all of the table is read by the rules of CSV."""
    (tmp_path / "a.tsv").write_text('a\tb\n"x\ty"\tz\n')
    assert [row for _, row in read_records(tmp_path / "a.tsv")] == [{"a": "x\ty", "b": "z"}]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_the_last_field_may_be_empty_or_end_in_a_space(name: str, tmp_path: Path) -> None:
    lines = ["text,label", "one,", "two,b "]
    (tmp_path / name).write_text("\n".join(lines).replace(",", "\t" if name == "a.tsv" else ","))
    rows = [{"text": "one", "label": ""}, {"text": "two", "label": "b "}]
    assert [row for _, row in read_records(tmp_path / name)] == rows


def test_columns_without_a_name_may_be_several(tmp_path: Path) -> None:
    """Spreadsheets write them at the end of a row."""
    (tmp_path / "a.csv").write_text("text,label,,\none,1,,\n")
    assert [(row["text"], row["label"]) for _, row in read_records(tmp_path / "a.csv")] == [("one", "1")]


def test_line_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,label\none,1\n\n"two\nlines",2\n')
    (tmp_path / "b.jsonl").write_text('\ufeff{"text": "one"}\n\n{"text": "two"}\r\n')
    assert [line for line, _ in read_records(tmp_path / "a.csv")] == [2, 5]
    assert list(read_records(tmp_path / "b.jsonl")) == [(1, {"text": "one"}), (3, {"text": "two"})]


def test_values_keep_the_types_of_the_file(tmp_path: Path) -> None:
    row = {"text": "a", "stars": 4, "score": 0.5, "labels": ["x", "y"], "none": None}
    for ending in (".jsonl", ".parquet"):
        path = tmp_path / f"table{ending}"
        path.write_bytes(table(ending, [row]))
        assert list(read_records(path)) == [(1, row)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,label\none,1\ntwo\n", r"a\.csv:3: 1 fields, but the header has 2; fix or remove"),
        ("a.csv", b"text,label\none,1\nt\xffo,2\n", r"a\.csv:3: broken UTF-8 .*; fix or remove .* iconv -f"),
        ("a.csv", "größe,n\na,1\n".encode("cp1252"), r"a\.csv:1: broken UTF-8 .*; fix the header; or, .* iconv"),
        ("a.tsv", "größe\tlabel\none\t1\n".encode("cp1252"), r"a\.tsv:1: broken UTF-8 .*; fix the header"),
        ("a.csv", b"review,review,stars\na,b,1\n", r"a\.csv: the header has 'review' more than once; rename"),
        ("a.tsv", b"good\tgood\t1\n", r"'good' more than once; .* if the first line is no header, put one"),
        ("a.tsv", b"text\tlabel\none\t1\t2\n", r"a\.tsv:2: 3 fields, but the header has 2"),
        ("a.csv", b"", r"a\.csv: the file is empty"),
        ("a.jsonl", b'{"text": "one"}\n{"text": \n', r"a\.jsonl:2: broken JSON"),
        ("a.jsonl", b'{"text": "one}\n', r"broken JSON \(Unterminated string starting at column 10\)"),
        ("a.jsonl", b'{"text": "one"}\n["text"]\n', r"a\.jsonl:2: the line is JSON but not an object"),
        ("a.jsonl", b'{"text": "one"}\n\n{"text": "\xff"}\n', r"a\.jsonl:3: broken UTF-8"),
        ("a.csv", "text,label\none,1\n".encode("utf-16"), r"a\.csv: the file is UTF-16"),
        ("a.csv.gz", CUT_SHORT, r"a\.csv\.gz: the compressed file is damaged"),
        ("a.parquet", b"PAR1 but not really", r"a\.parquet: not a parquet file"),
        ("a.xlsx", b"", r"a\.xlsx: unknown table format; known formats are \.csv, \.jsonl"),
    ],
)  # fmt: skip
def test_the_error_names_the_bad_row_or_file(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_records(tmp_path / name))


def test_broken_unicode_in_a_parquet_file_names_the_row(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = pa.array([b"good", b"\xff\xfe"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet:2: broken UTF-8 .*; fix or remove this row$"):
        list(read_records(tmp_path / "a.parquet"))


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv: there is no such file"):
        list(read_records(tmp_path / "none.csv"))
    with pytest.raises(DataError, match="none: there is no such file"):
        list(read_records(tmp_path / "none"))
    with pytest.raises(DataError, match="it is a folder; give one of its files"):
        list(read_records(tmp_path))

"""A new format needs one reader class; then all code that reads files supports it."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from electra.errors import ConfigError, DataError
from electra.preparation.corpus import find_sources
from electra.readers import base
from electra.readers.base import Document, Item, Reader, ReadOptions, find_reader, make_document, register_reader
from electra.readers.lines import open_file
from electra.readers.read import read_records, read_texts


class XmlReader(Reader):
    """Reads the `<page>` elements of .xml files."""

    name, endings = "xml", (".xml",)

    def read_documents(self, path: Path, options: ReadOptions) -> Iterator[Item]:
        with open_file(path) as file:
            for number, (_, element) in enumerate(ElementTree.iterparse(file), start=1):
                if element.tag == "page":
                    yield make_document(element.text, str(path), number)


@pytest.fixture
def xml(monkeypatch: pytest.MonkeyPatch) -> None:
    find_reader(Path("any.txt"))  # the readers of the package come first
    monkeypatch.setattr(base.readers, "_registered", dict(base.readers._registered))
    register_reader(XmlReader)


@pytest.mark.usefixtures("xml")
@pytest.mark.parametrize("compression", ["", ".gz"])
def test_a_registered_reader_reads_a_corpus(compression: str, tmp_path: Path) -> None:
    path = tmp_path / f"pages.xml{compression}"
    content = b"<pages><page>One.</page><page>Two.</page></pages>"
    path.write_bytes(gzip.compress(content) if compression else content)
    (source,) = find_sources([str(tmp_path)], out=tmp_path / "out")
    assert source.format == "xml" and source.column is None
    expected = [Document("One.", str(path), 1), Document("Two.", str(path), 2)]
    assert list(source.read()) == expected == list(read_texts(path))
    with pytest.raises(DataError, match=r"unknown table format; known formats are \.csv, \.jsonl"):
        next(read_records(path))


@pytest.mark.usefixtures("xml")
def test_an_ending_has_one_reader() -> None:
    class OtherReader(XmlReader):
        name = "other"

    register_reader(XmlReader)  # twice is no error
    with pytest.raises(ConfigError, match=r"reader '\.xml' exists already"):
        register_reader(OtherReader)

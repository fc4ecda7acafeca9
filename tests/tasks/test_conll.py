import gzip
from pathlib import Path

import pytest
import zstandard

from electra.errors import DataError
from electra.tasks.conll import FEATS, UPOS, XPOS, Columns, Sentence, read, write

COLUMNS = """-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
# # B-NP O

 \t
人 NN B-NP I-PER
-DOCSTART- -X- -X- O
\u00a0 SYM O O
"""
CONLLU = """# sent_id = 1
# text = Vámonos al mar
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\tVV\tMood=Imp\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tPP\t_\t1\tobj\t_\t_
2.1\tquedó\tquedar\tVERB\t_\t_\t_\t_\t_\t_
3\t# 1\t#\tNOUN\tNN\t_\t1\tobl\t_\tSpaceAfter=No

# sent_id = 2
1\tSí\tsí\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def file(tmp_path: Path, text: str | bytes, name: str = "a.txt") -> Path:
    content = text.encode() if isinstance(text, str) else text
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(Path(name).suffix, bytes)
    (tmp_path / name).write_bytes(pack(content))
    return tmp_path / name


def read_text(tmp_path: Path, text: str | bytes, columns: Columns | None = None) -> list[Sentence]:
    return read(file(tmp_path, text), columns or Columns())


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_columns(tmp_path: Path, name: str, end: str, mark: str) -> None:
    path = file(tmp_path, mark + COLUMNS.replace("\n", end).rstrip("\r\n"), name)
    assert read(path, Columns()) == [
        Sentence(("EU", "#"), ("I-ORG", "O"), str(path), 3),
        Sentence(("人",), ("I-PER",), str(path), 7),
        Sentence(("\u00a0",), ("O",), str(path), 9),
    ]
    assert [sentence.tags for sentence in read(path, Columns(tags=1))] == [("NNP", "#"), ("NN",), ("SYM",)]
    assert read(path, Columns(words=3, tags=0))[0].words == ("I-ORG", "O")


def test_tabs_separate_columns_with_spaces_in_them(tmp_path: Path) -> None:
    text = "New York\tR:NOUN\tNew Jork\n.\t-\t-\n"
    (sentence,) = read_text(tmp_path, text, Columns(tags=1))
    assert (sentence.words, sentence.tags) == (("New York", "."), ("R:NOUN", "-"))


def test_a_file_without_tags(tmp_path: Path) -> None:
    (sentence,) = read_text(tmp_path, "One\nword\n", Columns(tags=None))
    assert (sentence.words, sentence.tags) == (("One", "word"), None)


def test_conllu(tmp_path: Path) -> None:
    path = file(tmp_path, CONLLU, "a.conllu")
    assert read(path, UPOS) == [
        Sentence(("Vamos", "nos", "# 1"), ("VERB", "PRON", "NOUN"), str(path), 4),
        Sentence(("Sí",), ("INTJ",), str(path), 10),
    ]
    assert read(path, XPOS)[0].tags == ("VV", "PP", "NN")
    assert read(path, FEATS)[0].tags == ("Mood=Imp", "_", "_")


def test_predicted_tags_are_a_new_last_column(tmp_path: Path) -> None:
    write(file(tmp_path, COLUMNS), tmp_path / "b.txt", Columns(), [["B-A", "I-A"], ["O"], ["B-B"]])
    assert (tmp_path / "b.txt").read_text().split("\n") == [
        "-DOCSTART- -X- -X- O O",
        "",
        "EU NNP B-NP I-ORG B-A",
        "# # B-NP O I-A",
        "",
        "",
        "人 NN B-NP I-PER O",
        "-DOCSTART- -X- -X- O O",
        "\u00a0 SYM O O B-B",
        "",
    ]
    again = read(tmp_path / "b.txt", Columns())
    assert [sentence.tags for sentence in again] == [("B-A", "I-A"), ("O",), ("B-B",)]
    write(file(tmp_path, "New York\tc"), tmp_path / "b.txt", Columns(), [["i"]])
    assert (tmp_path / "b.txt").read_text() == "New York\tc\ti\n"


def test_predicted_tags_replace_the_field_in_conllu(tmp_path: Path) -> None:
    path = file(tmp_path, CONLLU, "a.conllu")
    write(path, path, UPOS, [["X", "Y", "Z"], ["W"]])  # onto itself
    expected = CONLLU.replace("ir\tVERB", "ir\tX").replace("PRON", "Y").replace("NOUN", "Z").replace("INTJ", "W")
    assert path.read_text() == expected


def test_predictions_for_other_words_are_refused(tmp_path: Path) -> None:
    for predicted in ([["A"]], [["A", "A", "A"]]):
        with pytest.raises(DataError, match=r"a\.txt: it has 2 words, but there are \d tags"):
            write(file(tmp_path, "a b\nc d\n"), tmp_path / "b.txt", Columns(), predicted)
    assert not (tmp_path / "b.txt").exists()
    with pytest.raises(DataError, match=r"none/b\.txt: cannot be written"):
        write(file(tmp_path, "a b\nc d\n"), tmp_path / "none/b.txt", Columns(), [["A", "B"]])


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a O\nb\n", Columns(), r"a\.txt:2: 1 column in 'b', but the lines before have 2"),
        ("a X O\nb O\n", Columns(), r"a\.txt:2: 2 columns in 'b O', but the lines before have 3"),
        ("a O\n", Columns(tags=2), r"a\.txt:1: 2 columns in 'a O', so there is no column 2 with tags"),
        ("a\nb\n", Columns(), r"a\.txt:1: 1 column in 'a', so words and tags are the same column"),
        ("a\t\tO\n", Columns(tags=1), r"a\.txt:1: column 1 with tags is empty"),
        ("1\ta\t_\n", UPOS, r"a\.txt:1: 3 columns in .*, but CoNLL-U has 10, separated by tabs"),
        ("a O\n\xe9 O\n".encode("latin-1"), Columns(), r"a\.txt:2: invalid UTF-8"),
        ("a O\n".encode("utf-16"), Columns(), r"a\.txt: the file is UTF-16"),
        ("\n\n", Columns(), r"a\.txt: the file has no sentence"),
    ],
)
def test_bad_files_are_refused_with_the_line(
    tmp_path: Path, text: str | bytes, columns: Columns, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_text(tmp_path, text, columns)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: cannot be read"):
        read(tmp_path / "none.txt", Columns())


def test_a_write_that_fails_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path, "a b\nc d\n")
    before = path.read_text()

    def fail(partial: Path, *_: object, **__: object) -> None:
        partial.write_bytes(b"a")
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(DataError, match="cannot be written"):
        write(path, path, Columns(), [["A", "B"]])
    assert path.read_text() == before and [one.name for one in tmp_path.iterdir()] == [path.name]

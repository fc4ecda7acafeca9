"""Corpora of learner errors: tagged files, folders of rewrites, and invalid ones."""

from pathlib import Path

import pytest

from electra.analysis.error_corpora import changed_words, corpus_name, read_error_corpus, split_indices
from electra.errors import DataError

ENGLISH = "He\tc\ngo\ti\nhome\tc\n\nYes\tc\n.\tc\n"
GERMAN = "Er\t-\t-\ngehen\tR:VERB:FORM\tgeht\n\t\t\nDas\tcorrect\t-\n"


@pytest.mark.parametrize(
    "rewrite, wrong",
    [
        ("he go to school", ""),
        ("he goes to school", "go"),
        ("he go school", "to"),  # left out
        ("he go to the school", "school"),  # missing before it
        ("he go to school today", "school"),  # missing at the end
        ("He go to schools", "he school"),
        ("never", "he go to school"),
    ],
)
def test_changed_words(rewrite: str, wrong: str) -> None:
    words = ["he", "go", "to", "school"]
    actual = changed_words(words, rewrite.split())
    assert [word for word, is_wrong in zip(words, actual, strict=True) if is_wrong] == wrong.split()


def test_tagged_files(tmp_path: Path) -> None:
    (tmp_path / "en.tsv").write_text(ENGLISH)
    (tmp_path / "de.tsv").write_text(GERMAN)
    first, second = read_error_corpus(tmp_path / "en.tsv")
    assert first.words == ("He", "go", "home") and first.wrong == (False, True, False) and second.error_rate == 0
    assert first.error_rate == pytest.approx(1 / 3)
    assert [one.wrong for one in read_error_corpus(tmp_path / "de.tsv")] == [(False, True), (False,)]
    assert corpus_name(tmp_path / "en.tsv") == "en.tsv"


@pytest.fixture
def rewritten(tmp_path: Path) -> Path:
    folder = tmp_path / "jfleg" / "dev"
    folder.mkdir(parents=True)
    (folder / "dev.src").write_text("he go home .\nall is well\n")
    (folder / "dev.spellchecked.src").write_text("unused\n")
    for number, text in enumerate(
        ["he goes home .\nall is well\n", "he goes home !\n\n", "he go home .\nall is\n"]
    ):
        (folder / f"dev.ref{number}").write_text(text)
    return folder


def test_words_are_wrong_if_rewrites_agree(rewritten: Path) -> None:
    assert read_error_corpus(rewritten, references=2)[0].wrong == (False, True, False, False)
    assert [one.wrong for one in read_error_corpus(rewritten, references=1)] == [
        (False, True, False, True), (False, False, True),
    ]  # fmt: skip
    assert [len(one.rewrites) for one in read_error_corpus(rewritten)] == [3, 2]  # a blank line is not a rewrite
    assert corpus_name(rewritten) == "jfleg/dev"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no sentence"),
        ("one two three\nfour five\n", ":2: 2 columns"),
        ("word\nword\n", r":1: 1 column.* with tags\n  expected a word per line: the word, a tab"),
        ("the\tDT\ncat\tNN\n", r":1: no word has a tag for correct words.*'DT' \(1 times\)"),
        ("the\tc\ncat\tc\n", "none of its 2 words is wrong"),
    ],
)
def test_other_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "other.tsv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_error_corpus(tmp_path / "other.tsv")


def test_incomplete_folders_are_refused(rewritten: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"give one of its parts: .*dev"):
        read_error_corpus(rewritten.parent)
    with pytest.raises(DataError, match="each sentence has 3 rewrites, but --references asks for 4 that agree"):
        read_error_corpus(rewritten, references=4)
    (rewritten / "dev.ref1").write_text("one line\n")
    for name in ("dev.src", "dev.ref0"):
        with pytest.raises(DataError, match=rf"{name}: this is one file of .* give the folder: {rewritten}$"):
            read_error_corpus(rewritten / name)
    with pytest.raises(DataError, match=r"dev.ref1: 1 lines, but dev.src has 2"):
        read_error_corpus(rewritten)
    (rewritten / "dev.ref1").write_bytes(b"one\n\xff\n")
    with pytest.raises(DataError, match=r"dev.ref1:2: invalid UTF-8"):
        read_error_corpus(rewritten)
    (rewritten / "other.ref0").write_text("one\n")
    with pytest.raises(DataError, match="rewrites of dev and of other"):
        read_error_corpus(rewritten)
    (rewritten / "other.ref0").unlink()
    (rewritten / "dev.ref1").write_text("one\ntwo\n")
    (rewritten / "dev.src").write_text("one\n\n")
    with pytest.raises(DataError, match=r"dev.src:2: the line is blank"):
        read_error_corpus(rewritten)
    (rewritten / "dev.src").unlink()
    with pytest.raises(DataError, match=r"dev.src, which dev.ref0 rewrites, is missing"):
        read_error_corpus(rewritten)
    tags = tmp_path / "tags"
    tags.mkdir()
    (tags / "en.tsv").write_text(ENGLISH)
    with pytest.raises(DataError, match=r"only en.tsv; expected NAME.src .* give one of its files: .*en.tsv"):
        read_error_corpus(tags)
    with pytest.raises(DataError, match="no such file or folder"):
        read_error_corpus(tmp_path / "nothing")


def test_random_parts_are_complete_and_disjoint() -> None:
    first, second = split_indices(10, 0.3, seed=0)
    assert len(first) == 3 and sorted(first + second) == [*range(10)] and first == sorted(first)
    assert split_indices(10, 0.3, seed=0) == (first, second) != split_indices(10, 0.3, seed=1)

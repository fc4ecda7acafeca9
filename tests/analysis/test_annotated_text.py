"""Treebanks and plain text, valid and invalid."""

import gzip
from pathlib import Path

import pytest

from electra.analysis.annotated_text import (
    MIN_SENTENCES,
    AnnotatedSentence,
    read_sentences,
    read_tagged_columns,
    sample_sentences,
)
from electra.errors import DataError

LINES = [
    "# text = the dog barks",
    "1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_",
    "2\tdog\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_",
    "2.1\tnothing\t_\t_\t_\t_\t_\t_\t_\t_",
    "3\tbarks\t_\tVERB\t_\t_\t0\troot\t_\t_",
]
FRENCH = "1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\t_\tADP\t_\t_\t0\troot\t_\t_\n2\tle\t_\t_\t_\t_\t1\tdet\t_\t_\n"
TREES = "\n".join(LINES) + "\n\n" + FRENCH + "\n"


def write(folder: Path, text: str, name: str = "text.conllu") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_words_tags_and_depths(tmp_path: Path) -> None:
    path = tmp_path / "text.conllu.gz"
    path.write_bytes(gzip.compress((TREES * MIN_SENTENCES).encode()))
    first, second, *_ = read_sentences(path)
    assert first == AnnotatedSentence(("the", "dog", "barks"), ("DET", "NOUN", "VERB"), (2, 1, 0))
    assert second == AnnotatedSentence(("de", "le"), ("ADP", "_"), (0, 1))


def test_a_text_without_tags_or_heads_has_words(tmp_path: Path) -> None:
    bare = "1\tdog\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    assert read_sentences(write(tmp_path, bare * MIN_SENTENCES))[0] == AnnotatedSentence(("dog",))
    plain = read_sentences(write(tmp_path, "The dog (mine) barks.\n\n" * MIN_SENTENCES, "text.txt"))
    assert plain == [AnnotatedSentence(("The", "dog", "(", "mine", ")", "barks", "."))] * MIN_SENTENCES
    chunks = read_tagged_columns(write(tmp_path, "the DT B-NP\ndog NN I-NP\n\n" * MIN_SENTENCES, "chunks.txt"))
    assert chunks[0] == AnnotatedSentence(("the", "dog"), ("B-NP", "I-NP"))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (
            "1\tdog\t_\tNOUN\t_\t_\t5\troot\t_\t_\n",
            ":1: .* of 'dog' is '5'; expected a number from 0 to 1",
        ),
        ("1\tdog\t_\tNOUN\t_\t_\tx\troot\t_\t_\n", ":1: .* the head of 'dog' is 'x'"),
        (
            "1\ta\t_\tX\t_\t_\t2\tr\t_\t_\n2\tb\t_\tX\t_\t_\t1\tr\t_\t_\n",
            ":1: .* the heads above 'a' form a cycle",
        ),
        ("1\tdog\tNOUN\n", ":1: 3 columns in .* but CoNLL-U has 10"),
        ("", "the file has no sentence"),
    ],
)
def test_an_invalid_treebank_is_reported_with_its_line(tmp_path: Path, broken: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_sentences(write(tmp_path, broken))


def test_unusable_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"2 sentences, but at least {MIN_SENTENCES} are needed"):
        read_sentences(write(tmp_path, TREES))
    with pytest.raises(DataError, match=r"text.txt:2: the line has ten tab-separated fields.*ends in .conllu"):
        read_sentences(write(tmp_path, "\n".join(LINES), "text.txt"))
    (tmp_path / "latin.txt").write_bytes(b"good\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"latin.txt:2: invalid UTF-8"):
        read_sentences(tmp_path / "latin.txt")
    (tmp_path / "utf16.txt").write_bytes("good".encode("utf-16"))
    with pytest.raises(DataError, match=r"utf16.txt: the file is UTF-16, not UTF-8"):
        read_sentences(tmp_path / "utf16.txt")
    with pytest.raises(DataError, match=r"nowhere.conllu"):
        read_sentences(tmp_path / "nowhere.conllu")


def test_sentences_are_sampled_up_to_a_number_of_words() -> None:
    sentences = [AnnotatedSentence((str(number),) * 5) for number in range(100)]
    chosen = sample_sentences(sentences, words=201, seed=0)
    assert len(chosen) == 40 and chosen == sorted(chosen, key=lambda one: int(one.words[0]))
    assert (
        sample_sentences(sentences, words=201, seed=0) == chosen != sample_sentences(sentences, words=201, seed=1)
    )
    assert (
        len(sample_sentences(sentences, words=10, seed=0)) == MIN_SENTENCES
        and len(sample_sentences(sentences, words=10_000, seed=0)) == 100
    )

"""Words of a treebank and tokens of a model, which split a text at different places."""

from pathlib import Path

import numpy as np
import pytest

from electra.analysis.tagged_tokens import (
    FIRST,
    LATER,
    WHOLE,
    locate_words,
    position_bins,
    position_names,
    rarest_piece,
    tokenize_tagged,
)
from electra.data import tokenizer as tokenizers
from electra.errors import DataError
from electra.preparation.config import TokenizerKind
from electra.preparation.tokenizer_training import train_tokenizer
from electra.tasks import conll
from electra.tasks.conll import Sentence

TREEBANK = """\
# sent_id = 1
# text = I don't see the mat, twice!
1	I	I	PRON	_	_	_	_	_	_
2-3	don't	_	_	_	_	_	_	_	_
2	do	do	AUX	_	_	_	_	_	_
3	n't	not	PART	_	_	_	_	_	_
4	see	see	VERB	_	_	_	_	_	_
5	the	the	DET	_	_	_	_	_	_
6	mat	mat	NOUN	_	_	_	_	_	SpaceAfter=No
7	,	,	PUNCT	_	_	_	_	_	_
8	twice	twice	ADV	_	_	_	_	_	SpaceAfter=No
9	!	!	PUNCT	_	_	_	_	_	_

# text = A
# newpar
1	The	the	DET	_	_	_	_	_	_
2	homework	homework	NOUN	_	_	_	_	_	_

1	The	the	DET	_	_	_	_	_	_
2	dog	dog	NOUN	_	_	_	_	_	_
"""


@pytest.fixture
def sentences(tmp_path: Path) -> list[Sentence]:
    (tmp_path / "some.conllu").write_text(TREEBANK)
    return conll.read(tmp_path / "some.conllu", conll.UPOS)


def test_the_text_of_a_sentence_ends_with_it(sentences: list[Sentence]) -> None:
    assert [one.text for one in sentences] == ["I don't see the mat, twice!", "A", None]


def test_words_are_found_in_their_text(sentences: list[Sentence]) -> None:
    text, spans, is_own = locate_words(sentences[0])
    assert is_own and [text[start:end] for start, end in spans] == [*sentences[0].words]
    # A text with other words, and no text: the words are joined with spaces.
    for one in sentences[1:]:
        text, spans, is_own = locate_words(one)
        assert not is_own and text == " ".join(one.words)
        assert [text[start:end] for start, end in spans] == [*one.words]
    blanks = Sentence(("3 000", "men", "die"), ("NUM", "NOUN", "VERB"), "x", 1, text="3 000  men die ")
    assert locate_words(blanks)[1] == [(0, 5), (7, 10), (11, 14)] and locate_words(blanks)[2]
    more = Sentence(("3", "men"), ("NUM", "NOUN"), "x", 1, text="3 men die")
    assert not locate_words(more)[2]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_tokens_have_the_word_of_their_first_character(kind: TokenizerKind, sentences: list[Sentence]) -> None:
    texts = ["I do not see the mat, the dog or his work, once!", "don't mat, home"]
    tokenizer = train_tokenizer(texts * 20, vocabulary_size=340 if kind == "bpe" else 70, kind=kind)
    actual = tokenize_tagged(sentences, tokenizer)
    assert actual.rebuilt == 2 and actual.tags[0] in ("DET", "NOUN", "PUNCT") and len(actual.tags) == 8
    n = 0
    for number, sentence in enumerate(sentences):
        text, spans, _ = locate_words(sentence)
        encoding = tokenizer.encode(text, add_special_tokens=False)
        assert actual.ids[number] == encoding.ids
        owners = []
        for start, end in encoding.offsets:  # the word with the first character that is no whitespace
            at = next((i for i in range(start, end) if not text[i].isspace()), end)
            owners.append(next(w for w, (first, last) in enumerate(spans) if first <= at < last))
        assert actual.word_position_N[n : n + len(owners)].tolist() == owners
        for i, word in enumerate(owners):
            assert sentence.tags is not None and actual.tags[actual.tag_N[n + i]] == sentence.tags[word]
            expected = WHOLE if owners.count(word) == 1 else FIRST if owners.index(word) == i else LATER
            assert actual.piece_N[n + i] == expected
            assert (actual.sentence_N[n + i], actual.word_N[n + i]) == (
                number,
                actual.word_N[n] + len({*owners[: i + 1]}) - 1,
            )
        n += len(owners)
    assert n == len(actual.tag_N) and actual.word_N[-1] == actual.words - 1
    rank_V = np.random.default_rng(0).permutation(tokenizers.vocabulary_size(tokenizer))
    id_N = np.concatenate(actual.ids)
    rarest_N = rarest_piece(actual, rank_V)
    for word in range(actual.words):
        inside = actual.word_N == word
        assert {*rank_V[rarest_N[inside]].tolist()} == {max(rank_V[id_N[inside]])}


def test_position_bins() -> None:
    assert position_names() == (
        "word 1", "words 2-3", "words 4-7", "words 8-15", "words 16-31", "from word 32 on",
    )  # fmt: skip
    assert position_bins(np.array([0, 1, 2, 3, 6, 7, 30, 31, 500])).tolist() == [0, 1, 1, 2, 2, 3, 4, 5, 5]


def test_sentences_without_tags_or_tokens_are_refused(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["a b"] * 9, vocabulary_size=40)
    (tmp_path / "bare.conllu").write_text("# x\n1\ta\ta\t_\t_\t_\t_\t_\t_\t_\n\n")
    with pytest.raises(DataError, match=r"bare.conllu:2: no word has a tag in the fourth field"):
        tokenize_tagged(conll.read(tmp_path / "bare.conllu", conll.UPOS), tokenizer)
    with pytest.raises(DataError, match="has no token for any of its words"):
        tokenize_tagged([Sentence(("\x07",), ("X",), "odd.conllu", 1)], tokenizer)

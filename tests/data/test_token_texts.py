"""The texts of tokens, and the pieces of a text, for three kinds of tokenizers."""

from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from electra.data.token_texts import TokenText, TokenTexts
from electra.data.tokenizer import add_bert_pipeline, continuation_mask, special_tokens, standardize, word_marker
from electra.preparation.tokenizer_training import train_tokenizer

TEXTS = ["The old theory was older than the theorem; therefore the other one went over there."] * 20
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def gemma_like() -> Tokenizer:
    """BPE over characters with ▁ for spaces, and HTML tags among the added tokens, as Gemma's and mmBERT's."""
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<s>", "</s>"]
    pieces = ["▁", "t", "h", "e", "o", "d", ",", "th", "the", "▁the", "▁o", "▁▁"]
    merges: Any = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "o"), ("▁", "▁")]
    vocabulary = {name: number for number, name in enumerate([*names, *pieces])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=False))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    splitter: Any = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.Replace("▁", " ")
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names[:5]])
    tokenizer.add_tokens([AddedToken(name, special=False) for name in names[5:]])
    return tokenizer


def wordpiece() -> Tokenizer:
    entries = [*SPECIAL, "the", "##ory", "##or", "##y", "th", "##e", ",", "##,"]
    model = models.WordPiece({entry: number for number, entry in enumerate(entries)}, unk_token="[UNK]")
    return standardize(add_bert_pipeline(Tokenizer(model), lowercase=True, strip_accents=True))


def test_tokens_of_three_kinds_have_the_same_texts() -> None:
    marks = {"wordpiece": "##", "bpe": "Ġ", "unigram": "▁"}
    for kind, mark in marks.items():
        tokenizer = train_tokenizer(TEXTS, kind=kind, vocabulary_size=400)  # type: ignore[arg-type]
        texts = TokenTexts(tokenizer)
        assert texts.marker == mark
        begin = tokenizer.encode(" the").ids[1]
        assert texts.texts[begin] == TokenText(b"the", begins_word=True)
        assert all(texts.texts[number] is None for number in special_tokens(tokenizer).ids)
        for number, text in enumerate(texts.texts):
            if text is not None:
                same = texts.ids[text]
                assert texts.texts[same] == text and same <= number


def test_pieces_inside_a_word_and_at_its_beginning() -> None:
    texts = TokenTexts(wordpiece())

    def names(content: bytes, *, begins_word: bool) -> list[str]:
        return [texts.names[number] for number in texts.split(TokenText(content, begins_word))]

    assert names(b"theory", begins_word=True) == ["the", "##ory"]
    assert names(b"Theor", begins_word=True) == ["the", "##or"]  # the old tokenizer's own case
    assert names(b"ory", begins_word=False) == ["##ory"]
    assert names(b"ey", begins_word=False) == ["##e", "##y"]
    assert names(b",", begins_word=False) == ["##,"]
    assert names("日".encode(), begins_word=True) == []  # unknown
    assert names(b"\xff", begins_word=False) == []  # a part of a character
    assert texts.texts[texts.tokenizer.token_to_id(",")] == TokenText(b",", begins_word=False)


def test_of_several_tokens_of_a_text_the_first_counts_but_bytes_last() -> None:
    texts = TokenTexts(wordpiece())
    assert texts.names[texts.ids[TokenText(b",", begins_word=False)]] == ","
    vocabulary = {name: number for number, name in enumerate([*SPECIAL, "<0x74>", "▁a", "t"])}
    texts = TokenTexts(Tokenizer(models.BPE(vocabulary, [], unk_token="[UNK]")))
    assert texts.texts[5] == texts.texts[7] == TokenText(b"t", begins_word=False)
    assert texts.names[texts.ids[TokenText(b"t", begins_word=False)]] == "t"


def test_byte_level_pieces_have_no_space_inside_a_word() -> None:
    texts = TokenTexts(train_tokenizer(TEXTS, kind="bpe", vocabulary_size=300))
    inside = [texts.names[number] for number in texts.split(TokenText(b"theory", begins_word=False))]
    begin = [texts.names[number] for number in texts.split(TokenText(b"theory", begins_word=True))]
    assert "".join(inside) == "theory" and "".join(begin) == "Ġtheory"
    umlaut = texts.split(TokenText("ä".encode(), begins_word=False))
    assert b"".join(text.content for number in umlaut if (text := texts.texts[number])) == "ä".encode()


def test_a_tokenizer_like_that_of_mmbert() -> None:
    raw = gemma_like()
    special = special_tokens(raw)
    assert (special.classify, special.separate, special.mask) == (2, 1, 4)  # not the tags <s> and </s>
    tokenizer = standardize(raw)
    assert word_marker(tokenizer) == "▁"
    assert tokenizer.encode(" the").tokens == ["<bos>", "▁the", "<eos>"]
    continues = continuation_mask(tokenizer)
    assert not continues[tokenizer.token_to_id("▁the")] and continues[tokenizer.token_to_id("the")]
    texts = TokenTexts(tokenizer)
    assert texts.split(TokenText(b"the", begins_word=True)) == (tokenizer.token_to_id("▁the"),)
    assert texts.split(TokenText(b"the", begins_word=False)) == (tokenizer.token_to_id("the"),)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_every_token_is_found_again_in_its_own_vocabulary(kind: Any) -> None:
    texts = TokenTexts(train_tokenizer(TEXTS, kind=kind, vocabulary_size=300))
    for text in texts.ids:
        if text.content.isalpha():
            pieces = [texts.texts[number] for number in texts.split(text)]
            assert b"".join(piece.content for piece in pieces if piece) == text.content

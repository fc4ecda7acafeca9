from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pytest
from tokenizers import Tokenizer, pre_tokenizers

from electra.preparation import encoding
from electra.preparation.encoding import (
    DocumentEncoder,
    SpacedWordCache,
    Text,
    WordCache,
    build_sentence_encoder,
    encode_in_order,
    encode_uncached,
)
from electra.preparation.tokenizer_training import train_tokenizer

CORPUS = [
    "The ferry can't leave before noon. Résumé naïve Straße İstanbul ΣΑΣ ferry's 12 rolls!",
    "渡轮七点离开港口。 the harbour, the island; THE baker (and his dog) - wait: “why?”",
] * 20

# Everything that may break a rule about white space, punctuation, case or accents.
TRICKY = [
    *("abcdeABCDE019zZ" + ".,!?-'\"()[]{}<>#$%&*+/:;=@\\^_`|~"),
    *"éÉüßİıΣσς\u0301\u0308\u0345\u00a0\u3000\u2003\u2028\u2029\u200b\u200d\ufeff\ufffd\u0000\u0007\t\n\r\v\f\x1c\x1f\x85\xad",
    *"中文字豈\u9fff\u3400\U00020000。，、！？「」“”‘’—–…·•☃😀ﬁｆ１Åｱ한글กำעبर्कς\u1100\u1161\u0338\u0e31봤ひ\u3099ぴ´¨",
    *("[MASK]", "[SEP]", "the", "The", "ferry", "👨‍👩‍👧"),
]


def bpe(*, prefixed: bool = True, **options: bool) -> Tokenizer:
    tokenizer = train_tokenizer(CORPUS, kind="bpe", vocabulary_size=400, **options)  # type: ignore[arg-type]
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefixed)
    return tokenizer


@pytest.mark.parametrize(
    ("make", "cache"),
    [
        (lambda: train_tokenizer(CORPUS, vocabulary_size=512), WordCache),
        (lambda: train_tokenizer(CORPUS, vocabulary_size=512, lowercase=False), WordCache),
        (lambda: train_tokenizer(CORPUS, vocabulary_size=512, strip_accents=False), WordCache),
        (lambda: train_tokenizer(CORPUS, vocabulary_size=512, lowercase=False, strip_accents=True), WordCache),
        (lambda: train_tokenizer([*CORPUS, "봤다 हिन्दी ≠"], vocabulary_size=512), WordCache),
        (lambda: train_tokenizer([*CORPUS * 9, "봤다"], vocabulary_size=512), WordCache),
        (lambda: train_tokenizer([*CORPUS, "봤다 हिन्दी ≠"], vocabulary_size=512, strip_accents=False), WordCache),
        (bpe, SpacedWordCache),
        (lambda: bpe(prefixed=False), SpacedWordCache),
        (lambda: bpe(lowercase=True), SpacedWordCache),
        (lambda: bpe(lowercase=True, strip_accents=True), None),
        (lambda: train_tokenizer(CORPUS, kind="unigram", vocabulary_size=300), None),
    ],
)
def test_cached_and_uncached_ids_are_equal(make: Callable[[], Tokenizer], cache: type | None) -> None:
    tokenizer = make()
    encoder = build_sentence_encoder(tokenizer)
    assert isinstance(getattr(encoder, "__self__", None), cache or type(None))
    random = Random(1)
    for _ in range(4000):
        pieces = (random.choice(TRICKY) if random.random() < 0.7 else " " for _ in range(random.randrange(24)))
        sentence = "".join(pieces) + chr(random.randrange(0xD800))
        assert np.frombuffer(encoder(sentence), np.uint16).tolist() == encode_uncached(tokenizer, sentence), ascii(
            sentence
        )


@pytest.mark.parametrize("prefixed", [True, False])
def test_runs_of_spaces_are_not_encoded_word_by_word(prefixed: bool) -> None:
    """As in code, where a run of spaces is one token."""
    code = ["if ferry:\n        sail()        # 8 spaces\n    return    dog"] * 40
    tokenizer = train_tokenizer(code, kind="bpe", vocabulary_size=400)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefixed)
    encoder = build_sentence_encoder(tokenizer)
    assert isinstance(getattr(encoder, "__self__", None), SpacedWordCache)
    for sentence in ("sail()        # 8", "        sail()", "dog        ", "return    dog", "return dog"):
        expected = encode_uncached(tokenizer, sentence)
        assert np.frombuffer(encoder(sentence), np.uint16).tolist() == expected
        assert len(expected) < len(sentence) / 2 or "  " not in sentence, "a run is one token"


def test_a_full_cache_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CACHED_WORDS", 5)
    tokenizer = train_tokenizer(CORPUS, vocabulary_size=512)
    encoder = build_sentence_encoder(tokenizer)
    for sentence in CORPUS:
        assert np.frombuffer(encoder(sentence), np.uint16).tolist() == encode_uncached(tokenizer, sentence)
    assert len(encoder.__self__) <= 5  # type: ignore[attr-defined]


def test_a_tokenizer_with_added_words_is_not_cached() -> None:
    tokenizer = train_tokenizer(CORPUS, vocabulary_size=512)
    tokenizer.add_tokens(["the harbour"])
    ids = np.frombuffer(build_sentence_encoder(tokenizer)("in the harbour"), np.uint16).tolist()
    assert ids[-1] == tokenizer.token_to_id("the harbour")


def test_documents_keep_their_boundaries() -> None:
    tokenizer = train_tokenizer(CORPUS, vocabulary_size=512)
    train_part, heldout = DocumentEncoder(tokenizer)(
        [
            Text("The ferry. The dog!\nNoon"),
            Text("\u200b"),
            Text("The island.", heldout=1.0),
            Text("\x01\nThe baker"),
        ]
    )
    words = [tokenizer.id_to_token(i) for i in train_part.tokens]
    assert words == ["the", "ferry", ".", "the", "dog", "!", "noon", "the", "baker"]
    assert train_part.sentence_ends.tolist() == [3, 6, 7, 9]
    assert train_part.document_ends.tolist() == [3, 4], "a document without tokens is left out"
    assert [tokenizer.id_to_token(i) for i in heldout.tokens] == ["the", "island", "."]
    assert heldout.sentence_ends.tolist() == [3] and heldout.document_ends.tolist() == [1]
    assert train_part.tokens.dtype == np.uint16 and train_part.unknown == 0


@pytest.mark.parametrize("prefixed", [True, False])
def test_a_byte_level_sentence_has_the_space_before_it(prefixed: bool) -> None:
    """Also if the tokenizer adds no space, like that of RoBERTa: "end. Next" is not "end.Next"."""
    tokenizer = bpe(prefixed=prefixed)
    part, _ = DocumentEncoder(tokenizer)([Text("The ferry. The dog!\n(Noon)"), Text("The island.")])
    sentences = np.split(part.tokens, part.sentence_ends[:-1])
    start = " " if prefixed else ""
    texts = [f"{start}The ferry.", " The dog!", " (Noon)", f"{start}The island."]
    assert [tokenizer.decode(ids.tolist()) for ids in sentences] == texts
    whole = tokenizer.encode("The ferry. The dog! (Noon)", add_special_tokens=False).ids
    assert part.tokens[: part.sentence_ends[2]].tolist() == whole


def test_unknown_tokens_are_counted() -> None:
    part, _ = DocumentEncoder(train_tokenizer(CORPUS, vocabulary_size=512))([Text("the 龘 and 龗")])
    assert part.unknown == 2


@pytest.mark.parametrize(("sentences", "share", "kept"), [(100, 0.02, 98), (3, 0.02, 2), (2, 0.5, 1), (1, 0.5, 1)])
def test_the_end_of_a_document_can_be_held_out(sentences: int, share: float, kept: int) -> None:
    text = "\n".join(["The ferry."] * sentences)
    train_part, heldout = DocumentEncoder(train_tokenizer(CORPUS, vocabulary_size=512))([Text(text, share)])
    assert len(train_part.sentence_ends) == kept and len(heldout.sentence_ends) == sentences - kept


def test_results_come_in_order_whatever_the_workers() -> None:
    tokenizer = train_tokenizer(CORPUS, vocabulary_size=512)
    batches = [(i, [Text("the ferry. " * (2000 if i % 3 == 0 else 1)), Text(CORPUS[i % 2])]) for i in range(12)]
    one, two = (list(encode_in_order(tokenizer, batches, workers=workers)) for workers in (1, 2))
    assert [meta for meta, _, _ in two] == list(range(12))
    for (_, a, _), (_, b, _) in zip(one, two, strict=True):
        assert a.tokens.tobytes() == b.tokens.tobytes() and a.sentence_ends.tolist() == b.sentence_ends.tolist()


def test_an_error_of_reading_is_passed_on() -> None:
    def unreadable() -> Iterator[tuple[int, list[Text]]]:
        raise OSError("no such device")
        yield

    with pytest.raises(OSError, match="no such device"):
        list(encode_in_order(train_tokenizer(CORPUS, vocabulary_size=512), unreadable(), workers=2))

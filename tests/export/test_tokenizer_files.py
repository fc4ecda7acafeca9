"""A byte-level tokenizer as it goes out: texts as here, masks as in training, characters as RoBERTa has them."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, pre_tokenizers

from electra.data.tokenizer import load_tokenizer
from electra.export.tokenizer_files import tokenizer_files
from electra.preparation.encoding import SpacedWordCache, build_sentence_encoder
from electra.preparation.tokenizer_training import train_tokenizer

TEXTS = ["The ferry leaves the harbour at seven.", "Is it red, he said, or naïve?", "A café: two rolls!"] * 5
VARIED = [
    "The ferry, at seven.", "", " ", "  two  blanks ", "\n\nlines\r\nand\ttabs", "unseen: Ω 😀👨‍👩‍👧 ﷽",
    "渡轮七点。中午", "\u00a0hard", "don't I'll 3.14", "\x00", "a" * 200,
]  # fmt: skip


@pytest.fixture(params=[True, False], ids=["prefixed", "as RoBERTa's"])
def prefixed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def ours(prefixed: bool) -> Tokenizer:
    tokenizer = train_tokenizer(TEXTS, kind="bpe", vocabulary_size=400)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefixed)
    return tokenizer


@pytest.fixture
def folder(ours: Tokenizer, tmp_path: Path) -> Path:
    for name, text in tokenizer_files(ours, 24, segments=False).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def theirs(folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_texts_have_the_same_ids(ours: Tokenizer, theirs: Any, folder: Path) -> None:
    back = load_tokenizer(folder)
    for text in VARIED:
        expected = ours.encode(text).ids
        assert theirs(text)["input_ids"] == expected == back.encode(text).ids, text
        assert theirs("At noon.", text or "x")["input_ids"] == ours.encode("At noon.", text or "x").ids
    words = ["The", "café", ",", "red"]
    pretokenized = theirs(words, is_split_into_words=True)["input_ids"]
    assert pretokenized == ours.encode(words, is_pretokenized=True).ids


def test_a_mask_stands_for_a_word_with_its_space(ours: Tokenizer, theirs: Any) -> None:
    ids = ours.encode("The ferry is red, he said.").ids
    masked = theirs("The ferry is [MASK], he said.")["input_ids"]
    [place] = [place for place, token in enumerate(masked) if token == theirs.mask_token_id]
    red = len(ours.encode(" red", add_special_tokens=False).ids)
    assert masked == [*ids[:place], theirs.mask_token_id, *ids[place + red :]]


def test_characters_of_a_word_are_its_own(theirs: Any) -> None:
    text = "The harbour: naïve 😀."
    encoding = theirs(text, return_offsets_mapping=True, add_special_tokens=False)
    spans = [(start, end) for start, end in encoding["offset_mapping"] if end > start]
    assert not any(text[start].isspace() or text[end - 1].isspace() for start, end in spans)
    assert "".join(text[start:end] for start, end in dict.fromkeys(spans)) == text.replace(" ", "")


def test_what_came_back_goes_out_alike(folder: Path) -> None:
    again = tokenizer_files(load_tokenizer(folder), 24, segments=False)
    assert all((folder / name).read_text(encoding="utf-8") == text for name, text in again.items())


def test_what_came_back_is_as_quick_and_reads_names_as_text(ours: Tokenizer, folder: Path) -> None:
    back = load_tokenizer(folder)
    assert isinstance(getattr(build_sentence_encoder(back), "__self__", None), SpacedWordCache)
    assert back.encode("a [MASK].").ids == ours.encode("a [MASK].").ids
    assert back.encode(" The red").offsets == ours.encode(" The red").offsets

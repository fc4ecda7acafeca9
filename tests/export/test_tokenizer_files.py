"""An exported byte-level tokenizer: the same ids, masks as in training, offsets as in RoBERTa's tokenizer."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, pre_tokenizers

from electra.data.tokenizer import load_tokenizer
from electra.export.tokenizer_files import read_tokenizer, tokenizer_files
from electra.modeling.encoders.bert import BertConfig
from electra.modeling.encoders.deberta import DebertaConfig
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
def tokenizer(prefixed: bool) -> Tokenizer:
    tokenizer = train_tokenizer(TEXTS, kind="bpe", vocabulary_size=400)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefixed)
    return tokenizer


@pytest.fixture
def folder(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    for name, text in tokenizer_files(tokenizer, 24, segments=False).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def exported(folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_texts_have_the_same_ids(tokenizer: Tokenizer, exported: Any, folder: Path) -> None:
    loaded = load_tokenizer(folder)
    for text in VARIED:
        expected = tokenizer.encode(text).ids
        assert exported(text)["input_ids"] == expected == loaded.encode(text).ids, text
        assert exported("At noon.", text or "x")["input_ids"] == tokenizer.encode("At noon.", text or "x").ids
    words = ["The", "café", ",", "red"]
    pretokenized = exported(words, is_split_into_words=True)["input_ids"]
    assert pretokenized == tokenizer.encode(words, is_pretokenized=True).ids


def test_a_mask_replaces_a_word_and_its_space(tokenizer: Tokenizer, exported: Any) -> None:
    ids = tokenizer.encode("The ferry is red, he said.").ids
    masked = exported("The ferry is [MASK], he said.")["input_ids"]
    [position] = [position for position, token in enumerate(masked) if token == exported.mask_token_id]
    red = len(tokenizer.encode(" red", add_special_tokens=False).ids)
    assert masked == [*ids[:position], exported.mask_token_id, *ids[position + red :]]


def test_offsets_exclude_the_space_before_a_word(exported: Any) -> None:
    text = "The harbour: naïve 😀."
    encoding = exported(text, return_offsets_mapping=True, add_special_tokens=False)
    spans = [(start, end) for start, end in encoding["offset_mapping"] if end > start]
    assert not any(text[start].isspace() or text[end - 1].isspace() for start, end in spans)
    assert "".join(text[start:end] for start, end in dict.fromkeys(spans)) == text.replace(" ", "")


def test_a_loaded_tokenizer_is_exported_unchanged(folder: Path) -> None:
    again = tokenizer_files(load_tokenizer(folder), 24, segments=False)
    assert all((folder / name).read_text(encoding="utf-8") == text for name, text in again.items())


def test_a_loaded_tokenizer_is_cached_and_reads_special_tokens_as_text(tokenizer: Tokenizer, folder: Path) -> None:
    loaded = load_tokenizer(folder)
    assert isinstance(getattr(build_sentence_encoder(loaded), "__self__", None), SpacedWordCache)
    assert loaded.encode("a [MASK].").ids == tokenizer.encode("a [MASK].").ids
    assert loaded.encode(" The red").offsets == tokenizer.encode(" The red").offsets


@pytest.mark.parametrize(("lowercase", "strips"), [(True, True), (True, False), (False, False)])
def test_the_rules_of_wordpiece_are_exported(lowercase: bool, strips: bool) -> None:
    tokenizer = train_tokenizer(TEXTS, vocabulary_size=512, lowercase=lowercase, strip_accents=strips)
    settings = json.loads(tokenizer_files(tokenizer, 24)["tokenizer_config.json"])
    assert (settings["do_lower_case"], settings["strip_accents"]) == (lowercase, strips)


@pytest.mark.parametrize(("encoder", "expected"), [(BertConfig, 40), (DebertaConfig, 600)])
def test_only_a_table_of_positions_limits_the_longest_input(encoder: type, expected: int, folder: Path) -> None:
    config = encoder(vocabulary_size=400, max_positions=40)
    for length, longest in ((600, expected), (30, 30), (1e30, 40)):
        (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
        assert read_tokenizer(folder, config)[1] == longest

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from electra.data import tokenizer as tokenizers_
from electra.data.tokenizer import (
    byte_level_options,
    continuation_mask,
    describe_tokenizer,
    load_tokenizer,
    special_tokens,
    vocabulary_size,
)
from electra.errors import DataError
from electra.preparation.config import TokenizerKind
from electra.preparation.tokenizer_training import train_tokenizer

SHARED_VOCABULARY = Path(__file__).parents[2] / "../shared/data/vocab/bert-uncased/vocab.txt"

TEXTS = [
    "The ferry leaves the harbour at seven and comes back at noon; the island has one café and two bakeries.",
    "Whoever misses the ferry waits, and whoever waits reads the timetable: it is nailed to the harbour wall.",
    "Die Fähre fährt um sieben Uhr ab, die Bäckerei öffnet später. 渡轮七点离开港口，中午回来。岛上有一家咖啡馆。",
    "Prices: €3.50 a coffee, 12 rolls for 4 euros! Ask (politely) for the naïve baker's résumé…",
] * 20

SENTENCES = [
    "The ferry's café opens late, doesn't it?",
    "Ÿes — “naïve” bäckers\tcost €12.50\u00a0each…",
    "渡轮 leaves 港口 at 7点, \u0301odd \u200bmarks\u0000 and ﬁne ½ ligatures",
    "ALLCAPS CamelCase snake_case e-mail@harbour.example #1 100%",
    "",
    "a" * 150 + " too long a word",
]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_a_trained_tokenizer_is_described_and_can_be_loaded(kind: TokenizerKind, tmp_path: Path) -> None:
    trained = train_tokenizer(TEXTS, kind=kind, vocabulary_size=600)
    trained.save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert (n := vocabulary_size(loaded)) <= 600
    assert describe_tokenizer(trained) == describe_tokenizer(loaded)
    assert describe_tokenizer(trained)["kind"] == kind
    assert describe_tokenizer(trained)["lowercase"] is (kind == "wordpiece")
    assert sorted(special_tokens(loaded).ids) == ([0, 1, 2, 3, 4] if kind != "unigram" else [0, *range(n - 4, n)])
    for sentence in SENTENCES:
        assert trained.encode(sentence).ids == loaded.encode(sentence).ids


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_the_name_of_a_special_token_in_a_text_is_text(kind: TokenizerKind) -> None:
    trained = train_tokenizer(TEXTS, kind=kind, vocabulary_size=600)
    ids = trained.encode("end [SEP] [MASK] of [CLS][PAD]", add_special_tokens=False).ids
    special = special_tokens(trained)
    assert not {special.pad, special.classify, special.separate, special.mask}.intersection(ids)


def test_segments_are_put_between_special_tokens() -> None:
    encoding = train_tokenizer(TEXTS, vocabulary_size=600).encode("the ferry", "the island")
    assert encoding.tokens == ["[CLS]", "the", "ferry", "[SEP]", "the", "island", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("prefixed", [True, False])
def test_a_word_of_bytes_begins_with_the_space_before_it(prefixed: bool) -> None:
    trained = train_tokenizer(TEXTS, kind="bpe", vocabulary_size=600)
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefixed)
    text = "The harbour's café (7 rolls, 🚢): naïve; a  b"
    encoding = trained.encode(text)
    continues = continuation_mask(trained)[encoding.ids]
    words = [""]
    for token, same in zip(encoding.tokens[1:-1], continues[1:-1], strict=True):
        words[-1:] = [words[-1] + token] if same else [words[-1], token]
    decoded = [trained.decoder.decode([word]) for word in words if word]
    expected = ["The", " harbour's", " café", " (7", " rolls,", " 🚢):", " naïve;", " a", " ", " b"]
    assert decoded == [" " * prefixed + expected[0], *expected[1:]]
    assert not continues[0] and not continues[-1], "special tokens continue nothing"


def test_byte_level_tokenizers_are_recognized() -> None:
    trained = train_tokenizer(TEXTS, kind="bpe", vocabulary_size=600)
    assert (options := byte_level_options(trained)) is not None and options.add_prefix_space and options.use_regex
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert (
        (options := byte_level_options(trained)) is not None
        and not options.add_prefix_space
        and not options.use_regex
    )
    splitters = [pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()]
    trained.pre_tokenizer = pre_tokenizers.Sequence(splitters)  # type: ignore[arg-type]
    assert byte_level_options(trained) is None, "there are other rules, too"
    assert byte_level_options(train_tokenizer(TEXTS, vocabulary_size=600)) is None


def vocabulary_file(folder: Path, *, without: str = "", extra: tuple[str, ...] = ()) -> Path:
    entries = train_tokenizer(TEXTS, vocabulary_size=600).get_vocab()
    names = [name for name in sorted(entries, key=lambda name: entries[name]) if name != without]
    path = folder / "vocab.txt"
    path.write_text("\n".join([*names, *extra]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_vocabulary_file_tokenizes_as_transformers_does(tmp_path: Path, lowercase: bool) -> None:
    transformers = pytest.importorskip("transformers")
    path = vocabulary_file(tmp_path)
    tokenizer, reference = (
        load_tokenizer(path, lowercase=lowercase),
        transformers.BertTokenizerFast(str(path), do_lower_case=lowercase),
    )
    for sentence in [*TEXTS[:4], *SENTENCES]:
        assert tokenizer.encode(sentence).ids == reference(sentence).input_ids


@pytest.mark.shared
@pytest.mark.skipif(not SHARED_VOCABULARY.is_file(), reason="../shared is not here")
def test_the_bert_vocabulary_tokenizes_as_transformers_does() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer, reference = (
        load_tokenizer(SHARED_VOCABULARY),
        transformers.BertTokenizerFast(str(SHARED_VOCABULARY)),
    )
    assert describe_tokenizer(tokenizer)["vocabulary_size"] == 30522 and describe_tokenizer(tokenizer)["lowercase"]
    for sentence in [*TEXTS[:4], *SENTENCES]:
        assert tokenizer.encode(sentence).ids == reference(sentence).input_ids


def test_a_vocabulary_with_capitals_keeps_case(tmp_path: Path) -> None:
    assert describe_tokenizer(load_tokenizer(vocabulary_file(tmp_path)))["lowercase"]
    assert not describe_tokenizer(load_tokenizer(vocabulary_file(tmp_path, extra=("Ferry",))))["lowercase"]


def test_the_case_of_a_folder(tmp_path: Path) -> None:
    vocabulary_file(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not describe_tokenizer(load_tokenizer(tmp_path))["lowercase"]
    assert describe_tokenizer(load_tokenizer(tmp_path, lowercase=True))["lowercase"], "what the user says counts"
    train_tokenizer(TEXTS, vocabulary_size=600).save(str(tmp_path / "tokenizer.json"))
    assert describe_tokenizer(load_tokenizer(tmp_path))["lowercase"], "tokenizer.json comes before vocab.txt"


def test_other_names_of_special_tokens_are_known(tmp_path: Path) -> None:
    names = ["<s>", "<pad>", "</s>", "<unk>", "a", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(names))
    special = special_tokens(load_tokenizer(tmp_path))
    assert (special.classify, special.pad, special.separate, special.unknown, special.mask) == (0, 1, 2, 3, 5)


def test_truncation_and_padding_are_removed(tmp_path: Path) -> None:
    trained = train_tokenizer(TEXTS, vocabulary_size=600)
    trained.enable_truncation(4)
    trained.enable_padding(length=9)
    trained.save(str(tmp_path / "tokenizer.json"))
    assert (
        len(load_tokenizer(tmp_path).encode("the ferry leaves the harbour at noon", add_special_tokens=False).ids)
        == 7
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r"vocab\.txt: the vocabulary has no \[MASK\] or <mask>"),
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n", "occur more than once, the first is 'a'"),
        ("vocab.txt", b"[PAD]\n\xff\xfe\n", "not a vocabulary in UTF-8"),
        ("tokenizer.json", b"{broken", "not a tokenizers file"),
        ("tokenizer.model", b"", "not a tokenizer; give a tokenizer.json"),
    ],
)
def test_unusable_tokenizers_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_tokenizer(tmp_path / name)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "(["}, "content": ""}),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),  # the library panics
    ],
)
def test_parts_that_cannot_be_built_are_refused(tmp_path: Path, part: str, value: dict[str, Any]) -> None:
    tokenizer = json.loads(train_tokenizer(TEXTS, vocabulary_size=600).to_str())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**tokenizer, part: value}))
    with pytest.raises(
        DataError, match=r"tokenizer\.json: not a tokenizers file \(.*\); restore the file, or give"
    ):
        load_tokenizer(tmp_path)


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.truncate(tokenizers_.MAX_BYTES + 1)  # takes no space on the disk
    with pytest.raises(DataError, match="is larger than 256 MiB, which no tokenizer is"):
        load_tokenizer(path)


def test_missing_tokenizers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a tokenizer"):
        load_tokenizer(tmp_path)
    with pytest.raises(DataError, match="no such tokenizer"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_a_tokenizer_file_decides_its_case(tmp_path: Path) -> None:
    train_tokenizer(TEXTS, vocabulary_size=600).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match="has its own rules for case"):
        load_tokenizer(tmp_path, lowercase=False)


def test_a_tokenizer_without_special_tokens() -> None:
    with pytest.raises(DataError, match=r"the tokenizer: the vocabulary has no \[PAD\] or <pad>, no \[CLS\]"):
        special_tokens(Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")))


def test_the_names_of_the_roles_are_the_fields() -> None:
    assert list(tokenizers_.SPECIAL_NAMES) == list(tokenizers_.SpecialTokens.__dataclass_fields__)

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from electra.data import tokenizer as tokenizers_
from electra.data.tokenizer import (
    Kind,
    byte_pieces,
    continuations,
    describe,
    load,
    special_tokens,
    train,
    vocabulary_size,
)
from electra.errors import DataError

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
def test_a_trained_tokenizer_says_what_it_is_and_survives_its_file(kind: Kind, tmp_path: Path) -> None:
    trained = train(TEXTS, kind=kind, vocabulary_size=600)
    trained.save(str(tmp_path / "tokenizer.json"))
    loaded = load(tmp_path / "tokenizer.json")
    assert (n := vocabulary_size(loaded)) <= 600
    assert describe(trained) == describe(loaded)
    assert describe(trained)["kind"] == kind
    assert describe(trained)["lowercase"] is (kind == "wordpiece")
    assert sorted(special_tokens(loaded).ids) == ([0, 1, 2, 3, 4] if kind != "unigram" else [0, *range(n - 4, n)])
    for sentence in SENTENCES:
        assert trained.encode(sentence).ids == loaded.encode(sentence).ids


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_the_name_of_a_special_token_in_a_text_is_text(kind: Kind) -> None:
    trained = train(TEXTS, kind=kind, vocabulary_size=600)
    ids = trained.encode("end [SEP] [MASK] of [CLS][PAD]", add_special_tokens=False).ids
    special = special_tokens(trained)
    assert not {special.pad, special.classify, special.separate, special.mask}.intersection(ids)


def test_segments_are_put_between_special_tokens() -> None:
    encoding = train(TEXTS, vocabulary_size=600).encode("the ferry", "the island")
    assert encoding.tokens == ["[CLS]", "the", "ferry", "[SEP]", "the", "island", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 0, 1, 1, 1]


def test_bpe_knows_every_character() -> None:
    trained = train(TEXTS, kind="bpe", vocabulary_size=600)
    text = "ferry 🚢 ß ﷽ \u0000"
    assert trained.decode(trained.encode(text, add_special_tokens=False).ids).strip(" ") == text


@pytest.mark.parametrize("prefixed", [True, False])
def test_a_word_of_bytes_begins_with_the_space_before_it(prefixed: bool) -> None:
    trained = train(TEXTS, kind="bpe", vocabulary_size=600)
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefixed)
    text = "The harbour's café (7 rolls, 🚢): naïve; a  b"
    encoding = trained.encode(text)
    goes_on = continuations(trained)[encoding.ids]
    words = [""]
    for token, same in zip(encoding.tokens[1:-1], goes_on[1:-1], strict=True):
        words[-1:] = [words[-1] + token] if same else [words[-1], token]
    found = [trained.decoder.decode([word]) for word in words if word]
    expected = ["The", " harbour's", " café", " (7", " rolls,", " 🚢):", " naïve;", " a", " ", " b"]
    assert found == [" " * prefixed + expected[0], *expected[1:]]
    assert not goes_on[0] and not goes_on[-1], "special tokens go on with nothing"


def test_byte_level_tokenizers_are_known_by_how_they_cut() -> None:
    trained = train(TEXTS, kind="bpe", vocabulary_size=600)
    assert (pieces := byte_pieces(trained)) is not None and pieces.prefixed and pieces.use_regex
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert (pieces := byte_pieces(trained)) is not None and not pieces.prefixed and not pieces.use_regex
    splitters = [pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()]
    trained.pre_tokenizer = pre_tokenizers.Sequence(splitters)  # type: ignore[arg-type]
    assert byte_pieces(trained) is None, "other rules are the tokenizer's own affair"
    assert byte_pieces(train(TEXTS, vocabulary_size=600)) is None


def test_case_and_accents_are_options() -> None:
    kept = train(TEXTS, vocabulary_size=600, lowercase=False)
    assert "Fähre" in kept.decode(kept.encode("Fähre").ids)
    folded = train(TEXTS, vocabulary_size=600)
    assert folded.decode(folded.encode("Fähre").ids) == "fahre"
    accented = train(TEXTS, vocabulary_size=600, strip_accents=False)
    assert accented.decode(accented.encode("Fähre").ids) == "fähre"
    stripped = train(TEXTS, kind="bpe", vocabulary_size=600, lowercase=True, strip_accents=True)
    assert stripped.decode(stripped.encode("Fähre").ids).strip() == "fahre"


def test_chinese_becomes_one_token_a_character() -> None:
    tokens = train(TEXTS, vocabulary_size=800).encode("渡轮七点离开", add_special_tokens=False).tokens
    assert tokens == list("渡轮七点离开")


def test_rare_characters_do_not_enter_the_alphabet() -> None:
    texts = ["common words " * 5000, "один"]
    vocabulary = train(texts, vocabulary_size=600).get_vocab()
    assert "w" in vocabulary and "о" not in vocabulary


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_training_gives_the_same_in_another_process(kind: Kind) -> None:
    # Hash maps are seeded anew in each process, so a second training in this one would prove little.
    program = (
        "import sys, json; from electra.data.tokenizer import train;"
        f"print(train(json.load(sys.stdin), kind={kind!r}, vocabulary_size=600).to_str())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], input=json.dumps(TEXTS), capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(3)
    }
    assert found == {train(TEXTS, kind=kind, vocabulary_size=600).to_str()}


def vocabulary_file(folder: Path, *, without: str = "", extra: tuple[str, ...] = ()) -> Path:
    entries = train(TEXTS, vocabulary_size=600).get_vocab()
    names = [name for name in sorted(entries, key=lambda name: entries[name]) if name != without]
    path = folder / "vocab.txt"
    path.write_text("\n".join([*names, *extra]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_vocabulary_file_tokenises_as_transformers_does(tmp_path: Path, lowercase: bool) -> None:
    transformers = pytest.importorskip("transformers")
    path = vocabulary_file(tmp_path)
    ours, theirs = (
        load(path, lowercase=lowercase),
        transformers.BertTokenizerFast(str(path), do_lower_case=lowercase),
    )
    for sentence in [*TEXTS[:4], *SENTENCES]:
        assert ours.encode(sentence).ids == theirs(sentence).input_ids


@pytest.mark.shared
@pytest.mark.skipif(not SHARED_VOCABULARY.is_file(), reason="../shared is not here")
def test_the_bert_vocabulary_tokenises_as_transformers_does() -> None:
    transformers = pytest.importorskip("transformers")
    ours, theirs = load(SHARED_VOCABULARY), transformers.BertTokenizerFast(str(SHARED_VOCABULARY))
    assert describe(ours)["vocabulary_size"] == 30522 and describe(ours)["lowercase"]
    for sentence in [*TEXTS[:4], *SENTENCES]:
        assert ours.encode(sentence).ids == theirs(sentence).input_ids


def test_a_vocabulary_with_capitals_keeps_case(tmp_path: Path) -> None:
    assert describe(load(vocabulary_file(tmp_path)))["lowercase"]
    assert not describe(load(vocabulary_file(tmp_path, extra=("Ferry",))))["lowercase"]


def test_a_folder_says_its_case(tmp_path: Path) -> None:
    vocabulary_file(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not describe(load(tmp_path))["lowercase"]
    train(TEXTS, vocabulary_size=600).save(str(tmp_path / "tokenizer.json"))
    assert describe(load(tmp_path))["lowercase"], "tokenizer.json comes before vocab.txt"


def test_other_names_of_special_tokens_are_known(tmp_path: Path) -> None:
    names = ["<s>", "<pad>", "</s>", "<unk>", "a", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(names))
    special = special_tokens(load(tmp_path))
    assert (special.classify, special.pad, special.separate, special.unknown, special.mask) == (0, 1, 2, 3, 5)


def test_truncation_of_a_file_is_dropped(tmp_path: Path) -> None:
    trained = train(TEXTS, vocabulary_size=600)
    trained.enable_truncation(4)
    trained.enable_padding(length=9)
    trained.save(str(tmp_path / "tokenizer.json"))
    assert len(load(tmp_path).encode("the ferry leaves the harbour at noon", add_special_tokens=False).ids) == 7


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r"vocab\.txt: the vocabulary has no \[MASK\] or <mask>"),
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n", "stand twice, the first is 'a'"),
        ("vocab.txt", b"[PAD]\n\xff\xfe\n", "not a vocabulary in UTF-8"),
        ("tokenizer.json", b"{broken", "not a tokenizers file"),
        ("tokenizer.model", b"", "not a tokenizer; give a tokenizer.json"),
    ],
)
def test_unusable_tokenizers_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(tmp_path / name)


def test_missing_tokenizers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a tokenizer"):
        load(tmp_path)
    with pytest.raises(DataError, match="no such tokenizer"):
        load(tmp_path / "tokenizer.json")


def test_a_tokenizer_file_has_its_own_case(tmp_path: Path) -> None:
    train(TEXTS, vocabulary_size=600).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match="has its own rule for case"):
        load(tmp_path, lowercase=False)


def test_nothing_to_train_on() -> None:
    with pytest.raises(DataError, match="no text to train"):
        train(["", " \n"])


def test_a_tokenizer_without_special_tokens_is_named() -> None:
    with pytest.raises(DataError, match=r"the tokenizer: the vocabulary has no \[PAD\] or <pad>, no \[CLS\]"):
        special_tokens(Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")))


def test_the_names_of_the_roles_are_the_fields() -> None:
    assert list(tokenizers_.SPECIAL_NAMES) == list(tokenizers_.SpecialTokens.__dataclass_fields__)

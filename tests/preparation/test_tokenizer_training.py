"""Trained tokenizers: their options, their alphabet, and that training is repeatable."""

import json
import subprocess
import sys
import unicodedata
from random import Random
from typing import Any

import pytest
from waiting import LIMIT

from electra.data.tokenizer import describe_tokenizer
from electra.errors import DataError
from electra.preparation.config import TokenizerKind
from electra.preparation.tokenizer_training import LONGEST_RUN, train_tokenizer

TEXTS = [
    "The ferry leaves the harbour at seven and comes back at noon; the island has one café and two bakeries.",
    "Whoever misses the ferry waits, and whoever waits reads the timetable: it is nailed to the harbour wall.",
    "Die Fähre fährt um sieben Uhr ab, die Bäckerei öffnet später. 渡轮七点离开港口，中午回来。岛上有一家咖啡馆。",
    "Prices: €3.50 a coffee, 12 rolls for 4 euros! Ask (politely) for the naïve baker's résumé…",
] * 20


def test_bpe_knows_every_character() -> None:
    trained = train_tokenizer(TEXTS, kind="bpe", vocabulary_size=600)
    text = "ferry 🚢 ß ﷽ \u0000"
    assert trained.decode(trained.encode(text, add_special_tokens=False).ids).strip(" ") == text


def test_case_and_accents_are_options() -> None:
    kept = train_tokenizer(TEXTS, vocabulary_size=600, lowercase=False)
    assert "Fähre" in kept.decode(kept.encode("Fähre").ids)
    folded = train_tokenizer(TEXTS, vocabulary_size=600)
    assert folded.decode(folded.encode("Fähre").ids) == "fahre"
    accented = train_tokenizer(TEXTS, vocabulary_size=600, strip_accents=False)
    assert accented.decode(accented.encode("Fähre").ids) == "fähre"
    stripped = train_tokenizer(TEXTS, kind="bpe", vocabulary_size=600, lowercase=True, strip_accents=True)
    assert stripped.decode(stripped.encode("Fähre").ids).strip() == "fahre"


def test_chinese_has_one_token_per_character() -> None:
    tokens = train_tokenizer(TEXTS, vocabulary_size=800).encode("渡轮七点离开", add_special_tokens=False).tokens
    assert tokens == list("渡轮七点离开")


def test_rare_characters_do_not_enter_the_alphabet() -> None:
    texts = ["common words " * 5000, "один"]
    vocabulary = train_tokenizer(texts, vocabulary_size=600).get_vocab()
    assert "w" in vocabulary and "о" not in vocabulary


SCRIPTS = [
    "어제 그 영화를 봤다. 정말 재미있었다. 학교에서 봤다.",
    "がっこうで パンを食べました。東京のガイド。",
    "เรือออกจากท่าตอนเจ็ดโมงเช้า ผู้ที่มาสายต้องรอ",
    "जहाज़ सुबह सात बजे बंदरगाह से निकलता है। हिन्दी की किताब।",
    "каждый ёж йод",
]


@pytest.mark.parametrize("strip_accents", [None, True, False])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_only_latin_and_greek_letters_lose_their_accents(form: Any, strip_accents: bool | None) -> None:
    texts = [unicodedata.normalize(form, text) for text in [*SCRIPTS, "Fähre café Καφές"] * 20]
    trained = train_tokenizer(texts, vocabulary_size=1000, strip_accents=strip_accents)
    for text in SCRIPTS:
        tokens = trained.encode(unicodedata.normalize(form, text), add_special_tokens=False).tokens
        expected = unicodedata.normalize("NFC", text).replace(" ", "")
        assert "".join(token.removeprefix("##") for token in tokens) == expected
    folded = "fähre café καφές" if strip_accents is False else "fahre cafe καφες"
    assert trained.decode(trained.encode("Fähre CAFÉ Καφές").ids) == folded
    assert describe_tokenizer(trained)["strip_accents"] is (strip_accents is not False)


def test_accents_of_vietnamese_are_kept_unless_asked_otherwise() -> None:
    texts = ["Chuyến phà rời bến lúc bảy giờ sáng và trở về buổi trưa."] * 20
    kept = train_tokenizer(texts, vocabulary_size=600)
    assert kept.encode("Bảy giờ", add_special_tokens=False).tokens == ["bảy", "giờ"]
    stripped = train_tokenizer(texts, vocabulary_size=600, strip_accents=True)
    assert stripped.encode("Bảy giờ", add_special_tokens=False).tokens == ["bay", "gio"]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("text", "strip_accents"),
    [("Không thể mở tập tin được", None), ("Größe und Übung sind schön", False)],
)
def test_decomposed_letters_are_those_of_composed_text(text: str, strip_accents: bool | None, form: Any) -> None:
    """macOS decomposes the names of files, and what is copied from them."""
    texts = [unicodedata.normalize(form, text)] * 20
    trained = train_tokenizer(texts, vocabulary_size=600, strip_accents=strip_accents)
    composed, decomposed = (trained.encode(unicodedata.normalize(one, text)) for one in ("NFC", "NFD"))
    assert composed.ids == decomposed.ids and trained.token_to_id("[UNK]") not in composed.ids
    assert trained.decode(composed.ids) == text.lower()
    plain = train_tokenizer(["The cat sat on the mat."] * 20, vocabulary_size=600, strip_accents=False)
    assert '"NFC"' not in plain.to_str(), "text without accents keeps BERT's rules"


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("strip_accents", [None, True, False])
def test_hangul_is_never_taken_apart(strip_accents: bool | None, kind: TokenizerKind) -> None:
    """Not even one word of it in English text, which otherwise has BERT's rules."""
    texts = [*TEXTS * 20, "하였다"]
    trained = train_tokenizer(texts, kind=kind, vocabulary_size=600, strip_accents=strip_accents)
    plain = train_tokenizer(TEXTS, kind=kind, vocabulary_size=600, strip_accents=strip_accents)
    for form in ("NFC", "NFD") if kind == "wordpiece" else ("NFC",):
        text = unicodedata.normalize(form, "하였다")
        assert trained.normalizer is None or trained.normalizer.normalize_str(text).strip("▁") == "하였다"
    if kind == "wordpiece" and strip_accents is not False:
        others = "Café й हिन्दी が ≠"
        assert trained.normalizer.normalize_str(others) == plain.normalizer.normalize_str(others)


def test_every_latin_letter_is_normalized_as_in_english() -> None:
    english, korean = train_tokenizer(TEXTS, vocabulary_size=600), train_tokenizer(SCRIPTS, vocabulary_size=600)
    assert '"type":"NFC"' not in english.to_str().replace(" ", ""), "text in Latin script keeps BERT's rules"
    letters = [chr(code) for code in range(0x250) if chr(code).isalnum()]
    letters += [chr(code) for code in range(0x1E00, 0x1F00)]
    for text in (*letters, *(unicodedata.normalize("NFD", letter) for letter in letters)):
        assert korean.normalizer.normalize_str(text) == english.normalizer.normalize_str(text), ascii(text)


def test_a_sentence_without_spaces_is_encoded() -> None:
    trained = train_tokenizer(SCRIPTS * 20, vocabulary_size=1000)
    assert trained.token_to_id("[UNK]") not in trained.encode("เรือออกจากท่าตอนเจ็ดโมงเช้า" * 8).ids


def test_the_alphabet_leaves_room_for_words(caplog: pytest.LogCaptureFixture) -> None:
    random = Random(0)
    syllables = [chr(code) for code in range(0xAC00, 0xAC00 + 1500)]
    words = ["".join(random.choices(syllables, k=3)) for _ in range(2000)] + ["하였다", "한국어"] * 2000
    trained = train_tokenizer([" ".join(words)], vocabulary_size=1200)
    vocabulary = trained.get_vocab()
    assert len(vocabulary) == 1200
    assert {"하였다", "한국어"} < set(vocabulary)
    assert "no room for" in caplog.text and "larger --vocabulary-size" in caplog.text


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("first", "count", "common"),
    [
        (0xAC00, 3000, ["하였다", "한국어"]),
        (0x4E00, 900, ["ひらがな", "カタカナ"]),
        (0x4E00, 3000, ["中国", "历史"]),
    ],
    ids=["Korean", "Japanese", "Chinese"],
)
def test_unigram_learns_text_with_more_characters_than_entries(
    first: int, count: int, common: list[str], form: Any, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(0)
    characters = [chr(code) for code in range(first, first + count)]
    frequencies = [1 / rank for rank in range(1, count + 1)]
    sentences = [
        "".join([*random.choices(characters, frequencies, k=8), *random.choices(common, k=2)]) + "."
        for _ in range(1500)
    ]
    texts = [unicodedata.normalize(form, text) for text in sentences]
    trained = train_tokenizer(texts, kind="unigram", vocabulary_size=600)
    assert trained.get_vocab_size() == 600 and "no room for" in caplog.text
    text = common[0] + characters[-1] + common[1]
    encoded = trained.encode(unicodedata.normalize(form, text), add_special_tokens=False)
    assert "".join(encoded.tokens) == f"▁{text}" and len(encoded.tokens) < len(text)
    unknown = [i == trained.token_to_id("[UNK]") for i in encoded.ids]
    assert [token for token, is_unknown in zip(encoded.tokens, unknown, strict=True) if is_unknown] == [
        characters[-1]
    ]


def test_rare_characters_do_not_enter_the_alphabet_of_unigram() -> None:
    texts = ["common words, again and again " * 5000, "one один word"]
    trained = train_tokenizer(texts, kind="unigram", vocabulary_size=600)
    assert not any(set(entry) & set("один") for entry in trained.get_vocab())
    assert trained.token_to_id("[UNK]") in trained.encode("один").ids


def test_an_ideograph_takes_one_entry() -> None:
    vocabulary = train_tokenizer(TEXTS, vocabulary_size=800).get_vocab()
    assert "渡" in vocabulary and "##渡" not in vocabulary


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_training_gives_the_same_in_another_process(kind: TokenizerKind) -> None:
    # Each process has another seed for its hash maps, so a second training in this process would prove little.
    program = (
        "import sys, json; from electra.preparation.tokenizer_training import train_tokenizer;"
        f"print(train_tokenizer(json.load(sys.stdin), kind={kind!r}, vocabulary_size=600).to_str())"
    )
    actual = {
        subprocess.run(
            [sys.executable, "-c", program], input=json.dumps(TEXTS), capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(3)
    }
    assert actual == {train_tokenizer(TEXTS, kind=kind, vocabulary_size=600).to_str()}


def test_nothing_to_train_on() -> None:
    with pytest.raises(DataError, match="no text to train"):
        train_tokenizer(["", " \n"])


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's limit of the address space")
def test_training_needs_no_address_space_for_threads() -> None:
    """Threads of tokenizers that find no memory would wait for each other forever."""
    program = """
import resource
from pathlib import Path
from electra.preparation.tokenizer_training import train_tokenizer
used = 4096 * int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + (60 << 20),) * 2)
texts = [" ".join(f"{a}{b}{c}" for b in "aeiou" for c in "bdfghjklmnprst") for a in "bdfghjklmnprst"] * 200
print(train_tokenizer(texts, vocabulary_size=600).get_vocab_size())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 and int(done.stdout) > 100, done.stderr


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_a_word_without_end_is_learned_in_parts(kind: TokenizerKind) -> None:
    """The trainers take a time that grows with the square of a word's length."""
    letters = "".join(Random(0).choices("abcdefghij", k=20 * LONGEST_RUN + 1))
    parts = [letters[start : start + LONGEST_RUN] for start in range(0, len(letters), LONGEST_RUN)]
    expected = train_tokenizer([" ".join(parts)], kind=kind, vocabulary_size=512)
    assert train_tokenizer([letters], kind=kind, vocabulary_size=512).get_vocab() == expected.get_vocab()

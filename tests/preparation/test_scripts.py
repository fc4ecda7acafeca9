from collections import Counter

import pytest
from tokenizers import Tokenizer, models, normalizers

from electra.data.tokenizer import special_tokens
from electra.preparation.scripts import (
    has_ideographs,
    needs_accents,
    needs_marks,
    takes_hangul_apart,
    unknown_scripts,
)
from electra.preparation.tokenizer_training import train_tokenizer

TEXTS = {
    "en": "A café in Zürich — the naïve baker's résumé.",
    "el": "Το πλοίο φεύγει στις επτά και γυρίζει το μεσημέρι.",
    "zh": "渡轮七点离开港口，中午回来。",
    "ko": "어제 그 영화를 봤다. 정말 재미있었다.",
    "ja": "がっこうで パンを食べました。",
    "th": "เรือออกจากท่าตอนเจ็ดโมงเช้า",
    "hi": "जहाज़ सुबह सात बजे बंदरगाह से निकलता है।",
    "ru": "Пароход отходит в семь утра, каждый день.",
    "vi": "Chuyến phà rời bến lúc bảy giờ sáng và trở về buổi trưa.",
}


def test_scripts_that_need_their_marks_are_found() -> None:
    counts = {language: Counter(text) for language, text in TEXTS.items()}
    assert {language for language in TEXTS if needs_marks(counts[language])} == {"ko", "ja", "th", "hi", "ru"}
    assert {language for language in TEXTS if needs_accents(counts[language])} == {"vi"}
    assert {language for language in TEXTS if has_ideographs(counts[language])} == {"zh", "ja"}


def test_a_quoted_word_does_not_count() -> None:
    text = "The word means sea. " * 2000
    assert not needs_marks(Counter(text + "바다 ทะเล")) and not needs_accents(Counter(text + "biển"))
    assert not needs_marks(Counter()) and not needs_accents(Counter())


@pytest.mark.parametrize(
    ("normalizer", "apart"),
    [
        (normalizers.BertNormalizer(strip_accents=True), True),
        (normalizers.NFKD(), True),
        (normalizers.BertNormalizer(strip_accents=False), False),
        (normalizers.Sequence([normalizers.NFD(), normalizers.NFC()]), False),
        (normalizers.Prepend("▁"), False),
        (normalizers.ByteLevel(), False),
    ],
)
def test_normalizers_that_take_hangul_apart(normalizer: normalizers.Normalizer, apart: bool) -> None:
    tokenizer = Tokenizer(models.BPE())
    assert not takes_hangul_apart(tokenizer)
    tokenizer.normalizer = normalizer
    assert takes_hangul_apart(tokenizer) == apart


def test_scripts_of_which_most_words_are_unknown_are_found() -> None:
    known = train_tokenizer([TEXTS["en"], TEXTS["ru"]] * 9, vocabulary_size=200)
    unknown = special_tokens(known).unknown
    texts = [f"{TEXTS['en']} {TEXTS['ru']} {TEXTS['ko']} {TEXTS['zh']}"] * 10
    assert unknown_scripts(known, unknown, texts) == {"Hangul": 60}
    assert unknown_scripts(known, unknown, ["the α—baker " * 30, TEXTS["ko"] * 3, "😀 ½ µ " * 30]) == {}
    every = train_tokenizer([TEXTS["en"]], kind="bpe", vocabulary_size=300)
    assert unknown_scripts(every, special_tokens(every).unknown, texts) == {}

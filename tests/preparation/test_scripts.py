from collections import Counter

import pytest
from tokenizers import Tokenizer, models, normalizers

from electra.preparation.scripts import has_ideographs, needs_accents, needs_marks, takes_hangul_apart

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

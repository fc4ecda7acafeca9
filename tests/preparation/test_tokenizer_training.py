"""Trained tokenizers: their options, their alphabet, and that training is repeatable."""

import json
import subprocess
import sys

import pytest

from electra.errors import DataError
from electra.preparation.config import TokenizerKind
from electra.preparation.tokenizer_training import train_tokenizer

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

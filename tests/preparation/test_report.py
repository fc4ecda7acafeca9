"""What the report of a preparation says about the vocabulary, and the remedies that it names."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from small_corpus import config

from electra.preparation.run import prepare


def test_a_vocabulary_of_single_characters_is_named_with_the_remedy(tmp_path: Path) -> None:
    random = Random(0)
    syllables = [chr(code) for code in range(0xAC00, 0xAC00 + 400)]
    texts = [" ".join("".join(random.choices(syllables, k=3)) for _ in range(40)) for _ in range(40)]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    manifest = prepare(config(tmp_path / "a.txt", tmp_path / "data", vocabulary_size=1000)).manifest
    assert manifest["tokenizer"]["vocabulary_size"] == 1000
    few = "750 of the 1,000 entries of the vocabulary are single characters, so few are left for words"
    remedy = "use a larger --vocabulary-size (3,000 would do), or --model bpe"
    assert f"{few}: {remedy}" in manifest["warnings"]
    ample = prepare(config(tmp_path / "a.txt", tmp_path / "ample", vocabulary_size=2400)).manifest
    assert not any("single characters" in warning for warning in ample["warnings"])


@pytest.mark.parametrize("model", ["wordpiece", "unigram"])
def test_a_text_that_gave_fewer_entries_is_not_told_to_use_more(model: Any, tmp_path: Path) -> None:
    letters = [chr(code) for code in range(0xAC00, 0xAC00 + 150)]
    (tmp_path / "a.txt").write_text("\n\n".join(" ".join(letters) for _ in range(20)))
    manifest = prepare(config(tmp_path / "a.txt", tmp_path / "data", model=model, vocabulary_size=600)).manifest
    assert manifest["tokenizer"]["vocabulary_size"] < 600
    (warning,) = [one for one in manifest["warnings"] if "single characters" in one]
    assert (
        "larger" not in warning
        and "would do" not in warning
        and warning.endswith(": give more text, or use --model bpe")
    )


def test_a_vocabulary_without_room_for_all_characters_should_be_larger(tmp_path: Path) -> None:
    random = Random(0)
    texts = [
        "".join(random.choices([chr(code) for code in range(0x4E00, 0x4E00 + 900)], k=300)) for _ in range(30)
    ]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    trained = prepare(config(tmp_path / "a.txt", tmp_path / "data", vocabulary_size=600)).manifest
    (warning,) = [one for one in trained["warnings"] if "unknown" in one]
    assert "use a larger --vocabulary-size, or --model bpe, which knows every character" in warning
    assert "--tokenizer" not in warning

    (tmp_path / "b.txt").write_text(
        "\n\n".join(text.translate({i: i + 20 for i in range(20000, 30000)}) for text in texts)
    )
    given = prepare(
        config(tmp_path / "b.txt", tmp_path / "b", tokenizer=tmp_path / "data/tokenizer.json")
    ).manifest
    (warning,) = [one for one in given["warnings"] if "unknown" in one]
    assert "train one on this text (leave out --tokenizer)" in warning and "larger" not in warning


def test_a_script_whose_words_are_unknown_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = ["The old ferry crosses the wide river every morning. " * 400] * 100
    texts[::10] = [f"{text} 어제 그 영화를 봤다." for text in texts[::10]]
    (tmp_path / "a.txt").write_text("\n\n".join(f"{number} {text}" for number, text in enumerate(texts)))
    manifest = prepare(config(tmp_path / "a.txt", tmp_path / "data", vocabulary_size=512)).manifest
    assert 0 < manifest["statistics"]["unknown_share"] < 0.001
    assert "most words in Hangul (40 in the sample) become [UNK]" in caplog.text
    caplog.clear()
    prepare(config(tmp_path / "a.txt", tmp_path / "bpe", vocabulary_size=512, model="bpe"))
    assert "[UNK]" not in caplog.text


def test_lines_in_another_encoding_are_named_with_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.txt").write_bytes(b"The old ferry.\n\nThe caf\xe9.\n\nThe wide river.")
    prepare(config(tmp_path / "a.txt", tmp_path / "data"))
    assert "a.txt, line 3: broken UTF-8 (" in caplog.text and "iconv -f WINDOWS-1252" in caplog.text

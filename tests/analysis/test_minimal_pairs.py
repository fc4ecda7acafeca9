"""Which of two sentences looks less replaced."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electra.analysis.minimal_pairs import accuracies
from electra.errors import DataError
from electra.serving.scorer import ScoredText


def scorer(texts: list[str]) -> list[ScoredText]:
    """Every "x" looks replaced; all other words do not."""
    found = []
    for text in texts:
        words = text.split()
        logits = np.array([3.0 if word == "x" else -3.0 for word in words], np.float32)
        found.append(ScoredText(text, words, [(0, 0)] * len(words), logits))
    return found


def write(path: Path, pairs: list[tuple[str, str]]) -> None:
    path.write_text("".join(json.dumps({"sentence_good": g, "sentence_bad": b}) + "\n" for g, b in pairs))


def test_the_share_of_pairs_by_file(tmp_path: Path) -> None:
    write(tmp_path / "one.jsonl", [("a b", "a x"), ("a x", "a b"), ("a b", "b a"), ("x x", "x x x")])
    write(tmp_path / "two.jsonl", [("a", "x")] * 9)
    model: Any = scorer
    assert accuracies(model, tmp_path, pairs=100) == {"one": (1 + 0 + 0.5 + 1) / 4, "two": 1.0}
    assert accuracies(model, tmp_path, pairs=2) == {"one": 0.5, "two": 1.0}


def test_a_folder_without_pairs_is_named(tmp_path: Path) -> None:
    model: Any = scorer
    with pytest.raises(DataError, match=r"there is no \.jsonl"):
        accuracies(model, tmp_path, pairs=1)
    (tmp_path / "odd.jsonl").write_text('{"sentence_good": "a"}\n')
    with pytest.raises(DataError, match=r"odd\.jsonl:1: a pair has"):
        accuracies(model, tmp_path, pairs=1)

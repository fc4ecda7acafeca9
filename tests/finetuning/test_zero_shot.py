"""Models that are evaluated on tasks without training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electra.finetuning.zero_shot import correlate_similarity


class Encoder:
    """Its cosine of a pair is the number in the first text."""

    def cosine_similarity(self, firsts: list[str], seconds: list[str]) -> np.ndarray:
        self.firsts = firsts
        return np.array([float(text.split()[1]) for text in firsts])


def test_no_part_of_a_table_is_held_out(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(20)]
    table = tmp_path / "own.csv"
    table.write_text("left,right,like\n" + "".join(f"{text},another,{i}\n" for i, text in enumerate(texts)))
    encoder: Any = Encoder()
    actual = correlate_similarity(encoder, "MODEL", "mine", table, columns=("left", "right", "like"))
    assert actual == {"all": {"spearman": pytest.approx(1.0), "pearson": pytest.approx(1.0)}}
    assert sorted(encoder.firsts) == sorted(texts)

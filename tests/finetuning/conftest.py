"""Fixtures of fine-tunings."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from table_finetuning import sentence, tune, write

from electra.finetuning.results import FinetuneResult


@pytest.fixture(scope="module", autouse=True)
def _products_are_not_timed() -> Iterator[None]:
    """It takes a second on some machines, and only console output depends on it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("electra.training.precision.product_flops", lambda dtype, device: 1e9)
        yield


@pytest.fixture(scope="module")
def model(small_model: str) -> str:
    return small_model


@pytest.fixture(scope="module")
def easy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 texts, good if they are splendid and bad if they are dreadful."""
    draw = random.Random(0)
    kinds = [("splendid", "good"), ("dreadful", "bad")] * 200
    rows = [{"text": sentence(draw, word), "label": label} for word, label in kinds]
    return write(tmp_path_factory.mktemp("easy") / "reviews.csv", rows)


@pytest.fixture(scope="module")
def finished(model: str, easy: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuneResult:
    return tune(model, easy, tmp_path_factory.mktemp("finished") / "out", seeds=2)

"""Frozen probes: ridge regression, and labels that can be read from states."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from small_model import write_model

from electra.analysis.frozen_probes import ALPHA, FROZEN_PROBES, FrozenProbe, _labels, ridge_labels
from electra.errors import DataError
from electra.tasks.conll import Columns
from electra.tasks.tagging_datasets import TASKS


def test_the_regression_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    x_ND = rng.normal(size=(200, 12)).astype(np.float32) * np.arange(1, 13, dtype=np.float32) + 3
    labels_N = (x_ND[:, :3] + rng.normal(size=(200, 3))).argmax(1)
    test_MD = rng.normal(size=(50, 12)).astype(np.float32) * np.arange(1, 13, dtype=np.float32) + 3
    deviation_D = x_ND.std(0) + 1e-6
    scaled, scaled_test = ((states - x_ND.mean(0)) / deviation_D for states in (x_ND, test_MD))
    expected = Ridge(alpha=ALPHA).fit(scaled, np.eye(3)[labels_N]).predict(scaled_test).argmax(1)
    assert np.array_equal(ridge_labels(x_ND, labels_N, test_MD, 3), expected)


def test_a_label_that_a_word_determines_is_read(tmp_path: Path) -> None:
    """Labels that the word alone determines are read from states; labels drawn by chance are not."""
    words = ["cat", "sat", "mat", "dog", "ate", "English"]
    model = write_model(tmp_path / "made", hidden_size=32, heads=2)
    rng = np.random.default_rng(0)
    for chance, low, high in ((False, 0.95, 1.0), (True, 0.05, 0.45)):
        folder = tmp_path / str(chance)
        folder.mkdir()
        for name, count in (("train.txt", 120), ("test.txt", 40)):
            sentences = [rng.integers(0, len(words), 6) for _ in range(count)]
            labels = [rng.integers(0, 4, 6) if chance else sentence % 4 for sentence in sentences]
            (folder / name).write_text(
                "\n\n".join(
                    "\n".join(f"{words[w]} X L{label}" for w, label in zip(sentence, one, strict=True))
                    for sentence, one in zip(sentences, labels, strict=True)
                )
            )
        probe = FrozenProbe(folder.name, TASKS["chunking"], Columns())
        assert low <= probe.score(model, tmp_path) <= high


def test_a_relation_has_no_subtype(tmp_path: Path) -> None:
    folder = tmp_path / "pos-ud-english-ewt"
    folder.mkdir()
    lines = "1\tWe\twe\tPRON\tPRP\t_\t2\tnsubj:pass\t_\t_\n2\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
    for part in ("train", "test"):
        (folder / f"en_ewt-ud-{part}.conllu").write_text(lines)
    train, _ = FROZEN_PROBES["probe-deprel"].read(tmp_path)
    assert _labels(train[0]) == ["nsubj", "root"]


def test_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"chunking-conll2000: there is no train\.txt, which a frozen probe needs; it is part of CoNLL-2000",
    ):
        FROZEN_PROBES["probe-chunking"].read(tmp_path)

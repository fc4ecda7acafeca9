"""Frozen probes: ridge regression, and labels that can be read from states."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from small_model import write_model

from electra.analysis.frozen_probes import (
    ALPHA,
    FROZEN_PROBES,
    FrozenProbe,
    add_random_features,
    ridge_labels,
)
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


def test_a_nonlinear_probe_reads_what_no_linear_one_can() -> None:
    """Whether two features have the same sign; and it is the regression of scikit-learn on the same features."""
    rng = np.random.default_rng(0)
    x_ND, test_MD = (rng.normal(size=(count, 4)).astype(np.float32) for count in (2_000, 500))
    labels_N, test_labels_M = ((states[:, 0] * states[:, 1] > 0).astype(np.int64) for states in (x_ND, test_MD))
    linear_M = ridge_labels(x_ND, labels_N, test_MD, 2)
    nonlinear_M = ridge_labels(x_ND, labels_N, test_MD, 2, random_features=256)
    assert (linear_M == test_labels_M).mean() < 0.6 < 0.9 < (nonlinear_M == test_labels_M).mean()
    scaled, scaled_test = (
        add_random_features((states - x_ND.mean(0)) / (x_ND.std(0) + 1e-6), 256) for states in (x_ND, test_MD)
    )
    expected = Ridge(alpha=ALPHA).fit(scaled, np.eye(2)[labels_N]).predict(scaled_test).argmax(1)
    assert np.array_equal(nonlinear_M, expected)
    assert np.array_equal(scaled[:, :4], (x_ND - x_ND.mean(0)) / (x_ND.std(0) + 1e-6)), "the states are kept"


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


def test_a_nonlinear_probe_reads_states_with_random_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    for name in ("train.txt", "test.txt"):
        (tmp_path / "data" / name).write_text("cat X A\nsat X B\n\n" * 8)
    used: list[int] = []

    def record(x_ND: np.ndarray, count: int) -> np.ndarray:
        used.append(count)
        return add_random_features(x_ND, count)

    monkeypatch.setattr("electra.analysis.frozen_probes.add_random_features", record)
    probe = FrozenProbe("data", TASKS["chunking"], Columns(), random_features=16)
    assert probe.score(write_model(tmp_path / "made", hidden_size=32, heads=2), tmp_path) == 1.0
    assert set(used) == {16} and len(used) >= 4, "in each layer, and for the test part"


def test_a_relation_has_no_subtype(tmp_path: Path) -> None:
    folder = tmp_path / "pos-ud-english-ewt"
    folder.mkdir()
    lines = "1\tWe\twe\tPRON\tPRP\t_\t2\tnsubj:pass\t_\t_\n2\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
    for part in ("train", "test"):
        (folder / f"en_ewt-ud-{part}.conllu").write_text(lines)
    probe = FROZEN_PROBES["probe-deprel"]
    train, _ = probe.read(tmp_path)
    assert train[0].tags == ("nsubj", "root")


def test_the_place_of_a_head_is_counted_from_the_word(tmp_path: Path) -> None:
    folder = tmp_path / "pos-ud-english-ewt"
    folder.mkdir()
    heads = {1: 2, 2: 0, 3: 10, 4: 3, 5: 10, 6: 10, 7: 1, 8: 1, 9: 8, 10: 2}
    words = [f"{place}\tw\tw\tX\tX\t_\t{head}\tdep\t_\t_" for place, head in heads.items()]
    words.insert(1, "2-3\tww\t_\t_\t_\t_\t_\t_\t_\t_")
    for part in ("train", "test"):
        (folder / f"en_ewt-ud-{part}.conllu").write_text("\n".join(words) + "\n\n")
    probe = FROZEN_PROBES["probe-heads"]
    train, _ = probe.read(tmp_path)
    assert train[0].tags == ("1", "root", "5", "-1", "5", "4", "-5", "-5", "-1", "-5")


def test_a_head_that_is_no_number_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "pos-ud-english-ewt"
    folder.mkdir()
    for part in ("train", "test"):
        (folder / f"en_ewt-ud-{part}.conllu").write_text("1\tWe\twe\tPRON\tPRP\t_\t_\tdep\t_\t_\n\n")
    with pytest.raises(DataError, match=r"train\.conllu:1: in this sentence the head of word 1 is '_'"):
        FROZEN_PROBES["probe-heads"].read(tmp_path)


def test_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"chunking-conll2000: there is no train\.txt, which a frozen probe needs; it is part of CoNLL-2000",
    ):
        FROZEN_PROBES["probe-chunking"].read(tmp_path)

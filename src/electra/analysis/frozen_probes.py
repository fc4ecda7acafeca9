"""Frozen probes: how well labels of words can be read from the states of a network that is not trained further.

For each layer a linear map from a word's state to its label is fitted by ridge regression on one-hot labels, in
closed form, so a probe takes seconds and gives the same number every time. The layer is chosen on held-out
sentences of the training part; the score is that layer's accuracy on the test part.

`probing` has probes with control tasks, which say how much of an accuracy is memorized. They take minutes.

Shapes: N words, Z layers, D hidden size, C labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from electra.analysis.layers import LayerReader
from electra.errors import DataError
from electra.export.loading import load_pretrained
from electra.tasks import conll
from electra.tasks.conll import Columns, Sentence

TRAIN_SENTENCES, TEST_SENTENCES = 2_000, 1_000
"""At most so many sentences of each part are read, the first ones."""
HELD_OUT = 4
"""One sentence in so many of the training part is held out to choose the layer."""
PENALTY = 10.0
"""Of the ridge regression on standardized states."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FrozenProbe:
    """Labels of words in public data.

    Attributes:
        folder: the folder of the data in the folder of all tasks.
        train, test: the files of both parts.
        columns: where words and labels are in them. A label ends before a colon, as relations with subtypes do.
    """

    folder: str
    train: str
    test: str
    columns: Columns

    def read(self, tasks: Path) -> tuple[list[Sentence], list[Sentence]]:
        """The sentences of both parts.

        Raises:
            DataError: a file is missing or damaged.
        """
        parts = []
        for name, count in ((self.train, TRAIN_SENTENCES), (self.test, TEST_SENTENCES)):
            path = tasks / self.folder / name
            if not path.is_file():
                raise DataError(f"{path}: there is no such file, which a frozen probe needs")
            parts.append(conll.read(path, self.columns)[:count])
        return parts[0], parts[1]

    def score(self, model: Path, tasks: Path) -> float:
        """The accuracy of the labels of words of the test part.

        Raises:
            CheckpointError: the model cannot be loaded.
            DataError: a file is missing or damaged.
        """
        reader, (train, test) = LayerReader(load_pretrained(model)), self.read(tasks)
        names = sorted({label for sentence in train for label in _labels(sentence)})
        index = {name: number for number, name in enumerate(names)}
        words_ZND, other_ZND = (reader.states([s.words for s in part]).states_ZND for part in (train, test))
        labels_N, other_N = (
            np.array([index.get(label, -1) for sentence in part for label in _labels(sentence)], np.int64)
            for part in (train, test)
        )
        chosen = np.repeat(np.arange(len(train)) % HELD_OUT > 0, [len(sentence.words) for sentence in train])
        accuracies = [
            (ridge_labels(x_ND[chosen], labels_N[chosen], x_ND[~chosen], len(names)) == labels_N[~chosen]).mean()
            for x_ND in words_ZND
        ]
        best = int(np.argmax(accuracies))
        predicted_N = ridge_labels(words_ZND[best], labels_N, other_ZND[best], len(names))
        return float((predicted_N == other_N).mean())


FROZEN_PROBES = {
    "probe-chunking": FrozenProbe("chunking-conll2000", "train.txt", "test.txt", Columns()),
    "probe-upos": FrozenProbe("pos-ud-english-ewt", "train.conllu", "test.conllu", conll.UPOS),
    "probe-relations": FrozenProbe(
        "pos-ud-english-ewt", "train.conllu", "test.conllu", Columns(words=1, tags=7, conllu=True)
    ),
}
"""Probes by name: chunks, parts of speech, and the relation of a word to its head."""


def _labels(sentence: Sentence) -> Sequence[str]:
    assert sentence.tags is not None
    return [tag.partition(":")[0] for tag in sentence.tags]


def ridge_labels(x_ND: NDArray[np.float32], labels_N: Ints, test_MD: NDArray[np.float32], count: int) -> Ints:
    """Return the most likely label (M,) of states, from a ridge regression of one-hot labels on other states.

    Args:
        labels_N: the labels of `x_ND`, from 0 to `count` - 1.
    """
    mean_D, deviation_D = x_ND.mean(0), x_ND.std(0) + 1e-6
    x, test = (
        np.hstack([(states - mean_D) / deviation_D, np.ones((len(states), 1))]).astype(np.float64)
        for states in (x_ND, test_MD)
    )
    one_hot_NC = np.eye(count)[labels_N]
    weights = np.linalg.solve(x.T @ x + PENALTY * np.eye(x.shape[1]), x.T @ one_hot_NC)
    return np.asarray((test @ weights).argmax(1))

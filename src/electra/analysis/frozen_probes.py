"""Frozen probes: how well labels of words can be read from the states of a network that is not trained further.

For each layer a linear map from a word's state to its label is fitted by ridge regression on one-hot labels, in
closed form, so a probe takes seconds and gives the same number every time. The layer is chosen on held-out
sentences of the training part; the score is that layer's accuracy on the test part. A non-linear probe is the same
regression on the states and random features of them, max(0, W x), whose W is always the same (a layer of random
weights that is not trained).

`probing` has probes with control tasks, which say how much of an accuracy is memorized. They take minutes.

Shapes: N words to fit, M words to test, Z layers, D hidden size, H random features, C labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from electra.analysis.layers import LayerReader
from electra.errors import DataError
from electra.export.loading import load_pretrained
from electra.tasks import conll
from electra.tasks.conll import Columns, Sentence
from electra.tasks.tagging_datasets import TASKS, TaggingDataset, find_file

TRAIN_SENTENCES, TEST_SENTENCES = 2_000, 1_000
"""At most so many sentences of each part are read, the first ones."""
HELD_OUT = 4
"""One sentence in so many of the training part is held out to choose the layer."""
ALPHA = 10.0
"""The penalty of the ridge regression, on standardized states."""
RANDOM_FEATURES = 1_024
"""Random features of a non-linear probe."""
MAX_OFFSET = 5
"""Heads so many words away, or more, have one label on each side."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def _labels(sentence: Sentence) -> Sequence[str]:
    """The tags up to a colon; relations have subtypes behind it."""
    assert sentence.tags is not None
    return [tag.partition(":")[0] for tag in sentence.tags]


def _head_offsets(sentence: Sentence) -> Sequence[str]:
    """Where the head of each word is: so many words after it (before it if negative), or `root`.

    Raises:
        DataError: a head is no number.
    """
    assert sentence.tags is not None
    offsets = []
    for place, tag in enumerate(sentence.tags, start=1):
        if not tag.isdecimal():
            raise DataError(
                f"{sentence.source}:{sentence.line}: in this sentence the head of word {place} is {tag!r}, not "
                "the number of a word; use a file with dependencies"
            )
        offset = int(tag) - place
        offsets.append(str(max(-MAX_OFFSET, min(MAX_OFFSET, offset))) if int(tag) else "root")
    return offsets


@dataclass(frozen=True)
class FrozenProbe:
    """Labels of words in public data.

    Attributes:
        folder: the folder of the data in the folder of all tasks.
        dataset: the files.
        columns: where words and tags are in them.
        labels: makes the labels of words from the tags of a sentence.
        random_features: their number; 0: a linear probe.
    """

    folder: str
    dataset: TaggingDataset
    columns: Columns
    labels: Callable[[Sentence], Sequence[str]] = _labels
    random_features: int = 0

    def read(self, tasks: Path) -> tuple[list[Sentence], list[Sentence]]:
        """The sentences of both parts, with the labels as tags.

        Raises:
            DataError: a file is missing or damaged.
        """
        parts, folder = [], tasks / self.folder
        for split, count in (("train", TRAIN_SENTENCES), ("test", TEST_SENTENCES)):
            names = self.dataset.files[split]
            path = find_file(folder, names)
            if path is None:
                raise DataError(
                    f"{folder}: there is no {' or '.join(names)}, which a frozen probe needs; it is part of "
                    f"{self.dataset.source}"
                )
            sentences = conll.read(path, self.columns)[:count]
            parts.append([replace(sentence, tags=tuple(self.labels(sentence))) for sentence in sentences])
        return parts[0], parts[1]

    def score(self, model: Path, tasks: Path, *, device: str = "auto") -> float:
        """The accuracy of the labels of words of the test part.

        Args:
            device: the device of the encoder (`resolve_device`).

        Raises:
            CheckpointError: the model cannot be loaded.
            DataError: a file is missing or damaged.
        """
        reader, (train, test) = LayerReader(load_pretrained(model), device=device), self.read(tasks)
        names = sorted({label for sentence in train for label in sentence.tags or ()})
        index = {name: number for number, name in enumerate(names)}
        labels_N, test_labels_M = (
            np.array([index.get(label, -1) for sentence in part for label in sentence.tags or ()], np.int64)
            for part in (train, test)
        )
        fitted_N = np.repeat(np.arange(len(train)) % HELD_OUT > 0, [len(sentence.words) for sentence in train])
        x_ZND = reader.states([sentence.words for sentence in train]).states_ZND
        fit = partial(ridge_labels, count=len(names), random_features=self.random_features)
        accuracies = [
            np.mean(fit(x_ND[fitted_N], labels_N[fitted_N], x_ND[~fitted_N]) == labels_N[~fitted_N])
            for x_ND in x_ZND
        ]
        best = int(np.argmax(accuracies))
        x_ND = x_ZND[best].copy()
        del x_ZND  # all layers of a large network take gigabytes
        test_MD = reader.states([sentence.words for sentence in test]).states_ZND[best]
        return float((fit(x_ND, labels_N, test_MD) == test_labels_M).mean())


def ridge_labels(
    x_ND: NDArray[np.float32],
    labels_N: Ints,
    test_MD: NDArray[np.float32],
    count: int,
    *,
    random_features: int = 0,
) -> Ints:
    """Return the most likely label (M,) of states, from a ridge regression of one-hot labels on other states.

    Args:
        labels_N: the labels of `x_ND`, from 0 to `count` - 1.
        random_features: number of features that are added to the states.
    """
    mean_D, deviation_D = x_ND.mean(0), x_ND.std(0) + 1e-6
    scaled_ND, scaled_MD = (((states - mean_D) / deviation_D).astype(np.float64) for states in (x_ND, test_MD))
    if random_features:
        scaled_ND, scaled_MD = (add_random_features(states, random_features) for states in (scaled_ND, scaled_MD))
        mean_D = scaled_ND.mean(0)
        scaled_ND, scaled_MD = scaled_ND - mean_D, scaled_MD - mean_D
    one_hot_NC = np.eye(count)[labels_N]
    shares_C = one_hot_NC.mean(0)
    gram_DD = scaled_ND.T @ scaled_ND + ALPHA * np.eye(len(mean_D))
    weights_DC = np.linalg.solve(gram_DD, scaled_ND.T @ (one_hot_NC - shares_C))
    return np.asarray((scaled_MD @ weights_DC + shares_C).argmax(1))


def add_random_features(x_ND: Floats, count: int) -> Floats:
    """Return standardized states (N, D + H) with `count` features max(0, W x), always of the same W."""
    width = x_ND.shape[1]
    weights_DH = np.random.default_rng(0).normal(size=(width, count)) / np.sqrt(width)
    return np.concatenate([x_ND, np.maximum(0, x_ND @ weights_DH)], axis=1)


_CHUNKS = FrozenProbe("chunking-conll2000", TASKS["chunking"], TASKS["chunking"].columns)
_TAGS = FrozenProbe("pos-ud-english-ewt", TASKS["upos"], conll.UPOS)
_RELATIONS = replace(_TAGS, columns=conll.DEPREL)
_HEADS = replace(_TAGS, columns=conll.HEAD, labels=_head_offsets)
_LINEAR = {
    "probe-chunking": _CHUNKS, "probe-upos": _TAGS, "probe-deprel": _RELATIONS, "probe-heads": _HEADS,
}  # fmt: skip

FROZEN_PROBES = _LINEAR | {
    f"nonlinear-{name}": replace(probe, random_features=RANDOM_FEATURES) for name, probe in _LINEAR.items()
}
"""Probes by name: chunks, parts of speech, the dependency relation of a word to its head, and the head's place;
each linear and, with `nonlinear-` in front, with random features."""

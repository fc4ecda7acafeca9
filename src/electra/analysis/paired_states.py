"""The states of two encoders at the same words.

Shapes: N words, S sentences, Z layers, D hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from electra.analysis.annotated_text import AnnotatedSentence
from electra.analysis.layers import LayerReader
from electra.analysis.probing import MIN_WORDS, Probe
from electra.tasks.conll import EMPTY_FIELD

States = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PairedStates:
    """The words for which both tokenizers have tokens, and the states of both networks.

    Attributes:
        sentences: all sentences, with the words that are left out.
        kept_N: which of their words are kept.
        states: the states of the kept words in either network (Z, N, D).
        in_windows: the number of sentences that each network read in windows.
    """

    sentences: Sequence[AnnotatedSentence]
    kept_N: NDArray[np.bool_]
    states: tuple[States, States]
    in_windows: tuple[int, int]

    @classmethod
    def read(cls, readers: Sequence[LayerReader], sentences: Sequence[AnnotatedSentence]) -> "PairedStates":
        """Read sentences with both networks."""
        words = [sentence.words for sentence in sentences]
        first, second = (reader.states(words) for reader in readers)
        kept_N = first.has_N & second.has_N
        states = first.states_ZND, second.states_ZND
        if not kept_N.all():  # else without a copy
            states = states[0][:, kept_N], states[1][:, kept_N]
        return cls(sentences, kept_N, states, (first.in_windows, second.in_windows))

    @cached_property
    def words(self) -> list[str]:
        every = (word for sentence in self.sentences for word in sentence.words)
        return [word for word, kept in zip(every, self.kept_N, strict=True) if kept]

    @cached_property
    def sentences_N(self) -> Ints:
        """The index of each word's sentence."""
        lengths = [len(sentence.words) for sentence in self.sentences]
        return np.repeat(np.arange(len(self.sentences)), lengths)[self.kept_N]

    @cached_property
    def types_N(self) -> Ints:
        """The index of each word's type (its lowercase form)."""
        types_N: Ints = np.unique([word.lower() for word in self.words], return_inverse=True)[1]
        return types_N

    def tag_probe(self, name: str, seed: int) -> Probe | None:
        """The probe for tags; None if the training half has only one tag, or the held-out half has none."""
        every = [
            tag for sentence in self.sentences for tag in sentence.tags or [EMPTY_FIELD] * len(sentence.words)
        ]
        tags = [tag for tag, kept in zip(every, self.kept_N, strict=True) if kept]
        names = sorted({*tags} - {EMPTY_FIELD})
        if len(names) < 2:
            return None
        numbers = {tag: number for number, tag in enumerate(names)} | {EMPTY_FIELD: -1}
        probe = Probe(name, np.array([numbers[tag] for tag in tags]), self.types_N, self.sentences_N)
        train_N, test_N = probe.train_test_split(seed)
        return probe if len(np.unique(probe.values_N[train_N])) > 1 and test_N.any() else None

    def depth_probe(self, seed: int) -> Probe | None:
        """The probe for the depth in the tree; None without depths, or without a long held-out sentence."""
        every = [depth for sentence in self.sentences for depth in sentence.depths or [-1] * len(sentence.words)]
        depths_N = np.array(every)[self.kept_N]
        probe = Probe("depth in the tree", depths_N, self.types_N, self.sentences_N, ordered=True)
        train_N, test_N = probe.train_test_split(seed)
        longest = np.bincount(self.sentences_N[test_N], minlength=1).max()
        return probe if longest >= MIN_WORDS and train_N.any() else None

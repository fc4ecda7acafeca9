"""The words that both networks read, and the probes of their annotations."""

import numpy as np
import pytest

from electra.analysis.annotated_text import AnnotatedSentence
from electra.analysis.paired_states import PairedStates
from electra.analysis.probing import Probe


@pytest.mark.parametrize("seed", range(8))
def test_tags_are_probed_if_the_training_half_has_two(seed: int) -> None:
    verb = AnnotatedSentence(("go", "home"), ("VERB", "NOUN"))
    nouns = [AnnotatedSentence((word, word), ("NOUN", "NOUN")) for word in ("a", "b", "c")]
    states = np.zeros((1, 8, 2), np.float32)
    pair = PairedStates([verb, *nouns], np.ones(8, bool), (states, states), (0, 0))
    held_out_N = Probe("any", np.zeros(8, np.int64), pair.types_N, pair.sentences_N).test_words(seed)
    assert (pair.tag_probe("tag", seed) is None) == held_out_N[0]

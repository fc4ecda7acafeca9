"""Random samples of a training set."""

from collections import Counter

import pytest

from electra.errors import DataError
from electra.tasks.conll import Sentence
from electra.tasks.subsampling import stratified_split, stratify, subsample
from electra.tasks.texts import TextExample

LABELED = [TextExample(f"text {i}", None, 0 if i % 4 else 1) for i in range(200)]
VALUED = [TextExample(f"text {i}", None, i / 7) for i in range(200)]


def counts(examples: list[TextExample]) -> Counter[object]:
    return Counter(example.answer for example in examples)


def test_a_sample_of_all_examples() -> None:
    assert subsample(LABELED, fraction=1, shots=0, seed=0) == LABELED


def test_a_fraction_applies_to_each_label_and_keeps_the_order() -> None:
    actual = subsample(LABELED, fraction=0.1, shots=0, seed=0)
    assert counts(actual) == {0: 15, 1: 5}
    places = [LABELED.index(example) for example in actual]
    assert places == sorted(places)


def test_a_number_of_examples_of_each_label() -> None:
    actual = subsample(LABELED, fraction=1, shots=8, seed=0)
    assert counts(actual) == {0: 8, 1: 8}
    places = [LABELED.index(example) for example in actual]
    assert places == sorted(places)


@pytest.mark.parametrize(("fraction", "shots"), [(0.1, 0), (1, 8)])
def test_the_seed_decides(fraction: float, shots: int) -> None:
    one, same, other = (subsample(LABELED, fraction=fraction, shots=shots, seed=seed) for seed in (3, 3, 4))
    assert one == same and one != other


def test_values_and_sentences_are_sampled_without_labels() -> None:
    assert len(subsample(VALUED, fraction=0.25, shots=0, seed=0)) == 50
    sentences = [Sentence((f"word{i}",), ("O",), "train.txt", i) for i in range(40)]
    assert len(subsample(sentences, fraction=0.25, shots=0, seed=0)) == 10


def test_repeated_values_are_not_labels() -> None:
    examples = [TextExample(f"text {i}", None, [1.0, 2.5, 4.0, i / 7][i % 4]) for i in range(400)]
    assert len(subsample(examples, fraction=0.05, shots=0, seed=0)) == 20
    with pytest.raises(DataError, match=r"the answers are not labels"):
        subsample(examples, fraction=1, shots=2, seed=0)


def test_a_label_of_one_example_is_not_lost() -> None:
    rare = [*LABELED, TextExample("rare", None, 2)]
    assert counts(subsample(rare, fraction=0.5, shots=0, seed=0)) == {0: 75, 1: 25, 2: 1}


def test_impossible_shots_are_refused() -> None:
    with pytest.raises(DataError, match=r"data\.shots: a label has only 50 examples; give 50 or fewer"):
        subsample(LABELED, fraction=1, shots=51, seed=0)
    with pytest.raises(DataError, match=r"data\.shots: the answers are not labels.* use data\.fraction"):
        subsample(VALUED, fraction=1, shots=2, seed=0)


def test_a_split_keeps_the_order_and_both_parts_have_members() -> None:
    groups = ["a"] * 50 + ["b"] * 3 + ["c"]
    kept, cut = stratified_split(groups, 0.9, seed=0)
    assert kept.tolist() == sorted(kept.tolist()) and cut.tolist() == sorted(cut.tolist())
    assert Counter(groups[i] for i in kept) == {"a": 5, "b": 1, "c": 1}
    assert Counter(groups[i] for i in cut) == {"a": 45, "b": 2}
    other, _ = stratified_split(groups, 0.9, seed=1)
    assert kept.tolist() != other.tolist()


def test_a_split_has_the_nearest_number_of_each_group() -> None:
    rest, sample = stratified_split(["a"] * 18 + ["b"] * 12, 0.1, seed=0)
    assert (len(rest), len(sample)) == (27, 3) and sum(sample < 18) == 2, "of 1.8 and 1.2"


def test_rare_sets_of_labels_do_not_enlarge_a_part() -> None:
    rare = [TextExample(f"text {i}", None, (i, i + 1)) for i in range(100)]
    often = [TextExample(f"more {i}", None, (0,)) for i in range(100)]
    actual = subsample([*rare, *often], fraction=0.1, shots=0, seed=0)
    assert len(actual) == 20 and counts(actual)[(0,)] == 10


def test_a_set_of_labels_of_which_the_share_is_one_is_a_group() -> None:
    assert Counter(stratify([(0, 1)] * 10 + [(0,)] * 90, 0.1)) == {"(0, 1)": 10, "(0,)": 90}
    assert Counter(stratify([(0, 1)] * 9 + [(0,)] * 91, 0.1)) == {"": 9, "(0,)": 91}


def test_shots_are_for_one_label_per_text() -> None:
    examples = [TextExample(f"text {i}", None, (i % 2,)) for i in range(20)]
    with pytest.raises(DataError, match=r"data\.shots: a text can have several labels here; use data\.fraction"):
        subsample(examples, fraction=1, shots=2, seed=0)

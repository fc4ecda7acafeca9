"""Learning from few: a part of the training examples, drawn by a seed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from electra.errors import DataError
from electra.tasks.tabular import stratified_cut


def part(examples: Sequence[Any], *, fraction: float, shots: int, seed: int) -> list[Any]:
    """A share of the examples of each answer, one at least, or so many of each, in their order.

    Args:
        fraction: 1 for all.
        shots: 0 for all.

    Raises:
        DataError: an answer has fewer examples than `shots`, or the examples have no answers that can be counted.
    """
    answers = [getattr(example, "answer", None) for example in examples]
    labels = [str(answer) if isinstance(answer, int | tuple) else "" for answer in answers]  # numbers are none
    if shots:
        return _shots(examples, labels, shots, seed)
    if fraction == 1:
        return list(examples)
    rare = len(set(labels)) > len(labels) / 2  # sets of labels, most of which occur once
    strata = [""] * len(labels) if rare else labels
    chosen, _ = stratified_cut(strata, 1 - fraction, seed=seed)
    return [examples[place] for place in chosen]


def _shots(examples: Sequence[Any], answers: Sequence[str], shots: int, seed: int) -> list[Any]:
    members: dict[str, list[int]] = {}
    for place, answer in enumerate(answers):
        members.setdefault(answer, []).append(place)
    if len(members) > len(answers) / 2 or len(members) < 2:
        raise DataError(
            "data.shots: the answers are no labels of which one could take some each; use data.fraction"
        )
    fewest = min(len(places) for places in members.values())
    if fewest < shots:
        raise DataError(f"data.shots: a label has only {fewest} examples; give {fewest} or fewer")
    random = np.random.default_rng(seed)
    chosen = sorted(place for places in members.values() for place in random.permutation(places)[:shots].tolist())
    return [examples[place] for place in chosen]

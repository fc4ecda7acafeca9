"""Random samples of examples: a dev part, a share of the training data, some examples of each label."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.errors import DataError


def subsample(examples: Sequence[Any], *, fraction: float, shots: int, seed: int) -> list[Any]:
    """Return a random sample of examples, in their order.

    Args:
        fraction: share of the examples of each answer, at least one of them; 1: all.
        shots: number of examples of each answer; 0: not limited.

    Raises:
        DataError: an answer has fewer examples than `shots`, or the answers are not labels.
    """
    answers = [getattr(example, "answer", None) for example in examples]
    if shots:
        if any(isinstance(answer, tuple) for answer in answers):
            raise DataError("data.shots: a text can have several labels here; use data.fraction")
        return _sample_shots(examples, stratify(answers, 1.0), shots, seed)
    if fraction == 1:
        return list(examples)
    kept, _ = stratified_split(stratify(answers, fraction), 1 - fraction, seed=seed)
    return [examples[index] for index in kept]


def stratify(answers: Sequence[Any], share: float) -> list[str]:
    """Return the group of each answer, for a sample of `share` of each group: its label, or its set of labels.

    Sets that are so rare that the share is below one are a single group; one of each would be more than the share.
    Values and tags are a single group, too.
    """
    names = [str(answer) if isinstance(answer, int | tuple) else "" for answer in answers]
    frequent = {name for name, count in Counter(names).items() if count * share >= 1}
    return [
        "" if isinstance(answer, tuple) and name not in frequent else name
        for answer, name in zip(answers, names, strict=True)
    ]


def stratified_split(
    groups: Sequence[str], share: float, *, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the rest and those of the sample, each in order. The sample is `share` of every group.

    A group of one member stays in the rest. A larger group has at least one member in each.
    """
    random = np.random.default_rng(seed)
    members: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    sampled: list[int] = []
    for indices in members.values():
        if len(indices) > 1:
            count = min(len(indices) - 1, max(1, round(share * len(indices))))
            sampled += random.permutation(indices)[:count].tolist()
    mask = np.zeros(len(groups), bool)
    mask[sampled] = True
    return np.flatnonzero(~mask), np.flatnonzero(mask)


def _sample_shots(examples: Sequence[Any], answers: Sequence[str], shots: int, seed: int) -> list[Any]:
    members: dict[str, list[int]] = {}
    for index, answer in enumerate(answers):
        members.setdefault(answer, []).append(index)
    if len(members) > len(answers) / 2 or len(members) < 2:
        raise DataError(
            "data.shots: the answers are not labels, so there are no examples of each label; use data.fraction"
        )
    fewest = min(len(indices) for indices in members.values())
    if fewest < shots:
        raise DataError(f"data.shots: a label has only {fewest} examples; give {fewest} or fewer")
    random = np.random.default_rng(seed)
    sampled = sorted(
        index for indices in members.values() for index in random.permutation(indices)[:shots].tolist()
    )
    return [examples[index] for index in sampled]

"""Parts of examples, drawn by a seed: a dev part, a share of the training data, a few of each answer."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.errors import DataError


def subsample(examples: Sequence[Any], *, fraction: float, shots: int, seed: int) -> list[Any]:
    """A share of the examples of each answer, one at least, or so many of each, in their order.

    Args:
        fraction: 1 for all.
        shots: 0 for all.

    Raises:
        DataError: an answer has fewer examples than `shots`, or the examples have no answers that can be counted.
    """
    answers = [getattr(example, "answer", None) for example in examples]
    if shots:
        return _shots(examples, stratify(answers, 1.0), shots, seed)
    if fraction == 1:
        return list(examples)
    chosen, _ = stratified_split(stratify(answers, fraction), 1 - fraction, seed=seed)
    return [examples[place] for place in chosen]


def stratify(answers: Sequence[Any], share: float) -> list[str]:
    """Groups that a share can be drawn from evenly: the label of each answer, or its set of labels.

    Sets of which the share would hold none are one group, as one of each would be more than the share. Numbers and
    tags are one group, too.
    """
    names = [str(answer) if isinstance(answer, int | tuple) else "" for answer in answers]
    often = {name for name, count in Counter(names).items() if count * share >= 1}
    return [
        "" if isinstance(answer, tuple) and name not in often else name
        for answer, name in zip(answers, names, strict=True)
    ]


def stratified_split(
    groups: Sequence[str], share: float, *, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places that are kept and those that are cut, each in order: `share` of every group is cut.

    A group of one stays whole; of a larger one at least one is kept and one cut.
    """
    random = np.random.default_rng(seed)
    members: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    cut: list[int] = []
    for places in members.values():
        if len(places) > 1:
            count = min(len(places) - 1, max(1, round(share * len(places))))
            cut += random.permutation(places)[:count].tolist()
    mask = np.zeros(len(groups), bool)
    mask[cut] = True
    return np.flatnonzero(~mask), np.flatnonzero(mask)


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

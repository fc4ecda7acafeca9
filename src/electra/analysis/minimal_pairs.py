"""Pairs of sentences of which one is wrong: which looks less replaced to a discriminator? (BLiMP, zero-shot.)"""

import itertools
from pathlib import Path

import numpy as np

from electra.data.records import read_records
from electra.errors import DataError
from electra.serving.scorer import Scorer

GOOD, BAD = "sentence_good", "sentence_bad"


def accuracies(scorer: Scorer, folder: Path, *, pairs: int) -> dict[str, float]:
    """By paradigm (file), the share of pairs whose right sentence has the larger sum of log-probabilities of its
    tokens being original; ties count half.

    Args:
        folder: of .jsonl files as BLiMP has them, with `sentence_good` and `sentence_bad`.
        pairs: the first ones of each file.

    Raises:
        DataError: there is no such file, or a line lacks a sentence.
    """
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise DataError(f"{folder}: there is no .jsonl in it; BLiMP has 67, from github.com/alexwarstadt/blimp")
    texts: list[str] = []
    counts: dict[str, int] = {}
    for file in files:
        for line, record in itertools.islice(read_records(file), pairs):
            if not all(isinstance(record.get(name), str) for name in (GOOD, BAD)):
                raise DataError(f"{file}:{line}: a pair has {GOOD} and {BAD}")
            texts += [record[GOOD], record[BAD]]
            counts[file.stem] = counts.get(file.stem, 0) + 1
    sums = [-np.logaddexp(0, scored.logits.astype(np.float64)).sum() for scored in scorer(texts)]
    good_P, bad_P = np.array(sums).reshape(-1, 2).T
    right_P = (good_P > bad_P) + 0.5 * (good_P == bad_P)
    ends = np.cumsum(list(counts.values()))
    parts = np.split(right_P, ends[:-1])
    return {name: float(part.mean()) for name, part in zip(counts, parts, strict=True)}

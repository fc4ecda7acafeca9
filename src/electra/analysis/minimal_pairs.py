"""Pairs of sentences of which one is wrong: which looks likelier to a model? (BLiMP, zero-shot.)

Shapes: P pairs, S scores (of all models), R resamples.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import Floats, drawn, interval
from electra.errors import DataError
from electra.readers.read import read_records
from electra.serving.scorer import Scorer

GOOD, BAD = "sentence_good", "sentence_bad"
COLUMNS = ((GOOD, BAD), ("good", "bad"), ("grammatical", "ungrammatical"), ("acceptable", "unacceptable"))
"""The columns of the right and of the wrong sentence that are known by themselves."""
PARADIGM, FIELD = ("UID", "paradigm"), ("field", "linguistics_term")
"""Columns of a pair's paradigm (else it is the file's name) and of the field of that, the first that there is."""
LENGTHS = ("shorter", "equal", "longer")
"""The right sentence beside the wrong one, in tokens."""


@dataclass(frozen=True)
class Pair:
    """Two sentences, the right one first.

    Attributes:
        paradigm: what is wrong with the other one; a file's name where no column says it.
        field: what the paradigm belongs to, where that is known.
    """

    paradigm: str
    field: str | None
    good: str
    bad: str


def pairs_of(
    paths: Sequence[Path], *, pairs: int | None = None, columns: tuple[str | None, str | None] = (None, None)
) -> list[Pair]:
    """The pairs of files, or of the .jsonl files of folders.

    Args:
        pairs: the first ones of each file; None: all.
        columns: of the right and of the wrong sentence; None: one of `COLUMNS`.

    Raises:
        DataError: a folder has no such file, a file cannot be read or has no pairs, or a row lacks a sentence.
    """
    return [pair for file in _files(paths) for pair in _pairs(file, pairs, columns)]


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not files:
            raise DataError(f"{path}: there is no .jsonl in it; BLiMP has 67, from github.com/alexwarstadt/blimp")
        found += files
    return found


def _pairs(file: Path, pairs: int | None, columns: tuple[str | None, str | None]) -> Iterator[Pair]:
    line = 0
    for line, record in itertools.islice(read_records(file), pairs):
        good, bad = _columns(record, columns, f"{file}:{line}")
        for name in (good, bad):
            if not isinstance(record.get(name), str) or not record[name].strip():
                raise DataError(f"{file}:{line}: a pair has {good} and {bad}; {name} is {record.get(name)!r}")
        paradigm = next((str(record[name]) for name in PARADIGM if record.get(name)), file.name.partition(".")[0])
        field = next((str(record[name]) for name in FIELD if record.get(name)), None)
        field = field and field.replace("/", "_")  # BLiMP has syntax/semantics and syntax_semantics
        yield Pair(paradigm, field, record[good], record[bad])
    if not line:
        raise DataError(f"{file}: there are no pairs in it")


def _columns(record: Mapping[str, Any], wanted: tuple[str | None, str | None], where: str) -> tuple[str, str]:
    """The names of the two columns.

    Raises:
        DataError: they are not to be found.
    """
    known = next((both for both in COLUMNS if any(name in record for name in both)), COLUMNS[0])
    good, bad = (name or usual for name, usual in zip(wanted, known, strict=True))
    if missing := [name for name in (good, bad) if name not in record]:
        there = ", ".join(map(repr, record)) or "none"
        raise DataError(
            f"{where}: a pair has {good} and {bad}; there is no {missing[0]!r}, the columns are {there}. "
            "Name the two with --good-column and --bad-column"
        )
    return good, bad


def accuracies(scorer: Scorer, folder: Path, *, pairs: int) -> dict[str, float]:
    """By paradigm (file), the share of pairs whose right sentence has the larger sum of log-probabilities of its
    tokens being original; ties count half.

    Args:
        folder: of .jsonl files as BLiMP has them, with `sentence_good` and `sentence_bad`.
        pairs: the first ones of each file.

    Raises:
        DataError: there is no such file, or a line lacks a sentence.
    """
    found: dict[str, float] = {}
    by_file = {file.stem: list(_pairs(file, pairs, (GOOD, BAD))) for file in _files([folder])}
    scored = iter(scorer(list(texts_of(itertools.chain.from_iterable(by_file.values())))))
    for name, there in by_file.items():
        sums = [-np.logaddexp(0, next(scored).logits.astype(np.float64)).sum() for _ in range(2 * len(there))]
        found[name] = float(right(np.array(sums)).mean())
    return found


def texts_of(pairs: Iterator[Pair] | Sequence[Pair]) -> Iterator[str]:
    """The sentences, the right one of each pair first."""
    for pair in pairs:
        yield pair.good
        yield pair.bad


def right(scores_2P: Floats) -> Floats:
    """1 where the right sentence has the higher score, 1/2 where both have the same (P,)."""
    good_P, bad_P = scores_2P.reshape(-1, 2).T
    found: Floats = (good_P > bad_P) + 0.5 * (good_P == bad_P)
    return found


@dataclass(frozen=True, eq=False)
class Judged:
    """What one score makes of all pairs.

    Attributes:
        right_P: 1, 1/2 (a tie) or 0.
        longer_P: tokens that the right sentence has more than the wrong one.
    """

    model: str
    score: str
    right_P: Floats
    longer_P: NDArray[np.int64]


def measured(
    pairs: Sequence[Pair], judged: Sequence[Judged], *, resamples: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Accuracies by paradigm, by field and by length, their intervals, and the differences of the scores.

    The accuracy of a field, and of all, is the mean over its paradigms. A resample draws the pairs of each
    paradigm anew, the same for all scores; the paradigms stay. By length all pairs count alike, whatever their
    paradigm.

    Args:
        judged: each score of each model, of the same pairs.
    """
    names = list(dict.fromkeys(pair.paradigm for pair in pairs))
    places = {name: np.array([i for i, pair in enumerate(pairs) if pair.paradigm == name]) for name in names}
    fields = {name: pairs[int(places[name][0])].field for name in names}
    right_SP = np.stack([one.right_P for one in judged])
    lengths_SP = np.stack([np.sign(one.longer_P) for one in judged])
    generator = np.random.default_rng(seed)
    by_paradigm: dict[str, tuple[Floats, Floats]] = {}
    hits_LSR, drawn_LSR = np.zeros((2, 3, len(judged), resamples))
    for name, where in places.items():
        counts_RP = drawn(len(where), resamples=resamples, seed=generator)
        by_paradigm[name] = right_SP[:, where].mean(1), right_SP[:, where] @ counts_RP.T / len(where)
        for number, sign in enumerate((-1, 0, 1)):
            there_SP = (lengths_SP[:, where] == sign).astype(float)
            hits_LSR[number] += (there_SP * right_SP[:, where]) @ counts_RP.T
            drawn_LSR[number] += there_SP @ counts_RP.T
    by_length_LSR = np.divide(hits_LSR, drawn_LSR, out=np.full_like(hits_LSR, np.nan), where=drawn_LSR > 0)

    def mean_of(some: Sequence[str]) -> Callable[[int], dict[str, Any]]:
        values_S = np.mean([by_paradigm[name][0] for name in some], 0)
        values_SR = np.mean([by_paradigm[name][1] for name in some], 0)
        return lambda score: _figure(values_S[score], values_SR[score])

    known = [field for field in dict.fromkeys(fields.values()) if field is not None]
    of_fields = {field: mean_of([name for name in names if fields[name] == field]) for field in known}
    of_paradigms = {name: mean_of([name]) for name in names}
    overall = mean_of(names)
    scores = []
    for number, one in enumerate(judged):
        lengths = [_by_length(one, sign, by_length_LSR[place, number]) for place, sign in enumerate((-1, 0, 1))]
        scores.append({
            "model": one.model, "score": one.score, "overall": overall(number),
            "ties": int((one.right_P == 0.5).sum()),
            "fields": {field: figure(number) for field, figure in of_fields.items()},
            "lengths": dict(zip(LENGTHS, lengths, strict=True)),
            "paradigms": {name: figure(number) for name, figure in of_paradigms.items()},
        })  # fmt: skip
    mean_S = np.mean([values for values, _ in by_paradigm.values()], 0)
    mean_SR = np.mean([resampled for _, resampled in by_paradigm.values()], 0)
    return {
        "pairs": len(pairs), "resamples": resamples, "seed": seed,
        "paradigms": [
            {"name": name, "field": fields[name], "pairs": len(where)} for name, where in places.items()
        ],
        "scores": scores,
        "differences": [
            {"first": one, "second": two} | _figure(mean_S[two] - mean_S[one], mean_SR[two] - mean_SR[one])
            for one, two in itertools.combinations(range(len(judged)), 2)
        ],
    }  # fmt: skip


def _figure(value: float, values_R: Floats) -> dict[str, Any]:
    return {"value": float(value), "interval": list(interval(values_R))}


def _by_length(one: Judged, sign: int, values_R: Floats) -> dict[str, Any]:
    """The accuracy on the pairs whose right sentence is shorter (-1), as long (0) or longer (1)."""
    there = one.right_P[np.sign(one.longer_P) == sign]
    return {"pairs": len(there)} | (_figure(there.mean(), values_R) if len(there) else {})

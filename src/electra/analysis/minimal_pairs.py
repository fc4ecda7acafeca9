"""Minimal pairs of sentences, of which one is ungrammatical: which one is more likely to a model? (BLiMP,
zero-shot.)

Shapes: P pairs, S scores (of all models), R resamples, L length groups.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import Floats, percentile_interval, resample_counts
from electra.errors import DataError
from electra.readers.read import read_records
from electra.serving.likelihood import LikelihoodScorer

GOOD, BAD = "sentence_good", "sentence_bad"
COLUMNS = ((GOOD, BAD), ("good", "bad"), ("grammatical", "ungrammatical"), ("acceptable", "unacceptable"))
"""Known names of the columns of the good and of the bad sentence."""
PARADIGM, FIELD = ("UID", "paradigm"), ("field", "linguistics_term")
"""Known columns of a pair's paradigm (default: the file's name) and of the paradigm's field; the first one
counts."""
LENGTHS = {"shorter": -1, "equal": 0, "longer": 1}
"""The good sentence compared with the bad one in tokens, and the sign of the difference."""


@dataclass(frozen=True)
class SentencePair:
    """Two sentences, the good one first.

    Attributes:
        paradigm: the kind of error in the bad sentence; the file's name if no column names it.
        field: the field of linguistics of the paradigm, if known.
    """

    paradigm: str
    field: str | None
    good: str
    bad: str


def read_pairs(
    paths: Sequence[Path], *, pairs: int | None = None, columns: tuple[str | None, str | None] = (None, None)
) -> list[SentencePair]:
    """Read the pairs of files, or of the .jsonl files in folders.

    Args:
        pairs: the maximum number of pairs from each file, from its beginning; None: all.
        columns: the columns of the good and of the bad sentence; None: one of `COLUMNS`.

    Raises:
        DataError: a folder has no such file, a file cannot be read or has no pairs, or a row lacks a sentence.
    """
    return [pair for file in _find_files(paths) for pair in _read_file(file, pairs, columns)]


def _find_files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not inside:
            raise DataError(
                f"{path}: the folder has no .jsonl file; BLiMP has 67, from github.com/alexwarstadt/blimp"
            )
        files += inside
    return files


def _read_file(file: Path, pairs: int | None, columns: tuple[str | None, str | None]) -> Iterator[SentencePair]:
    line = 0
    for line, record in itertools.islice(read_records(file), pairs):
        good, bad = _find_columns(record, columns, f"{file}:{line}")
        for name in (good, bad):
            if not isinstance(record.get(name), str) or not record[name].strip():
                raise DataError(
                    f"{file}:{line}: {name} is {record.get(name)!r}, but a pair needs a text in {good} and in "
                    f"{bad}"
                )
        paradigm = next((str(record[name]) for name in PARADIGM if record.get(name)), file.name.partition(".")[0])
        field = next((str(record[name]) for name in FIELD if record.get(name)), None)
        field = field and field.replace("/", "_")  # BLiMP has syntax/semantics and syntax_semantics
        yield SentencePair(paradigm, field, record[good], record[bad])
    if not line:
        raise DataError(f"{file}: the file has no pairs")


def _find_columns(
    record: Mapping[str, Any], columns: tuple[str | None, str | None], location: str
) -> tuple[str, str]:
    """The names of the columns of the good and of the bad sentence.

    Raises:
        DataError: one is missing.
    """
    known = next((names for names in COLUMNS if any(name in record for name in names)), COLUMNS[0])
    good, bad = (given or default for given, default in zip(columns, known, strict=True))
    if missing := [name for name in (good, bad) if name not in record]:
        names = ", ".join(map(repr, record)) or "none"
        raise DataError(
            f"{location}: a pair needs {good} and {bad}; there is no column {missing[0]!r}, the columns are "
            f"{names}. Name the two columns with --good-column and --bad-column"
        )
    return good, bad


def paradigm_accuracies(scorer: LikelihoodScorer, folder: Path, *, score: str, pairs: int) -> dict[str, float]:
    """Compute a model's accuracy for each paradigm (file). Ties count half.

    Args:
        score: the score of sentences (`electra.serving.likelihood.SCORES`).
        folder: a folder of .jsonl files as in BLiMP, with `sentence_good` and `sentence_bad`.
        pairs: the maximum number of pairs from each file, from its beginning.

    Raises:
        DataError: there is no such file, or a line lacks a sentence.
    """
    by_file = {file.stem: list(_read_file(file, pairs, (GOOD, BAD))) for file in _find_files([folder])}
    sentences = list(sentences_of(itertools.chain.from_iterable(by_file.values())))
    scores = scorer(sentences).scores[score]
    ends = np.cumsum([2 * len(pairs_of_file) for pairs_of_file in by_file.values()])
    parts = np.split(scores, ends[:-1])
    return {name: float(correct(part).mean()) for name, part in zip(by_file, parts, strict=True)}


def sentences_of(pairs: Iterator[SentencePair] | Sequence[SentencePair]) -> Iterator[str]:
    """The sentences, the good one of each pair first."""
    for pair in pairs:
        yield pair.good
        yield pair.bad


def correct(scores_2P: Floats) -> Floats:
    """1 for a pair whose good sentence has the higher score, 1/2 for a tie, else 0 (P,)."""
    good_P, bad_P = scores_2P.reshape(-1, 2).T
    correct_P: Floats = (good_P > bad_P) + 0.5 * (good_P == bad_P)
    return correct_P


@dataclass(frozen=True, eq=False)
class ScoreResults:
    """The results of one score of one model on all pairs.

    Attributes:
        correct_P: 1, 1/2 (a tie) or 0.
        longer_P: the length of the good sentence minus that of the bad one, in tokens.
    """

    model: str
    score: str
    correct_P: Floats
    longer_P: NDArray[np.int64]


def evaluate_pairs(
    pairs: Sequence[SentencePair], results: Sequence[ScoreResults], *, resamples: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Compute accuracies by paradigm, by field and by length, their intervals, and the differences of the scores.

    The accuracy of a field, and the overall one, is the mean over paradigms. A resample draws pairs within each
    paradigm, the same for all scores; the paradigms stay. By length, all pairs have equal weight.

    Args:
        results: each score of each model, on the same pairs.
    """
    names = list(dict.fromkeys(pair.paradigm for pair in pairs))
    indices = {name: np.array([i for i, pair in enumerate(pairs) if pair.paradigm == name]) for name in names}
    fields = {name: pairs[int(indices[name][0])].field for name in names}
    by_paradigm, by_length_LSR = _resample_pairs(indices, results, resamples=resamples, seed=seed)

    def mean_over(paradigms: Sequence[str]) -> Callable[[int], dict[str, Any]]:
        values_S = np.mean([by_paradigm[name][0] for name in paradigms], 0)
        values_SR = np.mean([by_paradigm[name][1] for name in paradigms], 0)
        return lambda score: _value_and_interval(values_S[score], values_SR[score])

    known_fields = [field for field in dict.fromkeys(fields.values()) if field is not None]
    field_means = {field: mean_over([name for name in names if fields[name] == field]) for field in known_fields}
    paradigm_means = {name: mean_over([name]) for name in names}
    overall = mean_over(names)
    scores = [
        {
            "model": result.model, "score": result.score, "overall": overall(number),
            "ties": int((result.correct_P == 0.5).sum()),
            "fields": {field: mean(number) for field, mean in field_means.items()},
            "lengths": {
                name: _accuracy_at_length(result, sign, by_length_LSR[row, number])
                for row, (name, sign) in enumerate(LENGTHS.items())
            },
            "paradigms": {name: mean(number) for name, mean in paradigm_means.items()},
        }
        for number, result in enumerate(results)
    ]  # fmt: skip
    mean_S = np.mean([values_S for values_S, _ in by_paradigm.values()], 0)
    mean_SR = np.mean([values_SR for _, values_SR in by_paradigm.values()], 0)
    return {
        "pairs": len(pairs), "resamples": resamples, "seed": seed,
        "paradigms": [
            {"name": name, "field": fields[name], "pairs": len(inside)} for name, inside in indices.items()
        ],
        "scores": scores,
        "differences": [
            {"first": first, "second": second}
            | _value_and_interval(mean_S[second] - mean_S[first], mean_SR[second] - mean_SR[first])
            for first, second in itertools.combinations(range(len(results)), 2)
        ],
    }  # fmt: skip


def _resample_pairs(
    indices: Mapping[str, NDArray[np.int64]], results: Sequence[ScoreResults], *, resamples: int, seed: int
) -> tuple[dict[str, tuple[Floats, Floats]], Floats]:
    """The accuracies of each paradigm (S,) and in each resample (S, R); and those of each length (L, S, R).

    Args:
        indices: the indices of the pairs of each paradigm.
    """
    correct_SP = np.stack([result.correct_P for result in results])
    lengths_SP = np.stack([np.sign(result.longer_P) for result in results])
    rng = np.random.default_rng(seed)
    by_paradigm: dict[str, tuple[Floats, Floats]] = {}
    hits_LSR, pairs_LSR = np.zeros((2, len(LENGTHS), len(results), resamples))
    for name, inside in indices.items():
        counts_RP = resample_counts(len(inside), resamples=resamples, seed=rng)
        correct_Sp = correct_SP[:, inside]
        by_paradigm[name] = correct_Sp.mean(1), correct_Sp @ counts_RP.T / len(inside)
        for number, sign in enumerate(LENGTHS.values()):
            of_length_Sp = (lengths_SP[:, inside] == sign).astype(float)
            hits_LSR[number] += (of_length_Sp * correct_Sp) @ counts_RP.T
            pairs_LSR[number] += of_length_Sp @ counts_RP.T
    undefined = np.full_like(hits_LSR, np.nan)
    return by_paradigm, np.divide(hits_LSR, pairs_LSR, out=undefined, where=pairs_LSR > 0)


def _value_and_interval(value: float, values_R: Floats) -> dict[str, Any]:
    return {"value": float(value), "interval": list(percentile_interval(values_R))}


def _accuracy_at_length(result: ScoreResults, sign: int, values_R: Floats) -> dict[str, Any]:
    """The accuracy on the pairs whose good sentence is shorter (-1), as long (0) or longer (1)."""
    correct_p = result.correct_P[np.sign(result.longer_P) == sign]
    return {"pairs": len(correct_p)} | (_value_and_interval(correct_p.mean(), values_R) if len(correct_p) else {})

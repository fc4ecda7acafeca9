"""A study's results, read from its folder: a table with intervals and verdicts, a CSV, pictures.

The difference of an arm to the control is taken seed by seed and task by task, since both begin with the same seed
on the same order of the data. Its interval is a bootstrap: for every task the differences of the seeds are drawn
anew, and averaged over the tasks.
"""

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from electra.errors import CheckpointError

RESAMPLES = 2000
SURE = 0.95
"""The share of the resamples that an interval holds."""

Results = dict[str, Any]
"""A result.json."""


@dataclass(frozen=True)
class Row:
    """An arm at a share of the budget.

    Attributes:
        scores: the average over the tasks of each seed, in percent; empty where nothing was fine-tuned.
        difference, interval: to the control at the same share, over the seeds that both have.
        verdict: of the difference, in words.
        agrees: whether the published scores are in the same order; None where it cannot be said.
    """

    arm: str
    says: str
    share: float
    results: tuple[Results, ...]
    scores: tuple[float, ...]
    difference: float | None
    interval: tuple[float, float] | None
    verdict: str
    paper: float | None
    agrees: bool | None

    @property
    def mean(self) -> float:
        return statistics.mean(self.scores)

    @property
    def deviation(self) -> float:
        return statistics.stdev(self.scores) if len(self.scores) > 1 else 0.0

    def task(self, name: str) -> float:
        """The mean over the seeds of the median of a task's fine-tunings, in percent."""
        return statistics.mean(_score(result, name) for result in self.results)

    def figure(self, name: str) -> float | None:
        """The median over the seeds of a held-out figure."""
        values = [result["evaluation"][name] for result in self.results if name in result["evaluation"]]
        return statistics.median(values) if values else None

    @property
    def blimp(self) -> float | None:
        """The median over the seeds of BLiMP, zero-shot, in percent; None where it is not defined."""
        values = [100 * result["blimp"] for result in self.results if result["blimp"] is not None]
        return statistics.median(values) if values else None

    def reached(self, name: str) -> float | None:
        """The median over the seeds of the tokens that it took; None where half of them or more never did."""
        values = sorted(result["reached"].get(name) or np.inf for result in self.results)
        middle = statistics.median(values) if values else np.inf
        return float(middle) if np.isfinite(middle) else None


@dataclass(frozen=True)
class StudyReport:
    """What a study has found so far."""

    out: Path
    facts: Results
    rows: tuple[Row, ...]
    files: tuple[Path, ...] = ()

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = []
        for share in self.facts["shares"]:
            rows = [row for row in self.rows if row.share == share]
            if rows:
                parts.append(self._table(rows, share))
        parts.append(
            f"{self.facts['flops']:.3e} FLOPs a run (modern convention); {self._sum_up()}; "
            "difference: 95 % bootstrap interval over seeds and tasks"
        )
        return Group(*parts, *(str(file) for file in self.files))

    def written(self) -> "StudyReport":
        """The same, with study.csv, study.png, study.svg and results.json in the study's folder."""
        from electra.reports.study_figure import draw_study

        table = self.out / "study.csv"
        table.write_text(self.csv(), encoding="utf-8")
        facts = {
            "study": self.facts["study"],
            "rows": [
                {
                    "arm": row.arm, "share": row.share, "n": len(row.results), "scores": row.scores,
                    "difference": row.difference, "interval": row.interval, "verdict": row.verdict,
                    "paper": row.paper, "agrees": row.agrees,
                }
                for row in self.rows
            ],
        }  # fmt: skip
        results = self.out / "results.json"
        results.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        pictures = draw_study(self.facts, self.rows, self.out) if self.rows else []
        return StudyReport(self.out, self.facts, self.rows, (table, results, *pictures))

    def csv(self) -> str:
        """One line a run: arm, share, seed, what it cost, and every figure."""
        records = [_flat(result) for row in self.rows for result in row.results]
        names = list(dict.fromkeys(name for record in records for name in record))
        stream = io.StringIO()
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return stream.getvalue()

    def _table(self, rows: Sequence[Row], share: float) -> Table:
        suite = self.facts["suite"] if any(row.scores for row in rows) else []
        pairs = any(row.blimp is not None for row in rows)
        reached = [f"{name} {level:g}" for name, levels in self.facts["reached"].items() for level in levels]
        title = self.facts["title"] + ("" if share == 1 else f", {share:.4g} of the budget")
        table = Table("arm", "n", *suite, title=title, title_justify="left")
        for name in (
            *(("average", "difference", "", "paper") if suite else ()),
            *(("BLiMP",) if pairs else ()),
            *(f"tokens to {name.removeprefix('eval/')}" for name in reached),
            *(() if suite else ("AUC, unigram fakes", "masked LM")),
        ):
            table.add_column(name)
        for row in rows:
            cells = [row.says, str(len(row.results)), *(f"{row.task(task):.1f}" for task in suite)]
            if suite:
                spread = f" ± {row.deviation:.1f}" if len(row.scores) > 1 else ""
                cells += [f"{row.mean:.1f}{spread}", _difference(row), row.verdict, _paper(row)]
            if pairs:
                cells.append("–" if row.blimp is None else f"{row.blimp:.1f}")
            cells += ["–" if (tokens := row.reached(name)) is None else f"{tokens / 1e6:.2f}M" for name in reached]
            if not suite:
                cells += [_figure(row.figure("eval/unigram_auc")), _figure(row.figure("eval/masked_lm_accuracy"))]
            table.add_row(*cells)
        return table

    def _sum_up(self) -> str:
        known = [row.agrees for row in self.rows if row.agrees is not None]
        if not known:
            return "no published score to compare with"
        return (
            f"the order of the published scores ({self.facts['paper']}) shows in {sum(known)} of {len(known)} arms"
        )


def read_study(out: Path) -> StudyReport:
    """The report of a study's folder, as far as its runs are done.

    Raises:
        CheckpointError: the folder holds no study.
    """
    path = out / "study.json"
    if not path.is_file():
        raise CheckpointError(f"{out} holds no study; is it the --out of `electra study`?")
    facts: Results = json.loads(path.read_text(encoding="utf-8"))
    found: dict[tuple[str, float], dict[int, Results]] = {}
    for file in sorted(out.glob("runs/*/*/seed-*/result.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        found.setdefault((result["arm"], result["share"]), {})[result["seed"]] = result
    papers = {name: arm["paper"] for name, arm in facts["arms"].items()}
    rows = []
    for share in facts["shares"]:
        control = found.get((facts["control"], share), {})
        for name, arm in facts["arms"].items():
            if results := found.get((name, share)):
                rows.append(
                    _row(name, arm["says"], share, results, control if name != facts["control"] else {},
                         facts["suite"], papers[name], papers[facts["control"]])
                )  # fmt: skip
    return StudyReport(out, facts, tuple(rows))


def bootstrap(differences: Mapping[str, Sequence[float]], *, seed: int = 0) -> tuple[float, float]:
    """The interval of the mean over tasks of the mean over seeds of differences.

    Args:
        differences: of each task, one a seed.
    """
    random = np.random.default_rng(seed)
    means = np.zeros(RESAMPLES)
    for values in differences.values():
        known = np.array(values)
        means += known[random.integers(len(known), size=(RESAMPLES, len(known)))].mean(1)
    low, high = np.quantile(means / len(differences), [(1 - SURE) / 2, (1 + SURE) / 2])
    return float(low), float(high)


def _row(
    name: str, says: str, share: float, results: Mapping[int, Results], control: Mapping[int, Results],
    suite: Sequence[str], paper: float | None, paper_of_control: float | None,
) -> Row:  # fmt: skip
    ordered = tuple(results[seed] for seed in sorted(results))
    scored = all(result["tasks"].keys() >= set(suite) for result in ordered) and bool(suite)
    scores = tuple(statistics.mean(_score(result, task) for task in suite) for result in ordered) if scored else ()
    both = sorted(results.keys() & control.keys())
    difference, interval, verdict, agrees = None, None, "", None
    if scored and both:
        differences = {
            task: [_score(results[seed], task) - _score(control[seed], task) for seed in both] for task in suite
        }
        difference = statistics.mean(statistics.mean(values) for values in differences.values())
        verdict = "one seed: not judged"
        if len(both) > 1:
            interval = bootstrap(differences)
            low, high = interval
            verdict = "higher" if low > 0 else "lower" if high < 0 else "not distinguishable"
        if paper is not None and paper_of_control is not None and paper != paper_of_control:
            agrees = (difference > 0) == (paper > paper_of_control)
    return Row(name, says, share, ordered, scores, difference, interval, verdict, paper, agrees)


def _score(result: Results, task: str) -> float:
    return 100.0 * statistics.median(result["tasks"][task]["values"])


def _flat(result: Results) -> Results:
    plain = {k: v for k, v in result.items() if not isinstance(v, dict)}
    plain |= {name.removeprefix("eval/"): value for name, value in result["evaluation"].items()}
    plain |= {f"tokens to {name}": value for name, value in result["reached"].items()}
    for task, scores in result["tasks"].items():
        plain |= {f"{task} {scores['metric']} {number}": value for number, value in enumerate(scores["values"])}
    return plain


def _difference(row: Row) -> str:
    if row.difference is None:
        return ""
    if row.interval is None:
        return f"{row.difference:+.1f}"
    return f"{row.difference:+.1f} ({row.interval[0]:+.1f} to {row.interval[1]:+.1f})"


def _paper(row: Row) -> str:
    if row.paper is None:
        return ""
    return f"{row.paper:.1f}" + {True: " ✓", False: " ✗", None: ""}[row.agrees]


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"

"""A study's results, read from its folder: a table with intervals and verdicts, a CSV, pictures.

The difference of an arm to its control is taken seed by seed, since both begin with the same seed on the same
order of the data: for each seed the average over the tasks, which hang together (or, where nothing was fine-tuned,
the held-out AUC on unigram fakes), and of these Student's t-interval. (A bootstrap over three seeds is far too
narrow: without any difference it found one in 15 to 37 of 100 cases.) Each arm is judged by itself: of twenty arms
that differ in nothing, one is found to differ.
"""

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from electra import durable
from electra.errors import CheckpointError
from electra.json_files import read_json, understood
from electra.reports.study_scores import AUC, digits_of, named, shown
from electra.reports.tables import NumericTable, format_number

SURE = 0.95
"""How often an interval holds the true difference."""

UNCLEAR = "not distinguishable"
"""The verdict where the interval holds 0."""

Results = dict[str, Any]
"""A result.json."""

FACTS = (
    "study", "title", "base", "control", "paper", "axis", "shares", "reached", "suite", "tune", "flops", "budget",
    "precision", "arms",
)  # fmt: skip
"""Of study.json."""


@dataclass(frozen=True)
class Row:
    """An arm at a share of the budget.

    Attributes:
        results: of the seeds that have all tasks, failed ones left out.
        failed: how many seeds came to numbers that are not finite.
        unscored: how many were trained, and not fine-tuned for all tasks in the way that the study asks for.
        scores: of each seed, in percent: the average over the tasks, or, where nothing was fine-tuned, the study's
            held-out figure (a loss as it is); empty for an arm that does not have it.
        difference, interval: to its control at the same share, over the seeds that both have.
        verdict: of the difference, in words.
        agrees: whether the published scores are in the same order; None where there are none, or where these
            cannot be told apart.
    """

    arm: str
    says: str
    share: float
    results: tuple[Results, ...]
    failed: int
    unscored: int
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
        values = [value for result in self.results if (value := result["evaluation"].get(name)) is not None]
        return statistics.median(values) if values else None

    @property
    def blimp(self) -> float | None:
        """The median over the seeds of BLiMP, zero-shot, in percent; None where it is not defined."""
        values = [100 * value for result in self.results if (value := result.get("blimp")) is not None]
        return statistics.median(values) if values else None

    def reached(self, name: str) -> tuple[float, ...]:
        """The tokens that it took the seeds to reach a level, least first; those that never did are left out."""
        values = (result["reached"].get(name) for result in self.results)
        return tuple(sorted(value for value in values if value is not None))


@dataclass(frozen=True)
class StudyReport:
    """What a study has found so far."""

    out: Path
    facts: Results
    rows: tuple[Row, ...]
    runs: tuple[Results, ...]
    files: tuple[Path, ...] = ()

    def __rich__(self) -> RenderableType:
        line = f"{self.facts['flops']:.3e} FLOPs a run (modern convention)"
        if self.facts["suite"]:
            line += f"; {self.sum_up()}"
        line += "; difference: 95 % t-interval over the seeds, each arm by itself"
        if self.facts.get("own_rows"):
            line += "; held-out figures are of rows that each arm cuts its own way, so compare the tasks alone"
        if tune := self.facts["tune"]:
            line += f"; fine-tuned with {' '.join(tune)}"
        return Group(*self.tables(), line, *(str(file) for file in self.files))

    def tables(self) -> list[Table]:
        """One for each share of the budget at which runs have ended."""
        by_share = [(share, [row for row in self.rows if row.share == share]) for share in self.facts["shares"]]
        return [self._table(rows, share) for share, rows in by_share if rows]

    def written(self) -> "StudyReport":
        """The same, with study.csv, study.png, study.svg and results.json in the study's folder."""
        from electra.reports.study_figure import draw_study

        table = self.out / "study.csv"
        durable.write_text(table, self.csv())
        facts = {
            **{name: self.facts[name] for name in ("study", "suite", "tune", "budget", "flops", "precision")},
            "rows": [
                {
                    "arm": row.arm, "share": row.share, "n": len(row.results),
                    "failed": row.failed, "unscored": row.unscored,
                    "scores": row.scores,
                    "difference": row.difference, "interval": row.interval, "verdict": row.verdict,
                    "paper": row.paper, "agrees": row.agrees,
                }
                for row in self.rows
            ],
        }  # fmt: skip
        results = self.out / "results.json"
        durable.write_text(results, json.dumps(facts, indent=1) + "\n")
        pictures = draw_study(self.facts, self.rows, self.out) if self.rows else []
        return replace(self, files=(table, results, *pictures))

    def csv(self) -> str:
        """One line a run, failed ones too: arm, share, seed, what it cost, and every figure."""
        records = [_flat(result) for result in self.runs]
        names = list(dict.fromkeys(name for record in records for name in record))
        stream = io.StringIO()
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return stream.getvalue()

    def _table(self, rows: Sequence[Row], share: float) -> Table:
        suite = self.facts["suite"]
        pairs = any(row.blimp is not None for row in rows)
        reached = [f"{name} {level:g}" for name, levels in self.facts["reached"].items() for level in levels]
        title = self.facts["title"] + ("" if share == 1 else f", {share:.4g} of the budget")
        table = NumericTable("arm", "n", *suite, title=title)
        digits = 1 if suite else digits_of(self.figure)
        for name in (
            "average" if suite else named(self.figure), "difference", "verdict", *(("paper",) if suite else ()),
            *(("BLiMP",) if pairs else ()),
            *(f"tokens to {name.removeprefix('eval/')}" for name in reached),
            *(("masked-LM accuracy",) if self._fills_masks else ()),
            *(("parameters", "tokens/s", "memory, about") if self.facts.get("costs") else ()),
        ):  # fmt: skip
            table.add_column(name)
        for row in rows:
            more = [f"{n} {what}" for n, what in ((row.failed, "failed"), (row.unscored, "not scored")) if n]
            count = str(len(row.results)) + (f" ({', '.join(more)})" if more else "")
            if not row.results:
                table.add_row(row.says, count)
                continue
            cells = [row.says, count, *(_task(row, task) for task in suite)]
            spread = f" ± {row.deviation:.{digits}f}" if len(row.scores) > 1 else ""
            cells += [
                f"{row.mean:.{digits}f}{spread}" if row.scores else "–",
                _difference(row, digits),
                row.verdict,
            ]
            if suite:
                cells.append(_paper(row))
            if pairs:
                cells.append("–" if row.blimp is None else f"{row.blimp:.1f}")
            cells += [_tokens(row, name) for name in reached]
            if self._fills_masks:
                cells.append(_percent(row.figure("eval/masked_lm_accuracy")))
            if self.facts.get("costs"):
                cells += _costs(row)
            table.add_row(*cells)
        return table

    @property
    def figure(self) -> str:
        """The held-out figure that arms are scored by where nothing was fine-tuned."""
        found: str = self.facts.get("figure", AUC)  # of earlier versions
        return found

    @property
    def _fills_masks(self) -> bool:
        return not self.facts["suite"] and self.figure == AUC

    def sum_up(self) -> str:
        """In how many arms the order of the published scores shows."""
        known = [row.agrees for row in self.rows if row.paper is not None and row.interval is not None]
        if not known:
            return "no published score to compare with"
        arms = "arm" if len(known) == 1 else "arms"
        return (
            f"of {len(known)} {arms} with published scores {known.count(True)} are in their order to the control, "
            f"{known.count(False)} in another, {known.count(None)} cannot be told apart"
        )


def read_study(out: Path) -> StudyReport:
    """The report of a study's folder, as far as its runs are done.

    Raises:
        CheckpointError: the folder holds no study.
    """
    path = out / "study.json"
    if not path.is_file():
        raise CheckpointError(f"{out} holds no study; is it the --out of `electra study`?")
    facts = read_facts(path)
    with understood(out):
        return _report(out, facts)


def _report(out: Path, facts: Results) -> StudyReport:
    for name in FACTS:
        facts[name]
    found: dict[tuple[str, float], dict[int, Results]] = {}
    for file in sorted(out.glob("runs/*/*/seed-*/result.json")):
        result = read_facts(file)
        result["tasks"] = tasks_of(result, facts["tune"])
        found.setdefault((result["arm"], result["share"]), {})[result["seed"]] = result
    rows = []
    for share in facts["shares"]:
        for name, arm in facts["arms"].items():
            if results := found.get((name, share)):
                control = arm.get("control") or facts["control"]
                papers = [_published(facts["arms"].get(one), share) for one in (name, control)]
                others = found.get((control, share), {}) if name != control else {}
                by = facts["suite"] or facts.get("figure", AUC)
                rows.append(_row(name, arm["says"], share, results, others, by, *papers))
    runs = tuple(results[seed] for results in found.values() for seed in sorted(results))
    return StudyReport(out, facts, tuple(rows), runs)


def read_facts(path: Path) -> Results:
    """What one of a study's JSON files says.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        return read_json(path)
    except CheckpointError as error:
        raise CheckpointError(
            f"{path} is damaged ({error.__cause__ or error}); put back a copy, or, if it is a result.json, delete "
            "it: the same `electra study` makes it again from the run beside it"
        ) from error


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Student's t-interval of the mean of two or more differences."""
    from scipy.stats import t

    count = len(differences)
    mean, error = statistics.mean(differences), statistics.stdev(differences) / count**0.5
    width = float(t.ppf((1 + SURE) / 2, count - 1)) * error
    return mean - width, mean + width


def tasks_of(result: Results, tune: Sequence[str]) -> Results:
    """The scores of a result, by task, of the fine-tunings with these settings; with none, of those by default."""
    found: Results = result.get("tuned", {}).get(" ".join(tune), {}) if tune else result.get("tasks", {})
    return found


def _row(
    name: str, says: str, share: float, results: Mapping[int, Results], control: Mapping[int, Results],
    by: Sequence[str] | str, paper: float | None, paper_of_control: float | None,
) -> Row:  # fmt: skip
    """An arm's row, by the tasks of a suite or by a held-out figure."""
    suite = () if isinstance(by, str) else by
    whole, others = _whole(results, suite), _whole(control, suite)
    scores, to = _scores(whole, by), _scores(others, by)
    difference, found, verdict, agrees = None, None, "", None
    if both := sorted(scores.keys() & to.keys()):
        differences = [scores[seed] - to[seed] for seed in both]
        difference, verdict = statistics.mean(differences), "one seed: not judged"
        if len(both) > 1:
            found = interval(differences)
            verdict = "higher" if found[0] > 0 else "lower" if found[1] < 0 else UNCLEAR
        judged = bool(suite) and verdict in ("higher", "lower")  # an AUC is no score of a paper
        if judged and paper is not None and paper_of_control is not None and paper != paper_of_control:
            agrees = (difference > 0) == (paper > paper_of_control)
    failed = sum(result["failed"] is not None for result in results.values())
    unscored = len(results) - len(whole) - failed
    return Row(
        name, says, share, tuple(whole.values()), failed, unscored, tuple(scores.values()),
        difference, found, verdict, paper, agrees,
    )  # fmt: skip


def _whole(results: Mapping[int, Results], suite: Sequence[str]) -> dict[int, Results]:
    """The results that have all tasks, by seed."""
    return {
        seed: results[seed]
        for seed in sorted(results)
        if results[seed]["failed"] is None and results[seed]["tasks"].keys() >= set(suite)
    }


def _published(arm: Results | None, share: float) -> float | None:
    """The published score of an arm at a share of the budget: one number is that of the whole budget."""
    paper = (arm or {}).get("paper")
    if isinstance(paper, dict):
        return paper.get(f"{share:g}")
    return paper if share == 1 else None


def _scores(results: Mapping[int, Results], by: Sequence[str] | str) -> dict[int, float]:
    """What each seed is judged by: the average over the tasks, in percent, or the figure, if it has that."""
    if not isinstance(by, str):
        return {seed: statistics.mean(_score(one, task) for task in by) for seed, one in results.items()}
    values = {seed: one["evaluation"].get(by) for seed, one in results.items()}
    return {seed: shown(by, value) for seed, value in values.items() if value is not None}


def _score(result: Results, task: str) -> float:
    return 100.0 * statistics.median(result["tasks"][task]["values"])


def _flat(result: Results) -> Results:
    plain = {k: v for k, v in result.items() if not isinstance(v, dict)}
    plain |= {name.removeprefix("eval/"): value for name, value in result.get("evaluation", {}).items()}
    plain |= {f"tokens to {name}": value for name, value in result.get("reached", {}).items()}
    for task, scores in result["tasks"].items():
        plain |= {f"{task} {scores['metric']} {number}": value for number, value in enumerate(scores["values"])}
        plain[f"{task} failed"] = scores.get("failed", 0)
    return plain


def _task(row: Row, name: str) -> str:
    """A task's mean, and how many fine-tunings of all seeds have failed (they are in it as they are)."""
    failed = sum(result["tasks"][name].get("failed", 0) for result in row.results)
    return f"{row.task(name):.1f}" + (f" ({failed} failed)" if failed else "")


def _difference(row: Row, digits: int) -> str:
    if row.difference is None:
        return ""
    numbers = [format_number(value, digits, sign=True) for value in (row.difference, *(row.interval or ()))]
    return f"{numbers[0]} ({numbers[1]} to {numbers[2]})" if row.interval else numbers[0]


def _costs(row: Row) -> list[str]:
    """Parameters, the median of the speeds, memory; of runs of earlier versions some are not known."""
    parameters, memory = (row.results[0].get(name) for name in ("parameters", "memory"))
    speed = statistics.median(one["tokens"] / one["seconds"] for one in row.results)
    return [
        "–" if parameters is None else f"{parameters / 1e6:.1f}M",
        f"{speed:,.0f}",
        "–" if memory is None else f"{memory / 2**30:.1f} GiB",
    ]


def _tokens(row: Row, name: str) -> str:
    """The median, least and most; and how many of the seeds came that far, if not all did."""
    values = [value / 1e6 for value in row.reached(name)]
    if not values:
        return "–"
    cell = f"{statistics.median(values):.2f}M"
    if len(values) > 1:
        cell += f" ({values[0]:.2f}–{values[-1]:.2f}M)"
    return cell if len(values) == len(row.results) else f"{len(values)} of {len(row.results)}: {cell}"


def _paper(row: Row) -> str:
    if row.paper is None:
        return ""
    return f"{row.paper:.1f}" + {True: " ✓", False: " ✗", None: ""}[row.agrees]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"

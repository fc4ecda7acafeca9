"""The report of a study: a table with intervals and verdicts, a CSV, a figure, an archive."""

import csv
import io
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table

from electra import durable
from electra.errors import CheckpointError
from electra.json_files import raise_if_damaged, read_json, write_json
from electra.objectives.metric_labels import metric_label
from electra.reports.compute_multiplier import ComputeMultiplier, compute_multipliers
from electra.reports.study_figure import draw_study
from electra.reports.study_results import (
    ARCHIVE_FILE,
    STUDY_KEYS,
    UNIGRAM_AUC,
    ArmResult,
    ContrastResult,
    Record,
    heldout_metric_of,
    is_percent,
    read_runs,
    read_study_record,
    run_folder,
    summarize_arms,
    summarize_contrasts,
    task_scores,
    without_probes,
)
from electra.reports.tables import NumericTable, format_number

BLIMP_LABELS = {"blimp": "BLiMP", "blimp_pll": "BLiMP, pseudo-log-likelihood"}
"""Columns of zero-shot accuracies: by the discriminator, and by the masked language model of the same size."""


@dataclass(frozen=True)
class StudyReport:
    """The results of a study so far.

    Attributes:
        study: the object of study.json.
        arms: for each fraction of the budget the arms that have runs.
        contrasts: for each fraction of the budget the comparisons of several arms.
        multipliers: of arms with several fractions of the budget.
        runs: result records of all runs, failed ones too, with the scores of the study's fine-tuning settings as
            `tasks`.
        files: what `write` has written.
    """

    folder: Path
    study: Record
    arms: tuple[ArmResult, ...]
    contrasts: tuple[ContrastResult, ...]
    multipliers: tuple[ComputeMultiplier, ...]
    runs: tuple[Record, ...]
    files: tuple[Path, ...] = ()

    def __rich__(self) -> RenderableType:
        line = f"{self.study['flops']:.3e} FLOPs per run (modern convention)"
        if self.study["suite"]:
            line += f"; {self.summarize_agreement()}"
        line += "; difference: 95% t-interval over the seeds, no correction for the number of arms"
        if self.study.get("own_rows"):
            line += "; the arms cut the text into different held-out rows, so compare only the tasks"
        if settings := self.study["tune"]:
            line += f"; fine-tuned with {' '.join(settings)}"
        return Group(*self.tables(), line, *(str(file) for file in self.files))

    def tables(self) -> list[Table]:
        """For each fraction of the budget at which runs have ended a table of arms, and one of contrasts."""
        by_fraction = [
            (fraction, [arm for arm in self.arms if arm.budget_fraction == fraction])
            for fraction in self.study["shares"]
        ]
        tables = [_table(self.study, arms, fraction) for fraction, arms in by_fraction if arms]
        further = [self._contrast_table()] if self.contrasts else []
        return [*tables, *further, *([self._multiplier_table()] if self.multipliers else [])]

    def _multiplier_table(self) -> Table:
        title = "How many times less compute an arm needs for the end score of its control"
        table = NumericTable("arm", "n", "FLOPs", "seconds", title=title)
        for one in self.multipliers:
            table.add_row(one.label, str(one.seeds), one.describe(), one.describe(in_seconds=True))
        return table

    def _contrast_table(self) -> Table:
        columns = ("contrast", "n", "points", "verdict")
        several = len(self.study["shares"]) > 1
        table = NumericTable(*columns, *(("budget",) if several else ()), title="Contrasts")
        digits = _digits(self.study)
        for one in self.contrasts:
            cell = _interval_cell(one.difference, one.interval, digits)
            budget = (f"{one.budget_fraction:.4g}",) if several else ()
            table.add_row(one.label, str(one.seeds), cell, one.verdict, *budget)
        return table

    def write(self) -> "StudyReport":
        """Write study.csv, results.json, study.png and study.svg into the study's folder."""
        table = self.folder / "study.csv"
        durable.write_text(table, self.csv())
        content = {
            **{name: self.study[name] for name in ("study", "suite", "tune", "budget", "flops", "precision")},
            "rows": [
                {
                    "arm": arm.arm, "share": arm.budget_fraction, "n": len(arm.runs),
                    "failed": arm.failed, "unscored": arm.unscored,
                    "scores": arm.scores,
                    "difference": arm.difference, "interval": arm.interval, "verdict": arm.verdict,
                    "paper": arm.published, "agrees": arm.agrees,
                }
                for arm in self.arms
            ],
            "contrasts": [
                {
                    "contrast": one.name, "share": one.budget_fraction, "n": one.seeds,
                    "difference": one.difference, "interval": one.interval, "verdict": one.verdict,
                }
                for one in self.contrasts
            ],
            "multipliers": [asdict(one) for one in self.multipliers],
        }  # fmt: skip
        results = self.folder / "results.json"
        write_json(results, content)
        return replace(self, files=(table, results, *draw_study(self.study, self.arms, self.folder)))

    def csv(self) -> str:
        """One line per run, failed ones too: arm, fraction of the budget, seed, costs, and every metric."""
        records = [_flat(run) for run in self.runs]
        names = list(dict.fromkeys(name for record in records for name in record))
        stream = io.StringIO()
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return stream.getvalue()

    def summarize_agreement(self) -> str:
        """How many arms are in the same order to their control as the published scores."""
        agrees = [arm.agrees for arm in self.arms if arm.published is not None and arm.interval is not None]
        if not agrees:
            return "no published score to compare with"
        arms = "arm" if len(agrees) == 1 else "arms"
        return (
            f"of {len(agrees)} {arms} with published scores, {agrees.count(True)} in the published order to the "
            f"control, {agrees.count(False)} in the opposite order, {agrees.count(None)} not distinguishable"
        )


def read_study(folder: Path) -> StudyReport:
    """The report of a study's folder, or of an archive of one, with the runs that have ended.

    Raises:
        CheckpointError: the folder holds no study, or a file is damaged.
    """
    if not (study := read_study_record(folder)):
        raise CheckpointError(f"{folder} holds no study; give the --out of an `electra study`")
    with raise_if_damaged(folder):
        for key in STUDY_KEYS:
            study[key]
        runs = [{**run, "tasks": task_scores(run, study["tune"])} for run in read_runs(folder)]
        arms, contrasts = tuple(summarize_arms(study, runs)), tuple(summarize_contrasts(study, runs))
        multipliers = tuple(compute_multipliers(study, arms))
        return StudyReport(folder, study, arms, contrasts, multipliers, tuple(runs))


def archive_study(folder: Path, out: Path) -> list[Path]:
    """Write the results of a study as two files: study.png, and runs.jsonl, which `read_study` reads.

    The archive has the study's settings, the settings of each arm, every metric that was measured in each run, and
    the machine and versions of each run whose folder still exists. It has no weights and no metrics of single
    steps.

    Args:
        folder: a study's folder, with runs or with an archive.
        out: the folder to write into; it may be the same one.

    Raises:
        CheckpointError: the folder holds no study.
    """
    report, records = read_study(folder), []
    for run in read_runs(folder):
        own = run_folder(folder, run["arm"], run["share"], run["seed"])
        if environment := read_json(own / "run" / "environment.json", optional=True):
            run["environment"] = {name: value for name, value in environment.items() if name != "data"}
        records.append(run)
    out.mkdir(parents=True, exist_ok=True)
    path = out / ARCHIVE_FILE
    lines = [json.dumps(record, ensure_ascii=False) for record in (report.study, *records)]
    durable.write_text(path, "\n".join(lines) + "\n")
    return [path, *draw_study(report.study, report.arms, out, formats=("png",))]


def _table(study: Record, arms: Sequence[ArmResult], fraction: float) -> Table:
    suite, metric = study["suite"], heldout_metric_of(study)
    blimp = {key: label for key, label in BLIMP_LABELS.items() if any(arm.blimp(key) is not None for arm in arms)}
    has_masked_lm = not suite and metric == UNIGRAM_AUC
    thresholds = [f"{name} {level:g}" for name, levels in study["reached"].items() for level in levels]
    digits = _digits(study)
    title = study["title"] + ("" if fraction == 1 else f", {fraction:.4g} of the budget")
    table = NumericTable(
        "arm", "n", *suite, f"average{without_probes(suite)}" if suite else metric_label(metric),
        "difference", "verdict",
        *(("paper",) if suite else ()),
        *blimp.values(),
        *(f"tokens to {name.removeprefix('eval/')}" for name in thresholds),
        *(("masked-LM accuracy",) if has_masked_lm else ()),
        *(("parameters", "tokens/s", "memory, about") if study.get("costs") else ()),
        title=title,
    )  # fmt: skip
    for arm in arms:
        incomplete = [f"{n} {what}" for n, what in ((arm.failed, "failed"), (arm.unscored, "not scored")) if n]
        count = str(len(arm.runs)) + (f" ({', '.join(incomplete)})" if incomplete else "")
        if not arm.runs:
            table.add_row(arm.label, count)
            continue
        spread = f" ± {arm.standard_deviation:.{digits}f}" if len(arm.scores) > 1 else ""
        cells = [arm.label, count, *(_task_cell(arm, task) for task in suite)]
        cells += [
            f"{arm.mean:.{digits}f}{spread}" if arm.scores else "–",
            _difference_cell(arm, digits),
            arm.verdict,
        ]
        if suite:
            cells.append(_published_cell(arm))
        cells += ["–" if (value := arm.blimp(key)) is None else f"{value:.1f}" for key in blimp]
        cells += [_tokens_cell(arm, name) for name in thresholds]
        if has_masked_lm:
            accuracy = arm.heldout_metric("eval/masked_lm_accuracy")
            cells.append("–" if accuracy is None else f"{100 * accuracy:.1f}")
        if study.get("costs"):
            cells += _cost_cells(arm)
        table.add_row(*cells)
    return table


def _task_cell(arm: ArmResult, task: str) -> str:
    """The mean of a task, and the number of failed fine-tunings of all seeds, which are included in it."""
    failed = sum(run["tasks"][task].get("failed", 0) for run in arm.runs)
    return f"{arm.task_score(task):.1f}" + (f" ({failed} failed)" if failed else "")


def _difference_cell(arm: ArmResult, digits: int) -> str:
    return "" if arm.difference is None else _interval_cell(arm.difference, arm.interval, digits)


def _interval_cell(difference: float, interval: tuple[float, float] | None, digits: int) -> str:
    numbers = [format_number(value, digits, sign=True) for value in (difference, *(interval or ()))]
    return f"{numbers[0]} ({numbers[1]} to {numbers[2]})" if interval else numbers[0]


def _digits(study: Record) -> int:
    """Decimal places of scores."""
    return 1 if study["suite"] or is_percent(heldout_metric_of(study)) else 3


def _published_cell(arm: ArmResult) -> str:
    if arm.published is None:
        return ""
    return f"{arm.published:.1f}" + {True: " ✓", False: " ✗", None: ""}[arm.agrees]


def _tokens_cell(arm: ArmResult, threshold: str) -> str:
    """Median, minimum and maximum; and how many of the seeds reached the threshold, if not all did."""
    values = [value / 1e6 for value in arm.tokens_to(threshold)]
    if not values:
        return "–"
    cell = f"{statistics.median(values):.2f}M"
    if len(values) > 1:
        cell += f" ({values[0]:.2f}–{values[-1]:.2f}M)"
    return cell if len(values) == len(arm.runs) else f"{len(values)} of {len(arm.runs)}: {cell}"


def _cost_cells(arm: ArmResult) -> list[str]:
    """Parameters, median of the speeds, memory; runs of early versions do not have all of them."""
    parameters, memory = (arm.runs[0].get(name) for name in ("parameters", "memory"))
    speed = statistics.median(run["tokens"] / run["seconds"] for run in arm.runs)
    return [
        "–" if parameters is None else f"{parameters / 1e6:.1f}M",
        f"{speed:,.0f}",
        "–" if memory is None else f"{memory / 2**30:.1f} GiB",
    ]


def _flat(run: Record) -> Record:
    """A run's record as one line of the CSV."""
    flat = {name: value for name, value in run.items() if not isinstance(value, dict)}
    flat |= {name.removeprefix("eval/"): value for name, value in run.get("evaluation", {}).items()}
    flat |= {f"tokens to {name}": value for name, value in run.get("reached", {}).items()}
    for task, scores in run["tasks"].items():
        flat |= {f"{task} {scores['metric']} {number}": value for number, value in enumerate(scores["values"])}
        flat[f"{task} failed"] = scores.get("failed", 0)
    return flat

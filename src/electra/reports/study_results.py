"""Results of a study: the runs, read from its folder, and for each arm its scores, difference and verdict.

A folder holds the runs in two forms, one or both of them:

    study.json, runs/ARM/FRACTION/seed-N/result.json    what `electra study --out` writes
    runs.jsonl                                          an archive: first line study.json, then a line for each run

A result.json replaces the archive's line for the same run, so a study may be continued in an archive's folder.

An arm is compared with its control seed by seed, because both start with the same seed on the same order of the
data: for each seed the average over the fine-tuned tasks (their scores are correlated), without them over the
frozen probes, without both the held-out metric of the study; and over the seeds Student's t-interval of the
differences. (A bootstrap over three seeds is far too narrow: without any true difference it reported one in 15 to
37 of 100 cases.) There is no correction for the number of arms: of twenty arms that do not differ, one is expected
to be called different.
"""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.errors import CheckpointError
from electra.json_files import read_json

STUDY_FILE, RESULT_FILE, ARCHIVE_FILE = "study.json", "result.json", "runs.jsonl"
CONFIDENCE = 0.95
"""Level of the intervals."""
UNCLEAR = "not distinguishable"
"""Verdict for an interval that contains 0."""
UNIGRAM_AUC = "eval/unigram_auc"
"""The held-out metric of a study that names none."""
PERCENT_METRICS = ("auc", "accuracy", "precision", "recall", "share")
"""Endings of metric names whose values are fractions and shown in percent."""

Record = dict[str, Any]
"""The object of a study.json or of a result.json."""
STUDY_KEYS = (
    "study", "title", "base", "control", "paper", "axis", "shares", "reached", "suite", "tune", "flops", "budget",
    "precision", "arms",
)  # fmt: skip
"""Keys that a study.json must have."""


@dataclass(frozen=True)
class ArmResult:
    """The results of an arm at a fraction of the budget.

    Attributes:
        label: what the arm is, in a few words.
        runs: result records of the seeds that have all tasks; failed ones are left out.
        failed: number of seeds whose loss became non-finite.
        unscored: number of seeds that were pre-trained but not fine-tuned on all tasks with the study's settings.
        scores: one per seed, in percent: the average over the fine-tuned tasks, without them over the frozen
            probes, or the study's held-out metric (a loss stays as it is). Empty for an arm that does not have
            this metric.
        difference, interval: to its control at the same fraction, over the seeds that both have.
        verdict: the verdict about the difference, in words.
        published: the published score.
        agrees: whether arm and control are in the same order as their published scores; None without published
            scores, and where arm and control are not distinguishable.
    """

    arm: str
    label: str
    budget_fraction: float
    runs: tuple[Record, ...]
    failed: int
    unscored: int
    scores: tuple[float, ...]
    difference: float | None
    interval: tuple[float, float] | None
    verdict: str
    published: float | None
    agrees: bool | None

    @property
    def mean(self) -> float:
        return statistics.mean(self.scores)

    @property
    def standard_deviation(self) -> float:
        return statistics.stdev(self.scores) if len(self.scores) > 1 else 0.0

    def task_score(self, task: str) -> float:
        """Mean over the seeds of the median of a task's fine-tunings, in percent."""
        return statistics.mean(run_score(run, task) for run in self.runs)

    def heldout_metric(self, name: str) -> float | None:
        """Median over the seeds of a held-out metric."""
        values = [value for run in self.runs if (value := run["evaluation"].get(name)) is not None]
        return statistics.median(values) if values else None

    def blimp(self, key: str) -> float | None:
        """Median over the seeds of a zero-shot BLiMP accuracy, in percent; None if it was not measured.

        Args:
            key: "blimp", by the discriminator, or "blimp_pll", by the pseudo-log-likelihood of the masked language
                model of the same size.
        """
        values = [100 * value for run in self.runs if (value := run.get(key)) is not None]
        return statistics.median(values) if values else None

    def tokens_to(self, threshold: str) -> tuple[int, ...]:
        """Tokens that the seeds needed to reach a threshold, sorted; seeds that did not reach it are left out."""
        values = (run["reached"].get(threshold) for run in self.runs)
        return tuple(sorted(value for value in values if value is not None))


@dataclass(frozen=True)
class ContrastResult:
    """A sum of arms less another one, over the seeds that all of them have at a fraction of the budget."""

    name: str
    label: str
    budget_fraction: float
    seeds: int
    difference: float
    interval: tuple[float, float] | None
    verdict: str


def is_study(folder: Path) -> bool:
    """Whether a folder holds a study or the archive of one."""
    return (folder / STUDY_FILE).is_file() or (folder / ARCHIVE_FILE).is_file()


def read_study_record(folder: Path) -> Record:
    """The object of a study's study.json, or of its archive; empty if the folder holds no study.

    Raises:
        CheckpointError: the file is damaged.
    """
    if (folder / STUDY_FILE).is_file():
        return read_record(folder / STUDY_FILE)
    archive = _read_archive(folder)
    return archive[0] if archive else {}


def read_runs(folder: Path) -> list[Record]:
    """The result records of a study's folder, sorted by arm, fraction of the budget and seed.

    Raises:
        CheckpointError: a file is damaged.
    """
    files = folder.glob(f"runs/*/*/seed-*/{RESULT_FILE}")
    records = [*_read_archive(folder)[1:], *(read_record(file) for file in files)]
    runs = {(run["arm"], f"{run['share']:g}", run["seed"]): run for run in records}
    return [runs[key] for key in sorted(runs)]


def read_run(folder: Path, arm: str, budget_fraction: float, seed: int) -> Record:
    """The result record of one run; empty if there is none yet.

    Raises:
        CheckpointError: a file is damaged.
    """
    path = run_folder(folder, arm, budget_fraction, seed) / RESULT_FILE
    if path.is_file():
        return read_record(path)
    key = (arm, budget_fraction, seed)
    archived = _read_archive(folder)[1:]
    return next((run for run in archived if (run["arm"], run["share"], run["seed"]) == key), {})


def run_folder(folder: Path, arm: str, budget_fraction: float, seed: int) -> Path:
    """Folder of one run in a study's folder."""
    return folder / "runs" / arm / f"{budget_fraction:g}" / f"seed-{seed}"


def _read_archive(folder: Path) -> list[Record]:
    """The records of runs.jsonl: the study's, then one for each run; empty if there is no archive."""
    path = folder / ARCHIVE_FILE
    if not path.is_file():
        return []
    records: list[Record] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{path}:{number} is damaged ({error}); restore a copy") from error
        required = "arm" if records else "study"
        if not isinstance(record, dict) or required not in record:
            raise CheckpointError(f"{path}:{number} is damaged (no object with {required!r}); restore a copy")
        records.append(record)
    return records


def read_record(path: Path) -> Record:
    """The object of a study.json or result.json.

    Raises:
        CheckpointError: the file is damaged.
    """
    try:
        return read_json(path)
    except CheckpointError as error:
        raise CheckpointError(
            f"{path} is damaged ({error.__cause__ or error}); restore a copy or, if it is a {RESULT_FILE}, delete "
            "it: the same `electra study` writes it again from the run next to it"
        ) from error


def task_scores(run: Record, settings: Sequence[str]) -> Record:
    """The scores of a run by task, of the fine-tunings with these settings; without settings, of the default ones.

    Each has `metric`, `values` (one per fine-tuning) and `failed`.
    """
    scores: Record = run.get("tuned", {}).get(" ".join(settings), {}) if settings else run.get("tasks", {})
    return scores


def summarize_arms(study: Record, runs: Sequence[Record]) -> Iterator[ArmResult]:
    """The results of each arm at each fraction of the budget of which there are runs.

    Args:
        study: the object of study.json.
        runs: with the scores to compare as `tasks`.
    """
    by_arm = _runs_by_arm(runs)
    for fraction in study["shares"]:
        for name, arm in study["arms"].items():
            if own := by_arm.get((name, fraction)):
                control = arm.get("control") or study["control"]
                others = by_arm.get((control, fraction), {}) if name != control else {}
                published = [_published(study["arms"].get(one), fraction) for one in (name, control)]
                yield _summarize(study, name, fraction, own, others, *published)


def summarize_contrasts(study: Record, runs: Sequence[Record]) -> Iterator[ContrastResult]:
    """The contrasts whose arms have a seed in common, at each fraction of the budget; arguments as above."""
    by_arm = _runs_by_arm(runs)
    for fraction in study["shares"]:
        for name, contrast in study.get("contrasts", {}).items():
            plus, minus = (
                [_scores(_complete(by_arm.get((arm, fraction), {}), study["suite"]), study) for arm in arms]
                for arms in (contrast["plus"], contrast["minus"])
            )
            seeds = sorted(set.intersection(*(set(scores) for scores in (*plus, *minus))))
            if seeds:
                values = [sum(one[seed] for one in plus) - sum(one[seed] for one in minus) for seed in seeds]
                judged = _judge(values)
                yield ContrastResult(name, contrast["says"], fraction, len(seeds), *judged)


def _runs_by_arm(runs: Sequence[Record]) -> dict[tuple[str, float], dict[int, Record]]:
    """The runs by arm and fraction of the budget, and by seed."""
    by_arm: dict[tuple[str, float], dict[int, Record]] = {}
    for run in runs:
        by_arm.setdefault((run["arm"], run["share"]), {})[run["seed"]] = run
    return by_arm


def _judge(differences: Sequence[float]) -> tuple[float, tuple[float, float] | None, str]:
    """The mean of differences, its interval, and a verdict in words."""
    mean = statistics.mean(differences)
    if len(differences) == 1:
        return mean, None, "one seed: not judged"
    interval = t_interval(differences)
    return mean, interval, "higher" if interval[0] > 0 else "lower" if interval[1] < 0 else UNCLEAR


def t_interval(differences: Sequence[float]) -> tuple[float, float]:
    """Student's t-interval for the mean of two or more differences."""
    mean, width = statistics.mean(differences), t_quantile(len(differences)) * statistics.stdev(differences)
    return mean - width, mean + width


def t_quantile(count: int) -> float:
    """Half the width of Student's interval for a mean of so many values, in standard deviations of a value."""
    from scipy.stats import t

    return float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) / count**0.5


def _summarize(
    study: Record, name: str, fraction: float, runs: Mapping[int, Record], control: Mapping[int, Record],
    published: float | None, published_control: float | None,
) -> ArmResult:  # fmt: skip
    suite = study["suite"]
    complete, complete_control = _complete(runs, suite), _complete(control, suite)
    scores, control_scores = _scores(complete, study), _scores(complete_control, study)
    difference, interval, verdict, agrees = None, None, "", None
    if shared := sorted(scores.keys() & control_scores.keys()):
        difference, interval, verdict = _judge([scores[seed] - control_scores[seed] for seed in shared])
        clear = bool(suite) and verdict in ("higher", "lower")  # papers publish scores of tasks
        if clear and published is not None and published_control is not None and published != published_control:
            agrees = (difference > 0) == (published > published_control)
    failed = sum(run["failed"] is not None for run in runs.values())
    return ArmResult(
        arm=name, label=study["arms"][name]["says"], budget_fraction=fraction, runs=tuple(complete.values()),
        failed=failed, unscored=len(runs) - len(complete) - failed, scores=tuple(scores.values()),
        difference=difference, interval=interval, verdict=verdict, published=published, agrees=agrees,
    )  # fmt: skip


def _complete(runs: Mapping[int, Record], suite: Sequence[str]) -> dict[int, Record]:
    """The runs that have all tasks, by seed."""
    return {
        seed: runs[seed]
        for seed in sorted(runs)
        if runs[seed]["failed"] is None and runs[seed]["tasks"].keys() >= set(suite)
    }


def _published(arm: Record | None, fraction: float) -> float | None:
    """The published score of an arm at a fraction of the budget; a single number is that of the whole budget."""
    published = (arm or {}).get("paper")
    if isinstance(published, dict):
        return published.get(f"{fraction:g}")
    return published if fraction == 1 else None


def _scores(runs: Mapping[int, Record], study: Record) -> dict[int, float]:
    """The score of each seed: the average over the tasks in percent, or the held-out metric if the run has it."""
    if tasks := averaged_tasks(study["suite"]):
        return {seed: statistics.mean(run_score(run, task) for task in tasks) for seed, run in runs.items()}
    metric = heldout_metric_of(study)
    values = {seed: run["evaluation"].get(metric) for seed, run in runs.items()}
    factor = 100 if is_percent(metric) else 1
    return {seed: factor * value for seed, value in values.items() if value is not None}


def averaged_tasks(suite: Sequence[str]) -> list[str]:
    """The tasks whose average is the score of a run: the fine-tuned ones or, without any, the frozen probes."""
    return [task for task in suite if "probe-" not in task] or list(suite)


def without_probes(suite: Sequence[str]) -> str:
    """What to add to the name of the average, if it leaves out probes."""
    return "" if len(averaged_tasks(suite)) == len(suite) else " without probes"


def run_score(run: Record, task: str) -> float:
    """The median of a run's fine-tunings on a task, in percent."""
    return 100.0 * statistics.median(run["tasks"][task]["values"])


def heldout_metric_of(study: Record) -> str:
    """Name of the held-out metric that arms are compared by without fine-tuning; early versions wrote none."""
    metric: str = study.get("figure", UNIGRAM_AUC)
    return metric


def is_percent(metric: str) -> bool:
    """Whether a metric is shown in percent."""
    return metric.endswith(PERCENT_METRICS)

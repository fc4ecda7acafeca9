"""The folders of a report: what each holds, and what to give in place of one that holds nothing to report."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from electra.data.shards import MANIFEST
from electra.errors import CheckpointError
from electra.json_files import read_json
from electra.reports.analysis import ANALYSES
from electra.reports.settings import read_config
from electra.reports.study_results import is_study

NAMED = 3
"""Folders that an error names; it counts the others."""
LEVELS = ("*", "*/*")
"""Where folders are looked for below one that holds nothing itself."""
FINE_TUNING_PARTS = ("seed-*", "model", "export", "onnx*")
"""Folders in that of a fine-tuning."""
NO_RESULTS = "has no results yet; the same `electra finetune` command resumes it"


def reportable_folders(folders: Iterable[Path]) -> list[Path]:
    """The folders, each once, with those of the tasks in place of a folder of several tasks.

    Raises:
        CheckpointError: a folder holds nothing that can be reported.
    """
    unique: dict[Path, Path] = {}
    for part in (part for folder in folders for part in _split_tasks(folder)):
        unique.setdefault(part.resolve(), part)
    return list(unique.values())


def kind_of(folder: Path) -> str:
    """What a folder holds: a pre-training, a fine-tuning, a study or analyses.

    Raises:
        CheckpointError: none of these.
    """
    if kind := _find_kind(folder):
        return kind
    raise CheckpointError(f"{folder}{_describe_problem(folder)}")


def _find_kind(folder: Path) -> str | None:
    if is_study(folder):
        return "study"
    if (folder / "metrics.jsonl").is_file() and not _is_seed(folder):
        return "pre-training"
    if (folder / "results.json").is_file():
        return "fine-tuning"
    if any((folder / f"{name}.json").is_file() for name in ANALYSES):
        return "analysis"
    return None


def _is_seed(folder: Path) -> bool:
    """Whether a folder is that of a seed of a fine-tuning, which has metrics, too, but no objective."""
    return folder.absolute().name.startswith("seed-") and "objective" not in read_config(folder)


def _is_unfinished(folder: Path) -> bool:
    """Whether a folder holds a fine-tuning without results."""
    return not _find_kind(folder) and any(path.is_dir() and _is_seed(path) for path in folder.glob("seed-*"))


def _describe_problem(folder: Path) -> str:
    """Why a folder cannot be reported, and what to give in its place."""
    if not folder.exists():
        return ": there is no such folder; give a folder that electra wrote"
    if not folder.is_dir():
        return f" is a file; give a folder, such as {shlex.quote(str(folder.parent))}"
    problem = " holds no run, fine-tuning, study or analysis"
    for level in LEVELS:
        if found := [path for path in sorted(folder.glob(level)) if _find_kind(path)]:
            return f"{problem} itself, but {_describe_found(folder, level, found)}"
    if _is_unfinished(folder):
        return f": this fine-tuning {NO_RESULTS}"
    if (folder / MANIFEST).is_file():
        return (
            " is prepared data, not a run; give a run that was trained on it: electra pretrain PRESET "
            f"--data {shlex.quote(str(folder))} --out RUN"
        )
    for above in folder.absolute().parents[:2]:  # RUN/export/discriminator is two levels below its run
        kind = _find_kind(above)
        if kind and (kind != "fine-tuning" or _is_in_fine_tuning(folder, above)):
            return f"{problem}; it is a part of a {kind}: give {shlex.quote(_shorten(above))}"
    for near in (folder.absolute().parent, *sorted(folder.glob("*"))):
        if _is_unfinished(near):
            return f"{problem}; the fine-tuning {_shorten(near)} {NO_RESULTS}"
    return (
        f"{problem}; give a folder that `electra pretrain`, `electra finetune`, `electra study` or "
        "`electra analyze` wrote"
    )


def _is_in_fine_tuning(folder: Path, above: Path) -> bool:
    """Whether a folder above, which has results.json, is a fine-tuning, and this one a part of it."""
    part = Path(folder.absolute().relative_to(above).parts[0])
    return (above / "config.toml").is_file() and any(map(part.match, FINE_TUNING_PARTS))


def _describe_found(folder: Path, level: str, found: Sequence[Path]) -> str:
    """The names of folders below one, and how to give them."""
    names = ", ".join(str(path.relative_to(folder)) for path in found[:NAMED])
    further = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
    if len(found) == sum(not path.name.startswith(".") for path in folder.glob(level)):
        given = f"{shlex.quote(str(folder))}/{level}"
    else:  # a shell's * would give other files, too
        given = shlex.join(map(str, found[:NAMED])) + " ..." * bool(further)
    return f"{names}{further} below it {'do' if len(found) > 1 else 'does'}; give electra report {given}"


def _shorten(folder: Path) -> str:
    """A folder as users write it: relative to the current one if it is below it."""
    return str(folder.relative_to(Path.cwd())) if folder.is_relative_to(Path.cwd()) else str(folder)


def _split_tasks(folder: Path) -> list[Path]:
    """The folder; or the tasks' folders, if `electra finetune --task glue` made one for each."""
    if kind_of(folder) != "fine-tuning" or "seeds" in read_json(folder / "results.json", optional=True):
        return [folder]
    tasks = sorted(path.parent for path in folder.glob("*/results.json"))
    if not tasks:
        raise CheckpointError(
            f"{folder}: results.json is of several tasks, but the folders of the tasks are missing; give the "
            "folder of one task, or fine-tune again"
        )
    return tasks

"""From a config's names to a task with its data, and what tasks ask for where a config leaves it open."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from electra.config import did_you_mean
from electra.errors import ConfigError, DataError
from electra.finetuning.config import FinetuneConfig
from electra.readers.read import is_table
from electra.tasks import conll, glue, squad, subsampling, tabular, tagging, tagging_datasets
from electra.tasks.base import Task
from electra.tasks.table_columns import Columns

SQUAD: dict[str, squad.Version] = {"squad": "1.1", "squad2": "2.0"}


@dataclass(frozen=True)
class TaskDefaults:
    """What a task asks for where a config leaves it open."""

    epochs: float = 3
    max_length: int = 128


def task_names() -> list[str]:
    """The tasks that are known by name."""
    return [*glue.SPECS, *SQUAD, *tagging_datasets.DATASETS]


def load_task(config: FinetuneConfig) -> tuple[Task, TaskDefaults]:
    """The task of a config with its data.

    Raises:
        ConfigError: there is no such task, or its data are not named.
        DataError: the data are missing or not as they must be.
    """
    data = config.data
    if data.path is None and data.train is None:
        raise ConfigError("data.path: is missing; give the folder or file of the task's data, --data PATH")
    path = data.path or Path()
    if config.kind == "tagging":
        return _own_tagging(config, path), TaskDefaults(max_length=256)
    if config.kind != "named":
        task = tabular.load_table_task(
            config.task or config.kind,
            _files(config, path, is_table),
            kind=config.kind,
            columns=Columns(data.text, data.pair, data.label, data.separator),
            dev_share=data.dev_share,
            seed=0,
            head_kind=config.head.text,
        )
        return task, TaskDefaults()
    if not config.task:
        raise ConfigError("task: is missing; give --task NAME, or for data of your own --kind classification")
    name = glue.canonical_name(config.task)
    if name or config.task in task_names():
        _refuse_own(config)
    if name:
        return glue.load_glue_task(name, path, head_kind=config.head.text), TaskDefaults(
            glue.SPECS[name].paper_epochs
        )
    if config.task in SQUAD:
        return _questions(config, path), TaskDefaults(2, 512)
    if config.task in tagging_datasets.DATASETS:
        return tagging_datasets.load_tagging_dataset(config.task, path), TaskDefaults(max_length=256)
    raise ConfigError(
        f"task: there is no task {config.task!r}{did_you_mean(config.task, task_names())}\n"
        f"  tasks: {', '.join(task_names())}; "
        "for data of your own give --kind classification, pair, multilabel, regression or tagging"
    )


def _refuse_own(config: FinetuneConfig) -> None:
    """Refuse settings for data of one's own where the task has its own files and columns."""
    own = ("train", "dev", "test", "text", "pair", "label")
    read = ("train", "dev") if config.task in SQUAD else ()
    given = [f"data.{name}" for name in own if name not in read and getattr(config.data, name) is not None]
    if given:
        raise ConfigError(
            f"{', '.join(given)}: {config.task} has its own files and columns; leave it out, or give --kind "
            "for data of your own"
        )


def _files(config: FinetuneConfig, path: Path, fits: Callable[[Path], bool]) -> dict[str, Path]:
    """The files of data of one's own, by split."""
    data = config.data
    return tabular.find_files(path, {"train": data.train, "dev": data.dev, "test": data.test}, fits=fits)


def _own_tagging(config: FinetuneConfig, path: Path) -> Task:
    """Tagged text of one's own, in columns."""
    data = config.data
    fields: dict[str, conll.Columns] = {"upos": conll.UPOS, "xpos": conll.XPOS, "feats": conll.FEATS}
    for setting, value, known in (("data.text", data.text, ()), ("data.label", data.label, tuple(fields))):
        if value is not None and value not in known and not value.removeprefix("-").isdigit():
            more = f", or for CoNLL-U {', '.join(known)}" if known else ""
            raise ConfigError(f"{setting}: {value!r} is no column of tagged text; give a number from 0{more}")
    columns = fields.get(data.label or "") or conll.Columns(int(data.text or 0), int(data.label or -1))
    splits = {split: conll.read(file, columns) for split, file in _files(config, path, lambda file: True).items()}
    notes: list[str] = []
    if "dev" not in splits:
        examples = splits["train"]
        kept, cut = subsampling.stratified_split([""] * len(examples), data.dev_share, seed=0)
        if not len(cut):
            raise DataError(f"{path}: one sentence is too little to cut a part for dev from; give --data.dev FILE")
        splits |= {"train": [examples[i] for i in kept], "dev": [examples[i] for i in cut]}
        notes.append(f"no file for dev: {len(cut):,} of the {len(examples):,} sentences of train were cut for it")
    return tagging.build_tagging_task(config.task or "tagging", splits, notes=notes)


def _questions(config: FinetuneConfig, path: Path) -> Task:
    """SQuAD's official files, or files in its format that are named."""
    data, name = config.data, config.task
    if path.is_dir() and data.train is None and data.dev is None:
        return squad.load_squad(path, SQUAD[name], pointer=config.head.span)
    folder = path if path.is_dir() else path.parent
    official = f"train-v{SQUAD[name]}.json" if path.is_dir() else path.name
    train = folder / (data.train or official)
    dev = None if data.dev is None else folder / data.dev
    return squad.load_question_files(name, train, dev, pointer=config.head.span, dev_share=data.dev_share)

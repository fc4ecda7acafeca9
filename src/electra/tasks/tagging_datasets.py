"""The tagging tasks that are known by name: their files, columns and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from electra.errors import DataError
from electra.tasks import conll
from electra.tasks.base import Task
from electra.tasks.conll import Columns, Sentence
from electra.tasks.tagging import Metric, build_tagging_task

CUT_SEED = 0
CORRECT, ERROR = "c", "i"
CORRECT_TAGS = (CORRECT, "-", "correct")
"""The tags of right words in files of error detection; every other tag is an error, whatever its kind."""


@dataclass(frozen=True)
class TaggingDataset:
    """A public data set.

    Attributes:
        files: by split the names that its file may have; the first that there is.
        origin: where the data come from, for someone who has not got them.
        metric: None: what suits the tags.
        may_lack: a split that is cut from another one where its file is missing: dev from the end of train, or
            train, by lot, from dev.
        binary: whether every tag but those of `CORRECT_TAGS` is an error, whatever its kind.
    """

    files: Mapping[str, tuple[str, ...]]
    columns: Columns
    origin: str
    metric: Metric
    may_lack: str = ""
    binary: bool = False


def _universal_dependencies(columns: Columns) -> TaggingDataset:
    names = {split: (f"{split}.conllu", f"*-ud-{split}.conllu") for split in ("train", "dev", "test")}
    return TaggingDataset(names, columns, "a treebank of universaldependencies.org", "accuracy")


def _error_detection(language: str) -> TaggingDataset:
    files = {split: (f"{language}*{split}.tsv",) for split in ("train", "dev")}
    origin = "MultiGED 2023, github.com/spraakbanken/multiged-2023"
    return TaggingDataset(files, Columns(tags=1), origin, "f0.5", may_lack="train", binary=True)


DATASETS: dict[str, TaggingDataset] = {
    "chunking": TaggingDataset(
        {"train": ("train.txt",), "dev": ("dev.txt", "valid.txt"), "test": ("test.txt",)},
        Columns(),
        "CoNLL-2000, www.cnts.ua.ac.be/conll2000/chunking",
        "span_f1",
        may_lack="dev",
    ),
    "ner-conll2003": TaggingDataset(
        {
            "train": ("train.txt", "eng.train"),
            "dev": ("valid.txt", "dev.txt", "eng.testa", "testa*"),
            "test": ("test.txt", "eng.testb", "testb*"),
        },
        Columns(tags=3),
        "CoNLL-2003, www.clips.uantwerpen.be/conll2003/ner (its text: Reuters RCV1, from NIST)",
        "span_f1",
    ),
    "ner-wnut17": TaggingDataset(
        {
            "train": ("train.conll", "wnut17train.conll"),
            "dev": ("dev.conll", "emerging.dev.conll"),
            "test": ("test.conll", "emerging.test.annotated"),
        },
        Columns(tags=1),
        "WNUT 2017, github.com/leondz/emerging_entities_17",
        "span_f1",
    ),
    "ner-bc5cdr": TaggingDataset(
        {"train": ("train.tsv",), "dev": ("devel.tsv", "dev.tsv"), "test": ("test.tsv",)},
        Columns(),
        "BC5CDR as in github.com/cambridgeltl/MTL-Bioinformatics-2016 (BC5CDR-IOB)",
        "span_f1",
    ),
    "upos": _universal_dependencies(conll.UPOS),
    "xpos": _universal_dependencies(conll.XPOS),
    "ged": _error_detection(""),
    **{
        f"ged-{language}": _error_detection(f"{language.replace('-', '_')}_")
        for language in ("cs", "de", "en", "en-fce", "en-realec", "it", "sv")
    },
}
"""The tasks that are known by name. ged, in any language or (ged-de) in one, finds the wrong words of learners."""


def load_tagging_dataset(name: str, folder: Path) -> Task:
    """One of `DATASETS`, from a folder with its official files (which may be compressed: .gz, .zst).

    Raises:
        DataError: when a file is missing (with where to get it), ambiguous, or not as it should be.
    """
    data = DATASETS[name]
    paths = {split: _find(folder, names) for split, names in data.files.items()}
    missing = [split for split, path in paths.items() if path is None and split not in (data.may_lack, "test")]
    if missing:
        names = ", ".join(" or ".join(data.files[split]) for split in missing)
        raise DataError(f"{folder}: there is no {names}, which {name} needs; it is part of {data.origin}")
    splits = {split: conll.read(path, data.columns) for split, path in paths.items() if path is not None}
    if data.binary:
        splits = {split: [_binary(example) for example in examples] for split, examples in splits.items()}
    notes = []
    if data.may_lack == "dev" and "dev" not in splits:
        examples = splits["train"]
        kept = len(examples) - max(1, len(examples) // 10)
        splits |= {"train": examples[:kept], "dev": examples[kept:]}
        notes = ["there is no file for dev: it is the last tenth of train's"]
    elif data.may_lack == "train" and "train" not in splits:
        examples = splits["dev"]
        held = {*Random(CUT_SEED).sample(range(len(examples)), len(examples) // 5)}
        splits |= {
            "train": [example for i, example in enumerate(examples) if i not in held],
            "dev": [example for i, example in enumerate(examples) if i in held],
        }
        notes = [
            "there is no file for train: it is four fifths of dev's sentences, drawn by lot, and dev the rest"
        ]
    order = {split: splits[split] for split in data.files if split in splits}
    if empty := [split for split in ("train", "dev") if not order.get(split)]:
        raise DataError(f"{folder}: there are too few sentences for a part {empty[0]}; is the file cut off?")
    return build_tagging_task(name, order, metric=data.metric, positive=ERROR if data.binary else "", notes=notes)


def _find(folder: Path, names: Sequence[str]) -> Path | None:
    for name in names:
        found = sorted(path for packing in ("", ".gz", ".zst") for path in folder.glob(name + packing))
        if len(found) > 1:
            both = " and ".join(path.name for path in found)
            hint = "name the task more closely, such as ged-de or ged-en-fce, or move one away"
            raise DataError(f"{folder}: {both} could both be meant by {name}; {hint}")
        if found:
            return found[0]
    return None


def _binary(example: Sentence) -> Sentence:
    return replace(example, tags=tuple(CORRECT if tag in CORRECT_TAGS else ERROR for tag in example.tags or ()))

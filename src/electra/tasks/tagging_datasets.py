"""Tagging tasks with public data sets: their files, columns and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from electra.errors import DataError
from electra.tasks import conll
from electra.tasks.conll import Columns, Sentence

if TYPE_CHECKING:
    from electra.tasks.base import Task
    from electra.tasks.config import DataConfig, HeadConfig
    from electra.tasks.tagging import Metric

CORRECT, ERROR = "c", "i"
CORRECT_TAGS = (CORRECT, "-", "correct")
"""Tags of correct words in files of error detection. Every other tag is an error, whatever its type."""


@dataclass(frozen=True)
class TaggingDataset:
    """A public data set.

    Attributes:
        files: by split, the names that its file can have; the first one that exists is used.
        source: where to get the data, for messages.
        metric: None: depends on the tags.
        derived_split: a split that is taken from another one if its file is missing: dev is the end of train, or
            train is a random part of dev.
        binary: all tags but `CORRECT_TAGS` count as the same error.
    """

    files: Mapping[str, tuple[str, ...]]
    columns: Columns
    source: str
    metric: Metric | None
    derived_split: str = ""
    binary: bool = False
    data_settings = ()

    def load_task(self, name: str, data: DataConfig, head: HeadConfig) -> Task:
        """Load the official files, which may be compressed (.gz, .zst), from their folder.

        Raises:
            DataError: a file is missing, ambiguous or damaged.
        """
        from electra.tasks.tagging import build_tagging_task

        folder = data.path or Path()
        paths = {split: find_file(folder, names) for split, names in self.files.items()}
        optional = (self.derived_split, "test")
        if missing := [split for split, path in paths.items() if path is None and split not in optional]:
            names = ", ".join(" or ".join(self.files[split]) for split in missing)
            raise DataError(f"{folder}: there is no {names}, which {name} needs; it is part of {self.source}")
        splits = {split: conll.read(path, self.columns) for split, path in paths.items() if path is not None}
        if self.binary:
            splits = {split: [_as_binary(example) for example in examples] for split, examples in splits.items()}
        notes = self._derive_split(splits) if self.derived_split not in splits else []
        ordered = {split: splits[split] for split in self.files if split in splits}
        if empty := [split for split in ("train", "dev") if not ordered.get(split)]:
            raise DataError(f"{folder}: there are too few sentences for {empty[0]}; is the file incomplete?")
        return build_tagging_task(
            name, ordered, metric=self.metric, positive=ERROR if self.binary else "", notes=notes,
            pieces=head.pieces,
        )  # fmt: skip

    def _derive_split(self, splits: dict[str, list[Sentence]]) -> list[str]:
        """Add the split whose file is missing, and return remarks for the log."""
        from electra.tasks.tabular import SPLIT_SEED

        if self.derived_split == "dev":
            examples = splits["train"]
            kept = len(examples) - max(1, len(examples) // 10)
            splits |= {"train": examples[:kept], "dev": examples[kept:]}
            return ["there is no dev file: dev is the last tenth of train"]
        if self.derived_split == "train":
            examples = splits["dev"]
            held_out = {*Random(SPLIT_SEED).sample(range(len(examples)), len(examples) // 5)}
            splits |= {
                "train": [example for i, example in enumerate(examples) if i not in held_out],
                "dev": [example for i, example in enumerate(examples) if i in held_out],
            }
            return ["there is no training file: train is a random four fifths of the dev file, dev is the rest"]
        return []


def _universal_dependencies(columns: Columns) -> TaggingDataset:
    names = {split: (f"{split}.conllu", f"*-ud-{split}.conllu") for split in ("train", "dev", "test")}
    return TaggingDataset(names, columns, "a treebank of universaldependencies.org", "accuracy")


def _error_detection(language: str) -> TaggingDataset:
    files = {split: (f"{language}*{split}.tsv",) for split in ("train", "dev")}
    source = "MultiGED 2023, github.com/spraakbanken/multiged-2023"
    return TaggingDataset(files, Columns(tags=1), source, "f0.5", derived_split="train", binary=True)


TASKS: dict[str, TaggingDataset] = {
    "chunking": TaggingDataset(
        {"train": ("train.txt",), "dev": ("dev.txt", "valid.txt"), "test": ("test.txt",)},
        Columns(),
        "CoNLL-2000, www.cnts.ua.ac.be/conll2000/chunking",
        "span_f1",
        derived_split="dev",
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
"""The data sets by the name of the task. ged detects the wrong words of language learners: in the only language
that the folder has, or in a named one (ged-de)."""


def find_file(folder: Path, names: Sequence[str]) -> Path | None:
    """The file with one of these names, which may be patterns; None: there is none.

    Raises:
        DataError: several files match.
    """
    for name in names:
        matches = sorted(path for ending in ("", ".gz", ".zst") for path in folder.glob(name + ending))
        if len(matches) > 1:
            both = " and ".join(path.name for path in matches)
            hint = "give a more specific task, such as ged-de or ged-en-fce, or move one of the files away"
            raise DataError(f"{folder}: {both} match {name}; {hint}")
        if matches:
            return matches[0]
    return None


def _as_binary(example: Sentence) -> Sentence:
    return replace(example, tags=tuple(CORRECT if tag in CORRECT_TAGS else ERROR for tag in example.tags or ()))

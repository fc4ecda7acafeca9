"""Settings of a task's data and of its head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from electra.config import NonNegativeInt, OpenFraction, Range

if TYPE_CHECKING:
    from electra.tasks.long_texts import LongTexts

Reduction = Literal["mean", "sum"]
Pieces = Literal["first", "all"]
SHORTEST = 8
"""Minimum number of tokens that a row, or a long text, may be limited to."""


@dataclass(frozen=True)
class DataConfig:
    """Data of a task. Columns and files are for your own tables and tagged text."""

    path: Path | None = None
    """Folder (or, for your own data, file) of the task. For GLUE, the folder that contains its folders."""
    train: str | None = None
    """Training file. Default: the file whose name starts with train."""
    dev: str | None = None
    """File to evaluate on. Default: the file whose name starts with dev or valid, or else a part of train."""
    test: str | None = None
    """File to predict, and to evaluate on if it has labels. Default: the file whose name starts with test. Kind
    answering has none."""
    text: str | None = None
    """Column of the text."""
    pair: str | None = None
    """Column of the second text. Default: if no column of a text is named, the other one of a usual pair, such as
    sentence1 and sentence2. For kind pair, a column with a usual name."""
    label: str | None = None
    """Column of the label. In tagged text, columns are numbers from 0. For CoNLL-U: upos, xpos or feats."""
    separator: str = ","
    """Separator between the labels of one text, for kind multilabel, if they are not a list."""
    class_weights: tuple[str, ...] = ()
    """Weights of the labels in the loss, for kinds classification and pair, as class_weight of scikit-learn.
    balanced: each label has the same part in it, however rare it is. Or LABEL=WEIGHT for some labels; the others
    have 1. Empty: all have 1."""
    dev_share: OpenFraction = 0.1
    """Share of the training data that is used as dev if there is no dev file. It is the same for every seed."""
    fraction: Annotated[float, Range(gt=0, le=1)] = 1.0
    """Train on this share of the training data only. Each seed has its own random sample."""
    shots: NonNegativeInt = 0
    """Train on this number of examples of each label only, where each text has one label. Each seed has its own
    random sample. 0: all."""
    max_length: NonNegativeInt = 0
    """Maximum number of tokens per row; of a long text, per window. 0: 128 for texts, 256 for tagging, 512 for
    questions, and for windows the length that the model was trained on, but not more than the model allows."""
    long: Literal["cut", "windows", "memory"] = "cut"
    """What to do with a text (or pair) that has more tokens than a row. cut: read only its beginning. windows:
    split it into rows and average their states ([CLS], or the last state of a left-to-right network). memory: read
    row after row with the network's memory of the previous rows. The head reads the last row, and only that row
    has a gradient."""
    longest: Annotated[int, Range(ge=SHORTEST)] = 4096
    """Maximum number of tokens per text with windows or memory. The rest is cut off."""

    @property
    def read_length(self) -> int:
        """Maximum number of tokens that are read of a text, once `max_length` is resolved."""
        return self.max_length if self.long == "cut" else max(self.longest, self.max_length)

    @property
    def long_texts(self) -> LongTexts | None:
        """How to read texts that are longer than a row. None: they are cut."""
        from electra.tasks.long_texts import LongTexts

        return None if self.long == "cut" else LongTexts(self.long, self.max_length)

    def problems(self) -> Iterator[str]:
        if not self.separator:
            yield "separator: is empty; give a character, such as ;"
        if self.shots and self.fraction < 1:
            yield "shots: give either shots or fraction"
        if 0 < self.max_length < SHORTEST:
            yield f"max_length: must be at least {SHORTEST}, got {self.max_length}"


@dataclass(frozen=True)
class HeadConfig:
    """The head on top of the encoder."""

    text: Literal["linear", "hidden"] = "linear"
    """Head for texts. linear: dropout and one layer, as in ELECTRA. hidden: with a hidden layer before it, as in
    transformers' ElectraForSequenceClassification."""
    span: Literal["conditional", "plain"] = "conditional"
    """Head for questions. conditional: ELECTRA's pointer, whose end depends on the start. plain: two logits per
    token, as in transformers' ElectraForQuestionAnswering."""
    pieces: Pieces = "first"
    """Which tokens of a word learn its tag. first: the first one, as in ELECTRA. all: later ones, too, so that
    transformers' pipeline joins them with aggregation_strategy="simple". Predictions always read the first one."""

"""`electra quickstart`: the whole way in minutes, on text that this machine already has."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from electra.commands import prepare
from electra.data.shards import MANIFEST, TokenData
from electra.preparation.documentation import collect

if TYPE_CHECKING:
    from electra.analysis.demonstration import Demonstration
    from electra.pretraining.run import PretrainResult

logger = logging.getLogger(__name__)

VOCABULARY = 4096
"""Entries of the tokenizer: few enough that each is seen often in the few million tokens of a quickstart."""


@dataclass(frozen=True)
class QuickstartConfig:
    """The command line of `electra quickstart`."""

    out: Path = Path("runs/quickstart")
    """The folder for everything that is made: corpus, shards of tokens, run, exports."""
    minutes: float = 4.5
    """Training time; the corpus and the ending take about another minute."""
    seed: int = 0
    """Everything random in training follows from it."""
    fresh: bool = False
    """Train once more beside the run that is there."""


def run(config: QuickstartConfig) -> QuickstartResult:
    """Train an ELECTRA on the documentation that this machine has, and show what it learnt.

    Needs no network and no file. The text: docstrings of the standard library and of the installed packages, and
    pydoc's topics. The same command goes on where it was stopped.

    Examples:
        electra quickstart
        electra quickstart --minutes 20 --out runs/longer
    """
    from electra.analysis.demonstration import demonstrate
    from electra.pretraining.config import load_config
    from electra.pretraining.run import pretrain

    data_folder = config.out / "data"
    if not (data_folder / MANIFEST).exists():
        logger.info("1/3 collecting the documentation of Python and the installed packages")
        corpus = collect(config.out / "documentation.jsonl")
        logger.info("%s", corpus)
        logger.info("2/3 turning it into tokens")
        prepare.run(prepare.PrepareConfig(corpus=(str(corpus.path),), out=data_folder, vocabulary_size=VOCABULARY))
    logger.info("3/3 training for %s minutes", config.minutes)
    settings = {
        "data": data_folder,
        "out": config.out / "run",
        "train.minutes": config.minutes,
        "train.seed": config.seed,
    }
    trained = pretrain(load_config("quickstart", settings), fresh=config.fresh)
    if trained.exported is None:
        return QuickstartResult(data_folder, trained, [])
    shown = demonstrate(trained.run / "export", TokenData.open(data_folder, verify=False))
    return QuickstartResult(data_folder, trained, shown)


@dataclass(frozen=True)
class QuickstartResult:
    """What a newcomer sees at the end."""

    data: Path
    trained: PretrainResult
    sentences: list[Demonstration]

    @property
    def exit_code(self) -> int:
        return self.trained.exit_code

    def __rich__(self) -> RenderableType:
        if self.trained.exported is None:
            return Group(self.trained, "The same command, without --fresh, goes on from here.")
        run_folder = self.trained.run
        return Group(
            self.trained,
            "",
            Text("Held-out sentences with fakes in them (in brackets: what looks replaced)", style="bold"),
            "",
            *self.sentences,
            Text("Next", style="bold"),
            _commands(
                (f'electra score {run_folder} "The function returns a new banana."', "your own sentence"),
                ("electra prepare TEXTS --out DATA", "your own text: files, folders, .txt .jsonl .csv .parquet"),
                ("electra pretrain electra-tiny --data DATA --out RUN --train.minutes 30", "your own model"),
                (f"tensorboard --logdir {run_folder / 'tensorboard'}", "all curves"),
            ),
        )


def _commands(*lines: tuple[str, str]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for command, purpose in lines:
        table.add_row(command, Text(purpose, style="dim"))
    return table

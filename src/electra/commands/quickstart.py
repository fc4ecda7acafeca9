"""`electra quickstart`: train and try a small model in minutes, on text that this machine already has."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from electra.config import PositiveFloat
from electra.errors import ConfigError

if TYPE_CHECKING:
    from electra.analysis.demonstration import Demonstration
    from electra.pretraining.run import PretrainResult

logger = logging.getLogger(__name__)

CORPUS = "documentation.jsonl"
VOCABULARY = 4096
"""Entries of the tokenizer: so few that each occurs often in the few million tokens of a quickstart."""


@dataclass(frozen=True)
class QuickstartConfig:
    """The command line of `electra quickstart`."""

    out: Path = Path("runs/quickstart")
    """Folder for everything that is made: corpus, token shards, run, exports."""
    minutes: PositiveFloat = 4.5
    """Training time in minutes. The corpus and the exports take about one minute more."""
    seed: int = 0
    """Random seed of the training."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    fresh: bool = False
    """Train a new model next to the existing run, instead of resuming it."""


def run(config: QuickstartConfig) -> QuickstartResult:
    """Train an ELECTRA model on the documentation that this machine has, and show what it learned.

    It needs no network and no file. The text is the docstrings of the standard library and of the installed
    packages, and pydoc's topics. After an interruption the same command resumes.

    Examples:
        electra quickstart
        electra quickstart --minutes 20 --out runs/longer
    """
    from electra.analysis.demonstration import demonstrate
    from electra.data.shards import MANIFEST, TokenData
    from electra.modeling.device import resolve_device
    from electra.preparation.config import PrepareConfig
    from electra.preparation.documentation import collect_documentation
    from electra.preparation.run import prepare
    from electra.pretraining.config import load_config
    from electra.pretraining.run import pretrain

    data_folder = config.out / "data"
    check_out_folder(config.out)
    resolve_device(config.device)  # before a minute of preparation
    if not (data_folder / MANIFEST).exists():
        logger.info("1/3 collecting the documentation of Python and the installed packages")
        corpus = collect_documentation(config.out / CORPUS)
        logger.info("%s", corpus)
        logger.info("2/3 turning it into tokens")
        prepare(PrepareConfig(corpus=(str(corpus.path),), out=data_folder, vocabulary_size=VOCABULARY))
    logger.info("3/3 training for %s minutes", config.minutes)
    settings = {
        "data": data_folder,
        "out": config.out / "run",
        "train.minutes": config.minutes,
        "train.seed": config.seed,
        "train.device": config.device,
    }
    trained = pretrain(load_config("quickstart", settings), fresh=config.fresh)
    if trained.exported is None:
        return QuickstartResult(data_folder, trained, [])
    sentences = demonstrate(trained.run / "export", TokenData.open(data_folder, verify=False))
    return QuickstartResult(data_folder, trained, sentences)


def check_out_folder(out: Path) -> None:
    """Refuse an output path that exists and is not the folder of a quickstart.

    Raises:
        ConfigError: it is a file, or a folder with something else.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out: {out} is a file; give a new folder")
    names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if names and not any(
        name == "data" or name.startswith(("documentation.", ".documentation.")) for name in names
    ):
        raise ConfigError(
            f"--out: {out} is not empty and is not the folder of a quickstart (it has {', '.join(names[:3])}); "
            "give a new folder"
        )


@dataclass(frozen=True)
class QuickstartResult:
    """What a new user sees at the end."""

    data: Path
    trained: PretrainResult
    sentences: list[Demonstration]

    @property
    def exit_code(self) -> int:
        return self.trained.exit_code

    def __rich__(self) -> RenderableType:
        if self.trained.exported is None:
            return Group(self.trained, "The same command, without --fresh, resumes from here.")
        run_folder = self.trained.run
        return Group(
            self.trained,
            "",
            Text("Held-out sentences with fake tokens (in brackets: what looks replaced)", style="bold"),
            "",
            *self.sentences,
            Text("Next", style="bold"),
            *_commands(
                (f'electra score {run_folder} "The function returns a new banana."', "your own sentence"),
                ("electra prepare TEXTS --out DATA", "your own text: files, folders, .txt .jsonl .csv .parquet"),
                ("electra pretrain electra-plus-tiny --data DATA --out RUN --train.minutes 30", "your own model"),
                (f"tensorboard --logdir {run_folder / 'tensorboard'}", "all curves"),
            ),
        )


def _commands(*lines: tuple[str, str]) -> Iterator[Text]:
    """Yield the purpose of each command, and the command on its own line, unwrapped so that it can be copied."""
    for command, purpose in lines:
        yield Text(f"  # {purpose}", style="dim")
        yield Text(f"  {command}", no_wrap=True, overflow="ignore")

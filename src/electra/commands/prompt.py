"""`electra prompt`: label texts with a discriminator and a template, without training."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Group, RenderableType
from rich.table import Table

from electra.errors import ConfigError, DataError

if TYPE_CHECKING:
    from electra.serving.prompt_classifier import PromptPrediction


@dataclass(frozen=True)
class PromptConfig:
    """The command line of `electra prompt`."""

    model: tyro.conf.Positional[str]
    """A discriminator: a run, an export, a Hugging Face folder or id."""
    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to label, each as one argument."""
    template: str = "{text} It was {word}."
    """A sentence with {text} and {word}."""
    words: tuple[str, ...] = ("negative=terrible,bad", "positive=great,good")
    """Each label with its words: LABEL=WORD,WORD."""
    task: str | None = None
    """Judge it on dev of this task of GLUE (of single texts), whose labels are given in their order: for sst-2 the
    first of --words is 0, the second 1."""
    data: Path | None = None
    """The folder of the task's data."""
    json: bool = False
    """One JSON object a text."""


@dataclass(frozen=True)
class Labelled:
    """Texts and their labels."""

    texts: list[PromptPrediction]
    in_json: bool

    def __str__(self) -> str:
        if self.in_json:
            return "\n".join(json.dumps(asdict(one), ensure_ascii=False) for one in self.texts)
        return "\n".join(
            f"{one.label}\t{' '.join(f'{label} {score:+.2f}' for label, score in one.scores.items())}\t{one.text}"
            for one in self.texts
        )


@dataclass(frozen=True)
class Judged:
    """How good the labels of a task's dev part are."""

    figures: dict[str, float]
    examples: int
    majority: float

    def __rich__(self) -> RenderableType:
        table = Table("figure", "value")
        for name, value in self.figures.items():
            table.add_row(name, f"{value:.4f}")
        return Group(
            table, f"{self.examples:,} examples; the commonest label alone would be right in {self.majority:.1%}"
        )


def run(config: PromptConfig) -> Labelled | Judged:
    """Ask a discriminator which label's word looks least replaced behind a text. Nothing is trained.

    Examples:
        electra prompt RUN "Two hours that I want back." --words bad=terrible,awful good=great,wonderful
        electra prompt RUN --task sst-2 --data GLUE
    """
    from electra.finetuning.config import load_task_config
    from electra.finetuning.load_task import load_task
    from electra.finetuning.seed_run import DEV
    from electra.serving.prompt_classifier import PromptClassifier
    from electra.tasks.classification import Classification

    words = _words(config.words)
    prompter = PromptClassifier(config.model, template=config.template, label_words=words)
    if config.task is None:
        if not config.texts:
            raise ConfigError("give a text, or --task with --data")
        return Labelled(prompter(config.texts), config.json)
    task, _ = load_task(load_task_config({
        "model": config.model, "task": config.task, **({"data.path": config.data} if config.data else {}),
    }))  # fmt: skip
    problem, examples = task.problem, task.splits[DEV]
    if not isinstance(problem, Classification) or problem.pair:
        raise DataError(f"--task {config.task}: prompts label single texts; give a task such as sst-2 or cola")
    if len(words) != len(problem.labels):
        raise ConfigError(f"--words: {config.task} has {len(problem.labels)} labels, but {len(words)} were given")
    names = dict(zip(words, problem.labels, strict=True))
    predictions = [{"label": names[one.label]} for one in prompter([example.first for example in examples])]
    answers = [example.answer for example in examples]
    majority = max(answers.count(answer) for answer in set(answers)) / len(answers)
    return Judged(problem.score(examples, predictions), len(examples), majority)


def _words(given: tuple[str, ...]) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {}
    for one in given:
        label, equals, rest = one.partition("=")
        words[label.strip()] = [word.strip() for word in (rest if equals else label).split(",") if word.strip()]
    return words

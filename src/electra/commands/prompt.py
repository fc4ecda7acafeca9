"""`electra prompt`: zero-shot classification with a discriminator and a template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Group, RenderableType
from rich.table import Table

from electra.objectives.metric_labels import metric_label

if TYPE_CHECKING:
    from electra.serving.prompt_classifier import PromptPrediction


@dataclass(frozen=True)
class PromptConfig:
    """The command line of `electra prompt`."""

    model: tyro.conf.Positional[str]
    """A discriminator: a run, an export folder, a Hugging Face folder or id, or the included model wiki-tiny."""
    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to label, one per argument."""
    template: str = "{text} It was {word}."
    """Prompt with {text} and {word}."""
    words: tuple[str, ...] = ("negative=terrible,bad", "positive=great,good")
    """Labels, each with its words: LABEL=WORD,WORD."""
    task: str | None = None
    """GLUE task of single texts: evaluate the labels on its dev set. The labels of --words are in the order of the
    task's labels: for sst-2 the first is 0, the second is 1."""
    data: Path | None = None
    """Folder with the data of the task."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    json: bool = False
    """Print one JSON object per text."""

    def problems(self) -> Iterator[str]:
        if not self.texts and self.task is None:
            yield "give a text, or --task with --data"


@dataclass(frozen=True)
class LabeledTexts:
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
class PromptEvaluation:
    """The metrics of the labels on the dev set of a task, and the accuracy of the most frequent label."""

    metrics: dict[str, float]
    examples: int
    majority: float

    def __rich__(self) -> RenderableType:
        table = Table("metric", "value")
        for name, value in self.metrics.items():
            table.add_row(metric_label(name), f"{value:.4f}")
        return Group(
            table, f"{self.examples:,} examples; accuracy of the most frequent label: {self.majority:.1%}"
        )


def run(config: PromptConfig) -> LabeledTexts | PromptEvaluation:
    """Label texts by the word that looks least replaced in a prompt. Nothing is trained.

    Examples:
        electra prompt RUN "Two hours that I want back." --words bad=terrible,awful good=great,wonderful
        electra prompt RUN --task sst-2 --data GLUE
    """
    from electra.finetuning.zero_shot import evaluate_prompt
    from electra.serving.prompt_classifier import PromptClassifier

    label_words = _parse_words(config.words)
    classifier = PromptClassifier(
        config.model, template=config.template, label_words=label_words, device=config.device
    )
    if config.task is None:
        return LabeledTexts(classifier(config.texts), config.json)
    metrics, examples, majority = evaluate_prompt(
        classifier, config.model, config.task, config.data, label_words=label_words
    )
    return PromptEvaluation(metrics, examples, majority)


def _parse_words(options: tuple[str, ...]) -> dict[str, list[str]]:
    """The words of each label from `LABEL=WORD,WORD`; a word alone is its own label."""
    label_words: dict[str, list[str]] = {}
    for option in options:
        label, equals, words = option.partition("=")
        label_words[label.strip()] = [
            word.strip() for word in (words if equals else label).split(",") if word.strip()
        ]
    return label_words

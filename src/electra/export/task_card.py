"""The model card of a fine-tuned network: what it does, how well, what it learnt from, how to use it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_INPUTS = {"tagging": '"The old man saw the sea ."', "answering": '("Who saw Bob?", "Ann saw Bob.")'}
_IS_FOR = {
    "tagging": "A tag for every word of a sentence, in the scheme of its training data.",
    "answering": "The place of the answer to a question in a passage that is given with it.",
    "regression": "A value for a text or a pair of texts, in the unit of its training data.",
}

_LABELS = "A label, or labels, for a text or a pair of texts like those of its training data."


@dataclass(frozen=True)
class TaskCard:
    """What a card says of one seed of a fine-tuning.

    Attributes:
        name: of the task.
        task: the problem's facts: its `kind`, `labels` where it has some, `max_length` and so on.
        base: the encoder that it began from; a name, no path.
        metrics: figures on dev by name.
        failed: why the run counts as failed.
        examples: how many there were by split.
        recipe: what it was trained with: learning rate, epochs and the like, in words.
        alone: transformers has no class for any head over this encoder.
    """

    name: str
    task: Mapping[str, Any]
    base: str
    seed: int
    metrics: Mapping[str, float]
    failed: str | None
    examples: Mapping[str, int]
    recipe: str
    alone: bool = False

    def __str__(self) -> str:
        """The text of README.md, with front matter for the hub."""
        kind = self.task["kind"]
        what = self.name if self.name != kind else "a task of its own"
        lines = [
            "---", "library_name: transformers", *self._pipeline_tag(), "tags: [electra, fine-tuned]",
            "# What only you can say, and the hub asks for: take the # away and fill it in.",
            "# license: apache-2.0", "# language: en", "---", "",
            f"# {self.name}", "",
            f"An encoder fine-tuned by electra for {what} ({kind}), seed {self.seed}; it began from "
            f"`{self.base}`.", "",
            "## Use", "", *self._use(), "",
            f"Give it at most {self.task.get('max_length', 'as many as it was trained with')} tokens, "
            "special ones included.", "",
            "## What it is for", "",
            f"- {_IS_FOR.get(kind, _LABELS)}",
            *self._labels(),
            "- Not for decisions about people without tests of your own.", "",
            "## Training", "",
            f"{self._amounts()} {self.recipe}", "",
            f"Licence of the data, and what `{self.base}` was pre-trained on: not stated; find out before you "
            "publish.",
            "",
            "## Figures", "",
            "On dev, not on a test set.", "",
            "| figure on dev | value |", "|---|---|",
            *(f"| {figure} | {value:.4f} |" for figure, value in self.metrics.items()), "",
            "## Limits", "",
            *([f"- **This run failed**: {self.failed}. Do not use it."] if self.failed else []),
            "- The figures are those of one seed; others give others.",
            "- Other languages, domains and ways to cut words than its data's are outside what was measured.",
            "- It has the gaps and the biases of its data and of the encoder that it began from.", "",
        ]  # fmt: skip
        return "\n".join(lines)

    @property
    def _loads_whole(self) -> bool:
        return not self.alone and self.task.get("pointer") != "conditional"

    def _pipeline_tag(self) -> list[str]:
        tag = {"tagging": "token-classification", "answering": "question-answering"}.get(
            self.task["kind"], "text-classification"
        )
        return [f"pipeline_tag: {tag}"] if self._loads_whole else []

    def _input(self) -> str:
        single = '("One text.", "Another text.")' if self.task.get("pair") else '"A text."'
        return _INPUTS.get(self.task["kind"], single)

    def _use(self) -> list[str]:
        lines = [
            "```python", "import electra", "", f'electra.load("FOLDER").predict([{self._input()}])', "```", "",
        ]  # fmt: skip
        if not self._loads_whole:
            return [*lines, "transformers has no class for this head: there the encoder alone loads."]
        if self.task["kind"] == "answering":
            return [*lines, "In transformers: `AutoModelForQuestionAnswering`."]
        kind = "token-classification" if self.task["kind"] == "tagging" else "text-classification"
        text = '{"text": "One text.", "text_pair": "Another text."}' if self.task.get("pair") else self._input()
        lines += [
            "In transformers:", "", "```python", "from transformers import pipeline", "",
            f'pipeline("{kind}", model="FOLDER")({text})', "```",
        ]  # fmt: skip
        if any(label.startswith("E-") for label in self.task.get("labels", ())):
            lines += [
                "", "Its labels mark spans as BIOES, which `aggregation_strategy` does not join: rename E to I "
                "and S to B in `model.config.id2label` first (docs/guides/ecosystem.md of electra).",
            ]  # fmt: skip
        return lines

    def _labels(self) -> list[str]:
        labels = [str(label) for label in self.task.get("labels", ())]
        if not labels:
            return []
        more = f" and {len(labels) - 20} more" if len(labels) > 20 else ""
        return [f"- Labels: {', '.join(f'`{label}`' for label in labels[:20])}{more}."]

    def _amounts(self) -> str:
        return f"{', '.join(f'{count:,} examples of {split}' for split, count in self.examples.items())}."

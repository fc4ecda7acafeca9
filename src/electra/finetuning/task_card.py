"""The model card of a fine-tuned model: what it does, how well, what it was trained on, and how to use it."""

from collections.abc import Mapping
from dataclasses import dataclass

from electra.export.markdown import code_span, escaped
from electra.objectives.metric_labels import metric_label
from electra.tasks.base import Problem

MAX_LABELS = 20
"""Maximum number of labels that the card lists."""


@dataclass(frozen=True)
class TaskCard:
    """The contents of a model card, for one seed of a fine-tuning.

    Attributes:
        name: name of the task.
        max_length: maximum number of tokens per text.
        base: name of the pre-trained encoder, without a path; None: it started from random weights.
        metrics: metrics on dev by name.
        failed: why the run counts as failed.
        examples: number of examples by split.
        recipe: how it was trained, in words: steps, learning rate and so on.
        loads_whole: transformers has a class for the encoder with this head.
    """

    name: str
    problem: Problem
    max_length: int
    base: str | None
    seed: int
    metrics: Mapping[str, float]
    failed: str | None
    examples: Mapping[str, int]
    recipe: str
    loads_whole: bool

    def __str__(self) -> str:
        """The text of README.md, with front matter for the Hugging Face Hub."""
        problem = self.problem
        start, unknown = "random weights", "The license of the data is"
        if self.base is not None:
            start = code_span(self.base)
            unknown = f"The license of the data, and what {start} was pre-trained on, are"
        pipeline_tag = [f"pipeline_tag: {problem.pipeline_tag}"] if self.loads_whole else []
        task = escaped(self.name) if self.name != problem.kind else "the task of its author"
        examples = ", ".join(f"{count:,} examples of {split}" for split, count in self.examples.items())
        lines = [
            "---", "library_name: transformers", *pipeline_tag, "tags: [electra, fine-tuned]",
            "# The hub asks for these fields. Fill them in and remove the #.",
            "# license: apache-2.0", "# language: en", "---", "",
            f"# {escaped(self.name)}", "",
            f"An encoder that electra fine-tuned for {task} ({problem.kind}), seed {self.seed}, starting from "
            f"{start}.", "",
            "## Use", "", *self._use(), "",
            f"Texts can have at most {self.max_length} tokens, including special ones.", "",
            "## Purpose", "",
            f"- {problem.purpose}",
            *self._labels(),
            "- Do not use it for decisions about people without your own tests.", "",
            "## Training", "",
            f"{examples}. {self.recipe}", "",
            f"{unknown} not stated; find out before you publish the model.", "",
            "## Metrics", "",
            "On dev, not on a test set.", "",
            "| metric on dev | value |", "|---|---|",
            *(f"| {escaped(metric_label(metric))} | {value:.4f} |" for metric, value in self.metrics.items()), "",
            "## Limitations", "",
            *([f"- **This run failed**: {escaped(self.failed)}. Do not use the model."] if self.failed else []),
            "- The metrics are those of one seed; other seeds have other metrics.",
            "- It was not tested on other languages, domains and tokenizations than those of its data.",
            "- It has the gaps and biases of its data and of the encoder that it started from.", "",
        ]  # fmt: skip
        return "\n".join(lines)

    def _use(self) -> list[str]:
        problem, single = self.problem, self.problem.input_example
        lines = [
            "```python", "import electra", "", f'electra.load("FOLDER").predict([{single}])', "```", "",
        ]  # fmt: skip
        if not self.loads_whole:
            return [*lines, "transformers has no class for this head; it can load only the encoder."]
        if problem.is_extractive:
            return [*lines, "In transformers: `AutoModelForQuestionAnswering`."]
        text = '{"text": "One text.", "text_pair": "Another text."}' if problem.takes_pairs else single
        lines += [
            "In transformers:", "", "```python", "from transformers import pipeline", "",
            f'pipeline("{problem.pipeline_tag}", model="FOLDER")({text})', "```",
        ]  # fmt: skip
        if problem.exported_names != problem.output_names:
            lines += [
                "", 'With `aggregation_strategy="first"` the pipeline returns whole spans. In transformers labels '
                "begin with B or I; several outputs of the model have the same label, because it predicts BIOES.",
            ]  # fmt: skip
        return lines

    def _labels(self) -> list[str]:
        names = self.problem.output_names
        if len(names) < 2:
            return []
        more = f" and {len(names) - MAX_LABELS} more" if len(names) > MAX_LABELS else ""
        return [f"- Labels: {', '.join(map(code_span, names[:MAX_LABELS]))}{more}."]

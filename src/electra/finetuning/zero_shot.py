"""Evaluate models on the tasks of fine-tuning without training: text similarity and prompts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra.errors import ConfigError, DataError
from electra.finetuning.config import load_task_config
from electra.finetuning.load_task import load_task
from electra.finetuning.setup import DEV
from electra.serving.prompt_classifier import PromptClassifier
from electra.serving.text_encoder import TextEncoder
from electra.tasks.classification import Classification
from electra.tasks.glue import canonical_name
from electra.tasks.metrics import compute_metrics
from electra.tasks.regression import Regression


def correlate_similarity(
    encoder: TextEncoder, model: str, task: str, data: Path, *, columns: Sequence[str] | None = None
) -> dict[str, dict[str, float]]:
    """Return the correlations of the cosine of embeddings with human ratings, by split of a task that has ratings.

    Args:
        model: the name of the model of `encoder`.
        task: the task sts-b, or any name for the user's own table.
        data: the folder of the task, or a table.
        columns: columns of the user's own table: the two texts and the number.

    Raises:
        DataError: the data cannot be read, or are no pairs of texts with numbers.
    """
    settings: dict[str, Any] = {"model": model, "task": task, "data.path": data}
    if canonical_name(task) is None:
        settings["kind"] = Regression.kind
        if columns is not None:
            settings |= dict(zip(("data.text", "data.pair", "data.label"), columns, strict=True))
    loaded = load_task(load_task_config(settings))
    if not isinstance(loaded.problem, Regression) or not loaded.problem.pair:
        raise DataError(f"{data}: expected pairs of texts with a number; give the columns with --columns")
    splits = {split: loaded.splits.get(split, ()) for split in (DEV, "test")}
    if data.is_file():  # nothing is trained, so no part of the table has to be held out
        splits = {"all": [*loaded.splits["train"], *loaded.splits[DEV]]}
    correlations = {}
    for split, examples_of_split in splits.items():
        examples = [example for example in examples_of_split if example.answer is not None]
        if examples:
            firsts = [example.first for example in examples]
            seconds = [example.second or "" for example in examples]
            cosines = encoder.cosine_similarity(firsts, seconds).tolist()
            ratings = [float(example.answer) for example in examples]
            correlations[split] = compute_metrics(("spearman", "pearson"), ratings, cosines)
    return correlations


def evaluate_prompt(
    classifier: PromptClassifier,
    model: str,
    task: str,
    data: Path | None,
    *,
    label_words: Mapping[str, Sequence[str]],
) -> tuple[dict[str, float], int, float]:
    """Evaluate a prompt on the dev set of a task of single texts.

    Args:
        model: the name of the model of `classifier`.
        data: the folder of the task.
        label_words: the words of each label of `classifier`, in the order of the task's labels.

    Returns:
        The task's metrics, the number of examples, and the accuracy of the most frequent label.

    Raises:
        ConfigError: the task has another number of labels.
        DataError: the data cannot be read, or the task is not a classification of single texts.
    """
    loaded = load_task(
        load_task_config({"model": model, "task": task, **({} if data is None else {"data.path": data})})
    )
    problem, examples = loaded.problem, loaded.splits[DEV]
    if not isinstance(problem, Classification) or problem.pair:
        raise DataError(
            f"--task {task}: is not a classification of single texts; give a task such as sst-2 or cola"
        )
    if len(label_words) != len(problem.labels):
        raise ConfigError(
            f"--words: {task} has {len(problem.labels)} labels; give one word for each, got {len(label_words)}"
        )
    names = dict(zip(label_words, problem.labels, strict=True))
    predictions = [{"label": names[one.label]} for one in classifier([example.first for example in examples])]
    answers = [example.answer for example in examples]
    majority = max(answers.count(answer) for answer in set(answers)) / len(answers)
    return problem.compute_metrics(examples, predictions), len(examples), majority

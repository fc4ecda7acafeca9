"""What came of the seeds of a fine-tuning, and its files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from electra import durable
from electra.config import load_config
from electra.errors import CheckpointError, DataError
from electra.finetuning.config import FinetuneConfig
from electra.tasks import squad_files
from electra.tasks.base import Prediction, Problem
from electra.training.checkpoint_io import different
from electra.training.run_folder import RunFolder, agree

MAY_CHANGE = ("out", "data.path", "model")
"""Settings that say where something lies now; that it is the same is seen by its fingerprint."""


@dataclass(frozen=True)
class SeedResult:
    """What came of one seed.

    Attributes:
        metrics: figures on dev by name.
        failed: why the run counts as failed; None where it does not.
        seconds: of its steps; evaluations are not in it.
    """

    seed: int
    metrics: dict[str, float]
    failed: str | None
    steps: int
    seconds: float
    identity: dict[str, str] = field(default_factory=dict)
    """What it was trained from: fingerprints of the data and of the encoder."""
    diverged: bool = False
    """It came to numbers that are not finite: no model came of it."""
    others: dict[str, dict[str, float]] = field(default_factory=dict)
    """Figures on further splits that have answers (MNLI's mismatched part, a test part), by split."""


def failure_reason(problem: Problem, predictions: Sequence[Prediction], examples: Sequence[Any]) -> str | None:
    """A run whose predictions on dev are all alike has not learnt: it gives the commonest answer, or none."""
    said = [prediction[problem.answer_key] for prediction in predictions]
    gold = [problem.describe_example(example)["gold"] for example in examples]
    if all(isinstance(answer, float) for answer in said):
        alike = len(said) > 1 and bool(torch.tensor(said).std() < 0.01 * torch.tensor(gold).std())
        return "its values hardly differ" if alike else None
    if problem.reads_words:
        said, gold = [*chain(*said)], [*chain(*gold)]
    answers, asked = ({json.dumps(answer, ensure_ascii=False) for answer in each} for each in (said, gold))
    if not len(answers) == 1 < len(asked):
        return None
    answer = answers.pop()
    return "it finds no answer throughout" if answer == '""' else f"it answers {answer} throughout"


def write_predictions(folder: Path, split: str, predictions: Sequence[Prediction]) -> None:
    """Predictions as JSON lines, whole or not at all; those of questions also as SQuAD's script takes them."""
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in predictions)
    durable.write_text(folder / f"{split}.jsonl", lines)
    if predictions and "null_odds" in predictions[0]:
        squad_files.write_predictions(folder, predictions)


def load_finished_seeds(out: Path, config: FinetuneConfig, identity: Mapping[str, str]) -> list[SeedResult]:
    """The results of all seeds that were finished before, in order.

    Args:
        identity: what they must have been trained from.

    Raises:
        CheckpointError: with other settings or data.
    """
    numbers = (path.name.removeprefix("seed-") for path in out.glob("seed-*"))
    seeds = sorted(int(number) for number in numbers if number.isdigit())
    results = [_read_result(out / f"seed-{seed}", replace(config, seeds=1, seed=seed), identity) for seed in seeds]
    return [result for result in results if result is not None]


def _read_result(folder: Path, config: FinetuneConfig, identity: Mapping[str, str]) -> SeedResult | None:
    path = folder / "result.json"
    if not path.is_file():
        return None
    agree(RunFolder(folder), config, settled={}, ignore=MAY_CHANGE)
    try:
        found = SeedResult(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); remove it to run this seed again") from error
    if odd := [name for name, value in identity.items() if found.identity.get(name) != value]:
        raise CheckpointError(
            f"{folder} was trained with {' and '.join(map(different, odd))}; give another --out, or start beside "
            "it with --fresh"
        )
    return found


def find_finetuning(model: str | Path) -> Path | None:
    """The folder of the fine-tuning that a MODEL came from: it is that, or stands in that; None: neither."""
    path = Path(model)
    if RunFolder(path).config.is_file():
        return path
    above = path.resolve().parent
    return above if (above / "results.json").is_file() and RunFolder(above).config.is_file() else None


def load_finetuning_config(folder: Path) -> FinetuneConfig:
    """The config of a fine-tuning's folder, or of a seed's."""
    return load_config(FinetuneConfig, RunFolder(folder).config)

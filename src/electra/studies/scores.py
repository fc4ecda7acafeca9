"""The scores of a pre-trained network on the tasks of a study: by fine-tuning, or by a frozen probe."""

from pathlib import Path
from typing import Any

from electra.analysis.frozen_probes import FROZEN_PROBES
from electra.finetuning.run import finetune
from electra.studies.arms import StudySetup
from electra.studies.finetuning import finetune_config, output_name


def values_needed(setup: StudySetup, task: str) -> int:
    """How many values the score of a task has: one for each seed of a fine-tuning; a probe has no seed."""
    return 1 if task in FROZEN_PROBES else setup.task_seeds


def score_task(setup: StudySetup, task: str, *, model: Path, folder: Path) -> dict[str, Any] | int:
    """Return the name of the metric, its values and the number of failed fine-tunings.

    Args:
        model: the export folder of the network.
        folder: for the folders of fine-tunings.

    Returns:
        The score, or 128 + the number of the signal that stopped a fine-tuning.

    Raises:
        CheckpointError: the network cannot be loaded.
        DataError: data of the task is missing or malformed.
    """
    if task in FROZEN_PROBES:
        assert setup.tasks is not None
        accuracy = FROZEN_PROBES[task].score(model, setup.tasks, device=setup.device)
        return {"metric": "accuracy", "values": [accuracy], "failed": 0}
    tuned = finetune(
        finetune_config(setup, task, model=model, out=folder / output_name(task, setup.finetune_settings))
    )
    if tuned.exit_code:
        return tuned.exit_code
    return {"metric": tuned.metric, "values": tuned.values(tuned.metric), "failed": tuned.failed}

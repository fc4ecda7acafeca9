"""At the end of a continuation: is the original still there, or has it been overwritten?"""

import logging
from pathlib import Path

import torch

from electra.analysis.encoder_change import EncoderChange, measure_encoder_changes
from electra.data.shards import TokenData
from electra.errors import CheckpointError, DataError, for_caller
from electra.export.loading import load_pretrained
from electra.pretraining.config import PretrainConfig
from electra.pretraining.export import ExportResult

logger = logging.getLogger(__name__)


def check_encoder_changes(
    config: PretrainConfig, data: TokenData, exported: ExportResult, device: torch.device
) -> dict[Path, EncoderChange]:
    """Measure how far the exported network, and its average with the original, are from the original.

    Logs a line for each, and a warning if the original has been overwritten in the one from which fine-tuning
    starts, the last one. It is empty for a run from new weights, of another vocabulary, or without the original,
    and with a deadline, which leaves no time for it.
    """
    original = config.init.discriminator
    if original is None or config.init.from_ is not None or config.init.vocabulary != "same":
        return {}
    if config.train.deadline is not None:
        logger.info("what is left of %s is not measured, because of the deadline", original)
        return {}
    folders = [folder for folder in (exported.main_folder, exported.averaged) if folder is not None]
    try:
        networks = [load_pretrained(folder, quiet=True) for folder in folders]
        measured = measure_encoder_changes(
            load_pretrained(original, quiet=True), networks, data.heldout, device=device
        )
    except (CheckpointError, DataError) as error:
        logger.warning("what is left of %s (init.discriminator) was not measured: %s", original, error)
        return {}
    changes = dict(zip(folders, measured, strict=True))
    for folder, change in changes.items():
        logger.info("compared with %s: %s: %s", original, folder.name, change)
    if changes[folders[-1]].overwritten:
        other = "" if exported.averaged else ", or the preset continue, whose average with the original keeps more"
        logger.warning(
            for_caller(
                "%s has been overwritten: no more of its states can be read from the trained network than from "
                "its token embeddings alone; fine-tuning will hardly gain from it. Take a smaller "
                "--optimizer.learning_rate (now %g)%s"
            ),
            original, config.optimizer.learning_rate, other,
        )  # fmt: skip
    return changes

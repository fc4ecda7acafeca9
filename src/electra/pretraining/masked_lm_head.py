"""The head that fills masks of a network that is continued, for objectives that train one on the discriminator."""

import logging
from pathlib import Path

import torch

from electra.export.loading import find_masked_lm, load_pretrained
from electra.export.pretrained import Pretrained
from electra.modeling.heads import MaskedLanguageModelHead
from electra.objectives.base import ExportableNetwork

logger = logging.getLogger(__name__)


def load_masked_lm_head(model: str | Path, discriminator: Pretrained) -> MaskedLanguageModelHead | None:
    """Return the head that fills masks of the network of `init.discriminator`; None: there is none.

    It is the head of the folder, as in BERT's, or that of the folder `encoder` beside a discriminator of
    electra-plus.

    Args:
        model: the MODEL that `discriminator` was loaded from.

    Raises:
        CheckpointError, DataError: the folder `encoder` cannot be loaded.
    """
    if isinstance(discriminator.head, MaskedLanguageModelHead):
        return discriminator.head
    folder = find_masked_lm(model)
    if folder is None or folder.name != "encoder":
        return None
    beside = load_pretrained(folder, quiet=True)
    ours, theirs = discriminator.encoder.state_dict(), beside.encoder.state_dict()
    if ours.keys() != theirs.keys() or any(not torch.equal(ours[name], theirs[name]) for name in ours):
        logger.warning("%s is another network than the discriminator beside it; its head is not used", folder)
        return None
    return beside.head if isinstance(beside.head, MaskedLanguageModelHead) else None


def initialize_masked_lm_head(network: ExportableNetwork, loaded: MaskedLanguageModelHead | None) -> None:
    """Load the head into a run's masked language model; without one, the head stays fresh."""
    head = network.head
    assert isinstance(head, MaskedLanguageModelHead)
    if loaded is None:
        logger.info(
            "the head that fills masks is fresh, because there was none to load; the run trains it, too "
            "(export/encoder)"
        )
    elif loaded.activation is not head.activation:
        logger.warning(
            "the head that fills masks is fresh: the trained one has another activation than that of the run"
        )
    else:
        head.load_state_dict(loaded.state_dict())
        logger.info("the head that fills masks is pre-trained")

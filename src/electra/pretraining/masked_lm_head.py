"""The head that fills masks of a network that is continued, for objectives that train one on the discriminator."""

import copy
import logging
from dataclasses import replace
from pathlib import Path

import torch

from electra.export.loading import find_masked_lm, load_pretrained
from electra.export.pretrained import Pretrained
from electra.modeling.heads import MaskedLanguageModelHead
from electra.objectives.base import ExportableNetwork

logger = logging.getLogger(__name__)


def load_masked_lm(model: str | Path, discriminator: Pretrained) -> Pretrained | None:
    """Return the network of `init.discriminator` as a masked language model; None: nothing has its head.

    Its head is that of the folder, as in BERT's, or that of the folder `encoder` beside a discriminator of
    electra-plus.

    Args:
        model: the MODEL that `discriminator` was loaded from.

    Raises:
        CheckpointError, DataError: the folder `encoder` cannot be loaded.
    """
    encoder = discriminator.encoder
    if isinstance(discriminator.head, MaskedLanguageModelHead):
        # A transfer to another vocabulary changes each network.
        return replace(discriminator, encoder=copy.deepcopy(encoder), head=copy.deepcopy(discriminator.head))
    folder = find_masked_lm(model)
    if folder is None or folder.name != "encoder":
        return None
    beside = load_pretrained(folder)
    ours, theirs = encoder.state_dict(), beside.encoder.state_dict()
    is_same = ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    if not is_same:
        logger.warning("%s is another network than the discriminator beside it; its head is not used", folder)
    return beside if is_same else None


def initialize_masked_lm_head(network: ExportableNetwork, masked_lm: Pretrained | None) -> None:
    """Load the head into a run's masked language model; without one, the head stays fresh."""
    head, loaded = network.head, None if masked_lm is None else masked_lm.head
    assert isinstance(head, MaskedLanguageModelHead)
    if isinstance(loaded, MaskedLanguageModelHead) and loaded.activation is head.activation:
        head.load_state_dict(loaded.state_dict())
        logger.info("the head that fills masks is pre-trained")
    else:
        logger.info("the head that fills masks is fresh; a second stage (init.from) keeps it")

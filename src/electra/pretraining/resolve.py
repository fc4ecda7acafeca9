"""Fill in settings that a config leaves open, for runs, dry runs, profiles and studies."""

import logging
from dataclasses import dataclass, replace

from electra.data.shards import TokenData
from electra.errors import ConfigError
from electra.pretraining.build import check_data, identity
from electra.pretraining.config import PretrainConfig, with_vocabulary
from electra.pretraining.vocabulary import with_vocabulary_of, with_vocabulary_transfer
from electra.pretraining.warm_start import (
    WarmStart,
    load_warm_start,
    with_shapes,
    with_shapes_of_run,
)
from electra.training.checkpoint import Checkpoints
from electra.training.checkpoint_io import check_newest
from electra.training.distributed import broadcast_object
from electra.training.run_folder import RunFolder, require_same_config, stored_config

logger = logging.getLogger(__name__)

FILLED_IN = {
    "train.steps": None, "train.precision": "auto", "model.vocabulary_size": 0, "init.trained_length": 0,
    "init.generator_trained_length": 0, "train.report_every": 0, "evaluation.every": 0, "checkpoint.every": 0,
    "optimizer.warmup_steps": 0,
}  # fmt: skip
"""Settings that a run has filled in (the last four before 2026-11-26), with the value that leaves them open."""
IGNORED = (
    "data", "out", "train.deadline", "train.compile", "train.timeout_minutes", "train.sharding",
    "train.device", "tracking.tracker", "tracking.on_event",
)  # fmt: skip
"""Settings that may differ when a run is resumed, because they do not change its result."""


@dataclass(frozen=True)
class Resolved:
    """A config without open settings, and its data and networks.

    Attributes:
        warm_start: the pre-trained networks to start from; empty for a resumed run.
        resumed: whether the run has a checkpoint already.
    """

    config: PretrainConfig
    data: TokenData
    warm_start: WarmStart
    resumed: bool = False


def resolve(config: PretrainConfig, data: TokenData, *, resumed: bool = False) -> Resolved:
    """Fill in the shapes of the pre-trained networks that a run starts from, and the vocabulary size of its data.

    Raises:
        ConfigError: settings contradict the networks or the data.
        CheckpointError: a network cannot be loaded.
        DataError: the data has another vocabulary than the networks.
    """
    config = _settled(config)
    if config.init.average and config.init.discriminator is None:
        raise ConfigError(
            "init.discriminator: is missing, and this config continues a pre-trained network: give it with "
            "--init.discriminator FOLDER; to train a new network instead, set init.average to 0"
        )
    warm_start = WarmStart() if resumed else load_warm_start(config)
    warm_start = with_vocabulary_transfer(warm_start, data, config)
    config = with_shapes(config, warm_start)
    check_data(config, data)
    config = replace(config, model=with_vocabulary_of(config, data))
    return Resolved(config, data, warm_start, resumed)


def resolve_without_data(config: PretrainConfig, *, resumed: bool = False) -> PretrainConfig:
    """Fill in the shapes of the pre-trained networks and a vocabulary size, to count parameters and FLOPs.

    Raises:
        ConfigError: settings contradict the networks.
        CheckpointError: a network cannot be loaded.
    """
    config = _settled(config)
    warm_start = WarmStart() if resumed else load_warm_start(config)
    config = with_vocabulary(with_shapes(config, warm_start))
    if config.init.vocabulary != "same" and not resumed:
        logger.warning(
            "init.vocabulary %s: parameters and FLOPs are those of the old vocabulary (%s rows), because there "
            "is no data; `electra pretrain --dry-run --data DATA` counts those of the new one",
            config.init.vocabulary, f"{config.model.vocabulary_size:,}",
        )  # fmt: skip
    return config


def _settled(config: PretrainConfig) -> PretrainConfig:
    """Leave out settings that others override: steps if the run has a length in minutes, and those of [init]."""
    config = replace(config, init=config.init.settled())
    if config.train.minutes is None:
        return config
    return replace(config, train=replace(config.train, steps=None))


def resolve_for_run(resolved: Resolved, run_folder: RunFolder) -> Resolved:
    """Take over the settings that an existing run in the folder filled in when it started.

    Raises:
        CheckpointError: the config or the data differ from those of the run.
    """
    config, data = replace(resolved.config, out=run_folder.path), resolved.data
    if resolved.resumed:
        stored = stored_config(run_folder, PretrainConfig)
        config = with_shapes_of_run(config, stored)
        if stored.optimizer.warmup_steps:  # its maximum has no effect, and runs from before 2026-11-28 have none
            longest = stored.optimizer.max_warmup_steps
            config = replace(config, optimizer=replace(config.optimizer, max_warmup_steps=longest))
    # First the data, because other data can also change settings, such as the vocabulary size.
    check_newest(Checkpoints(run_folder.checkpoints, config.checkpoint), identity(config, data))
    if broadcast_object(run_folder.config.exists()):
        config = require_same_config(run_folder, config, settled=FILLED_IN, ignore=IGNORED)
    return replace(resolved, config=config)

"""A second stage: a run that starts from all weights of another run, usually with longer rows.

ModernBERT (Warner et al. 2024) is trained on rows of 1,024 tokens first, then on rows of 8,192 with a larger base
of the rotary frequencies in its global blocks.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from electra.config import load_config, problems_of
from electra.errors import CheckpointError, ConfigError
from electra.export.included_models import find_included
from electra.export.loading import is_model_folder
from electra.objectives.base import Objective
from electra.pretraining.config import PretrainConfig
from electra.pretraining.export import find_checkpoint, trained_length
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FirstStage:
    """The last checkpoint of the run that another run continues."""

    folder: Path
    step: int
    config: PretrainConfig
    tokenizer_json: Path
    tensors: dict[str, Tensor]


def load_first_stage(folder: str | Path) -> FirstStage:
    """Read the last checkpoint of a run.

    Raises:
        CheckpointError: there is no such run, or it has no checkpoint or a damaged one.
    """
    path = Path(folder)
    if find_included(folder):
        raise CheckpointError(
            f"init.from: {folder} comes with electra as an export, which has no checkpoints; continue it with "
            f"init.discriminator {folder}"
        )
    if not path.is_dir():
        raise CheckpointError(f"init.from: there is no folder {path}; give the folder of a run")
    try:
        checkpoint = find_checkpoint(RunFolder(path))
    except CheckpointError as error:
        if is_model_folder(path):
            raise CheckpointError(
                f"init.from: {path} is a Hugging Face or ONNX folder, which has one network without checkpoints; "
                "give the folder of a run, or start from this network with init.discriminator"
            ) from error
        raise CheckpointError(f"init.from: {error}") from error
    config = load_config(PretrainConfig, checkpoint.path / "config.toml")
    tokenizer_json = checkpoint.path / "tokenizer.json"
    return FirstStage(path, checkpoint.state["step"], config, tokenizer_json, checkpoint.tensors("model"))


def with_shapes_of_first_stage(config: PretrainConfig, first: FirstStage) -> PretrainConfig:
    """Check that a config has the shapes and the objective of the first stage; return it with a vocabulary size.

    Raises:
        ConfigError: they differ in more than the settings that a second stage may change, or the new values do not
            fit the rest of the config.
    """
    size = config.model.vocabulary_size or first.config.model.vocabulary_size
    config = replace(config, model=replace(config.model, vocabulary_size=size))
    init = replace(config.init, trained_length=trained_length(first.config, "discriminator"))
    if first.config.objective.has_generator:
        init = replace(init, generator_trained_length=trained_length(first.config, "generator"))
    config = replace(config, init=init)
    problems = list(_differences(config, first.config))
    if problems:
        allowed = ", ".join(f"model.{name}" for name in config.model.length_settings) or "none of these"
        problems.append(f"a second stage may change {allowed}; take {first.folder / 'config.toml'} as its config")
    else:
        problems += [*problems_of(config.model), *config.problems()]
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise ConfigError(f"a run cannot continue {first.folder}:\n{lines}")
    return config


def load_weights(objective: Objective, config: PretrainConfig, first: FirstStage) -> None:
    """Load all weights of the first stage.

    Raises:
        CheckpointError: the objective has other tensors.
    """
    expected = {name: parameter.shape for name, parameter in objective.named_parameters()}
    found = {name: tensor.shape for name, tensor in first.tensors.items()}
    if differing := sorted(
        name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    ):
        raise CheckpointError(
            f"init.from: {len(differing)} tensors of {first.folder} are missing, unknown or of another shape: "
            f"{', '.join(differing[:5])}"
        )
    objective.load_state_dict(first.tensors, strict=False)  # shared parameters are stored once
    lengths = config.packing.sequence_length, first.config.packing.sequence_length
    changes = [f"packing.sequence_length {lengths[1]} -> {lengths[0]}"] if lengths[0] != lengths[1] else []
    for name in config.model.length_settings:
        if (old := getattr(first.config.model, name)) != (new := getattr(config.model, name)):
            changes.append(f"model.{name} {old:g} -> {new:g}")
    logger.info(
        "starting from %s, step %s, all weights; %s",
        first.folder,
        f"{first.step:,}",
        ", ".join(changes) or "same lengths",
    )


def _differences(config: PretrainConfig, first: PretrainConfig) -> Iterator[str]:
    """Settings of networks and objective that differ and may not."""
    sources = config.objective.has_generator, first.objective.has_generator
    names = ["kind", "sentence_loss"]
    if all(sources):
        names += ["sharing", "share_norm"]
    elif any(sources) and config.objective.kind == first.objective.kind:
        names.append("fakes")
    pairs: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("model", config.model.shape(), first.model.shape()),
        ("objective", _weights_of(config, names), _weights_of(first, names)),
    ]
    if all(sources):
        generators = [one.generator.encoder(one.model).shape() for one in (config, first)]
        pairs.append(("generator", generators[0], generators[1]))
    free = config.model.length_settings
    for section, new, old in pairs:
        for name in [*new, *(name for name in old if name not in new)]:
            if new.get(name) != old.get(name) and name not in free:
                yield f"{section}.{name} is {new.get(name)!r}, but the run has {old.get(name)!r}"


def _weights_of(config: PretrainConfig, names: Sequence[str]) -> dict[str, Any]:
    """Settings of the objective that decide which weights there are: these names, and whether it corrects."""
    objective = config.objective
    weights = {name: getattr(objective, name) for name in names}
    return {**weights, "correction_weight": bool(getattr(objective, "correction_weight", 0))}

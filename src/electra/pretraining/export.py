"""Export the networks of a run's checkpoint as folders that transformers loads."""

import logging
from dataclasses import dataclass
from pathlib import Path

import torch

from electra import durable
from electra.config import load_config, to_table
from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError
from electra.export.formats.base import format_of_encoder
from electra.export.huggingface import save
from electra.export.model_card import CardKind, model_card
from electra.export.parity import TOLERANCE, parity
from electra.json_files import read_json
from electra.modeling.encoders.base import EncoderConfig
from electra.objectives.base import ExportableNetwork, NetworkName, Objective
from electra.pretraining.config import PretrainConfig, build_objective
from electra.training.checkpoint import Checkpoint, Checkpoints, read_checkpoint
from electra.training.config import CheckpointConfig
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportResult:
    """The folders that were written, and how far transformers' logits are from ours (None: not installed)."""

    step: int
    folders: dict[NetworkName, Path]
    differences: dict[NetworkName, float | None]

    def __str__(self) -> str:
        return "\n".join(f"{name}: {folder} ({self._parity(name)})" for name, folder in self.folders.items())

    def _parity(self, name: NetworkName) -> str:
        difference = self.differences[name]
        if difference is None:
            return "not compared: transformers is not installed"
        return f"logits within {difference:.1e} of transformers'"


def export_run(path: Path, *, checkpoint: str | None = None, out: Path | None = None) -> ExportResult:
    """Export every network of a run's checkpoint (the latest one where none is named).

    Raises:
        CheckpointError: there is no such run or checkpoint, or it is damaged.
    """
    run_folder = RunFolder(path)
    found = _find(run_folder, checkpoint)
    config, objective = load_trained(found)
    folder = out or run_folder.export
    folders: dict[NetworkName, Path] = {}
    differences: dict[NetworkName, float | None] = {}
    cards = _cards(run_folder, found, config)
    if out is None:
        durable.write_text(run_folder.card, cards["run"])
    for name, tower in objective.exportable_networks().items():
        folders[name] = folder / name
        _save(name, tower, folders[name], found, config, card=cards[name])
        ids_BL, segment_ids_BL, mask_BL = _sample(config.model, config.packing.sequence_length)
        differences[name] = parity(
            folders[name], tower.encoder, tower.head, ids_BL, segment_ids_BL, mask_BL, pairs=tower.pairs
        )
    result = ExportResult(found.state["step"], folders, differences)
    for line in str(result).splitlines():
        logger.info("exported %s", line)
    if any(difference is not None and not difference <= TOLERANCE for difference in differences.values()):
        logger.warning("the exported logits differ from transformers' by more than %s", TOLERANCE)
    return result


def save_networks(path: Path, out: Path, *, checkpoint: str | None = None) -> None:
    """Write every network of a run's checkpoint as a folder in OUT, without a model card, and not compared.

    Raises:
        CheckpointError: as `export_run`.
    """
    found = _find(RunFolder(path), checkpoint)
    config, objective = load_trained(found)
    for name, tower in objective.exportable_networks().items():
        _save(name, tower, out / name, found, config, card="")


def _save(
    name: NetworkName,
    tower: ExportableNetwork,
    folder: Path,
    found: Checkpoint,
    config: PretrainConfig,
    *,
    card: str,
) -> None:
    shape = tower.encoder.config
    save(
        folder,
        encoder=tower.encoder,
        head=tower.head,
        tokenizer_json=found.path / "tokenizer.json",
        card=card,
        max_length=longest_input(config),
        objective=config.objective.kind,
        model_type=format_of_encoder(shape).language_model_type(shape) if name == "encoder" else None,
        pairs=tower.pairs,
    )


def load_trained(found: Checkpoint) -> tuple[PretrainConfig, Objective]:
    """A checkpoint's config, and its objective with the weights that it holds.

    Raises:
        CheckpointError: the weights are not those of the config.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    tokenizer_json = found.path / "tokenizer.json"
    special = tokenizers.special_tokens(load_tokenizer(tokenizer_json), tokenizer_json)
    config = load_config(PretrainConfig, found.path / "config.toml")
    objective = build_objective(config, special)
    tensors = found.tensors("model")
    # Shared tables are stored once, under the name that the objective gives first.
    expected = dict(objective.named_parameters())
    if odd := sorted(expected.keys() ^ tensors.keys()):
        raise CheckpointError(f"{found.path}: its tensors do not fit its config: {', '.join(odd[:5])}")
    objective.load_state_dict(tensors, strict=False)
    return config, objective


def longest_input(config: PretrainConfig) -> int:
    """Tokens that a run's networks know to read at once.

    What was trained before knows longer inputs than those that it was continued with, as long as its table;
    relative positions have none.
    """
    continued = config.init.discriminator is not None and config.model.position_table
    return config.model.max_positions if continued else config.packing.sequence_length


def _find(run_folder: RunFolder, name: str | None) -> Checkpoint:
    checkpoints = Checkpoints(run_folder.checkpoints, CheckpointConfig())
    names = checkpoints.names()
    if not names:
        raise CheckpointError(f"{run_folder.path} holds no checkpoint; is it the folder of a run?")
    if name is None:
        latest = checkpoints.latest()
        assert latest is not None
        return latest
    number = name.removeprefix("step-")
    wanted = f"step-{int(number):08d}" if number.isdigit() else name
    if wanted not in names:
        raise CheckpointError(f"{run_folder.path} has no checkpoint {name!r}; it has {', '.join(names)}")
    return read_checkpoint(run_folder.checkpoints / wanted)


def _sample(model: EncoderConfig, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random ids in two segments where the model knows two, with padding behind some of them."""
    random = torch.Generator().manual_seed(0)
    ids_BL = torch.randint(model.vocabulary_size, (4, length), generator=random)
    segment_ids_BL = (
        (torch.arange(length) >= length // 2).long().clamp(max=model.type_vocabulary_size - 1).expand(4, -1)
    )
    lengths_B = torch.randint(max(1, length // 2), length + 1, (4,), generator=random)
    return ids_BL, segment_ids_BL, torch.arange(length) < lengths_B[:, None]


def _cards(run_folder: RunFolder, found: Checkpoint, config: PretrainConfig) -> dict[CardKind, str]:
    """The model cards of the run and of its towers."""
    environment = read_json(run_folder.environment, optional=True)
    kinds: tuple[CardKind, ...] = ("run", "discriminator", "generator", "encoder")
    return {
        kind: model_card(
            kind,
            config=to_table(config),
            progress=found.state["progress"],
            evaluation=found.state["evaluation"],
            environment=environment,
        )
        for kind in kinds
    }

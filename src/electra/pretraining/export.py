"""Export the networks of a run's checkpoint as folders that transformers loads."""

import importlib.util
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from electra import durable
from electra.config import load_config, to_table
from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError, DataError
from electra.export.averaging import average_with
from electra.export.formats.base import format_of_encoder
from electra.export.huggingface import save
from electra.export.loading import AVERAGED, is_model_folder, load_pretrained
from electra.export.model_card import CardKind, model_card
from electra.export.parity import TOLERANCE, parity
from electra.folder_lock import hold
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
    """The folders that were written.

    Attributes:
        averaged: the folder with the average of the main network and the one that it was continued from.
        differences: the largest difference between each network's logits and transformers'; None: not compared.
    """

    step: int
    folders: dict[NetworkName, Path]
    differences: dict[NetworkName, float | None]
    averaged: Path | None = None

    @property
    def main_folder(self) -> Path:
        """The folder of the discriminator or, without one, of the encoder."""
        return self.folders.get("discriminator") or self.folders["encoder"]

    def __str__(self) -> str:
        lines = [f"{name}: {folder} ({self._parity(name)})" for name, folder in self.folders.items()]
        if self.averaged is not None:
            lines.append(f"average with the original, for fine-tuning: {self.averaged}")
        return "\n".join(lines)

    def _parity(self, name: NetworkName) -> str:
        difference = self.differences[name]
        if difference is None:
            if importlib.util.find_spec("transformers") is None:
                return (
                    'not compared: transformers is not installed; install it: pip install "electra[transformers]"'
                )
            return "not compared: transformers has no class for this network"
        return f"logits within {difference:.1e} of transformers'"


def export_run(
    path: Path,
    *,
    checkpoint: str | None = None,
    out: Path | None = None,
    dtype: torch.dtype = torch.float32,
    wait: bool = False,
) -> ExportResult:
    """Export all networks of a run, with model cards, and compare them with transformers.

    With `init.average` there is one folder more, `averaged`, unless the original network cannot be read any more.

    Args:
        path: the run's folder.
        checkpoint: the name of the checkpoint; None: the latest one.
        out: the folder to write to; None: RUN/export.
        dtype: of the stored weights. The comparison is with the networks whose weights are rounded to it.
        wait: if another process exports to the same folder, wait for its end.

    Raises:
        CheckpointError: there is no such run or checkpoint, it is damaged, or another process exports to `out`.
    """
    run_folder = RunFolder(path)
    source = find_checkpoint(run_folder, checkpoint)
    config, objective = load_objective(source)
    for parameter in objective.parameters():
        parameter.data = parameter.data.to(dtype).float()
    folder = out or run_folder.export
    folders: dict[NetworkName, Path] = {}
    differences: dict[NetworkName, float | None] = {}
    cards = _cards(run_folder, source, config, dtype)
    with hold(folder, work="exporting", wait=wait):
        if out is None:
            durable.write_text(run_folder.card, cards["run"])
        for name, network in objective.exportable_networks().items():
            folders[name] = folder / name
            _save(name, network, folders[name], source, config, card=cards[name], dtype=dtype)
            ids_BL, segment_ids_BL, mask_BL = _sample(config.model, config.packing.sequence_length)
            differences[name] = parity(
                folders[name], network.encoder, network.head, ids_BL, segment_ids_BL, mask_BL, pairs=network.pairs
            )
        averaged = _save_averaged(objective, folders, folder / AVERAGED, source, config, cards=cards, dtype=dtype)
    result = ExportResult(source.state["step"], folders, differences, averaged)
    for line in str(result).splitlines():
        logger.info("exported %s", line)
    if any(difference is not None and not difference <= TOLERANCE for difference in differences.values()):
        logger.warning("the exported logits differ from transformers' by more than %s", TOLERANCE)
    return result


def _save_averaged(
    objective: Objective,
    exported: Mapping[NetworkName, Path],
    folder: Path,
    checkpoint: Checkpoint,
    config: PretrainConfig,
    *,
    cards: dict[CardKind, str],
    dtype: torch.dtype,
) -> Path | None:
    """Export the average of the main network, from its folder, and init.discriminator.

    Returns None if the config asks for none, or if the original cannot be read.
    """
    weight, original = config.init.average, config.init.discriminator
    if not weight or original is None:
        return None
    networks = objective.exportable_networks()
    name: NetworkName = "discriminator" if "discriminator" in networks else "encoder"
    # From the export, because in the run a table can be a sum (objective.sharing).
    encoder = load_pretrained(exported[name], quiet=True).encoder
    try:
        average_with(encoder, load_pretrained(original, quiet=True).encoder, weight=weight)
    except (CheckpointError, DataError) as error:
        logger.warning("no average of the weights (init.average) was exported: %s", error)
        return None
    network = replace(networks[name], encoder=encoder)
    _save(name, network, folder, checkpoint, config, card=cards["averaged"], dtype=dtype)
    return folder


def save_networks(path: Path, out: Path, *, checkpoint: str | None = None) -> None:
    """Export all networks of a run without model cards, and without a comparison with transformers.

    Raises:
        CheckpointError: as `export_run`.
    """
    source = find_checkpoint(RunFolder(path), checkpoint)
    config, objective = load_objective(source)
    for name, network in objective.exportable_networks().items():
        _save(name, network, out / name, source, config, card="")


def _save(
    name: NetworkName,
    network: ExportableNetwork,
    folder: Path,
    checkpoint: Checkpoint,
    config: PretrainConfig,
    *,
    card: str,
    dtype: torch.dtype = torch.float32,
) -> None:
    encoder_config = network.encoder.config
    save(
        folder,
        encoder=network.encoder,
        head=network.head,
        tokenizer_json=checkpoint.path / "tokenizer.json",
        card=card,
        max_length=trained_length(config, name),
        objective=config.objective.kind,
        model_type=(
            format_of_encoder(encoder_config).language_model_type(encoder_config) if name == "encoder" else None
        ),
        pairs=network.pairs,
        dtype=dtype,
    )


def load_objective(checkpoint: Checkpoint) -> tuple[PretrainConfig, Objective]:
    """Return the config of a checkpoint, and the objective with its weights.

    Raises:
        CheckpointError: the weights do not fit the config.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    tokenizer_json = checkpoint.path / "tokenizer.json"
    special = tokenizers.special_tokens(load_tokenizer(tokenizer_json), tokenizer_json)
    config = load_config(PretrainConfig, checkpoint.path / "config.toml")
    objective = build_objective(config, special)
    tensors = checkpoint.tensors("model")
    # Shared parameters are stored once, under the first name in `named_parameters`.
    names = {name for name, _ in objective.named_parameters()}
    if mismatched := sorted(names ^ tensors.keys()):
        raise CheckpointError(f"{checkpoint.path}: its tensors do not fit its config: {', '.join(mismatched[:5])}")
    objective.load_state_dict(tensors, strict=False)
    return config, objective


def trained_length(config: PretrainConfig, name: NetworkName) -> int:
    """The longest input in tokens that a network of a run was trained on.

    A run may continue networks that were trained on longer inputs than its own. A new generator beside a
    discriminator that is continued knows only the inputs of this run, unless it has the discriminator's table of
    positions.
    """
    length, init, model = config.packing.sequence_length, config.init, config.model
    shares_positions = model.has_position_table and config.objective.sharing not in ("none", "tokens")
    if name == "generator" and config.objective.sharing != "all" and not shares_positions:
        return max(length, init.generator_trained_length)
    if init.discriminator is not None and not init.trained_length:  # a run of an earlier version
        return model.max_positions if model.has_position_table else length
    return max(length, init.trained_length)


def find_checkpoint(run_folder: RunFolder, name: str | None = None) -> Checkpoint:
    """Return a checkpoint of a run; without a name the latest one.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    checkpoints = Checkpoints(run_folder.checkpoints, CheckpointConfig())
    names = checkpoints.names()
    if not names:
        raise CheckpointError(_no_checkpoint_message(run_folder.path))
    if name is None:
        latest = checkpoints.latest()
        assert latest is not None
        return latest
    number = name.removeprefix("step-")
    full_name = f"step-{int(number):08d}" if number.isdigit() else name
    if full_name not in names:
        raise CheckpointError(f"{run_folder.path} has no checkpoint {name!r}; it has {', '.join(names)}")
    return read_checkpoint(run_folder.checkpoints / full_name)


def _no_checkpoint_message(path: Path) -> str:
    """What a folder without checkpoints is, and what to do."""
    folders = [folder for folder in (path, path / "model", path / "discriminator") if is_model_folder(folder)]
    if folders:
        what = "it" if folders[0] == path else str(folders[0])
        return (
            f"{path} is not the folder of a run: {what} is a Hugging Face or ONNX folder already\n"
            f"  load it as it is, or convert it for onnxruntime: electra export {path} --to onnx"
        )
    if not path.exists():
        return f"{path}: there is no such folder; give the folder of a run"
    return f"{path} has no checkpoint; give the folder of a run that electra pretrain has written"


def _sample(model: EncoderConfig, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A random batch: ids, segments (two if the model has two), and the mask of tokens, False at padding."""
    random = torch.Generator().manual_seed(0)
    ids_BL = torch.randint(model.vocabulary_size, (4, length), generator=random)
    segment_ids_BL = (
        (torch.arange(length) >= length // 2).long().clamp(max=model.type_vocabulary_size - 1).expand(4, -1)
    )
    lengths_B = torch.randint(max(1, length // 2), length + 1, (4,), generator=random)
    return ids_BL, segment_ids_BL, torch.arange(length) < lengths_B[:, None]


def _cards(
    run_folder: RunFolder, checkpoint: Checkpoint, config: PretrainConfig, dtype: torch.dtype
) -> dict[CardKind, str]:
    """The model cards of the run and of its networks."""
    environment = read_json(run_folder.environment, optional=True)
    kinds: tuple[CardKind, ...] = ("run", "discriminator", "generator", "encoder")
    kinds += ("averaged",) if config.init.average else ()
    return {
        kind: model_card(
            kind,
            config=to_table(config),
            trained_length=trained_length(config, "generator" if kind == "generator" else "discriminator"),
            progress=checkpoint.state["progress"],
            evaluation=checkpoint.state["evaluation"],
            environment=environment,
            half=dtype == torch.float16,
        )
        for kind in kinds
    }

"""`electra export`: a run's checkpoint as folders that transformers loads, or any model for onnxruntime."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro

from electra import durable
from electra.commands.onnx_result import OnnxResult
from electra.config import load_config, to_table
from electra.data import tokenizer as tokenizers
from electra.errors import CheckpointError, ConfigError
from electra.export.huggingface import save
from electra.export.model_card import CardKind, model_card
from electra.export.names import family_of
from electra.export.parity import TOLERANCE, parity
from electra.json_files import read_json
from electra.modeling.encoders.bert import EncoderConfig
from electra.objectives.base import ExportableNetwork, NetworkName
from electra.pretraining.config import AnyObjective, PretrainConfig, build_objective
from electra.training.checkpoint import Checkpoint, CheckpointConfig, Checkpoints, read_checkpoint
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportConfig:
    """What to export, and where to."""

    model: tyro.conf.Positional[str]
    """The folder of a run; for onnx also an export, a fine-tuning, a Hugging Face folder or id."""
    to: Literal["hf", "onnx"] = "hf"
    """hf: folders that transformers loads. onnx: folders that onnxruntime runs, without PyTorch."""
    checkpoint: str | None = None
    """The name of a run's checkpoint, such as step-00010000 or step-10000; the latest where it is left out."""
    out: Path | None = None
    """The folder to write to; RUN/export, or MODEL/onnx, where it is left out."""
    quantize: Literal["int8"] | None = None
    """With onnx: weights in 8 bits, a quarter of the size and quicker; what that costs is measured and shown."""
    part: Literal["model", "encoder"] = "model"
    """With onnx: the network with its head, or the encoder alone, which gives states and an embedding."""
    data: Path | None = None
    """With quantize: what to measure on: a text file (.txt, .jsonl and so on), or prepared data; of a fine-tuned
    model the folder or file of its task's data. Left out: what it was trained on, where that is still there."""

    def problems(self) -> Iterator[str]:
        if self.to == "hf":
            for name in ("quantize", "data"):
                if getattr(self, name) is not None:
                    yield f"--{name} is for onnx; give --to onnx, or leave it out"
            if self.part != "model":
                yield "--part is for onnx; give --to onnx, or leave it out"
        elif self.data is not None and self.quantize is None:
            yield "--data is to measure what --quantize costs; give --quantize int8, or leave it out"


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


def run(config: ExportConfig) -> ExportResult | OnnxResult:
    """Write a run's networks as Hugging Face folders, or a model of any kind as folders for onnxruntime.

    Each comes with its tokenizer, and is compared with the network that it was made of.

    Examples:
        electra export RUN --checkpoint step-10000 --out MODELS/early
        electra export MODEL --to onnx --quantize int8
    """
    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    if config.to == "hf":
        return export_run(Path(config.model), checkpoint=config.checkpoint, out=config.out)
    from electra.commands.export_onnx import export_onnx

    return export_onnx(config)


def export_run(path: Path, *, checkpoint: str | None = None, out: Path | None = None) -> ExportResult:
    """Export every tower of a run's checkpoint (the latest one where none is named).

    Raises:
        CheckpointError: there is no such run or checkpoint, or it is damaged.
    """
    run_folder = RunFolder(path)
    found = _find(run_folder, checkpoint)
    config, objective = trained(found)
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


def save_towers(path: Path, out: Path, *, checkpoint: str | None = None) -> None:
    """Every tower of a run's checkpoint as a folder in OUT, without a model card, and not compared.

    Raises:
        CheckpointError: as `export_run`.
    """
    found = _find(RunFolder(path), checkpoint)
    config, objective = trained(found)
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
    save(
        folder,
        encoder=tower.encoder,
        head=tower.head,
        tokenizer_json=found.path / "tokenizer.json",
        card=card,
        max_length=longest_input(config),
        objective=config.objective.kind,
        family=family_of(tower.encoder.config) if name == "encoder" else "electra",
        pairs=tower.pairs,
    )


def trained(found: Checkpoint) -> tuple[PretrainConfig, AnyObjective]:
    """A checkpoint's config, and its objective with the weights that it holds.

    Raises:
        CheckpointError: the weights are not those of the config.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    tokenizer_json = found.path / "tokenizer.json"
    special = tokenizers.special_tokens(tokenizers.load(tokenizer_json), tokenizer_json)
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
    continued = config.init.discriminator is not None and config.model.positions == "learnt"
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

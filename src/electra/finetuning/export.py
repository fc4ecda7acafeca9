"""Export a fine-tuned model as a folder that transformers loads, as far as it has a class for it."""

import copy
import logging
from pathlib import Path

import torch

from electra.durations import describe_duration
from electra.export.display_name import display_name
from electra.export.formats.base import format_of_encoder
from electra.export.huggingface import save
from electra.export.loading import is_hub_id
from electra.export.parity import TOLERANCE, parity
from electra.export.pretrained import HeadKind, head_kind
from electra.finetuning.results import SeedResult
from electra.finetuning.setup import DEV, FinetuneSetup
from electra.finetuning.task_card import TaskCard
from electra.modeling.task_heads import TextHead
from electra.tasks.base import Problem, collate
from electra.tasks.task_model import TaskModel

logger = logging.getLogger(__name__)

COMPARED_ROWS = 4
"""Rows of dev on which the exported model is compared with transformers."""
OTHER_HEADS: dict[HeadKind, tuple[HeadKind, str]] = {
    "conditional-span": ("span", 'head.span = "plain"'),
    "linear-text": ("text", 'head.text = "hidden"'),
}
"""Heads that transformers has no class for: the kind that it may have one for, and the setting that makes it."""


def export_model(setup: FinetuneSetup, model: TaskModel, out: Path, result: SeedResult) -> str | None:
    """Write OUT/model, and compare it with what transformers computes.

    Returns:
        How large the difference is, in words; None: transformers is not here or has no such network.
    """
    model = copy.deepcopy(model).cpu()  # the original stays on its device, for further predictions
    encoder, head = model.encoder, model.head
    problem = model.problem.rescale_outputs(head)
    data = setup.config.data
    task = {**problem.to_dict(), "max_length": data.max_length}
    if data.long != "cut":
        task |= {"long": data.long, "longest": data.longest}
    if result.failed:
        task["failed"] = result.failed  # whoever predicts with the model is warned
    if isinstance(head, TextHead):
        head = head.with_hidden(encoder.config) or head
    checkpoint_format = format_of_encoder(encoder.config)
    has_class = checkpoint_format.has_head_class(head_kind(head))
    if not has_class:
        other_kind, setting = OTHER_HEADS.get(head_kind(head), (head_kind(head), ""))
        logger.warning(
            "transformers has no class for this head on an encoder of kind %s; it can load only the encoder%s",
            encoder.config.kind,
            f"; with {setting} it can load the model" if checkpoint_format.has_head_class(other_kind) else "",
        )
    folder = out / "model"
    tokenizer_json = out / ".tokenizer.json"
    setup.pretrained.tokenizer.save(str(tokenizer_json))
    save(
        folder,
        encoder=encoder,
        head=head,
        tokenizer_json=tokenizer_json,
        card=build_model_card(setup, problem, result, loads_whole=has_class),
        max_length=max(setup.pretrained.trained_length or setup.pretrained.max_length, data.max_length),
        task=task,
    )
    tokenizer_json.unlink()
    rows = setup.rows[DEV]
    batch = collate(rows, torch.arange(min(COMPARED_ROWS, len(rows))).numpy(), pad=setup.pad)
    ids_BL, segments_BL = (x[:, : data.max_length] for x in (batch.input_ids_BL, batch.segment_ids_BL))
    mask_BL = torch.arange(ids_BL.shape[1]) < batch.lengths_B[:, None]
    difference = parity(folder, encoder, head, ids_BL, segments_BL, mask_BL)
    if difference is None:
        return None
    compared = "logits" if has_class else "states"
    if not difference <= TOLERANCE:
        logger.warning("the exported %s differ from transformers' by more than %s", compared, TOLERANCE)
    return f"{compared} within {difference:.1e} of transformers'"


def build_model_card(setup: FinetuneSetup, problem: Problem, result: SeedResult, *, loads_whole: bool) -> str:
    """Return the model card.

    Args:
        loads_whole: transformers has a class for the encoder with this head.
    """
    config = setup.config
    is_on_hub = is_hub_id(config.model) and not Path(config.model).exists()
    base = config.model if is_on_hub else display_name(config.model)
    return str(
        TaskCard(
            setup.task.name,
            problem,
            config.data.max_length,
            base=base if config.init == "pretrained" else None,
            seed=result.seed,
            metrics=result.metrics,
            failed=result.failed,
            examples={split: len(rows) for split, rows in setup.rows.items()},
            recipe=(
                f"{result.steps:,} steps of {config.train.batch_size} rows, peak learning rate "
                f"{config.optimizer.learning_rate:g}, in {setup.precision.name}, "
                f"{describe_duration(result.seconds)}."
            ),
            loads_whole=loads_whole,
        )
    )

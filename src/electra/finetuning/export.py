"""A fine-tuned network as a folder that transformers loads, and what of it no class there can hold."""

import copy
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from electra.export.display_name import display_name
from electra.export.huggingface import save
from electra.export.loading import is_id
from electra.export.parity import TOLERANCE, parity
from electra.export.task_card import TaskCard
from electra.finetuning.results import SeedResult
from electra.finetuning.seed_run import FinetuneSetup
from electra.modeling.encoders.relative import RelativeEncoder
from electra.modeling.task_heads import ConditionalSpanHead, TextHead
from electra.tasks.base import collate
from electra.tasks.regression import Regression
from electra.tasks.task_model import TaskModel

logger = logging.getLogger(__name__)


def export_model(setting: FinetuneSetup, module: TaskModel, out: Path, result: SeedResult) -> None:
    """Write OUT/model and say how far transformers' logits are from ours."""
    module = copy.deepcopy(module).cpu()  # the one that was given goes on predicting where it is
    encoder, head = module.encoder, module.head
    problem = module.problem
    if isinstance(problem, Regression):
        assert isinstance(head, TextHead)
        problem = rescale_to_data_units(head, problem)
    data = setting.config.data
    task = {**problem.to_dict(), "max_length": data.max_length}
    if data.long != "cut":
        task |= {"long": data.long, "longest": data.longest}
    if isinstance(head, TextHead):
        held = head.with_hidden(encoder.config)
        if held is None:
            logger.warning(
                "the hidden layer of transformers' class is too narrow for this many labels (%s of %s units): the "
                "model can only be loaded here; head.text = \"hidden\" makes one that it holds",
                2 * len(head.prediction.bias), encoder.config.hidden_size,
            )  # fmt: skip
        head = held or head
    alone = encoder.config.checkpoint_format != "bert"
    if alone:
        logger.warning("transformers has no class for this head over an XLNet: there only the encoder loads")
    elif isinstance(head, ConditionalSpanHead):
        logger.warning(
            "transformers has no class for the conditional span: there only the encoder loads; "
            'head.span = "plain" makes a model that it holds whole'
        )
    folder = out / "model"
    tokenizer_json = out / ".tokenizer.json"
    setting.pretrained.tokenizer.save(str(tokenizer_json))
    save(
        folder,
        encoder=encoder,
        head=head,
        tokenizer_json=tokenizer_json,
        card=build_model_card(setting, task, result, alone=isinstance(encoder, RelativeEncoder)),
        max_length=setting.pretrained.max_length,
        task=task,
    )
    tokenizer_json.unlink()
    chosen = torch.arange(min(4, len(setting.rows["dev"]))).numpy()
    batch = collate(setting.rows["dev"], chosen, pad=setting.pad)
    ids_BL, segments_BL = (x[:, : data.max_length] for x in (batch.input_ids_BL, batch.segment_ids_BL))
    mask_BL = torch.arange(ids_BL.shape[1]) < batch.lengths_B[:, None]
    difference = parity(folder, encoder, head, ids_BL, segments_BL, mask_BL)
    if difference is not None:
        compared = "states" if alone else "logits"
        logger.info("exported the model: %s within %.1e of transformers'", compared, difference)
        if not difference <= TOLERANCE:
            logger.warning("the exported %s differ from transformers' by more than %s", compared, TOLERANCE)


@torch.no_grad()
def rescale_to_data_units(head: TextHead, problem: Regression) -> Regression:
    """Let the head give values in the data's own unit, as whoever loads it elsewhere expects."""
    width = problem.high - problem.low
    head.prediction.weight.mul_(width)
    head.prediction.bias.mul_(width).add_(problem.low)
    return replace(problem, low=0.0, high=1.0)


def build_model_card(
    setting: FinetuneSetup, task: dict[str, Any], result: SeedResult, *, alone: bool = False
) -> str:
    """The model card.

    Args:
        alone: transformers has no class for any head over this encoder.
    """
    config = setting.config
    base = config.model if is_id(config.model) and not Path(config.model).exists() else display_name(config.model)
    return str(
        TaskCard(
            setting.task.name,
            task,
            base=base,
            seed=result.seed,
            metrics=result.metrics,
            failed=result.failed,
            examples={split: len(rows) for split, rows in setting.rows.items()},
            recipe=(
                f"{result.steps:,} steps of {config.train.batch_size} rows, peak learning rate "
                f"{config.optimizer.learning_rate:g}, in {setting.precision.name}, "
                f"{result.seconds / 60:.1f} minutes."
            ),
            alone=alone,
        )
    )

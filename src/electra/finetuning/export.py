"""Export a fine-tuned model as a folder that transformers loads, as far as it has a class for it."""

import copy
import logging
from pathlib import Path

import torch

from electra.export.display_name import display_name
from electra.export.huggingface import save
from electra.export.loading import is_id
from electra.export.parity import TOLERANCE, parity
from electra.finetuning.results import SeedResult
from electra.finetuning.setup import DEV, FinetuneSetup
from electra.finetuning.task_card import TaskCard
from electra.modeling.task_heads import ConditionalSpanHead, TextHead
from electra.tasks.base import Problem, collate
from electra.tasks.task_model import TaskModel

logger = logging.getLogger(__name__)

COMPARED_ROWS = 4
"""Rows of dev on which the exported model is compared with transformers."""


def export_model(setup: FinetuneSetup, model: TaskModel, out: Path, result: SeedResult) -> None:
    """Write OUT/model, and log the difference between transformers' logits and ours."""
    model = copy.deepcopy(model).cpu()  # the original stays on its device, for further predictions
    encoder, head = model.encoder, model.head
    problem = model.problem.rescale_outputs(head)
    data = setup.config.data
    task = {**problem.to_dict(), "max_length": data.max_length}
    if data.long != "cut":
        task |= {"long": data.long, "longest": data.longest}
    if isinstance(head, TextHead):
        with_hidden = head.with_hidden(encoder.config)
        if with_hidden is None:
            logger.warning(
                "the hidden layer of transformers' class is too narrow for this many labels (%s of %s units); "
                'only electra can load the model. head.text = "hidden" makes one that transformers can load',
                2 * len(head.prediction.bias), encoder.config.hidden_size,
            )  # fmt: skip
        head = with_hidden or head
    has_class = encoder.config.checkpoint_format == "bert"
    if not has_class:
        logger.warning("transformers has no class for this head on an XLNet encoder; it can load only the encoder")
    elif isinstance(head, ConditionalSpanHead):
        logger.warning(
            "transformers has no class for the conditional span head; it can load only the encoder. "
            'head.span = "plain" makes a model that transformers can load'
        )
    folder = out / "model"
    tokenizer_json = out / ".tokenizer.json"
    setup.pretrained.tokenizer.save(str(tokenizer_json))
    save(
        folder,
        encoder=encoder,
        head=head,
        tokenizer_json=tokenizer_json,
        card=build_model_card(
            setup, problem, result, loads_whole=has_class and not isinstance(head, ConditionalSpanHead)
        ),
        max_length=setup.pretrained.max_length,
        task=task,
    )
    tokenizer_json.unlink()
    rows = setup.rows[DEV]
    batch = collate(rows, torch.arange(min(COMPARED_ROWS, len(rows))).numpy(), pad=setup.pad)
    ids_BL, segments_BL = (x[:, : data.max_length] for x in (batch.input_ids_BL, batch.segment_ids_BL))
    mask_BL = torch.arange(ids_BL.shape[1]) < batch.lengths_B[:, None]
    difference = parity(folder, encoder, head, ids_BL, segments_BL, mask_BL)
    if difference is not None:
        compared = "logits" if has_class else "states"
        logger.info("exported the model: %s within %.1e of transformers'", compared, difference)
        if not difference <= TOLERANCE:
            logger.warning("the exported %s differ from transformers' by more than %s", compared, TOLERANCE)


def build_model_card(setup: FinetuneSetup, problem: Problem, result: SeedResult, *, loads_whole: bool) -> str:
    """Return the model card.

    Args:
        loads_whole: transformers has a class for the encoder with this head.
    """
    config = setup.config
    base = config.model if is_id(config.model) and not Path(config.model).exists() else display_name(config.model)
    return str(
        TaskCard(
            setup.task.name,
            problem,
            config.data.max_length,
            base=base,
            seed=result.seed,
            metrics=result.metrics,
            failed=result.failed,
            examples={split: len(rows) for split, rows in setup.rows.items()},
            recipe=(
                f"{result.steps:,} steps of {config.train.batch_size} rows, peak learning rate "
                f"{config.optimizer.learning_rate:g}, in {setup.precision.name}, "
                f"{result.seconds / 60:.1f} minutes."
            ),
            loads_whole=loads_whole,
        )
    )

"""Does an exported folder compute in transformers what our own network computes?

Shapes: B batch, L length, V vocabulary.
"""

import contextlib
import importlib
import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from electra.modeling.encoder import Encoder
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead

TOLERANCE = 1e-5
"""Differences up to this come from sums taken in another order."""


@torch.inference_mode()
def parity(
    folder: Path,
    encoder: Encoder,
    head: MaskedLanguageModelHead | ReplacedTokenHead,
    ids_BL: Tensor,
    segment_ids_BL: Tensor | None = None,
    attention_mask_BL: Tensor | None = None,
) -> float | None:
    """The largest absolute difference between our logits and transformers', in fp32, at tokens.

    Args:
        folder: what `electra.export.huggingface.save` wrote of this encoder and head.
        segment_ids_BL: None: all 0.
        attention_mask_BL: True at tokens, False at padding; None: no padding.

    Returns:
        None where transformers is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        return None
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    theirs: Any = ElectraForPreTraining if isinstance(head, ReplacedTokenHead) else ElectraForMaskedLM
    mask_BL = torch.ones_like(ids_BL, dtype=torch.bool) if attention_mask_BL is None else attention_mask_BL
    with _quiet(), _evaluating(encoder, head):
        model = theirs.from_pretrained(folder, dtype=torch.float32, local_files_only=True).to(ids_BL.device)
        model.eval()
        expected = model(ids_BL, token_type_ids=segment_ids_BL, attention_mask=mask_BL.long()).logits
        x_BLD = encoder(ids_BL, segment_ids_BL, attention_mask_BL)
        if isinstance(head, ReplacedTokenHead):
            found = head(x_BLD)
        else:
            found = head.logits(x_BLD, encoder.embeddings.token.weight)
    return float((found - expected)[mask_BL].abs().max())


@contextlib.contextmanager
def _evaluating(*modules: torch.nn.Module) -> Iterator[None]:
    """No dropout for a while."""
    training = [module.training for module in modules]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for module, was in zip(modules, training, strict=True):
            module.train(was)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No bars and no reports of transformers between the lines of a run."""
    theirs: Any = importlib.import_module("transformers.utils.logging")  # has no types
    bars, level = theirs.is_progress_bar_enabled(), theirs.get_verbosity()
    theirs.disable_progress_bar()
    theirs.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        theirs.set_verbosity(level)
        if bars:
            theirs.enable_progress_bar()

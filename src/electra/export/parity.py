"""Compare the outputs of an exported network in transformers with those of the original network.

Shapes: B batch, L length, V vocabulary.
"""

import contextlib
import copy
import importlib
import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from electra.export.formats.base import format_of_encoder
from electra.export.pretrained import Head, head_kind
from electra.json_files import read_json
from electra.modeling.encoders.base import EncoderModule
from electra.modeling.heads import LanguageModelHead, MaskedLanguageModelHead, ReplacedTokenHead, SentencePairHead
from electra.modeling.task_heads import SpanHead, TextHead

PAIR_LOGITS = ("seq_relationship_logits", "sop_logits")
TOLERANCE = 1e-5
"""Largest difference of logits that rounding can explain."""


@torch.inference_mode()
def parity(
    folder: Path,
    encoder: EncoderModule,
    head: Head,
    ids_BL: Tensor,
    segment_ids_BL: Tensor | None = None,
    attention_mask_BL: Tensor | None = None,
    *,
    pairs: SentencePairHead | None = None,
) -> float | None:
    """Return the largest absolute difference between electra's logits and transformers', without padding.

    If transformers has a class for the encoder but none for the head, hidden states are compared. Both compute in
    float64, because rounding in float32 could hide an error: the order of sums alone changes logits of 20 by up to
    1e-5.

    Args:
        folder: written by `electra.export.huggingface.save` from this encoder and head.
        segment_ids_BL: None: all 0.
        attention_mask_BL: True at tokens, False at padding; None: no padding.
        pairs: the head for pairs of segments; it is compared if transformers' class has it.

    Returns:
        None if transformers is not installed, or has no class for the encoder.
    """
    checkpoint_format = format_of_encoder(encoder.config)
    architectures = read_json(folder / "config.json").get("architectures", [])
    if not architectures or importlib.util.find_spec("transformers") is None:
        return None
    import transformers

    mask_BL = torch.ones_like(ids_BL, dtype=torch.bool) if attention_mask_BL is None else attention_mask_BL
    encoder, head = (copy.deepcopy(module).double().eval() for module in (encoder, head))  # type: ignore[assignment]
    with _quiet():
        model: Any = getattr(transformers, architectures[0])
        model = model.from_pretrained(folder, dtype=torch.float64, local_files_only=True).double()
        model.to(ids_BL.device).eval()
        model = checkpoint_format.prepare_float64(model)
        outputs = model(**checkpoint_format.transformers_inputs(model, encoder, ids_BL, segment_ids_BL, mask_BL))
        x_BLD = encoder(ids_BL, segment_ids_BL, attention_mask_BL)
    if not checkpoint_format.has_head_class(head_kind(head)):
        return float((x_BLD - outputs.last_hidden_state)[mask_BL].abs().max())
    if isinstance(head, MaskedLanguageModelHead | LanguageModelHead):
        logits = head.logits(x_BLD, encoder.embeddings.token.weight)
    else:
        logits = head(x_BLD)
    if isinstance(head, SpanHead):
        expected = torch.stack([outputs.start_logits, outputs.end_logits], -1)
    else:
        expected = outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits
    if isinstance(head, ReplacedTokenHead) and expected.ndim == 3:  # one logit per label
        expected = expected[..., 1] - expected[..., 0]
    differences = (logits - expected)[slice(None) if isinstance(head, TextHead) else mask_BL].abs()
    pair_logits_B2 = next((outputs[name] for name in PAIR_LOGITS if name in outputs), None)
    if pairs is None or pair_logits_B2 is None:
        return float(differences.max())
    # electra has one logit for a pair: the difference of transformers' two logits.
    pair_logits_B = copy.deepcopy(pairs).double()(x_BLD[:, 0])
    pair_differences_B = (pair_logits_B2[:, 1] - pair_logits_B2[:, 0] - pair_logits_B).abs()
    return max(float(differences.max()), float(pair_differences_B.max()))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Disable transformers' progress bars and warnings."""
    transformers_logging: Any = importlib.import_module("transformers.utils.logging")  # has no types
    bars, level = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()

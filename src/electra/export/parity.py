"""Does an exported folder compute in transformers what our own network computes?

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

from electra.export.huggingface import Head
from electra.export.model_config import BARE
from electra.json_files import read_json
from electra.modeling.encoders.base import EncoderModule
from electra.modeling.heads import LanguageModelHead, MaskedLanguageModelHead, SentencePairHead
from electra.modeling.task_heads import ConditionalSpanHead, SpanHead, TextHead

PAIR_LOGITS = ("seq_relationship_logits", "sop_logits")
TOLERANCE = 1e-5
"""An export whose logits differ by more than this computes something else."""


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
    """The largest absolute difference between our logits and transformers', at tokens; or between states, where
    transformers has a class for the encoder but none for the head.

    Both compute in float64: with rounding out of the way, what is left is a difference in what is computed. In
    float32, logits of 20 differ by up to 1e-5 from the order of sums alone.

    Args:
        folder: what `electra.export.huggingface.save` wrote of this encoder and head.
        segment_ids_BL: None: all 0.
        attention_mask_BL: True at tokens, False at padding; None: no padding.
        pairs: the head of pairs beside it, if there is one; it is compared where their class has it.

    Returns:
        None where transformers is not installed, or has no class for the head.
    """
    alone = isinstance(head, ConditionalSpanHead) or (isinstance(head, TextHead) and head.dense is None)
    alone |= encoder.config.checkpoint_format == "native"
    if alone or importlib.util.find_spec("transformers") is None:
        return None
    import transformers

    [architecture] = read_json(folder / "config.json")["architectures"]
    theirs: Any = getattr(transformers, architecture)
    mask_BL = torch.ones_like(ids_BL, dtype=torch.bool) if attention_mask_BL is None else attention_mask_BL
    encoder, head = (copy.deepcopy(module).double().eval() for module in (encoder, head))  # type: ignore[assignment]
    with _quiet():
        model = (
            theirs.from_pretrained(folder, dtype=torch.float64, local_files_only=True).double().to(ids_BL.device)
        )
        model.eval()
        more = {}
        if model.config.model_type == "xlnet":
            _distances_in_float64(model)
        if encoder.config.type_vocabulary_size == 1:  # ours does not ask, theirs has no row for a second one
            segment_ids_BL = None
        if model.config.model_type == "roberta":  # which takes the id of padding for padding, wherever it stands
            more["position_ids"] = model.config.pad_token_id + 1 + torch.arange(ids_BL.shape[1])[None]
        # Their network that looks to the left takes no mask; what is behind a token changes nothing there.
        theirs_mask_BL = None if encoder.config.direction == "left" else mask_BL.long()
        theirs_found = model(ids_BL, token_type_ids=segment_ids_BL, attention_mask=theirs_mask_BL, **more)
        x_BLD = encoder(ids_BL, segment_ids_BL, attention_mask_BL)
        if architecture == BARE:
            found = x_BLD
        elif isinstance(head, MaskedLanguageModelHead | LanguageModelHead):
            found = head.logits(x_BLD, encoder.embeddings.token.weight)
        else:
            found = head(x_BLD)
    if architecture == BARE:
        expected = theirs_found.last_hidden_state
    elif isinstance(head, SpanHead):
        expected = torch.stack([theirs_found.start_logits, theirs_found.end_logits], -1)
    elif "prediction_logits" in theirs_found:
        expected = theirs_found.prediction_logits
    else:
        expected = theirs_found.logits
    of_texts = isinstance(head, TextHead) and architecture != BARE  # else there is one a token
    differences = (found - expected)[slice(None) if of_texts else mask_BL].abs()
    of_pairs = next((theirs_found[name] for name in PAIR_LOGITS if name in theirs_found), None)
    if pairs is None or of_pairs is None:
        return float(differences.max())
    found_B = copy.deepcopy(pairs).double()(x_BLD[:, 0])
    return max(float(differences.max()), float((of_pairs[:, 1] - of_pairs[:, 0] - found_B).abs().max()))


def _distances_in_float64(model: Any) -> None:
    """Their vectors of distances stay in float32, with which float64 cannot be multiplied."""
    inner = getattr(model, "transformer", model)
    encoding = inner.relative_positional_encoding
    inner.relative_positional_encoding = lambda *args, **kwargs: encoding(*args, **kwargs).double()


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

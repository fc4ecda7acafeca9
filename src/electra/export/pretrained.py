"""A pre-trained or fine-tuned model: encoder, head and tokenizer."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer
from torch import nn

from electra.modeling.encoders.base import EncoderModule
from electra.modeling.heads import (
    LanguageModelHead,
    MaskedLanguageModelHead,
    ReplacedTokenHead,
    SentencePairHead,
)
from electra.modeling.task_heads import ConditionalSpanHead, SpanHead, TaskHead, TextHead, TokenHead

logger = logging.getLogger(__name__)

Head = MaskedLanguageModelHead | ReplacedTokenHead | LanguageModelHead | TaskHead
HeadKind = Literal[
    "discriminator",  # one logit per token: was it replaced?
    "generator",  # logits over the vocabulary, after a hidden layer
    "language-model",  # logits over the vocabulary, without a hidden layer
    "pair",  # one logit per pair of segments: do they not belong together?
    "text",  # fine-tuned, see modeling/task_heads.py: logits per text, after a hidden layer
    "linear-text",  # logits per text, without a hidden layer
    "token",  # logits per token
    "span",  # logits of the start and the end of an answer
    "conditional-span",  # the same, the end given the start
]
_HEAD_KINDS: dict[type[nn.Module], HeadKind] = {
    MaskedLanguageModelHead: "generator",
    ReplacedTokenHead: "discriminator",
    LanguageModelHead: "language-model",
    SentencePairHead: "pair",
    TextHead: "text",
    TokenHead: "token",
    SpanHead: "span",
    ConditionalSpanHead: "conditional-span",
}


def head_kind(head: nn.Module) -> HeadKind:
    """Return the kind of a head."""
    if isinstance(head, TextHead) and head.linear:
        return "linear-text"
    return _HEAD_KINDS[type(head)]


def warn_if_failed(task: Mapping[str, Any] | None, model: str | Path) -> None:
    """Log a warning if the best fine-tuning of a model failed, which its stored task says."""
    if failed := (task or {}).get("failed"):
        logger.warning("the fine-tuning of %s failed: %s; do not use its predictions", model, failed)


@dataclass(frozen=True)
class Pretrained:
    """The contents of a model folder. The networks are in evaluation mode, in float32, on the CPU.

    Attributes:
        head: None if the folder has only an encoder, or a head that electra does not know.
        objective: the objective that trained the head (`objective.kind`); None if the folder does not say.
        max_length: the longest input in tokens, special tokens included. The position table may have more rows,
            but these were never trained.
        trained_length: the longest input in training; less than `max_length` if positions can be extrapolated.
            None: `max_length`.
        task: the description of the fine-tuning task (`electra.tasks.catalog`); None without fine-tuning.
        pairs: the head for pairs of segments next to a masked language model.
        unused: names of stored tensors that were not loaded, such as a pooler.
        renamed: the stored names of tensors that were loaded and have another name in transformers today, with
            that name.
    """

    encoder: EncoderModule
    head: Head | None
    tokenizer: Tokenizer
    objective: str | None
    max_length: int
    task: dict[str, Any] | None = None
    pairs: SentencePairHead | None = None
    trained_length: int | None = None
    unused: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def memory_length(self) -> int:
        """Number of earlier tokens whose states the encoder reads; 0: it has no memory."""
        return self.encoder.config.memory_length

    @property
    def stream(self) -> bool:
        """Whether the network was trained on a stream, so that it reads a text between two [SEP]
        (`serving.batching`)."""
        return self.memory_length > 0

    @property
    def hidden_size(self) -> int:
        """Width of the states."""
        return self.encoder.config.hidden_size

    def encoder_only(self) -> "Pretrained":
        """Return the encoder without head and task."""
        return replace(self, head=None, task=None, pairs=None)

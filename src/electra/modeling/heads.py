"""Heads of pre-training: modules that turn the states of an encoder into logits.

Shapes: N positions, D hidden size, E embedding size, V vocabulary; `*` any leading dimensions.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.modeling.encoders.base import ACTIVATIONS, Activation, EncoderConfig
from electra.modeling.init import initialize


class MaskedLanguageModelHead(nn.Module):
    """Dense layer to the embedding size, activation, LayerNorm; the product with the token table gives the logits.

    The table belongs to the embeddings of the encoder and is an argument, so that it is one parameter however many
    modules share it.

    Args:
        activation: GELU in ELECTRA's generators, whatever the activation of the blocks; in BERT that of the
            blocks.
    """

    def __init__(self, config: EncoderConfig, *, activation: Activation = "gelu") -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        style = config.head_style
        size = config.hidden_size if style.projects_after_norm else config.embedding_size
        self.dense = nn.Linear(config.hidden_size, size, bias=style.bias)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_epsilon, bias=style.norm_bias)
        self.projection = None
        if size != config.embedding_size:
            self.projection = nn.Linear(size, config.embedding_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary_size))
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    def forward(self, x_ND: Tensor) -> Tensor:
        """Return the states whose products with the token table are the logits, without bias (N, E)."""
        x_ND = self.norm(self.activation(self.dense(x_ND)))
        return x_ND if self.projection is None else self.projection(x_ND)

    def logits(self, x_ND: Tensor, table_VE: Tensor) -> Tensor:
        """Return the logits over the vocabulary (N, V)."""
        return F.linear(self(x_ND), table_VE, self.bias)


class LanguageModelHead(nn.Module):
    """The product of the states with the token table, plus a bias, as in Transformer-XL and XLNet."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.vocabulary_size))

    def forward(self, x_ND: Tensor) -> Tensor:
        """Return the states unchanged (N, D)."""
        return x_ND

    def logits(self, x_ND: Tensor, table_VD: Tensor) -> Tensor:
        """Return the logits over the vocabulary (N, V)."""
        return F.linear(x_ND, table_VD, self.bias)


class CopyHead(nn.Module):
    """The head of a masked language model, and the logit that the input token is the original one."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.words = MaskedLanguageModelHead(config, activation=config.head_activation)
        self.gate = nn.Linear(config.hidden_size, 1)
        initialize(self.gate, config.initializer_range, linear_range=config.linear_initializer_range)


class SentencePairHead(nn.Module):
    """A dense layer with tanh (the pooler of BERT) and one logit: that the two segments do not belong together."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.prediction = nn.Linear(config.hidden_size, 1)
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    def forward(self, x_BD: Tensor) -> Tensor:
        """Return the logits (B,) from the states at [CLS]."""
        return self.prediction(self.dense(x_BD).tanh()).squeeze(-1)


class ReplacedTokenHead(nn.Module):
    """Dense layer, activation, one logit per token: that it is replaced (paper, section 2, with opposite sign).

    With `HeadStyle.prediction_head` there is a LayerNorm after the activation; without
    `HeadStyle.detection_hidden` there is nothing before the logit.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        style = config.head_style
        self.dense = None
        if style.detection_hidden:
            self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=style.bias)
        self.prediction = nn.Linear(config.hidden_size, 1)
        self.activation = ACTIVATIONS[config.activation]
        self.norm: nn.Module = nn.Identity()
        if style.prediction_head:
            self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon, bias=style.norm_bias)
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """Return the logits (B, L)."""
        if self.dense is not None:
            x_BLD = self.norm(self.activation(self.dense(x_BLD)))
        return self.prediction(x_BLD).squeeze(-1)

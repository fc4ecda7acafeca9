"""What stands on top of an encoder.

Shapes: N chosen positions, D hidden size, E embedding size, V vocabulary; `*` any leading dimensions.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.modeling.encoders.base import ACTIVATIONS, Activation, EncoderConfig
from electra.modeling.init import initialize


class MaskedLanguageModelHead(nn.Module):
    """Dense to the embedding size, activation, LayerNorm; the product with the token table gives the logits.

    The table itself belongs to the encoder's embeddings and is passed in, so that it is one parameter
    whatever shares it.

    Args:
        activation: GELU in ELECTRA's generators, whatever their blocks have; that of the blocks in BERT.
    """

    def __init__(self, config: EncoderConfig, *, activation: Activation = "gelu") -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary_size))
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    @classmethod
    def full_size(cls, config: EncoderConfig) -> "MaskedLanguageModelHead":
        """As transformers' Bert and Albert classes have it, or else its Roberta and Electra classes: with GELU."""
        own = config.type_vocabulary_size > 1 if config.square else config.share_layers == "all"
        own &= config.checkpoint_format == "bert"  # XLNet's class has no such head
        return cls(config, activation=config.activation if own else "gelu")

    def forward(self, x_ND: Tensor) -> Tensor:
        """States as the token table sees them (N, E)."""
        return self.norm(self.activation(self.dense(x_ND)))

    def logits(self, x_ND: Tensor, table_VE: Tensor) -> Tensor:
        """Logits over the vocabulary (N, V)."""
        return F.linear(self(x_ND), table_VE, self.bias)


class LanguageModelHead(nn.Module):
    """The product of the states with the token table, and a bias: that of Transformer-XL and XLNet."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.vocabulary_size))

    def forward(self, x_ND: Tensor) -> Tensor:
        """States as the token table sees them (N, D): as they are."""
        return x_ND

    def logits(self, x_ND: Tensor, table_VD: Tensor) -> Tensor:
        """Logits over the vocabulary (N, V)."""
        return F.linear(x_ND, table_VD, self.bias)


class CopyHead(nn.Module):
    """A masked language model's head, and the logit of the token that stands there being right."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.words = MaskedLanguageModelHead.full_size(config)
        self.gate = nn.Linear(config.hidden_size, 1)
        initialize(self.gate, config.initializer_range, linear_range=config.linear_initializer_range)


class SentencePairHead(nn.Module):
    """A hidden layer with tanh (BERT's pooler) and one logit, of two segments not belonging together."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.prediction = nn.Linear(config.hidden_size, 1)
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    def forward(self, x_BD: Tensor) -> Tensor:
        """Logits (B,) from the states at [CLS]."""
        return self.prediction(self.dense(x_BD).tanh()).squeeze(-1)


class ReplacedTokenHead(nn.Module):
    """Dense, activation, one logit a token: the logit of *replaced* (paper, section 2, with the sign turned)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.prediction = nn.Linear(config.hidden_size, 1)
        self.activation = ACTIVATIONS[config.activation]
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """Logits (B, L)."""
        return self.prediction(self.activation(self.dense(x_BLD))).squeeze(-1)

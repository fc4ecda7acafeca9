"""Heads of fine-tuned models: for a text, for each token, for the span of an answer.

A head says by `reads_first_only` whether it reads nothing but the first state, that of [CLS].

Shapes: B batch, L length, K outputs, T candidate starts, D hidden size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.modeling.encoders.base import EncoderConfig, gather_positions

BEAM = 20
"""Number of candidate starts for which ends are scored (the original's `beam_size`)."""
ANSWER_SIZE = 512
"""Width of the hidden layers of the conditional span head, whatever the width of the encoder."""


class PredictionHead(nn.Module):
    """Dense layer, GELU, LayerNorm: the first part of all heads of ModernBERT (`HeadStyle.prediction_head`)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        style, D = config.head_style, config.hidden_size
        self.dense = nn.Linear(D, D, bias=style.bias)
        self.norm = nn.LayerNorm(D, eps=config.layer_norm_epsilon, bias=style.norm_bias)

    def forward(self, x_xD: Tensor) -> Tensor:
        """Return states of the same shape."""
        return self.norm(F.gelu(self.dense(x_xD)))


def _hidden_part(config: EncoderConfig) -> nn.Module:
    return PredictionHead(config) if config.head_style.prediction_head else nn.Identity()


class TextHead(nn.Module):
    """Logits for the whole text from the state of [CLS].

    Args:
        outputs: number of logits.
        hidden: False: dropout and one layer, as in ELECTRA. True: dropout, dense, GELU, dropout and one layer, as
            in transformers' ElectraForSequenceClassification. Encoders with `HeadStyle.prediction_head` have that
            part in place of the dense layer, in both cases.
    """

    reads_first_only = True

    def __init__(self, config: EncoderConfig, outputs: int, *, hidden: bool) -> None:
        super().__init__()
        self.hidden = _hidden_part(config)
        dense = hidden and not config.head_style.prediction_head
        self.dense = nn.Linear(config.hidden_size, config.hidden_size) if dense else None
        self.prediction = nn.Linear(config.hidden_size, outputs)
        self.dropout = nn.Dropout(config.dropout)
        _initialize(self)

    def forward(self, x_B1D: Tensor) -> Tensor:
        """Return the logits (B, K)."""
        x_BD = self.dropout(self.hidden(x_B1D[:, 0]))
        if self.dense is not None:
            x_BD = self.dropout(F.gelu(self.dense(x_BD)))
        return self.prediction(x_BD)

    @property
    def linear(self) -> bool:
        """Whether it has no hidden layer."""
        return self.dense is None and isinstance(self.hidden, nn.Identity)

    @torch.no_grad()
    def with_hidden(self, config: EncoderConfig) -> "TextHead | None":
        """Return a head with a hidden layer that computes the same, as transformers' class needs it.

        For a linear head it is exact: x = gelu(x) - gelu(-x), so each output takes two hidden units, one of each
        sign. None: there are fewer units than that.
        """
        if not self.linear:
            return self
        K, width = self.prediction.weight.shape
        if width < 2 * K:
            return None
        head = TextHead(config, K, hidden=True)
        assert head.dense is not None
        for weights in (head.dense.weight, head.dense.bias, head.prediction.weight):
            weights.zero_()
        head.dense.weight[:K], head.dense.weight[K : 2 * K] = self.prediction.weight, -self.prediction.weight
        head.prediction.weight[:, :K], head.prediction.weight[:, K : 2 * K] = torch.eye(K), -torch.eye(K)
        head.prediction.bias.copy_(self.prediction.bias)
        return head.eval()


class TokenHead(nn.Module):
    """Logits for each token: dropout and one layer."""

    reads_first_only = False

    def __init__(self, config: EncoderConfig, outputs: int) -> None:
        super().__init__()
        self.hidden = _hidden_part(config)
        self.prediction = nn.Linear(config.hidden_size, outputs)
        self.dropout = nn.Dropout(config.dropout)
        _initialize(self)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """Return the logits (B, L, K)."""
        return self.prediction(self.dropout(self.hidden(x_BLD)))


class SpanHead(nn.Module):
    """Logits of the first and the last token of an answer, independent of each other (Devlin et al. 2019)."""

    reads_first_only = False

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.hidden = _hidden_part(config)
        self.prediction = nn.Linear(config.hidden_size, 2)
        _initialize(self)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """Return the logits (B, L, 2) of start and end."""
        return self.prediction(self.hidden(x_BLD))


class ConditionalSpanHead(nn.Module):
    """ELECTRA's span head: the end given the start, and whether there is an answer (as in XLNet).

    Args:
        answerable: whether the head predicts if there is an answer.
    """

    reads_first_only = False

    def __init__(self, config: EncoderConfig, *, answerable: bool) -> None:
        super().__init__()
        D = config.hidden_size
        self.start = nn.Linear(D, 1)
        self.end_dense, self.end = nn.Linear(2 * D, ANSWER_SIZE), nn.Linear(ANSWER_SIZE, 1)
        self.answerable_dense = nn.Linear(2 * D, ANSWER_SIZE) if answerable else None
        self.answerable = nn.Linear(ANSWER_SIZE, 1) if answerable else None
        _initialize(self)

    def start_logits(self, x_BLD: Tensor, allowed_BL: Tensor) -> Tensor:
        """Return the logits (B, L) of each token as the start of the answer; -inf where no answer is allowed."""
        return self.start(x_BLD).squeeze(-1).masked_fill(~allowed_BL, -torch.inf)

    def end_logits(self, x_BLD: Tensor, starts_BT: Tensor, allowed_BL: Tensor) -> Tensor:
        """Return the logits (B, T, L) of each token as the end, for each of T starts; -inf where none is
        allowed."""
        D = x_BLD.shape[-1]
        # The product with [start ; token] is a sum of two products, so pairs are made after them; and one start at
        # a time, because all pairs (B, T, L, 512) would need more memory than the encoder.
        first, second = self.end_dense.weight.split([D, D], dim=1)
        first_BTH = F.linear(gather_positions(x_BLD, starts_BT), first)
        second_BLH = F.linear(x_BLD, second, self.end_dense.bias)
        logits = [self.end(F.gelu(one_BH[:, None] + second_BLH)).squeeze(-1) for one_BH in first_BTH.unbind(1)]
        return torch.stack(logits, 1).masked_fill(~allowed_BL[:, None], -torch.inf)

    def answerable_logits(self, x_BLD: Tensor, start_logits_BL: Tensor) -> Tensor:
        """Return the logit (B) of "no answer", from [CLS] and the states weighted by the probability of a
        start."""
        assert self.answerable_dense is not None and self.answerable is not None
        weighted_BD = (start_logits_BL.softmax(-1).unsqueeze(1) @ x_BLD).squeeze(1)
        both_BX = torch.cat([x_BLD[:, 0], weighted_BD], -1)
        return self.answerable(F.gelu(self.answerable_dense(both_BX))).squeeze(-1)


TaskHead = TextHead | TokenHead | SpanHead | ConditionalSpanHead


def _initialize(head: nn.Module) -> None:
    """Initialize weights as Glorot and Bengio (2010), biases with 0, which is TensorFlow's default.

    The 0.02 of encoders is at most a third of that. Gradients through such a head are so small that short runs are
    much worse (docs/results/experiments.md).
    """
    for module in head.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

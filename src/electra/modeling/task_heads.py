"""Heads of fine-tuned networks: for a text, for each token, for an answer inside a text.

Shapes: B batch, L length, K outputs, T kept starts, D hidden size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.modeling.encoders.base import EncoderConfig, gather_positions

BEAM = 20
"""Starts that an answer's end is looked for from (the original's `beam_size`)."""
ANSWER_SIZE = 512
"""Inner width of the conditional pointer's two hidden layers, whatever the encoder's."""


class TextHead(nn.Module):
    """Logits for the whole text from the state of [CLS].

    Linear, as in ELECTRA: dropout and one layer. With `hidden`, as in transformers'
    ElectraForSequenceClassification: dropout, dense, GELU, dropout, one layer.
    """

    reads_first_only = True

    def __init__(self, config: EncoderConfig, outputs: int, *, hidden: bool) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size) if hidden else None
        self.prediction = nn.Linear(config.hidden_size, outputs)
        self.dropout = nn.Dropout(config.dropout)
        _initialize(self)

    def forward(self, x_B1D: Tensor) -> Tensor:
        """Logits (B, K)."""
        x_BD = self.dropout(x_B1D[:, 0])
        if self.dense is not None:
            x_BD = self.dropout(F.gelu(self.dense(x_BD)))
        return self.prediction(x_BD)

    @torch.no_grad()
    def with_hidden(self, config: EncoderConfig) -> "TextHead | None":
        """The same function with a hidden layer, which is the form that transformers' class can hold.

        A linear head has one exactly: x = gelu(x) - gelu(-x), so each output takes two hidden units, one of either
        sign. None where there are fewer units than that.
        """
        if self.dense is not None:
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
        self.prediction = nn.Linear(config.hidden_size, outputs)
        self.dropout = nn.Dropout(config.dropout)
        _initialize(self)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """Logits (B, L, K)."""
        return self.prediction(self.dropout(x_BLD))


class SpanHead(nn.Module):
    """Logits of being an answer's first and its last token, independent of each other (Devlin et al. 2019)."""

    reads_first_only = False

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.prediction = nn.Linear(config.hidden_size, 2)
        _initialize(self)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """Logits (B, L, 2) of start and end."""
        return self.prediction(x_BLD)


class ConditionalSpanHead(nn.Module):
    """ELECTRA's own: the end given the start, and whether there is an answer (as in XLNet)."""

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
        """Of each token's being the first of the answer (B, L); -inf where none may be."""
        return self.start(x_BLD).squeeze(-1).masked_fill(~allowed_BL, -torch.inf)

    def end_logits(self, x_BLD: Tensor, starts_BT: Tensor, allowed_BL: Tensor) -> Tensor:
        """Of each token's being the last one, given each of some first ones (B, T, L); -inf where none may be."""
        D = x_BLD.shape[-1]
        # The product with [start ; token] is the sum of two, so pairs are joined after it; one start at a time,
        # since the pairs of all (B, T, L, 512) would need more memory than the encoder.
        first, second = self.end_dense.weight.split([D, D], dim=1)
        first_BTH = F.linear(gather_positions(x_BLD, starts_BT), first)
        second_BLH = F.linear(x_BLD, second, self.end_dense.bias)
        logits = [self.end(F.gelu(one_BH[:, None] + second_BLH)).squeeze(-1) for one_BH in first_BTH.unbind(1)]
        return torch.stack(logits, 1).masked_fill(~allowed_BL[:, None], -torch.inf)

    def answerable_logits(self, x_BLD: Tensor, start_logits_BL: Tensor) -> Tensor:
        """Of there being no answer (B), from [CLS] and the states weighted by the probability of a start."""
        assert self.answerable_dense is not None and self.answerable is not None
        weighted_BD = (start_logits_BL.softmax(-1).unsqueeze(1) @ x_BLD).squeeze(1)
        both_BX = torch.cat([x_BLD[:, 0], weighted_BD], -1)
        return self.answerable(F.gelu(self.answerable_dense(both_BX))).squeeze(-1)


TaskHead = TextHead | TokenHead | SpanHead | ConditionalSpanHead


def _initialize(head: nn.Module) -> None:
    """Weights as Glorot and Bengio (2010) draw them, biases 0, which is TensorFlow's default.

    The .02 of encoders is a third of that or less: so little flows back through such a head that short runs end
    far behind (docs/results/experiments.md).
    """
    for module in head.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)

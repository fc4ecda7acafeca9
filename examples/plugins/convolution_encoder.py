"""An encoder of convolutions instead of attention, as a plugin: each layer mixes a token with its neighbors.

    electra pretrain FILE.toml --plugin examples/plugins/convolution_encoder.py --data DATA --out RUN

with `[model] kind = "convolution"` in FILE.toml; docs/guides/your-own-objective-and-encoder.md explains it.

Shapes: B batch, L length, D hidden size, E embedding size, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from electra import EncoderConfig, EncoderModule, register_encoder
from electra.config import PositiveInt
from electra.modeling.flops import Convention, Network
from electra.modeling.init import initialize


@register_encoder("convolution")
@dataclass(frozen=True)
class ConvolutionConfig(EncoderConfig):
    """The shape of a convolutional encoder. Layers, sizes and dropout are fields of `EncoderConfig`."""

    kind: str = "convolution"
    kernel_size: PositiveInt = 5
    """Number of tokens that a convolution reads at once; an odd number."""

    limits_length = False  # no longest input

    def build(self, *, query_stream: bool = False) -> "ConvolutionEncoder":
        return ConvolutionEncoder(self)

    def problems(self) -> Any:
        yield from super().problems()
        if self.kernel_size % 2 == 0:
            yield f"kernel_size: must be odd, got {self.kernel_size}"

    def flop_terms(self, network: Network, length: int, convention: Convention) -> dict[str, float]:
        """Per token and layer: a multiplication for each channel and neighbor, and two dense layers."""
        tokens = self.layers * length
        return {
            "embedding projection": 0.0 if self.square else length * 2 * self.embedding_size * self.hidden_size,
            "convolutions": tokens * 2 * self.hidden_size * self.kernel_size,
            "feed-forward": tokens * 2 * 2 * self.hidden_size * self.feed_forward_size,
        }


class Embeddings(nn.Module):
    """The token table, which the logits over the vocabulary use, too."""

    def __init__(self, config: ConvolutionConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary_size, config.embedding_size)
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_epsilon)


class Block(nn.Module):
    """A depthwise convolution and a feed-forward layer, each added to its normalized input (pre-norm)."""

    def __init__(self, config: ConvolutionConfig) -> None:
        super().__init__()
        D, padding = config.hidden_size, config.kernel_size // 2
        self.convolution_norm = nn.LayerNorm(D, eps=config.layer_norm_epsilon)
        self.convolution = nn.Conv1d(D, D, config.kernel_size, padding=padding, groups=D)
        self.feed_forward_norm = nn.LayerNorm(D, eps=config.layer_norm_epsilon)
        self.inner = nn.Linear(D, config.feed_forward_size)
        self.outer = nn.Linear(config.feed_forward_size, D)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BLD: Tensor, is_token_BL1: Tensor | float) -> Tensor:
        # Padding is zero for the convolution, so that it changes no state of a token.
        normed_BLD = self.convolution_norm(x_BLD) * is_token_BL1
        mixed_BLD = self.convolution(normed_BLD.transpose(1, 2)).transpose(1, 2)
        x_BLD = x_BLD + self.dropout(mixed_BLD)
        return x_BLD + self.dropout(self.outer(F.gelu(self.inner(self.feed_forward_norm(x_BLD)))))


class ConvolutionEncoder(EncoderModule):
    """Token ids in, one state a token out."""

    def __init__(self, config: ConvolutionConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        square = nn.Identity() if config.square else nn.Linear(config.embedding_size, config.hidden_size)
        self.projection: nn.Module = square
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    def forward(
        self, ids_BL: Tensor, segment_ids_BL: Tensor | None = None, attention_mask_BL: Tensor | None = None
    ) -> Tensor:
        """States (B, L, D). Segments are not read; the mask is True at tokens, None where there is no padding."""
        is_token_BL1 = 1.0 if attention_mask_BL is None else attention_mask_BL[:, :, None].float()
        x_BLD = self.projection(self.embeddings.norm(self.embeddings.token(ids_BL)))
        for block in self.blocks:
            x_BLD = block(x_BLD, is_token_BL1)
        return self.norm(x_BLD)

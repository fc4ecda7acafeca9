"""The generator: a small masked language model that replaced tokens are sampled from.

Shapes: B batch, L length, N slots a row, n = B × N, D hidden size, V vocabulary.
"""

import torch
from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderModule
from electra.modeling.evaluation_mode import evaluation_mode
from electra.modeling.flops import Network
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.kernels.cross_entropy import PLAIN, Sampling, sampled_cross_entropy
from electra.modeling.kernels.documents import AttentionMask
from electra.objectives.masking import Masking
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.stream_memory import StreamMemory


class Generator(nn.Module):
    """A masked language model whose forward pass gives its loss and samples (paper, section 2).

    Args:
        sampling: how tokens are sampled.
        frozen: do not train it.
    """

    def __init__(
        self,
        encoder: EncoderModule,
        head: MaskedLanguageModelHead,
        *,
        sampling: Sampling = PLAIN,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.encoder, self.head, self.sampling, self.frozen = encoder, head, sampling, frozen
        self.memory = StreamMemory(encoder.config)
        if frozen:
            self.requires_grad_(False)

    @property
    def table_VE(self) -> Tensor:
        """The token embeddings, which are also the output matrix of the logits."""
        return self.encoder.embeddings.token.weight

    def states(
        self, batch: Batch, masking: Masking, mask: AttentionMask, memory: StreamMemory | None = None
    ) -> Tensor:
        """The encoder's states (n, D) at the slots.

        Args:
            memory: None: the memory of the training.
        """
        x_BND = (self.memory if memory is None else memory).encode(
            self.encoder, batch, masking.input_ids_BL, batch.segment_ids_BL, mask,
            positions_BN=masking.positions_BN,
        )  # fmt: skip
        return x_BND.flatten(0, 1)

    def forward(
        self, batch: Batch, masking: Masking, mask: AttentionMask, uniforms_n: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of the losses at the used slots, and a sampled token for every slot (n)."""
        return self.predict(self.states(batch, masking, mask), batch, masking, uniforms_n)

    def predict(self, x_nD: Tensor, batch: Batch, masking: Masking, uniforms_n: Tensor) -> tuple[Tensor, Tensor]:
        """The same as `forward`, from the encoder's states."""
        return sampled_cross_entropy(
            self.head(x_nD),
            self.table_VE,
            self.head.bias,
            masking.gather(batch.input_ids_BL),
            masking.used_BN.flatten().float(),
            uniforms_n,
            sampling=self.sampling,
        )

    def add_metrics(
        self,
        batch: Batch,
        masking: Masking,
        mask: AttentionMask,
        uniforms_n: Tensor,
        metrics: MaskedLanguageModelMetrics,
        memory: StreamMemory | None = None,
    ) -> Tensor:
        """Add its predictions for a batch to held-out metrics; return a sampled token for every slot (n)."""
        return metrics.add(
            self.head(self.states(batch, masking, mask, memory)),
            self.table_VE,
            self.head.bias,
            targets_N=masking.gather(batch.input_ids_BL),
            masked_N=masking.masked_BN.flatten(),
            uniforms_N=uniforms_n,
            sampling=self.sampling,
        )

    @torch.no_grad()
    def sample(self, batch: Batch, masking: Masking, mask: AttentionMask, uniforms_n: Tensor) -> Tensor:
        """Sample a token for every slot (n), without dropout."""
        with evaluation_mode(self):
            _, samples_n = self(batch, masking, mask, uniforms_n)
        return samples_n

    def network(self, share: float) -> Network:
        """The network for FLOP counts, with slots at a share of the positions."""
        return Network.from_config(
            self.encoder.config, masked_share=share, output_share=share, trained=not self.frozen
        )

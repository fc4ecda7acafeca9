"""The same training step with DeBERTa's network, as a skilled user writes it with transformers' classes.

DebertaV2ForMaskedLM and DebertaV2Model with one linear layer, in the shape of DeBERTaV3, with shared embeddings.
transformers has no fused attention for them.

Shapes: as in peer.py.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DebertaV2Config, DebertaV2ForMaskedLM, DebertaV2Model

from peer import TransformersPeer


class Discriminator(nn.Module):
    """The logits of all tokens (B, L)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.deberta, self.prediction = DebertaV2Model(config), nn.Linear(config.hidden_size, 1)

    def forward(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        states_BLD = self.deberta(ids_BL, attention_mask=attention_BL).last_hidden_state
        logits_BL: Tensor = self.prediction(states_BLD).squeeze(-1)
        return logits_BL


class DebertaPeer(TransformersPeer):
    """The step with DeBERTa's classes."""

    def build(self) -> None:
        config = self.config

        def shape(hidden_size: int, heads: int, feed_forward_size: int) -> Any:
            return DebertaV2Config(
                vocab_size=config.vocabulary_size,
                embedding_size=config.embedding_size,
                hidden_size=hidden_size,
                num_hidden_layers=config.layers,
                num_attention_heads=heads,
                intermediate_size=feed_forward_size,
                hidden_dropout_prob=config.dropout,
                attention_probs_dropout_prob=config.dropout,
                max_position_embeddings=config.positions,
                position_buckets=config.position_buckets,
                relative_attention=True,
                position_biased_input=False,
                pos_att_type=["p2c", "c2p"],
                share_att_key=True,
                norm_rel_ebd="layer_norm",
                type_vocab_size=0,
                pad_token_id=config.pad_id,
            )

        self.discriminator = Discriminator(shape(config.hidden_size, config.heads, config.feed_forward_size))
        self.generator = DebertaV2ForMaskedLM(
            shape(config.generator_hidden_size, config.generator_heads, config.generator_feed_forward_size)
        )
        table = self.discriminator.deberta.embeddings.word_embeddings
        self.generator.deberta.embeddings.word_embeddings = table
        self.generator.cls.predictions.decoder.weight = table.weight

    def _generate(
        self, masked_BL: Tensor, segment_ids_BL: Tensor, attention_BL: Tensor, selected_BL: Tensor
    ) -> Tensor:
        states_BLD = self.generator.deberta(masked_BL, attention_mask=attention_BL).last_hidden_state
        logits_nV: Tensor = self.generator.cls(states_BLD[selected_BL])
        return logits_nV

    def _detect(self, ids_BL: Tensor, segment_ids_BL: Tensor, attention_BL: Tensor, labels_BL: Tensor) -> Tensor:
        logits_BL = self.discriminator(ids_BL, attention_BL)
        losses_BL = F.binary_cross_entropy_with_logits(logits_BL.float(), labels_BL.float(), reduction="none")
        return (losses_BL * attention_BL).sum() / attention_BL.sum()

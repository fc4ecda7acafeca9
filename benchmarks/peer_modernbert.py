"""The same training step with ModernBERT's network, as a skilled user writes it with transformers' classes.

ModernBertForMaskedLM and ModernBertForTokenClassification with one label, with scaled-dot-product attention and a
shared token table. ModernBERT has no projection of embeddings, so the generator has a linear layer between the
shared table and its narrower states.

Shapes: as in peer.py.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import ModernBertConfig, ModernBertForTokenClassification, ModernBertModel
from transformers.models.modernbert.modeling_modernbert import ModernBertPredictionHead

from peer import TransformersPeer


class Generator(nn.Module):
    """A narrower network that reads and predicts through the token table of the discriminator."""

    def __init__(self, config: Any, table: nn.Embedding) -> None:
        super().__init__()
        self.table = table
        self.model = ModernBertModel(config)
        self.model.embeddings.tok_embeddings = nn.Identity()  # embeddings are given
        self.projection = nn.Linear(table.embedding_dim, config.hidden_size, bias=False)
        self.head = ModernBertPredictionHead(config)
        self.unprojection = nn.Linear(config.hidden_size, table.embedding_dim, bias=False)
        self.bias = nn.Parameter(self.projection.weight.new_zeros(table.num_embeddings))

    def states(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        embeddings_BLD = self.projection(self.table(ids_BL))
        states_BLD: Tensor = self.model(
            inputs_embeds=embeddings_BLD, attention_mask=attention_BL
        ).last_hidden_state
        return states_BLD

    def logits(self, states_nD: Tensor) -> Tensor:
        return F.linear(self.unprojection(self.head(states_nD)), self.table.weight, self.bias)


class ModernBertPeer(TransformersPeer):
    """The step with ModernBERT's classes."""

    def build(self) -> None:
        config = self.config

        def shape(hidden_size: int, heads: int, feed_forward_size: int) -> Any:
            made = ModernBertConfig(
                vocab_size=config.vocabulary_size,
                hidden_size=hidden_size,
                num_hidden_layers=config.layers,
                num_attention_heads=heads,
                intermediate_size=feed_forward_size,
                attention_dropout=config.dropout,
                mlp_dropout=config.dropout,
                embedding_dropout=config.dropout,
                max_position_embeddings=config.positions,
                classifier_bias=True,
                num_labels=1,
                pad_token_id=config.pad_id,
                cls_token_id=config.classify_id,
                sep_token_id=config.separate_id,
            )
            made._attn_implementation = "sdpa"
            return made

        self.discriminator = ModernBertForTokenClassification(
            shape(config.hidden_size, config.heads, config.feed_forward_size)
        )
        self.generator = Generator(
            shape(config.generator_hidden_size, config.generator_heads, config.generator_feed_forward_size),
            self.discriminator.model.embeddings.tok_embeddings,
        )

    def _generate(
        self, masked_BL: Tensor, segment_ids_BL: Tensor, attention_BL: Tensor, selected_BL: Tensor
    ) -> Tensor:
        return self.generator.logits(self.generator.states(masked_BL, attention_BL)[selected_BL])

    def _detect(self, ids_BL: Tensor, segment_ids_BL: Tensor, attention_BL: Tensor, labels_BL: Tensor) -> Tensor:
        logits_BL = self.discriminator(ids_BL, attention_mask=attention_BL).logits.squeeze(-1)
        losses_BL = F.binary_cross_entropy_with_logits(logits_BL.float(), labels_BL.float(), reduction="none")
        return (losses_BL * attention_BL).sum() / attention_BL.sum()

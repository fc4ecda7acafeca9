"""The peer: ELECTRA's training step as a skilled user writes it with transformers' classes.

ElectraForMaskedLM and ElectraForPreTraining with shared embeddings, scaled-dot-product attention, the generator's
head only at the masked positions, AdamW (fused), gradient clipping at 1.0, linear warm-up and decay. Nothing of
electra is used.

Shapes: B batch, L length, n masked positions of the batch, V vocabulary, T tokens of text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining


class Text(NamedTuple):
    """A batch of held-out text, and the same rows with unigram fakes if `unigram_auc` is wanted."""

    input_ids_BL: Tensor
    segment_ids_BL: Tensor
    lengths_B: Tensor
    unigram_ids_BL: Tensor | None = None


@dataclass(frozen=True)
class PeerConfig:
    """Plain numbers; the defaults are electra-tiny's shape and the paper's recipe."""

    vocabulary_size: int = 30_522
    pad_id: int = 0
    classify_id: int = 101
    separate_id: int = 102
    mask_id: int = 103
    positions: int = 512
    layers: int = 4
    hidden_size: int = 128
    embedding_size: int = 128
    heads: int = 2
    feed_forward_size: int = 512
    generator_hidden_size: int = 64
    generator_heads: int = 1
    generator_feed_forward_size: int = 256
    dropout: float = 0.1
    masked_share: float = 0.15
    """Share of the tokens of text that are chosen."""
    mask_token_share: float = 0.85
    """Share of the chosen positions that show [MASK]; the others keep their token."""
    discriminator_weight: float = 50.0
    learning_rate: float = 1e-3
    warmup_steps: int = 100
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    position_buckets: int = 256
    """Of DeBERTa only."""
    bf16: bool = False
    """Run the forward pass under autocast to bfloat16."""
    device: str = "cpu"
    compile: bool = False
    """Compile both encoders with torch.compile, the discriminator with its head and loss."""
    seed: int = 0


class TransformersPeer:
    """Both networks, the optimizer and the schedule; `steps` may be set when their number is known."""

    def __init__(self, config: PeerConfig, *, steps: int | None = None) -> None:
        torch.manual_seed(config.seed)
        self.config, self.steps = config, steps
        self.build()
        self.networks = nn.ModuleList([self.generator, self.discriminator]).train().to(config.device)
        if config.compile:
            self.generator.base_model.compile(dynamic=False)
            self.discriminator.compile(dynamic=False)
        decayed = [parameter for parameter in self.networks.parameters() if parameter.ndim >= 2]
        spared = [parameter for parameter in self.networks.parameters() if parameter.ndim < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": config.weight_decay}, {"params": spared, "weight_decay": 0.0}],
            lr=config.learning_rate,
            betas=(0.9, 0.999),
            eps=1e-6,
            fused=True,
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._share_of_peak)

    def build(self) -> None:
        """Make the two networks, which share their embeddings."""
        config = self.config
        discriminator_config = ElectraConfig(
            vocab_size=config.vocabulary_size,
            embedding_size=config.embedding_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.feed_forward_size,
            hidden_dropout_prob=config.dropout,
            attention_probs_dropout_prob=config.dropout,
            max_position_embeddings=config.positions,
            pad_token_id=config.pad_id,
        )
        generator_config = ElectraConfig(
            **discriminator_config.to_dict()
            | {
                "hidden_size": config.generator_hidden_size,
                "num_attention_heads": config.generator_heads,
                "intermediate_size": config.generator_feed_forward_size,
            }
        )
        for network_config in (discriminator_config, generator_config):
            network_config._attn_implementation = "sdpa"
        self.discriminator = ElectraForPreTraining(discriminator_config)
        self.generator = ElectraForMaskedLM(generator_config)
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.generator_lm_head.weight = self.discriminator.electra.embeddings.word_embeddings.weight

    def step(self, input_ids_BL: Tensor, segment_ids_BL: Tensor, lengths_B: Tensor) -> dict[str, Tensor]:
        """One update; returns the losses before it, without waiting for the device."""
        with torch.autocast(self.config.device, torch.bfloat16, enabled=self.config.bf16):
            loss, parts = self._forward(input_ids_BL, segment_ids_BL, lengths_B)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.networks.parameters(), self.config.gradient_clip)
        self.optimizer.step()
        self.schedule.step()
        return {"loss": loss.detach()} | {name: part.detach() for name, part in parts.items()}

    @torch.no_grad()
    def evaluate(self, batches: Iterable[Text], *, seed: int = 0) -> dict[str, float]:
        """`masked_lm_accuracy` (argmax, at [MASK]), `discriminator_auc`; `unigram_auc` if there are unigram
        fakes.
        """
        random = torch.Generator().manual_seed(seed)
        self.networks.eval()
        correct = count = 0
        scores: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for batch in batches:
            ids_BL, lengths_B = batch.input_ids_BL, batch.lengths_B
            with torch.autocast(self.config.device, torch.bfloat16, enabled=self.config.bf16):
                attention_BL = _attention_mask(ids_BL, lengths_B)
                masked_BL, selected_BL = self._mask(ids_BL, random)
                logits_nV = self._generate(masked_BL, batch.segment_ids_BL, attention_BL, selected_BL)
                fakes_BL = ids_BL.masked_scatter(selected_BL, _sample(logits_nV, random))
                at_mask_n = masked_BL[selected_BL] == self.config.mask_id
                correct += int((logits_nV.argmax(-1) == ids_BL[selected_BL])[at_mask_n].sum())
                count += int(at_mask_n.sum())
                text_BL = self._is_text(ids_BL)
                for name, corrupted_BL in (("discriminator_auc", fakes_BL), ("unigram_auc", batch.unigram_ids_BL)):
                    if corrupted_BL is not None:
                        logits_BL = self.discriminator(
                            corrupted_BL, attention_mask=attention_BL, token_type_ids=batch.segment_ids_BL
                        ).logits
                        replaced_T = (corrupted_BL != ids_BL)[text_BL]
                        scores.setdefault(name, []).append((replaced_T, logits_BL[text_BL].float()))
        self.networks.train()
        figures = {"masked_lm_accuracy": correct / max(count, 1)}
        for name, parts in scores.items():
            replaced, logits = (torch.cat(tensors).numpy() for tensors in zip(*parts, strict=True))
            figures[name] = float(roc_auc_score(replaced, logits)) if 0 < replaced.mean() < 1 else math.nan
        return figures

    def _forward(
        self, input_ids_BL: Tensor, segment_ids_BL: Tensor, lengths_B: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        attention_BL = _attention_mask(input_ids_BL, lengths_B)
        masked_BL, selected_BL = self._mask(input_ids_BL)
        logits_nV = self._generate(masked_BL, segment_ids_BL, attention_BL, selected_BL)
        generator_loss = F.cross_entropy(logits_nV, input_ids_BL[selected_BL])
        corrupted_BL = input_ids_BL.masked_scatter(selected_BL, _sample(logits_nV.detach()))
        labels_BL = (corrupted_BL != input_ids_BL).long()
        discriminator_loss = self._detect(corrupted_BL, segment_ids_BL, attention_BL, labels_BL)
        loss = generator_loss + self.config.discriminator_weight * discriminator_loss
        return loss, {"generator_loss": generator_loss, "discriminator_loss": discriminator_loss}

    def _generate(
        self, masked_BL: Tensor, segment_ids_BL: Tensor, attention_BL: Tensor, selected_BL: Tensor
    ) -> Tensor:
        """The generator's logits at the masked positions, row by row: (n, V)."""
        states_BLD = self.generator.electra(
            masked_BL, attention_mask=attention_BL, token_type_ids=segment_ids_BL
        ).last_hidden_state
        return self.generator.generator_lm_head(self.generator.generator_predictions(states_BLD[selected_BL]))

    def _detect(self, ids_BL: Tensor, segment_ids_BL: Tensor, attention_BL: Tensor, labels_BL: Tensor) -> Tensor:
        """The discriminator's loss."""
        loss: Tensor = self.discriminator(
            ids_BL, attention_mask=attention_BL, token_type_ids=segment_ids_BL, labels=labels_BL
        ).loss
        return loss

    def _mask(self, input_ids_BL: Tensor, random: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """The ids with [MASK] inserted, and the masked positions, sampled without replacement."""
        text_BL = self._is_text(input_ids_BL)
        wanted_B1 = (text_BL.sum(1, keepdim=True) * self.config.masked_share).round().clamp(min=1)
        device = input_ids_BL.device
        order_BL = torch.rand(input_ids_BL.shape, generator=random, device=device).masked_fill(~text_BL, 2.0)
        selected_BL = (order_BL.argsort(1).argsort(1) < wanted_B1) & text_BL
        shown_BL = torch.rand(input_ids_BL.shape, generator=random, device=device) < self.config.mask_token_share
        return input_ids_BL.masked_fill(selected_BL & shown_BL, self.config.mask_id), selected_BL

    def _is_text(self, input_ids_BL: Tensor) -> Tensor:
        config = self.config
        special = [config.pad_id, config.classify_id, config.separate_id, config.mask_id]
        return ~torch.isin(input_ids_BL, torch.tensor(special, device=input_ids_BL.device))

    def _share_of_peak(self, step: int) -> float:
        if step < self.config.warmup_steps or self.steps is None:
            return min((step + 1) / self.config.warmup_steps, 1.0)
        return max(self.steps - step, 0) / max(self.steps - self.config.warmup_steps, 1)


def _attention_mask(input_ids_BL: Tensor, lengths_B: Tensor) -> Tensor:
    return (torch.arange(input_ids_BL.shape[1], device=lengths_B.device) < lengths_B[:, None]).long()


def _sample(logits_nV: Tensor, random: torch.Generator | None = None) -> Tensor:
    """Sample by Gumbel noise, the fastest common way on a CPU (multinomial takes a quarter longer)."""
    uniform_nV = torch.rand(logits_nV.shape, generator=random, device=logits_nV.device)
    return (logits_nV.float() - (-uniform_nV.log()).log()).argmax(-1)

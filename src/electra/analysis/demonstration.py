"""Held-out sentences with fakes in them, as the discriminator sees them.

Shapes: L tokens of a sentence with [CLS] and [SEP], N prediction slots, V vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.text import Text
from tokenizers import Tokenizer

from electra.data.collate import Batch
from electra.data.sampling import permute, step_seed
from electra.data.shards import TokenData
from electra.errors import CheckpointError
from electra.export.huggingface import Pretrained
from electra.export.loading import load_pretrained
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.objectives.masking import MaskingConfig, draw_masks, replace_tokens
from electra.objectives.vocabulary import Vocabulary
from electra.serving.coloring import color_tokens

SHORTEST, LONGEST = 10, 30
"""Tokens of a sentence that is worth showing."""


@dataclass(frozen=True)
class Demonstration:
    """One corrupted sentence.

    Attributes:
        tokens: after corruption.
        originals: the token that stood there, at each place where another one stands now.
        probabilities: of having been replaced, as the discriminator says.
    """

    tokens: list[str]
    originals: dict[int, str]
    probabilities: list[float]

    def __rich__(self) -> RenderableType:
        truth = Text("really replaced: ", style="dim")
        pairs = [f"{self.tokens[place]} (was {word})" for place, word in self.originals.items()]
        return Group(color_tokens(self.tokens, self.probabilities), truth.append(", ".join(pairs)), "")


def demonstrate(export: Path, data: TokenData, *, count: int = 3) -> list[Demonstration]:
    """Sentences of the held-out part, the same ones every time, with the generator's fakes in them.

    Args:
        export: the folder above `discriminator` and `generator`.

    Raises:
        CheckpointError: the exports are missing or of other kinds.
    """
    discriminator, generator = load_pretrained(export / "discriminator"), load_pretrained(export / "generator")
    shown = []
    for number, ids in enumerate(_sentences(data)):
        found = _demonstration(ids, discriminator, generator, data, seed=step_seed(0, number))
        if len(found.originals) >= 2:
            shown.append(found)
        if len(shown) == count:
            break
    return shown


def _sentences(data: TokenData) -> Iterator[list[int]]:
    """Held-out sentences of a fair length, shuffled."""
    for shard in data.heldout.shards:
        starts = np.concatenate([[0], shard.sentence_ends[:-1]])
        lengths = shard.sentence_ends - starts
        fair = np.flatnonzero((lengths >= SHORTEST) & (lengths <= LONGEST))
        if len(fair):
            order = permute(np.arange(len(fair)), examples=len(fair), seed=0, epoch=0)
            for i in fair[order]:
                yield shard.tokens[starts[i] : shard.sentence_ends[i]].tolist()


@torch.inference_mode()
def _demonstration(
    ids: list[int], discriminator: Pretrained, generator: Pretrained, data: TokenData, *, seed: int
) -> Demonstration:
    if not (
        isinstance(generator.head, MaskedLanguageModelHead) and isinstance(discriminator.head, ReplacedTokenHead)
    ):
        raise CheckpointError("a demonstration needs a generator and a discriminator, both with their heads")
    special, random = data.special, torch.Generator().manual_seed(seed)
    ids_1L = torch.tensor([[special.classify, *ids, special.separate]])
    config = MaskingConfig(share=0.2, mask_share=1.0)
    batch = Batch(ids_1L, torch.zeros_like(ids_1L), torch.tensor([ids_1L.shape[1]]), seed=seed)
    masking = draw_masks(batch, config, Vocabulary(special, generator.encoder.config.vocabulary_size))
    states_ND = masking.at(generator.encoder(masking.input_ids_BL))
    logits_NV = generator.head.logits(states_ND, generator.encoder.embeddings.token.weight)
    samples_N = torch.multinomial(logits_NV.softmax(-1), 1, generator=random).squeeze(1)
    corrupted_1L = replace_tokens(ids_1L, samples_N, masking, config)
    probabilities_L = discriminator.head(discriminator.encoder(corrupted_1L)).sigmoid()[0, 1:-1]
    before, after = _words(discriminator.tokenizer, ids_1L), _words(discriminator.tokenizer, corrupted_1L)
    originals = {i: old for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}
    return Demonstration(after, originals, probabilities_L.tolist())


def _words(tokenizer: Tokenizer, ids_1L: torch.Tensor) -> list[str]:
    return [tokenizer.id_to_token(token) or "" for token in ids_1L[0, 1:-1].tolist()]

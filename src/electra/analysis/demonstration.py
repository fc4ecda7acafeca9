"""Held-out sentences with some replaced tokens, scored by the discriminator.

Shapes: L tokens of a sentence with [CLS] and [SEP], N prediction slots, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.text import Text
from tokenizers import Tokenizer

from electra.data.collate import Batch
from electra.data.sampling import permute, step_seed
from electra.data.shards import TokenData
from electra.data.tokenizer import vocabulary_size
from electra.errors import CheckpointError
from electra.export.loading import load_pretrained
from electra.export.pretrained import Pretrained
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.objectives.masking import draw_masks, replace_tokens
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.vocabulary import Vocabulary
from electra.serving.coloring import color_tokens, format_probability

MIN_TOKENS, MAX_TOKENS = 10, 30
"""The length of a sentence that is shown."""
WORD_SHARE = 0.85
"""Share of words and commas among the tokens of a sentence of prose; code has fewer."""
CANDIDATES = 300
"""Sentences that are looked at to find some that a reader can judge."""


@dataclass(frozen=True)
class Demonstration:
    """One corrupted sentence.

    Attributes:
        tokens: after corruption.
        originals: the original token at each position where it was replaced.
        probabilities: the discriminator's probability of each token being replaced.
    """

    tokens: list[str]
    originals: dict[int, str]
    probabilities: list[float]

    def __rich__(self) -> RenderableType:
        truth = Text("really replaced: ", style="dim")
        pairs = [
            f"{self.tokens[position]} {format_probability(self.probabilities[position])} (was {token})"
            for position, token in self.originals.items()
        ]
        return Group(color_tokens(self.tokens, self.probabilities), truth.append(", ".join(pairs)), "")

    @property
    def can_be_judged(self) -> bool:
        """Whether a reader sees what was replaced: whole words in a sentence of prose, not parts of code."""
        before = [self.originals.get(position, token) for position, token in enumerate(self.tokens)]
        following = [*before[1:], ""]
        return is_prose(before) and all(
            word.isalpha() and self.tokens[position].isalpha() and not following[position].startswith("##")
            for position, word in self.originals.items()
        )


def is_prose(tokens: Sequence[str]) -> bool:
    """Whether tokens are those of a sentence of words that ends as one, not of code or of a list."""
    words = [token for token in tokens[:-1] if token.removeprefix("##").isalpha() or token == ","]
    return tokens[-1] in {".", "!", "?"} and len(words) >= WORD_SHARE * (len(tokens) - 1)


def demonstrate(export: Path, data: TokenData, *, count: int = 3) -> list[Demonstration]:
    """Corrupt some held-out sentences with the generator and score them; the same sentences at every call.

    Sentences of prose in which whole words are replaced come first; others are only shown if those are too few.

    Args:
        export: the folder that holds `discriminator` and `generator`.

    Raises:
        CheckpointError: the exports are missing, or are not a discriminator and a generator.
    """
    discriminator, generator = load_pretrained(export / "discriminator"), load_pretrained(export / "generator")
    good: list[Demonstration] = []
    others: list[Demonstration] = []
    for number, ids in enumerate(islice(_sample_sentences(data), CANDIDATES)):
        demonstration = _corrupt_and_score(ids, discriminator, generator, data, seed=step_seed(0, number))
        if len(demonstration.originals) >= 2:
            (good if demonstration.can_be_judged else others).append(demonstration)
        if len(good) == count:
            break
    return [*good, *others][:count]


def _sample_sentences(data: TokenData) -> Iterator[list[int]]:
    """Held-out sentences of medium length, shuffled."""
    for shard in data.heldout.shards:
        starts = np.concatenate([[0], shard.sentence_ends[:-1]])
        lengths = shard.sentence_ends - starts
        medium = np.flatnonzero((lengths >= MIN_TOKENS) & (lengths <= MAX_TOKENS))
        if len(medium):
            order = permute(np.arange(len(medium)), examples=len(medium), seed=0, epoch=0)
            for i in medium[order]:
                yield shard.tokens[starts[i] : shard.sentence_ends[i]].tolist()


@torch.inference_mode()
def _corrupt_and_score(
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
    states_ND = masking.gather(generator.encoder(masking.input_ids_BL))
    logits_NV = generator.head.logits(states_ND, generator.encoder.embeddings.token.weight)
    logits_NV[:, vocabulary_size(generator.tokenizer) :] = -torch.inf  # rows that pad the table
    samples_N = torch.multinomial(logits_NV.softmax(-1), 1, generator=random).squeeze(1)
    corrupted_1L = replace_tokens(ids_1L, samples_N, masking, config)
    probabilities_L = discriminator.head(discriminator.encoder(corrupted_1L)).sigmoid()[0, 1:-1]
    original = _token_names(discriminator.tokenizer, ids_1L)
    tokens = _token_names(discriminator.tokenizer, corrupted_1L)
    replaced = {i: old for i, (old, new) in enumerate(zip(original, tokens, strict=True)) if old != new}
    return Demonstration(tokens, replaced, probabilities_L.tolist())


def _token_names(tokenizer: Tokenizer, ids_1L: torch.Tensor) -> list[str]:
    return [tokenizer.id_to_token(token) or "" for token in ids_1L[0, 1:-1].tolist()]

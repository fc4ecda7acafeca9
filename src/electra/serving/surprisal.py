"""How surprising each word of a text is to a masked language model that reads all other words.

The surprisal of a word is the sum over its tokens of -log p(token | the text with this token and the later ones of
the word masked), in nats (Kauf and Ivanova 2023). Each token costs one pass over its text, where a discriminator
reads all tokens in one; in return, the network does not see the word that it judges.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.text import Text

from electra.export.loading import find_masked_lm
from electra.serving.batching import check_texts
from electra.serving.coloring import color_tokens
from electra.serving.likelihood import MaskedLikelihoodScorer, TokenizedText
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.scorer import LISTED_WORDS, quoted, round_values, text_chunks, without_leading_blanks

logger = logging.getLogger(__name__)

STRONGEST = 20.0
"""Words with this surprisal, in nats, have the strongest color; from half of it they are in brackets."""


@dataclass(frozen=True, eq=False)
class SurprisalText:
    """A text, its words, and the surprisal of each.

    Attributes:
        words: the words as they are in the text; a punctuation mark is a word.
        offsets: the characters of each word, `text[start:end]`.
        surprisals: of each word, in nats, float32.
    """

    text: str
    words: list[str]
    offsets: list[tuple[int, int]]
    surprisals: NDArray[np.float32]

    def fields(self) -> dict[str, Any]:
        """Words, offsets and surprisals for JSON."""
        return {"words": self.words, "offsets": self.offsets, "surprisals": round_values(self.surprisals)}

    def __rich__(self) -> Text:
        ends = [0, *(end for _, end in self.offsets)]
        starts = [*(start for start, _ in self.offsets), len(self.text)]
        separators = [self.text[end:start] for end, start in zip(ends, starts, strict=True)]
        shares = np.clip(self.surprisals / STRONGEST, 0, 1).tolist()
        labels = [f"{surprisal:.1f}" for surprisal in self.surprisals]
        text = color_tokens(self.words, shares, separators=separators, labels=labels)
        return text.append(self._most_surprising(), "dim")

    def __str__(self) -> str:
        return self.__rich__().plain

    def _most_surprising(self) -> str:
        order = [i for i in np.argsort(-self.surprisals, kind="stable") if not self.words[i].isspace()]
        listed = ", ".join(f"{quoted(self.words[i])} {self.surprisals[i]:.1f}" for i in order[:LISTED_WORDS])
        return f"\n  most surprising: {listed}" if listed else ""


class SurprisalScorer:
    """Computes the surprisal of each word of texts of any length; a long text is read in windows.

    Args:
        model: a masked language model, or a discriminator with one beside it: its generator, or its own network
            with another head.
        device: such as "cpu" or "cuda". None: a GPU if there is one.

    Raises:
        CheckpointError: there is no masked language model, or it cannot be loaded.
    """

    def __init__(self, model: str | Path, *, device: str | torch.device | None = None) -> None:
        predictor = MaskedTokenPredictor(find_masked_lm(model) or model, device=device)
        self.tokenizer = predictor.tokenizer
        self.likelihoods = MaskedLikelihoodScorer(predictor)

    def __call__(self, texts: Sequence[str]) -> list[SurprisalText]:
        """The surprisal of each word of texts, in the order of the texts.

        Raises:
            TypeError: a single text was given instead of a list of texts.
        """
        check_texts(texts)
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        tokenized = [TokenizedText(one.ids, [word or 0 for word in one.word_ids]) for one in encodings]
        results = []
        for text, encoding, tokens, scores_2T in zip(
            texts, encodings, tokenized, self.likelihoods.token_scores(tokenized), strict=True
        ):
            spans = without_leading_blanks(text, encoding.offsets)
            words = _consecutive(tokens.word_ids)
            offsets = [(spans[first][0], spans[last - 1][1]) for first, last in words]
            surprisals = np.array([-scores_2T[1, first:last].sum() for first, last in words], np.float32)
            results.append(SurprisalText(text, [text[a:b] for a, b in offsets], offsets, surprisals))
        return results

    def stream(self, texts: Iterable[str]) -> Iterator[SurprisalText]:
        """The surprisals of any number of texts in chunks, in their order, with the progress in the log."""
        done = 0
        for chunk in text_chunks(texts):
            if done:
                logger.info("scored %s texts", f"{done:,}", extra={"progress": (done, None)})
            yield from self(chunk)
            done += len(chunk)


def _consecutive(word_ids: Sequence[int]) -> list[tuple[int, int]]:
    """The first token of each word, and the one after its last."""
    starts = [i for i, word in enumerate(word_ids) if i == 0 or word != word_ids[i - 1]]
    return list(zip(starts, [*starts, len(word_ids)][1:], strict=True))

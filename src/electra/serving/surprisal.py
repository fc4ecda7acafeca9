"""How surprising each word of a text is to a masked language model that reads all other words.

The surprisal of a word is the sum over its tokens of -log p(token | the text with this token and the later ones of
the word masked), in nats (Kauf and Ivanova 2023). Each token costs one pass over its text, where a discriminator
reads all tokens in one; in return, the network does not see the word that it judges. A word that the
tokenizer does not know is read as the unknown token, whose surprisal says nothing about the word.
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
from tokenizers import Encoding

from electra.errors import CheckpointError
from electra.export.loading import find_masked_lm
from electra.export.onnx.model import OnnxModel
from electra.serving.backends import LoadedModel, load_model, name_in_messages
from electra.serving.batching import check_texts
from electra.serving.coloring import color_tokens
from electra.serving.likelihood import MaskedLikelihoodScorer, TokenizedText
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.scorer import (
    LISTED_WORDS,
    quoted,
    round_values,
    text_chunks,
    warn_of_unknown,
    with_following_marks,
)

logger = logging.getLogger(__name__)

STRONGEST = 20.0
"""Words with this surprisal, in nats, have the strongest color; from half of it they are in brackets."""
CHUNK_CHARACTERS = 2**13
"""Characters of the texts that are computed between two messages of progress: some two thousand passes."""


@dataclass(frozen=True, eq=False)
class SurprisalText:
    """A text, its words, and the surprisal of each.

    Attributes:
        words: as they are in the text, split as the tokenizer does it: for WordPiece a punctuation mark is a word.
        offsets: the characters of each word, `text[start:end]`; they do not overlap.
        surprisals: of each word, in nats, float32.
        unknown: whether each word has a token that is not in the vocabulary; its surprisal means nothing.
        token_count: number of tokens of the text.
        unknown_count: number of those that are not in the vocabulary.
    """

    text: str
    words: list[str]
    offsets: list[tuple[int, int]]
    surprisals: NDArray[np.float32]
    unknown: Sequence[bool]
    token_count: int
    unknown_count: int

    def spans(self) -> list[tuple[int, int, float]]:
        """Start, end and surprisal of each word; NaN if it has an unknown token."""
        values = np.where(self.unknown, np.nan, self.surprisals).tolist()
        return [(start, end, value) for (start, end), value in zip(self.offsets, values, strict=True)]

    def fields(self) -> dict[str, Any]:
        """Words, offsets, surprisals, and whether each word has an unknown token, for JSON."""
        return {
            "words": self.words,
            "offsets": self.offsets,
            "surprisals": round_values(self.surprisals),
            "unknown": list(self.unknown),
        }

    def __rich__(self) -> Text:
        return self.render()

    def __str__(self) -> str:
        return self.render().plain

    def render(self) -> Text:
        """The text, with each word colored by its surprisal, and the most surprising words."""
        ends = [0, *(end for _, end in self.offsets)]
        starts = [*(start for start, _ in self.offsets), len(self.text)]
        separators = [self.text[end:start] for end, start in zip(ends, starts, strict=True)]
        strengths = np.where(self.unknown, np.nan, np.clip(self.surprisals / STRONGEST, 0, 1)).tolist()
        labels = [f"{surprisal:.1f}" for surprisal in self.surprisals]
        text = color_tokens(self.words, strengths, separators=separators, labels=labels)
        return text.append(self._most_surprising(), "dim")

    def _most_surprising(self) -> str:
        order = [i for i in np.argsort(-self.surprisals, kind="stable") if not self.unknown[i]]
        listed = ", ".join(f"{quoted(self.words[i])} {self.surprisals[i]:.1f}" for i in order[:LISTED_WORDS])
        return f"\n  most surprising: {listed}" if listed else ""


class SurprisalScorer:
    """Computes the surprisal of each word of texts of any length; a long text is read in windows.

    Args:
        model: a masked language model, or a discriminator with one beside it: its generator, or its own network
            with another head. A loaded model must be a masked language model.
        device: auto, cpu, cuda, cuda:1 or mps. None: auto, a CUDA GPU if there is one, else the CPU.
        max_length: maximum number of tokens that are read at once. None: that of the model.

    Raises:
        CheckpointError: there is no masked language model, it cannot be loaded, or it is an ONNX folder.
        ConfigError: the model cannot read `max_length` tokens, or that is less than 3.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        device: str | torch.device | None = None,
        max_length: int | None = None,
    ) -> None:
        source = (find_masked_lm(model) or model) if isinstance(model, str | Path) else model
        loaded = load_model(source, max_length=max_length)
        if isinstance(loaded, OnnxModel):
            raise CheckpointError(
                f"{name_in_messages(model)} is an ONNX folder, which gives no surprisal; give the model that it "
                "was exported from"
            )
        predictor = MaskedTokenPredictor(loaded, device=device)
        self.tokenizer = predictor.tokenizer
        self.unknown_id = predictor.batcher.special.unknown
        self.likelihoods = MaskedLikelihoodScorer(predictor)

    def __call__(self, texts: Sequence[str]) -> list[SurprisalText]:
        """The surprisal of each word of texts, in the order of the texts.

        Raises:
            TypeError: a single text was given instead of a list of texts, or a text is no string.
            DataError: a text has broken Unicode.
        """
        check_texts(texts)
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        tokenized = [TokenizedText(one.ids, word_ids(one)) for one in encodings]
        scores = self.likelihoods.token_scores(tokenized, ("pll-word-l2r",))
        results = []
        for text, encoding, (scores_T,) in zip(texts, encodings, scores, strict=True):
            words = split_words(text, encoding)
            offsets = with_following_marks(text, [(start, end) for _, _, start, end in words])
            surprisals = np.array([-scores_T[first:last].sum() for first, last, _, _ in words], np.float32)
            shown = [text[start:end] for start, end in offsets]
            unknown = [self.unknown_id in encoding.ids[first:last] for first, last, _, _ in words]
            counts = len(encoding.ids), encoding.ids.count(self.unknown_id)
            results.append(SurprisalText(text, shown, offsets, surprisals, unknown, *counts))
        return results

    def stream(self, texts: Iterable[str]) -> Iterator[SurprisalText]:
        """The surprisals of any number of texts in chunks, in their order, with the progress in the log."""
        done = tokens = unknown = 0
        for chunk in text_chunks(texts, characters=CHUNK_CHARACTERS):
            if done:
                logger.info("scored %s texts", f"{done:,}", extra={"progress": (done, None)})
            results = self(chunk)
            yield from results
            done += len(chunk)
            tokens += sum(scored.token_count for scored in results)
            unknown += sum(scored.unknown_count for scored in results)
        warn_of_unknown(unknown, tokens)


def word_ids(encoding: Encoding) -> list[int]:
    """The index of the word of each token."""
    return [word or 0 for word in encoding.word_ids]


def split_words(text: str, encoding: Encoding) -> list[tuple[int, int, int, int]]:
    """The first token of each word, the token after its last, and its first character and that after its last.

    What a tokenizer makes of blanks belongs to the next word, and words that share a character are one.
    """
    ids = word_ids(encoding)
    starts = [i for i, word in enumerate(ids) if i == 0 or word != ids[i - 1]]
    words: list[tuple[int, int, int, int]] = []
    pending: int | None = None
    for first, last in zip(starts, [*starts, len(ids)][1:], strict=True):
        start, end = encoding.offsets[first][0], encoding.offsets[last - 1][1]
        shown = text[start:end].strip()
        begin = first if pending is None else pending
        if words and start < words[-1][3]:
            begin, _, start, other = words.pop()
            words.append((begin, last, start, max(end, other)))
        elif not shown:
            pending = begin
            continue
        else:
            start += text[start:end].index(shown)
            words.append((begin, last, start, start + len(shown)))
        pending = None
    if words and pending is not None:
        begin, _, start, end = words.pop()
        words.append((begin, len(ids), start, end))
    return words

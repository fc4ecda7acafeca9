"""How likely each token of a text is to have been replaced, by a discriminator."""

import logging
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.text import Text

from electra.errors import CheckpointError, caller_name
from electra.objectives.config import DEFAULT_OBJECTIVE
from electra.serving.backends import (
    LoadedModel,
    build_backend,
    describe_head,
    head_kind,
    load_model,
    name_in_messages,
)
from electra.serving.batching import Batcher, LongTextMode, check_texts
from electra.serving.calibration import Calibration
from electra.serving.coloring import color_tokens, format_probability

logger = logging.getLogger(__name__)

LISTED_WORDS = 3
"""Words in the line below a colored text."""
CHUNK_CHARACTERS = 2**18
"""Characters of the texts that `Scorer.stream` sorts by length at a time: some thousand sentences."""
DIGITS = 6
MARKS = ("Mn", "Mc", "Me", "Cf")
"""Unicode's categories of characters that belong to the one before them: marks, and format characters."""


@dataclass(frozen=True, eq=False)
class ScoredText:
    """A text, its tokens without special tokens, and the logit of each.

    Attributes:
        tokens: the tokens as they are in the text.
        offsets: the characters of each token, `text[start:end]`. A character that a byte-level tokenizer splits
            into several tokens belongs to each of them.
        logits: that each token was replaced, float32.
        word_ids: the index of the word that each token belongs to, as the tokenizer splits words. None: each
            token is a word.
        unknown: whether each token is not in the vocabulary; its logit means nothing. Empty: all are in it.
    """

    text: str
    tokens: list[str]
    offsets: list[tuple[int, int]]
    logits: NDArray[np.float32]
    word_ids: Sequence[int | None] | None = None
    unknown: Sequence[bool] = ()

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """That each token was replaced: the logistic function of the logits."""
        probabilities: NDArray[np.float32] = torch.from_numpy(self.logits).sigmoid().numpy()
        return probabilities

    @property
    def log_probabilities(self) -> NDArray[np.float32]:
        """Of each token given all others, up to a constant, if the model is an Electric model (logit = energy)."""
        return -self.logits

    @property
    def pseudo_log_likelihood(self) -> float:
        """The sum of `log_probabilities` (Clark et al., EMNLP 2020): higher for a more likely text."""
        return float(self.log_probabilities.sum())

    def probability_fields(self) -> dict[str, Any]:
        """Tokens, offsets, probabilities, and what is known of each token, for JSON."""
        return {
            "tokens": self.tokens,
            "offsets": self.offsets,
            "probabilities": round_values(self.probabilities),
            **self._token_fields(),
        }

    def likelihood_fields(self) -> dict[str, Any]:
        """Tokens, offsets and the log-probabilities of an Electric model for JSON."""
        return {
            "tokens": self.tokens,
            "offsets": self.offsets,
            "log_probabilities": round_values(self.log_probabilities),
            "pseudo_log_likelihood": round(self.pseudo_log_likelihood, DIGITS) + 0.0,
            **self._token_fields(),
        }

    def _token_fields(self) -> dict[str, Any]:
        """Whether each token continues the word of the one before, and whether it is not in the vocabulary."""
        return {"continues": self.continues, "unknown": list(self.unknown) or [False] * len(self.tokens)}

    def __rich__(self) -> Text:
        return self.render()

    def __str__(self) -> str:
        return self.render().plain

    def render(self, *, pieces: bool = False) -> Text:
        """The text, with each word (or token: `pieces`) colored by its probability, and the likeliest words."""
        spans = self.spans(pieces=pieces)
        ends = [0, *(end for _, end, _ in spans)]
        starts = [*(start for start, _, _ in spans), len(self.text)]
        separators = [self.text[end:start] for end, start in zip(ends, starts, strict=True)]
        shown, probabilities = [self.text[start:end] for start, end, _ in spans], [span[2] for span in spans]
        return color_tokens(shown, probabilities, separators=separators).append(self._most_likely(), "dim")

    @property
    def continues(self) -> list[bool]:
        """Whether each token belongs to the word of the token before it. No word has a blank within."""
        continues = [False] * len(self.tokens)
        ids = self.word_ids or [None] * len(self.tokens)
        for i in range(1, len(self.tokens)):
            same_word = ids[i] is not None and ids[i] == ids[i - 1]
            adjacent = self.offsets[i][0] <= self.offsets[i - 1][1] and not self.tokens[i - 1].isspace()
            continues[i] = same_word and adjacent
        return continues

    def spans(self, *, pieces: bool = False) -> list[tuple[int, int, float]]:
        """Start, end and probability of each word; or of each token, where those of one character are joined."""
        return self._join([False] * len(self.tokens)) if pieces else self.words()

    def words(self) -> list[tuple[int, int, float]]:
        """Start, end and probability of each word, the highest of its tokens; NaN if one of them is unknown."""
        return self._join(self.continues)

    def _join(self, joined: Sequence[bool]) -> list[tuple[int, int, float]]:
        """Spans of tokens, of which some belong to the one before, as those do that are of the same character."""
        known = self.probabilities
        known[np.flatnonzero(self.unknown)] = np.nan
        spans: list[tuple[int, int, float]] = []
        for (start, end), value, same in zip(self.offsets, known.tolist(), joined, strict=True):
            if spans and (same or start < spans[-1][1]):
                first, last, highest = spans[-1]
                spans[-1] = first, max(last, end), float(np.maximum(highest, value))  # NaN if one of them is
            else:
                spans.append((start, end, value))
        return spans

    def _most_likely(self) -> str:
        words = [(self.text[start:end], value) for start, end, value in self.words() if not np.isnan(value)]
        highest = sorted((word for word in words if not word[0].isspace()), key=lambda word: -word[1])
        listed = ", ".join(f"{quoted(word)} {format_probability(value)}" for word, value in highest[:LISTED_WORDS])
        return f"\n  most likely replaced: {listed}" if listed else ""


class Scorer:
    """Scores the tokens of texts of any length.

    Args:
        model: a run, an export folder, an ONNX folder, a Hugging Face folder or id, or a loaded model. It must
            be a discriminator. Its `objective` says how it was trained: the logits of an Electric model are
            energies, not log-odds of replacement.
        device: auto, cpu, cuda, cuda:1 or mps. None: auto, a CUDA GPU if there is one, else the CPU.
        calibration: a correction of all logits and so of the probabilities. None: the network's own.
        long: how a text that is longer than the network's input is read (`Batcher`). None: with memory if the
            network has one, else in windows.
        max_length: maximum number of tokens that are read at once. None: that of the model, or of its task.

    Raises:
        CheckpointError: the model cannot be loaded, is no discriminator with its head, or `long` is "memory"
            and it has no memory.
        ConfigError: the model cannot read `max_length` tokens, or that is less than 3.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        device: str | torch.device | None = None,
        long: LongTextMode | None = None,
        calibration: Calibration | None = None,
        max_length: int | None = None,
    ) -> None:
        loaded = load_model(model, max_length=max_length)
        if head_kind(loaded) != "discriminator":
            predict = caller_name("electra predict", "electra.load(MODEL).predict")
            hint = "" if loaded.task is None else f"; to use it for its task: {predict}"
            if head_kind(loaded) == "generator":
                surprisal = caller_name("electra score --surprisal", "electra.load(MODEL).surprisal")
                hint = f"; to score words by a masked language model: {surprisal}"
            raise CheckpointError(
                f"{name_in_messages(model)} is {describe_head(loaded)}; this needs a discriminator, such as "
                f"a run with objective.kind {DEFAULT_OBJECTIVE}{hint}"
            )
        self.objective = loaded.objective or DEFAULT_OBJECTIVE
        self.calibration = calibration
        self.tokenizer = loaded.tokenizer
        self.backend = build_backend(loaded, device)
        self.batcher = Batcher(loaded, device=self.backend.device, long=long)

    def __call__(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> list[ScoredText]:
        """Score texts. The results are in the order of the texts.

        Each token is scored once. In a text that is read in windows, its score is from the window in which it
        has the most context; with memory, from its only window, which does not see the windows after it.

        Args:
            batch_tokens: the maximum number of tokens of a batch, padding included. None: a default for the
                device.

        Raises:
            TypeError: a single text was given instead of a list of texts, or a text is no string.
            DataError: a text has broken Unicode.
        """
        check_texts(texts)
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        logits = self.logits([encoding.ids for encoding in encodings], batch_tokens=batch_tokens)
        results = []
        for text, encoding, logits_L in zip(texts, encodings, logits, strict=True):
            offsets = with_following_marks(text, without_leading_blanks(text, encoding.offsets))
            tokens = [text[start:end] for start, end in offsets]
            unknown = [token == self.batcher.special.unknown for token in encoding.ids]
            results.append(ScoredText(text, tokens, offsets, logits_L, encoding.word_ids, unknown))
        return results

    def stream(self, texts: Iterable[str]) -> Iterator[ScoredText]:
        """Score any number of texts in chunks, in their order, and log the progress.

        Texts of similar length are batched within a chunk, so that memory does not grow with the number of texts.
        """
        done = windowed = tokens = unknown = 0
        for chunk in text_chunks(texts, characters=CHUNK_CHARACTERS):
            if done:
                logger.info("scored %s texts", f"{done:,}", extra={"progress": (done, None)})
            results = self(chunk)
            yield from results
            done += len(chunk)
            windowed += self.batcher.count_windowed(len(scored.tokens) for scored in results)
            tokens += sum(len(scored.tokens) for scored in results)
            unknown += sum(sum(scored.unknown) for scored in results)
        warn_of_unknown(unknown, tokens)
        if windowed:
            logger.info(
                "%s of %s texts have more than %s tokens and were read in windows",
                f"{windowed:,}",
                f"{done:,}",
                f"{self.batcher.max_tokens:,}",
            )

    def logits(self, ids: Sequence[list[int]], *, batch_tokens: int | None = None) -> list[NDArray[np.float32]]:
        """The logits of the tokens of each text, corrected by the calibration if there is one.

        Args:
            ids: the token ids of each text, without special tokens.
        """
        logits = [np.zeros(len(tokens), dtype=np.float32) for tokens in ids]
        for window, row_L in self.batcher.outputs(ids, self.backend.replaced_logits, batch_tokens=batch_tokens):
            logits[window.text][window.kept] = row_L[window.kept_in_row]
        if self.calibration is not None:
            logits = [self.calibration(logits_L).astype(np.float32) for logits_L in logits]
        return logits


def warn_of_unknown(unknown: int, tokens: int) -> None:
    """Warn that some tokens were read as the unknown token, whatever stands there."""
    if unknown:
        are, were, scores_say = (
            ("is", "was", "its score says") if unknown == 1 else ("are", "were", "their scores say")
        )
        logger.warning(
            "%s of %s tokens %s not in the vocabulary of the model and %s read as unknown; %s nothing about the "
            "text there", f"{unknown:,}", f"{tokens:,}", are, were, scores_say,
        )  # fmt: skip


def round_values(values: NDArray[Any]) -> list[Any]:
    """An array as (nested) lists of floats for JSON: rounded, and without -0.0."""
    rounded: list[Any] = (values.astype(np.float64).round(DIGITS) + 0.0).tolist()
    return rounded


def text_chunks(texts: Iterable[str], *, characters: int) -> Iterator[list[str]]:
    """The texts in lists of about this number of characters."""
    chunk: list[str] = []
    length = 0
    for text in texts:
        chunk.append(text)
        length += len(text)
        if length >= characters:
            yield chunk
            chunk, length = [], 0
    if chunk:
        yield chunk


def quoted(word: str) -> str:
    """A word; in quotation marks if it has neither letter nor digit, such as a full stop."""
    return word if any(map(str.isalnum, word)) else f'"{word}"'


def without_leading_blanks(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans without the blanks that some tokenizers make a part of the next word."""
    return [_strip_span(text, *span) if text[span[0] : span[0] + 1].isspace() else span for span in spans]


def with_following_marks(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans with the marks and invisible characters that directly follow them, such as accents and joiners.

    A tokenizer can drop them (BERT's does), and then no token has them. They belong to the letter before them.
    """
    starts = [*(start for start, _ in spans), len(text)][1:]
    extended = []
    for (start, end), following in zip(spans, starts, strict=True):
        while end < following and unicodedata.category(text[end]) in MARKS:
            end += 1
        extended.append((start, end))
    return extended


def _strip_span(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end - 1 and text[start].isspace():
        start += 1
    return start, end

"""How replaced each token of a text looks, by a discriminator.

Shapes: B batch, L length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.text import Text

from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError
from electra.export.loading import load_pretrained
from electra.modeling.encoder import attention_mask
from electra.modeling.heads import ReplacedTokenHead
from electra.serving.coloring import colored, figure

NAMED = 3
"""Tokens that the line below a coloured text names."""


@dataclass(frozen=True, eq=False)
class ScoredText:
    """A text and its tokens, special ones left out.

    Attributes:
        tokens: as they stand in the text.
        offsets: the characters of each token, `text[start:end]`. A character that a byte-level tokenizer cuts
            into several tokens belongs to each of them.
        logits: of having been replaced, float32.
    """

    text: str
    tokens: list[str]
    offsets: list[tuple[int, int]]
    logits: NDArray[np.float32]

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """Of having been replaced: the logistic function of the logits."""
        found: NDArray[np.float32] = torch.from_numpy(self.logits).sigmoid().numpy()
        return found

    @property
    def log_probabilities(self) -> NDArray[np.float32]:
        """Of each token given all others, where the model was trained by Electric, whose logit is the energy."""
        return -self.logits

    @property
    def pseudo_log_likelihood(self) -> float:
        """The sum of `log_probabilities` (Clark et al., EMNLP 2020): the higher, the likelier the text."""
        return float(self.log_probabilities.sum())

    def __rich__(self) -> Text:
        return self.colored().append(self._named(), "dim")

    def __str__(self) -> str:
        return self.__rich__().plain

    def colored(self) -> Text:
        """The text itself, every token coloured by its probability."""
        spans: list[tuple[int, int]] = []
        probabilities: list[float] = []
        for span, probability in zip(self.offsets, map(float, self.probabilities), strict=True):
            if spans and span[0] < spans[-1][1]:  # another piece of the same character
                spans[-1] = spans[-1][0], max(spans[-1][1], span[1])
                probabilities[-1] = max(probabilities[-1], probability)
            else:
                spans.append(span)
                probabilities.append(probability)
        ends = [0, *(end for _, end in spans)]
        starts = [*(start for start, _ in spans), len(self.text)]
        joints = [self.text[end:start] for end, start in zip(ends, starts, strict=True)]
        return colored([self.text[start:end] for start, end in spans], probabilities, joints=joints)

    def _named(self) -> str:
        """A line of its own with the tokens of the highest probabilities."""
        falling = np.argsort(-self.probabilities, kind="stable")
        visible = [i for i in falling if not self.tokens[i].isspace()][:NAMED]
        named = ", ".join(f"{self.tokens[i]} {figure(self.probabilities[i])}" for i in visible)
        return f"\n  most likely replaced: {named}" if named else ""


@dataclass(frozen=True)
class _Window:
    """A part of a text that goes through the network at once, and the tokens whose scores are kept."""

    text: int
    start: int
    end: int
    keep_start: int
    keep_end: int


class Scorer:
    """Scores texts of any length.

    Args:
        model: a run, an export folder, a Hugging Face folder or id, of a discriminator. What it was trained by is
            its `objective`: the logits of Electric are energies, not log-odds of having been replaced.
        device: such as "cpu" or "cuda"; None: the GPU where there is one.

    Raises:
        CheckpointError: the model cannot be loaded, or is no discriminator with its head.
    """

    def __init__(self, model: str | Path, *, device: str | torch.device | None = None) -> None:
        pretrained = load_pretrained(model)
        if not isinstance(pretrained.head, ReplacedTokenHead):
            what = "an encoder without a head" if pretrained.head is None else "a masked language model"
            raise CheckpointError(
                f"{model} is {what}; to score texts, give a discriminator, such as a run of objective.kind "
                "replaced-token or electric"
            )
        self.objective = pretrained.objective or "replaced-token"
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.encoder, self.head = pretrained.encoder.to(self.device), pretrained.head.to(self.device)
        self.tokenizer = pretrained.tokenizer
        self.special = special_tokens(self.tokenizer)
        self.window = pretrained.max_length - 2  # [CLS] and [SEP] take two
        if self.window < 1:
            raise CheckpointError(f"{model}: inputs of {pretrained.max_length} tokens leave no room for a text")

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str], batch_size: int = 32) -> list[ScoredText]:
        """One result a text, in the order given.

        Texts of like length go through the network together. A text longer than the network's input is read
        in windows that overlap by half; each token is scored once, where it has the most context.

        Raises:
            TypeError: a single text was given where a list of texts belongs.
        """
        if isinstance(texts, str):
            raise TypeError(f"give a list of texts: [{texts[:20]!r}]")
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]  # once: every access copies
        logits = [np.zeros(len(tokens), dtype=np.float32) for tokens in ids]
        windows = [window for i, tokens in enumerate(ids) for window in _windows(i, len(tokens), self.window)]
        windows.sort(key=lambda window: window.end - window.start, reverse=True)
        for first in range(0, len(windows), batch_size):
            batch = windows[first : first + batch_size]
            rows = self._score([ids[window.text][window.start : window.end] for window in batch])
            for window, row in zip(batch, rows, strict=True):
                kept = row[window.keep_start - window.start : window.keep_end - window.start]
                logits[window.text][window.keep_start : window.keep_end] = kept
        results = []
        for text, encoding, scores in zip(texts, encodings, logits, strict=True):
            offsets = [_trimmed(text, span) for span in encoding.offsets]
            results.append(ScoredText(text, [text[start:end] for start, end in offsets], offsets, scores))
        return results

    def _score(self, rows: list[list[int]]) -> NDArray[np.float32]:
        """Logits (B, longest row), [CLS] and [SEP] left out; what lies behind a row's end means nothing."""
        lengths_B = torch.tensor([len(row) + 2 for row in rows])
        length = int(lengths_B.max())
        ids_BL = torch.full((len(rows), length), self.special.pad)
        for i, row in enumerate(rows):
            ids_BL[i, : len(row) + 2] = torch.tensor([self.special.classify, *row, self.special.separate])
        mask_BL = attention_mask(lengths_B.to(self.device), length)
        logits_BL = self.head(self.encoder(ids_BL.to(self.device), None, mask_BL))
        found: NDArray[np.float32] = logits_BL.float()[:, 1:-1].cpu().numpy()
        return found


def _windows(text: int, tokens: int, size: int) -> list[_Window]:
    """Windows of at most `size` tokens that overlap by half; neighbours part in the middle of the overlap."""
    if tokens == 0:
        return []
    step = max(1, size // 2)
    starts = [*range(0, max(tokens - size, 0), step), max(tokens - size, 0)]
    borders = [0, *((before + size + start) // 2 for before, start in pairwise(starts)), tokens]
    return [
        _Window(text, start, min(start + size, tokens), *keep)
        for start, keep in zip(starts, pairwise(borders), strict=True)
    ]


def _trimmed(text: str, span: tuple[int, int]) -> tuple[int, int]:
    """The span without the blanks that some tokenizers count to the word behind them."""
    start, end = span
    while start < end - 1 and text[start].isspace():
        start += 1
    return start, end

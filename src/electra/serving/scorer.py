"""How replaced each token of a text looks, by a discriminator."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.text import Text

from electra.errors import CheckpointError
from electra.serving.backends import LoadedModel, build_backend, head_kind, load_model
from electra.serving.batching import Batcher, LongTextMode, check_texts
from electra.serving.calibration import Calibration
from electra.serving.coloring import color_tokens, format_probability

NAMED = 3
"""Words that the line below a coloured text names."""


@dataclass(frozen=True, eq=False)
class ScoredText:
    """A text and its tokens, special ones left out.

    Attributes:
        tokens: as they stand in the text.
        offsets: the characters of each token, `text[start:end]`. A character that a byte-level tokenizer cuts
            into several tokens belongs to each of them.
        logits: of having been replaced, float32.
        words: the number of the word that each token is a piece of, as the tokenizer parts words; None: each token
            is a word.
    """

    text: str
    tokens: list[str]
    offsets: list[tuple[int, int]]
    logits: NDArray[np.float32]
    words: Sequence[int | None] | None = None

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
        return color_tokens([self.text[start:end] for start, end in spans], probabilities, joints=joints)

    def _named(self) -> str:
        """A line of its own with the words whose likeliest piece has the highest probabilities."""
        pieces: dict[tuple[int | None, int], list[int]] = {}
        for i in range(len(self.tokens)):
            word = None if self.words is None else self.words[i]
            pieces.setdefault((None, i) if word is None else (word, 0), []).append(i)
        shown = [
            (self.text[self.offsets[of[0]][0] : self.offsets[of[-1]][1]], float(self.probabilities[of].max()))
            for of in pieces.values()
        ]
        falling = sorted((one for one in shown if not one[0].isspace()), key=lambda one: -one[1])[:NAMED]
        named = ", ".join(f"{_quoted(word)} {format_probability(probability)}" for word, probability in falling)
        return f"\n  most likely replaced: {named}" if named else ""


class Scorer:
    """Scores texts of any length.

    Args:
        model: a run, an export folder, a Hugging Face or ONNX folder or an id, or what was loaded of one, of a
            discriminator.
            What it was trained by is its `objective`: the logits of Electric are energies, not log-odds of having
            been replaced.
        device: such as "cpu" or "cuda"; None: the GPU where there is one.

        calibration: corrects all logits, and so probabilities; None: they are the network's own.
        long: how a text longer than the network's input is read, with memory or in windows (`Batcher`); None: with
            memory, where the network has one.

    Raises:
        CheckpointError: the model cannot be loaded, is no discriminator with its head, or has no memory to read
            with.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        device: str | torch.device | None = None,
        long: LongTextMode | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        loaded = load_model(model)
        if head_kind(loaded) != "discriminator":
            name = model if isinstance(model, str | Path) else "the model"
            tuned = "" if loaded.task is None else "; for what it was fine-tuned for there is electra predict"
            raise CheckpointError(
                f"{name} is {describe_head(loaded)}; this needs a discriminator, such as a run of objective.kind "
                f"replaced-token or electric{tuned}"
            )
        self.objective = loaded.objective or "replaced-token"
        self.calibration = calibration
        self.tokenizer = loaded.tokenizer
        self.backend = build_backend(loaded, device)
        self.batcher = Batcher(loaded, device=self.backend.device, long=long)

    def __call__(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> list[ScoredText]:
        """One result a text, in the order given.

        Each token is scored once: of a text that is read in windows, where it has the most context; with memory,
        in the one window that it is in, which sees nothing of those behind it.

        Args:
            batch_tokens: that go through the network at once, padding included; None: what suits the device.

        Raises:
            TypeError: a single text was given where a list of texts belongs.
        """
        check_texts(texts)
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        logits = self.logits([encoding.ids for encoding in encodings], batch_tokens=batch_tokens)
        results = []
        for text, encoding, scores in zip(texts, encodings, logits, strict=True):
            offsets = _trimmed(text, encoding.offsets)
            tokens = [text[start:end] for start, end in offsets]
            results.append(ScoredText(text, tokens, offsets, scores, encoding.word_ids))
        return results

    def logits(self, ids: Sequence[list[int]], *, batch_tokens: int | None = None) -> list[NDArray[np.float32]]:
        """The logits of each text's tokens, which are given without special ones; corrected by a calibration."""
        logits = [np.zeros(len(tokens), dtype=np.float32) for tokens in ids]
        for window, row_L in self.batcher.outputs(ids, self.backend.replaced_logits, batch_tokens=batch_tokens):
            logits[window.text][window.kept] = row_L[window.kept_in_row]
        if self.calibration is not None:
            logits = [self.calibration(logits_N).astype(np.float32) for logits_N in logits]
        return logits


def _quoted(word: str) -> str:
    """A word as it is; what has neither letter nor digit, as a full stop, in quotes, so that it is seen."""
    return word if any(map(str.isalnum, word)) else f'"{word}"'


def describe_head(loaded: LoadedModel) -> str:
    """What a model is that is no discriminator, in words."""
    kinds = {
        "generator": "a masked language model",
        "language-model": "a language model",
        "encoder": "an encoder without a head",
    }
    return kinds.get(head_kind(loaded), "fine-tuned for a task")


def _trimmed(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans without the blanks that some tokenizers count to the word behind them."""
    return [_without_blanks(text, *span) if text[span[0] : span[0] + 1].isspace() else span for span in spans]


def _without_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end - 1 and text[start].isspace():
        start += 1
    return start, end

"""A classifier without training: which of some words looks least replaced in a sentence about the text?

A discriminator says of each word whether it belongs where it stands. Put a word for each label into a template
behind the text, and the label whose word looks most at home is the answer (Xia et al. 2022, "Prompting ELECTRA").
No weight is changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from electra.errors import ConfigError
from electra.serving.backends import LoadedModel
from electra.serving.scorer import ScoredText, Scorer

TEXT, WORD = "{text}", "{word}"


@dataclass(frozen=True)
class PromptPrediction:
    """A text's label, and for each label the logit of its word's standing there unreplaced."""

    text: str
    label: str
    scores: dict[str, float]


class PromptClassifier:
    """Labels texts by how replaced each label's word looks.

    Args:
        model: a discriminator: a run, an export folder, a Hugging Face folder or id, or what was loaded of one.
        template: with `{text}` and `{word}`, such as "{text} It was {word}."
        words: the words of each label; a label with several has the mean of their scores.

    Raises:
        ConfigError: the template lacks a place, or there are fewer than two labels, or one without a word.
        CheckpointError: the model is no discriminator.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        template: str,
        words: Mapping[str, Sequence[str]],
        device: str | torch.device | None = None,
    ) -> None:
        if template.count(TEXT) != 1 or template.count(WORD) != 1:
            raise ConfigError(f"the template needs {TEXT} and {WORD}, once each; got {template!r}")
        if len(words) < 2 or not all(words.values()):
            raise ConfigError("give two labels or more, each with a word")
        self.scorer = Scorer(model, device=device)
        self.template, self.words = template, words

    def __call__(self, texts: Sequence[str]) -> list[PromptPrediction]:
        """One label a text, in the order given."""
        found = []
        for text, row_K in zip(texts, self._logits(texts), strict=True):
            scores = dict(zip(self.words, row_K.astype(float).round(4).tolist(), strict=True))
            found.append(PromptPrediction(text, max(scores, key=scores.__getitem__), scores))
        return found

    def _logits(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """For each text and label the mean logit (N, K) of its words' being unreplaced."""
        prompts, places = [], []
        for text in texts:
            for words in self.words.values():
                for word in words:
                    prompt, place = self._prompt(text, word)
                    prompts.append(prompt)
                    places.append(place)
        logits = iter([_mean_logit(*both) for both in zip(self.scorer(prompts), places, strict=True)])
        return np.array(
            [[np.mean([next(logits) for _ in words]) for words in self.words.values()] for _ in texts], np.float32
        )

    def _prompt(self, text: str, word: str) -> tuple[str, tuple[int, int]]:
        """The template filled in, and the characters of the word."""
        before, _, after = self.template.partition(WORD)
        start = len(before.replace(TEXT, text))
        return before.replace(TEXT, text) + word + after.replace(TEXT, text), (start, start + len(word))


def _mean_logit(scored: ScoredText, place: tuple[int, int]) -> float:
    """Of the tokens inside the word: the logit of being original."""
    inside = [i for i, (start, end) in enumerate(scored.offsets) if start < place[1] and end > place[0]]
    return -float(scored.logits[inside].mean()) if inside else 0.0

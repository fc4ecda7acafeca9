"""Zero-shot classification with a prompt: the label whose word looks least replaced after the text.

A discriminator says for each word whether it fits its context. A template appends a word for each label to the
text, and the label whose word fits best is the answer (Xia et al. 2022, "Prompting ELECTRA"). Nothing is
trained.

Shapes: N texts, K labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from electra.errors import ConfigError
from electra.serving.backends import LoadedModel
from electra.serving.batching import check_texts
from electra.serving.scorer import ScoredText, Scorer

TEXT, WORD = "{text}", "{word}"


@dataclass(frozen=True)
class PromptPrediction:
    """The label of a text, and for each label the logit that its word is original (not replaced)."""

    text: str
    label: str
    scores: dict[str, float]


class PromptClassifier:
    """Labels texts by the label word that looks least replaced.

    Args:
        model: a discriminator: a run, an export folder, a Hugging Face folder or id, or a loaded model.
        template: a sentence with `{text}` and `{word}`, such as "{text} It was {word}."
        label_words: the words of each label (the verbalizer). The score of a label is the mean over its words.
        device: auto, cpu, cuda, cuda:1 or mps. None: auto, a CUDA GPU if there is one, else the CPU.

    Raises:
        ConfigError: the template lacks `{text}` or `{word}`, there are fewer than two labels, or a label has no
            word.
        CheckpointError: the model is no discriminator.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        template: str,
        label_words: Mapping[str, Sequence[str]],
        device: str | torch.device | None = None,
    ) -> None:
        if template.count(TEXT) != 1 or template.count(WORD) != 1:
            raise ConfigError(f"the template must contain {TEXT} and {WORD}, once each; got {template!r}")
        if len(label_words) < 2 or not all(label_words.values()):
            raise ConfigError("give at least two labels, each with a word")
        self.scorer = Scorer(model, device=device)
        self.template, self.label_words = template, label_words

    def __call__(self, texts: Sequence[str]) -> list[PromptPrediction]:
        """The label of each text, in the order of the texts.

        Raises:
            TypeError: a single text was given instead of a list of texts, or a text is no string.
            DataError: a text has broken Unicode.
        """
        check_texts(texts)
        predictions = []
        for text, logits_K in zip(texts, self._logits(texts), strict=True):
            scores = dict(zip(self.label_words, logits_K.astype(float).round(4).tolist(), strict=True))
            predictions.append(PromptPrediction(text, max(scores, key=scores.__getitem__), scores))
        return predictions

    def _logits(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The mean logit (N, K) that the words of a label are original, for each text and label."""
        prompts, spans = [], []
        for text in texts:
            for words in self.label_words.values():
                for word in words:
                    prompt, span = self._prompt(text, word)
                    prompts.append(prompt)
                    spans.append(span)
        logits = iter([_original_logit(*each) for each in zip(self.scorer(prompts), spans, strict=True)])
        return np.array(
            [[np.mean([next(logits) for _ in words]) for words in self.label_words.values()] for _ in texts],
            np.float32,
        )

    def _prompt(self, text: str, word: str) -> tuple[str, tuple[int, int]]:
        """The template with the text and the word, and the characters of the word."""
        before, _, after = self.template.partition(WORD)
        start = len(before.replace(TEXT, text))
        return before.replace(TEXT, text) + word + after.replace(TEXT, text), (start, start + len(word))


def _original_logit(scored: ScoredText, span: tuple[int, int]) -> float:
    """The mean logit that the tokens in a span of characters are original."""
    inside = [i for i, (start, end) in enumerate(scored.offsets) if start < span[1] and end > span[0]]
    return -float(scored.logits[inside].mean()) if inside else 0.0

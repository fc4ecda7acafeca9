"""What the generator itself would put in place of a token."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from electra.serving.backends import LoadedModel
from electra.serving.masked_token_predictor import MaskedTokenPredictor


@dataclass(frozen=True)
class MaskQuery:
    """A token of a text that is to be proposed for.

    Attributes:
        ids: of the text's tokens, without special ones.
        place: the number of the token.
        count: how many proposals are wanted.
    """

    ids: list[int]
    place: int
    count: int = 5


@dataclass(frozen=True)
class MaskPrediction:
    """What a masked language model makes of a place.

    Attributes:
        probability: of the token that stands there.
        proposals: tokens as text and their probabilities, falling; what goes on with the word before keeps
            WordPiece's mark (`##ing`).
    """

    probability: float
    proposals: list[tuple[str, float]]


class FillMask:
    """Proposes tokens for places of texts, each place masked alone.

    Args:
        model: a masked language model, such as RUN/export/generator; or what was loaded of one.
        device: such as "cpu" or "cuda"; None: the GPU where there is one.

    Raises:
        CheckpointError: the model cannot be loaded, or predicts no masked tokens.
    """

    def __init__(self, model: str | Path | LoadedModel, *, device: str | torch.device | None = None) -> None:
        self.predictor = MaskedTokenPredictor(model, device=device)
        self.tokenizer = self.predictor.tokenizer
        self._special = torch.tensor(self.predictor.batcher.special.ids)

    def __call__(self, places: Sequence[MaskQuery]) -> list[MaskPrediction]:
        """One result a place, in the order given.

        Of a text longer than the network's input the tokens around the place are read. Special tokens are never
        proposed; the other probabilities are as if there were none.
        """
        cut = [self._around(place) for place in places]
        found: dict[int, MaskPrediction] = {}
        ids, where = [tokens for tokens, _ in cut], [[number] for _, number in cut]
        for number, _, log_probabilities_1V in self.predictor(ids, where):
            logits_V = log_probabilities_1V[0].index_fill(0, self._special, -torch.inf)
            probabilities_V = logits_V.softmax(0)
            best = probabilities_V.topk(min(places[number].count, len(probabilities_V)))
            tokens, masked = cut[number]
            found[number] = MaskPrediction(
                float(probabilities_V[tokens[masked]]),
                [
                    (self.tokenizer.decode([token], skip_special_tokens=False), probability)
                    for token, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
                ],
            )
        return [found[number] for number in range(len(places))]

    def _around(self, place: MaskQuery) -> tuple[list[int], int]:
        """The tokens that are read, and the place among them."""
        size = self.predictor.batcher.max_tokens
        start = min(max(0, place.place - size // 2), max(0, len(place.ids) - size))
        return place.ids[start : start + size], place.place - start

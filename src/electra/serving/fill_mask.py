"""What a masked language model, such as the generator, proposes for a token of a text (as in "fill-mask")."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from electra.data.tokenizer import vocabulary_size
from electra.serving.backends import LoadedModel
from electra.serving.masked_token_predictor import MaskedTokenPredictor


@dataclass(frozen=True)
class MaskQuery:
    """A token of a text to mask.

    Attributes:
        ids: the token ids of the text, without special tokens.
        position: the index of the token.
        top_k: the number of proposals.
    """

    ids: list[int]
    position: int
    top_k: int = 5


@dataclass(frozen=True)
class MaskPrediction:
    """The prediction for a masked token.

    Attributes:
        probability: the probability of the token that the text has at this position.
        proposals: the most likely tokens as text and their probabilities, in descending order. A continuation
            of the word before keeps the mark of WordPiece (`##ing`).
    """

    probability: float
    proposals: list[tuple[str, float]]


class FillMask:
    """Proposes tokens for positions in texts. Each position is masked alone.

    Args:
        model: a masked language model, such as RUN/export/generator, or a loaded one.
        device: auto, cpu, cuda, cuda:1 or mps. None: auto, a CUDA GPU if there is one, else the CPU.

    Raises:
        CheckpointError: the model cannot be loaded or is no masked language model.
    """

    def __init__(self, model: str | Path | LoadedModel, *, device: str | torch.device | None = None) -> None:
        self.predictor = MaskedTokenPredictor(model, device=device)
        self.tokenizer = self.predictor.tokenizer
        self._special_ids = torch.tensor(self.predictor.batcher.special.ids)
        self._entries = vocabulary_size(self.tokenizer)

    def __call__(self, queries: Sequence[MaskQuery]) -> list[MaskPrediction]:
        """The prediction for each query, in the order of the queries.

        Of a text that is longer than the network's input, the tokens around the position are read. Special
        tokens and rows that pad the token table are never proposed, and the other probabilities are normalized
        without them.
        """
        contexts = [self._context(query) for query in queries]
        ids, positions = [tokens for tokens, _ in contexts], [[position] for _, position in contexts]
        predictions: dict[int, MaskPrediction] = {}
        for number, _, log_probabilities_1V in self.predictor(ids, positions):
            logits_V = log_probabilities_1V[0, : self._entries].index_fill(0, self._special_ids, -torch.inf)
            probabilities_V = logits_V.softmax(0)
            best = probabilities_V.topk(min(queries[number].top_k, len(probabilities_V)))
            tokens, position = contexts[number]
            predictions[number] = MaskPrediction(
                float(probabilities_V[tokens[position]]),
                [
                    (self.tokenizer.decode([token], skip_special_tokens=False), probability)
                    for token, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
                ],
            )
        return [predictions[number] for number in range(len(queries))]

    def _context(self, query: MaskQuery) -> tuple[list[int], int]:
        """The tokens that the network reads, and the position in them."""
        size = self.predictor.batcher.max_tokens
        start = min(max(0, query.position - size // 2), max(0, len(query.ids) - size))
        return query.ids[start : start + size], query.position - start

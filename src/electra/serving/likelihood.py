"""How likely a whole text looks to a model, in every way in which its head can say so.

All scores are higher for a likelier text; sums and log-probabilities are in nats. Special tokens are not counted,
and neither is the end of the text. A text without tokens has the score 0, which says nothing.

Shapes: T tokens of a text, N rows, D hidden size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError
from electra.export.huggingface import KINDS, Pretrained
from electra.export.loading import load_pretrained
from electra.modeling.encoders.relative import Memory
from electra.modeling.heads import LanguageModelHead, MaskedLanguageModelHead, ReplacedTokenHead
from electra.serving.backends import TorchBackend
from electra.serving.batching import check_texts, overlapping_windows
from electra.serving.causal_language_model import CausalLanguageModel, compute_token_losses
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.scorer import Scorer

Floats = NDArray[np.float64]

SCORES = {
    "log-odds-sum": "sum over the tokens of the discriminator's log-odds of being original",
    "log-odds-mean": "their mean",
    "log-odds-max": "minus the largest log-odds of being replaced: the token that looks worst decides",
    "log-original-sum": "sum over the tokens of log p(original)",
    "electric-pll": "Electric's pseudo-log-likelihood, in one pass: minus the sum of the energies",
    "pll": "pseudo-log-likelihood: sum of log p(token | all others), one token masked at a time",
    "pll-word-l2r": "the same, with the later tokens of the same word masked, too",
    "log-likelihood": "sum of log p(token | those before it)",
}
"""Every score: four of a discriminator, one of Electric, two of a masked language model or a generator (Salazar et
al. 2020; Kauf and Ivanova 2023), one of a causal language model."""

MAX_BUFFERED_ROWS = 2**14
"""Rows with masks that are held at a time, sorted by length; a text of T tokens makes T to 2 T - 1."""
MAX_LOGIT_ROWS = 512
"""Rows whose logits are held at a time: 62 MB of them with a vocabulary of 30,522."""


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """The scores of some texts.

    Attributes:
        tokens: of each text, special ones left out.
        scores: by name (`SCORES`), one number a text.
        windowed: how many texts are longer than the network's input, and were read in windows.
    """

    tokens: NDArray[np.int64]
    scores: dict[str, Floats]
    windowed: int = 0


class LikelihoodScorer(Protocol):
    """One kind of model.

    Attributes:
        names: the scores that it gives.
    """

    names: tuple[str, ...]

    def __call__(self, texts: Sequence[str], *, unknown: str | None = None) -> Likelihoods:
        """The scores of texts, in their order.

        Args:
            unknown: what stands in the texts for a word that a recogniser did not know, such as <unk>; the network
                reads its own unknown token there.

        Raises:
            TypeError: a single text was given where a list of texts belongs.
        """
        ...


def load_likelihood_scorer(
    model: str | Path | Pretrained, *, device: str | torch.device | None = None
) -> LikelihoodScorer:
    """What its head makes of a MODEL: a discriminator, a masked or a causal language model.

    Args:
        device: such as "cpu" or "cuda"; None: the GPU where there is one.

    Raises:
        CheckpointError: the model cannot be loaded, or has no head that says how likely a text is.
    """
    pretrained = model if isinstance(model, Pretrained) else load_pretrained(model)
    name = "the model" if isinstance(model, Pretrained) else str(model)
    match pretrained.head:
        case ReplacedTokenHead():
            return DiscriminatorLikelihoodScorer(Scorer(pretrained, device=device))
        case MaskedLanguageModelHead():
            return MaskedLikelihoodScorer(MaskedTokenPredictor(pretrained, device=device))
        case LanguageModelHead():
            return CausalLikelihoodScorer(
                CausalLanguageModel.from_pretrained(pretrained, name), pretrained.tokenizer
            )
    what = "an encoder without a head"
    if pretrained.head is not None:
        what = f"fine-tuned for a task (its head: {KINDS[type(pretrained.head)]})"
    raise CheckpointError(
        f"{name} is {what}; to say how likely a text is, give a discriminator (a run of objective.kind "
        "replaced-token or electric), a masked language model (RUN/export/generator, or a run of masked-lm) or a "
        "causal one (a run of causal-lm)"
    )


class DiscriminatorLikelihoodScorer:
    """Of a discriminator: what it makes of each token of the text as it is, in one pass.

    Trained by Electric, its logits are energies, and their sum is the pseudo-log-likelihood (Clark et al., EMNLP
    2020) but for a constant a token.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.names = tuple(SCORES)[:4] if scorer.objective != "electric" else ("electric-pll",)

    def __call__(self, texts: Sequence[str], *, unknown: str | None = None) -> Likelihoods:
        """The scores of texts (`LikelihoodScorer`)."""
        ids = [one.ids for one in tokenize_texts(self.scorer.tokenizer, texts, unknown)]
        odds = [-logits_T.astype(np.float64) for logits_T in self.scorer.logits(ids)]
        sums = np.array([odds_T.sum() for odds_T in odds])
        lengths = np.array([len(odds_T) for odds_T in odds], np.int64)
        long = self.scorer.batcher.count_windowed(lengths.tolist())
        if self.names == ("electric-pll",):
            return Likelihoods(lengths, {"electric-pll": sums}, long)
        scores = {
            "log-odds-sum": sums,
            "log-odds-mean": sums / np.maximum(lengths, 1),
            "log-odds-max": np.array([odds_T.min() if len(odds_T) else 0.0 for odds_T in odds]),
            "log-original-sum": np.array([-np.logaddexp(0, -odds_T).sum() for odds_T in odds]),
        }
        return Likelihoods(lengths, scores, long)


@dataclass(frozen=True)
class MaskedRow:
    """A part of a text with some tokens masked, the first of which is asked for.

    Attributes:
        text: the text's number.
        scores: the numbers of the scores that the answer is counted to.
    """

    text: int
    ids: list[int]
    target: int
    scores: tuple[int, ...]


class MaskedLikelihoodScorer:
    """Of a masked language model, or a generator: each token's log-probability given all others.

    A row a token, in which it is masked, and a second one for a token that is not its word's last: there the later
    ones are masked as well. Of a text longer than the network's input, each row is the window around its token.
    """

    names: tuple[str, ...] = ("pll", "pll-word-l2r")

    def __init__(self, predictor: MaskedTokenPredictor) -> None:
        assert isinstance(predictor.backend, TorchBackend)
        assert isinstance(predictor.backend.head, MaskedLanguageModelHead)
        self.predictor, self.encoder, self.head = predictor, predictor.backend.encoder, predictor.backend.head

    def __call__(self, texts: Sequence[str], *, unknown: str | None = None) -> Likelihoods:
        """The scores of texts (`LikelihoodScorer`)."""
        read = tokenize_texts(self.predictor.tokenizer, texts, unknown)
        totals = np.zeros((len(self.names), len(read)))
        held: list[MaskedRow] = []
        for row in chain.from_iterable(self._rows(text, one) for text, one in enumerate(read)):
            held.append(row)
            if len(held) == MAX_BUFFERED_ROWS:
                self._count(held, totals)
                held = []
        self._count(held, totals)
        lengths = np.array([len(one.ids) for one in read], np.int64)
        long = int((lengths > self.predictor.batcher.max_tokens).sum())
        return Likelihoods(lengths, dict(zip(self.names, totals, strict=True)), long)

    def _rows(self, text: int, read: "TokenizedText") -> Iterator[MaskedRow]:
        mask = self.predictor.batcher.special.mask
        for window in overlapping_windows(text, len(read.ids), self.predictor.batcher.max_tokens):
            ids = read.ids[window.start : window.end]
            for place in range(window.keep_start, window.keep_end):
                here = place - window.start
                later = next((i for i in range(place + 1, window.end) if read.words[i] != read.words[place]), None)
                rest = (window.end if later is None else later) - place
                alone = [*ids[:here], mask, *ids[here + 1 :]]
                yield MaskedRow(text, alone, ids[here], (0, 1) if rest == 1 else (0,))
                if rest > 1:
                    yield MaskedRow(text, [*ids[:here], *[mask] * rest, *ids[here + rest :]], ids[here], (1,))

    def _count(self, rows: list[MaskedRow], totals: Floats) -> None:
        """Add the rows' log-probabilities to the scores of their texts (scores, texts)."""
        states_ND = np.zeros((len(rows), self.encoder.config.hidden_size), np.float32)
        for window, row_1D in self.predictor.batcher.outputs([row.ids for row in rows], self._first_masked):
            states_ND[window.text] = row_1D[0]
        targets_N = torch.tensor([row.target for row in rows], dtype=torch.int64)
        for first in range(0, len(rows), MAX_LOGIT_ROWS):
            part = slice(first, first + MAX_LOGIT_ROWS)
            found = self._log_probabilities(torch.from_numpy(states_ND[part]), targets_N[part])
            for row, value in zip(rows[part], found, strict=True):
                totals[list(row.scores), row.text] += value

    def _first_masked(self, ids_BL: Tensor, mask_BL: Tensor | None, **past: Memory) -> Tensor:
        """The state of each row's first masked token (B, 1, D): the last block does no work at the others."""
        positions_B1 = (ids_BL == self.predictor.batcher.special.mask).int().argmax(1, keepdim=True)
        return self.encoder(ids_BL, None, mask_BL, positions_BN=positions_B1, **past)

    @torch.inference_mode()
    def _log_probabilities(self, states_ND: Tensor, targets_N: Tensor) -> list[float]:
        device, table_VE = self.predictor.batcher.device, self.encoder.embeddings.token.weight
        logits_NV = self.head.logits(states_ND.to(device), table_VE).float()
        return (-F.cross_entropy(logits_NV, targets_N.to(device), reduction="none")).tolist()


class CausalLikelihoodScorer:
    """Of a causal language model: each token's log-probability given those before it, [SEP] before the first."""

    names: tuple[str, ...] = ("log-likelihood",)

    def __init__(self, model: CausalLanguageModel, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.separate = special_tokens(tokenizer).separate

    def __call__(self, texts: Sequence[str], *, unknown: str | None = None) -> Likelihoods:
        """The scores of texts (`LikelihoodScorer`)."""
        ids = [one.ids for one in tokenize_texts(self.tokenizer, texts, unknown)]
        lengths = np.array([len(one) for one in ids], np.int64)
        totals = np.zeros(len(ids))
        there = np.flatnonzero(lengths)
        documents = [torch.tensor([self.separate, *ids[text]]) for text in there]
        window, memory = self.model.window, self.model.encoder.config.memory_length
        losses = compute_token_losses(self.model, documents, window=window, memory=memory)
        totals[there] = [-losses_T.double().sum().item() for losses_T in losses]
        return Likelihoods(lengths, {"log-likelihood": totals})


@dataclass(frozen=True)
class TokenizedText:
    """A text's tokens, special ones left out.

    Attributes:
        ids: of each token (T).
        words: the number of the word that each belongs to (T); a mark of punctuation is a word.
    """

    ids: list[int]
    words: list[int]


def tokenize_texts(tokenizer: Tokenizer, texts: Sequence[str], unknown: str | None = None) -> list[TokenizedText]:
    """The tokens of texts.

    Args:
        unknown: what stands for an unknown word in the texts (`LikelihoodScorer`).

    Raises:
        TypeError: a single text was given where a list of texts belongs.
    """
    check_texts(texts)
    parts = [[text] if unknown is None else text.split(unknown) for text in texts]
    encodings = iter(tokenizer.encode_batch(list(chain.from_iterable(parts)), add_special_tokens=False))
    unknown_id = special_tokens(tokenizer).unknown
    found = []
    for pieces in parts:
        ids: list[int] = []
        words: list[int] = []
        for number, _ in enumerate(pieces):
            if number:
                ids.append(unknown_id)
                words.append(words[-1] + 1 if words else 0)
            encoding = next(encodings)
            first = words[-1] + 1 if words else 0
            ids += encoding.ids
            words += [first + (word or 0) for word in encoding.word_ids]
        found.append(TokenizedText(ids, words))
    return found

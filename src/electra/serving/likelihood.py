"""Likelihood scores of whole texts, by every score that the head of a model can give.

All scores are higher for a more likely text. Sums and log-probabilities are in nats. Neither special tokens nor
the end of the text are counted. A text without tokens has the score 0, which has no meaning.

Shapes: T tokens of a text, N rows, D hidden size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError
from electra.export.loading import load_pretrained
from electra.export.pretrained import Pretrained
from electra.modeling.device import widest_float
from electra.modeling.encoders.states import compute_states
from electra.modeling.heads import LanguageModelHead, MaskedLanguageModelHead, ReplacedTokenHead
from electra.objectives.config import scores_of
from electra.serving.backends import TorchBackend, describe_head, name_in_messages
from electra.serving.batching import check_texts, overlapping_windows
from electra.serving.causal_language_model import CausalLanguageModel, compute_token_losses
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.scorer import Scorer

Floats = NDArray[np.float64]

SCORES = {
    "log-odds-sum": "sum over the tokens of the discriminator's log-odds of being original",
    "log-odds-mean": "mean over the tokens of the discriminator's log-odds of being original",
    "log-odds-max": "minus the largest log-odds of being replaced: the score of the worst token",
    "log-original-sum": "sum over the tokens of log p(original)",
    "electric-pll": "Electric's pseudo-log-likelihood in one pass: minus the sum of the energies",
    "pll": "pseudo-log-likelihood: sum of log p(token | all others), with one token masked at a time",
    "pll-word-l2r": "pseudo-log-likelihood with the later tokens of the same word masked, too",
    "log-likelihood": "sum of log p(token | tokens before it)",
}
"""All scores: four of a discriminator, one of an Electric model, two of a masked language model or generator
(Salazar et al. 2020; Kauf and Ivanova 2023), one of a causal language model."""

DISCRIMINATOR_SCORES = ("log-odds-sum", "log-odds-mean", "log-odds-max", "log-original-sum")

MAX_BUFFERED_ROWS = 2**14
"""Masked rows that are sorted by length at a time. A text of T tokens has T to 2 T - 1 rows."""
MAX_LOGIT_ROWS = 512
"""Rows whose logits are in memory at a time: 62 MB with a vocabulary of 30,522."""


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """The scores of some texts.

    Attributes:
        token_counts: the number of tokens of each text, without special tokens.
        scores: by name (`SCORES`), one number per text.
        windowed: the number of texts that are longer than the network's input and were read in windows.
    """

    token_counts: NDArray[np.int64]
    scores: dict[str, Floats]
    windowed: int = 0


class LikelihoodScorer(Protocol):
    """Computes the scores of one kind of model.

    Attributes:
        names: the names of its scores (`SCORES`).
    """

    names: tuple[str, ...]

    def __call__(self, texts: Sequence[str], *, unknown: str | None = None) -> Likelihoods:
        """The scores of texts, in the order of the texts.

        Args:
            unknown: the string in the texts that marks a word which a recognizer did not know, such as <unk>. The
                network reads its own unknown token there.

        Raises:
            TypeError: a single text was given instead of a list of texts, or a text is no string.
            DataError: a text has broken Unicode.
        """
        ...


def load_likelihood_scorer(
    model: str | Path | Pretrained, *, device: str | torch.device | None = None
) -> LikelihoodScorer:
    """Load the likelihood scorer for a discriminator, a masked language model or a causal language model.

    Args:
        device: auto, cpu, cuda, cuda:1 or mps. None: auto, a CUDA GPU if there is one, else the CPU.

    Raises:
        CheckpointError: the model cannot be loaded, or has no head that gives a likelihood.
    """
    pretrained = model if isinstance(model, Pretrained) else load_pretrained(model)
    name = name_in_messages(model)
    match pretrained.head:
        case ReplacedTokenHead():
            return DiscriminatorLikelihoodScorer(Scorer(pretrained, device=device))
        case MaskedLanguageModelHead():
            return MaskedLikelihoodScorer(MaskedTokenPredictor(pretrained, device=device))
        case LanguageModelHead():
            return CausalLikelihoodScorer(
                CausalLanguageModel.from_pretrained(pretrained, name, device=device), pretrained.tokenizer
            )
    raise CheckpointError(
        f"{name} is {describe_head(pretrained)}, which gives no likelihood of a text; give a discriminator (a run "
        "with objective.kind replaced-token or electric), a masked language model (RUN/export/generator, or a run "
        "with masked-lm) or a causal language model (a run with causal-lm)"
    )


class DiscriminatorLikelihoodScorer:
    """Scores of a discriminator, from its logits for the unmasked text in one pass.

    The logits of an Electric model are energies, and minus their sum is the pseudo-log-likelihood up to a
    constant per token (Clark et al., EMNLP 2020).
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        electric = scores_of(scorer.objective) == "energy"
        self.names: tuple[str, ...] = ("electric-pll",) if electric else DISCRIMINATOR_SCORES

    def __call__(self, texts: Sequence[str], *, unknown: str | None = None) -> Likelihoods:
        """The scores of texts (`LikelihoodScorer.__call__`)."""
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
    """A window of a text with masked tokens, of which the first is predicted.

    Attributes:
        text: the index of the text.
        token: the index of the first masked token in the text.
        ids: the ids of the window, with the masks.
        target: the id of the first masked token.
        scores: the indices of the scores that have its log-probability.
    """

    text: int
    token: int
    ids: list[int]
    target: int
    scores: tuple[int, ...]


class MaskedLikelihoodScorer:
    """Pseudo-log-likelihoods of a masked language model or generator: log p of each token given all others.

    Each token is masked in one row. A token that is not the last of its word has a second row, in which the later
    tokens of the word are masked, too. In a text longer than the network's input, a row is the window of its
    token.
    """

    names: tuple[str, ...] = ("pll", "pll-word-l2r")

    def __init__(self, predictor: MaskedTokenPredictor) -> None:
        assert isinstance(predictor.backend, TorchBackend)
        assert isinstance(predictor.backend.head, MaskedLanguageModelHead)
        self.predictor, self.encoder, self.head = predictor, predictor.backend.encoder, predictor.backend.head

    def __call__(self, texts: Sequence[str], *, unknown: str | None = None) -> Likelihoods:
        """The scores of texts (`LikelihoodScorer.__call__`)."""
        tokenized = tokenize_texts(self.predictor.tokenizer, texts, unknown)
        totals = np.array([scores_2T.sum(1) for scores_2T in self.token_scores(tokenized, self.names)])
        totals = totals.reshape(-1, len(self.names)).T
        lengths = np.array([len(one.ids) for one in tokenized], np.int64)
        long = int((lengths > self.predictor.batcher.max_tokens).sum())
        return Likelihoods(lengths, dict(zip(self.names, totals, strict=True)), long)

    def token_scores(self, tokenized: Sequence["TokenizedText"], names: Sequence[str]) -> list[Floats]:
        """The log-probability of each token of each text, one row for each of `names` (len(names), T)."""
        scores = [np.zeros((len(names), len(one.ids))) for one in tokenized]
        rows = chain.from_iterable(self._rows(text, one, names) for text, one in enumerate(tokenized))
        while buffer := list(islice(rows, MAX_BUFFERED_ROWS)):
            self._set_log_probabilities(buffer, scores)
        return scores

    def _rows(self, text: int, tokens: "TokenizedText", names: Sequence[str]) -> Iterator[MaskedRow]:
        mask = self.predictor.batcher.special.mask
        for window in overlapping_windows(text, len(tokens.ids), self.predictor.batcher.max_tokens):
            ids = tokens.ids[window.start : window.end]
            words = tokens.word_ids[window.start : window.end]
            for i in range(window.keep_start - window.start, window.keep_end - window.start):
                end_of_word = next((j for j in range(i + 1, len(ids)) if words[j] != words[i]), len(ids))
                rest = end_of_word - i
                masks = {"pll": 1, "pll-word-l2r": rest}
                for count in sorted({masks[name] for name in names}):
                    masked = [*ids[:i], *[mask] * count, *ids[i + count :]]
                    scores = tuple(number for number, name in enumerate(names) if masks[name] == count)
                    yield MaskedRow(text, window.start + i, masked, ids[i], scores)

    def _set_log_probabilities(self, rows: list[MaskedRow], scores: Sequence[Floats]) -> None:
        """Set the log-probability of each row in the scores of its text (len(names), T)."""
        states_ND = np.zeros((len(rows), self.encoder.config.hidden_size), np.float32)
        for window, row_1D in self.predictor.batcher.outputs([row.ids for row in rows], self._first_masked):
            states_ND[window.text] = row_1D[0]
        targets_N = torch.tensor([row.target for row in rows], dtype=torch.int64)
        for first in range(0, len(rows), MAX_LOGIT_ROWS):
            part = slice(first, first + MAX_LOGIT_ROWS)
            values = self._log_probabilities(torch.from_numpy(states_ND[part]), targets_N[part])
            for row, value in zip(rows[part], values, strict=True):
                scores[row.text][list(row.scores), row.token] = value

    def _first_masked(self, ids_BL: Tensor, mask_BL: Tensor | None, **memory: Any) -> Tensor:
        """The state of the first masked token of each row (B, 1, D). The last block computes only these."""
        positions_B1 = (ids_BL == self.predictor.batcher.special.mask).int().argmax(1, keepdim=True)
        return compute_states(self.encoder, ids_BL, None, mask_BL, positions_BN=positions_B1, **memory)

    @torch.inference_mode()
    def _log_probabilities(self, states_ND: Tensor, targets_N: Tensor) -> list[float]:
        device, table_VE = self.predictor.batcher.device, self.encoder.embeddings.token.weight
        logits_NV = self.head.logits(states_ND.to(device), table_VE).float()
        return (-F.cross_entropy(logits_NV, targets_N.to(device), reduction="none")).tolist()


class CausalLikelihoodScorer:
    """Log-likelihood of a causal language model: log p of each token given the tokens before it, [SEP] first."""

    names: tuple[str, ...] = ("log-likelihood",)

    def __init__(self, model: CausalLanguageModel, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.separate = special_tokens(tokenizer).separate

    def __call__(self, texts: Sequence[str], *, unknown: str | None = None) -> Likelihoods:
        """The scores of texts (`LikelihoodScorer.__call__`)."""
        ids = [one.ids for one in tokenize_texts(self.tokenizer, texts, unknown)]
        lengths = np.array([len(one) for one in ids], np.int64)
        totals = np.zeros(len(ids))
        nonempty = np.flatnonzero(lengths)
        documents = [torch.tensor([self.separate, *ids[text]]) for text in nonempty]
        window, memory = self.model.window, self.model.encoder.config.memory_length
        losses = compute_token_losses(self.model, documents, window=window, memory=memory)
        totals[nonempty] = [-losses_T.to(widest_float(losses_T.device)).sum().item() for losses_T in losses]
        return Likelihoods(lengths, {"log-likelihood": totals})


@dataclass(frozen=True)
class TokenizedText:
    """The tokens of a text, without special tokens.

    Attributes:
        ids: the ids of the tokens (T).
        word_ids: the index of the word that each token belongs to (T). A punctuation mark is a word.
    """

    ids: list[int]
    word_ids: list[int]


def tokenize_texts(tokenizer: Tokenizer, texts: Sequence[str], unknown: str | None = None) -> list[TokenizedText]:
    """Tokenize texts.

    Args:
        unknown: the string that marks an unknown word in the texts (`LikelihoodScorer.__call__`).

    Raises:
        TypeError: a single text was given instead of a list of texts, or a text is no string.
        DataError: a text has broken Unicode.
    """
    check_texts(texts)
    parts = [[text] if unknown is None else text.split(unknown) for text in texts]
    encodings = iter(tokenizer.encode_batch(list(chain.from_iterable(parts)), add_special_tokens=False))
    unknown_id = special_tokens(tokenizer).unknown
    tokenized = []
    for pieces in parts:
        ids: list[int] = []
        word_ids: list[int] = []
        for number, _ in enumerate(pieces):
            if number:
                ids.append(unknown_id)
                word_ids.append(word_ids[-1] + 1 if word_ids else 0)
            encoding = next(encodings)
            first = word_ids[-1] + 1 if word_ids else 0
            ids += encoding.ids
            word_ids += [first + (word or 0) for word in encoding.word_ids]
        tokenized.append(TokenizedText(ids, word_ids))
    return tokenized

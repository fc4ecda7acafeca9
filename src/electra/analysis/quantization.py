"""What a network loses when its weights are in 8 bits: the same figure of both, on the same texts.

Shapes: N tokens of all texts, n masked ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from electra.analysis.corrupted import corrupted
from electra.serving.backends import LoadedModel, head_kind
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.predictor import Predictor
from electra.serving.scorer import Scorer
from electra.serving.text_encoder import TextEncoder

SHARE = 0.15
"""Of the tokens that are replaced, or masked."""


@dataclass(frozen=True)
class Quality:
    """A figure of the network as PyTorch has it, and of the one for onnxruntime."""

    metric: str
    torch: float
    onnx: float
    on: str

    def __str__(self) -> str:
        change = self.onnx - self.torch
        return (
            f"{self.metric} {self.onnx:.4f}, PyTorch's in 32 bits {self.torch:.4f} ({change:+.4f}), on {self.on}"
        )


def of_texts(
    torch_model: LoadedModel,
    onnx_model: LoadedModel,
    ids: Sequence[list[int]],
    *,
    generator: LoadedModel | None = None,
    texts: str = "the texts",
) -> Quality:
    """What a network comes to that was not fine-tuned.

    A discriminator is judged by the area under its ROC curve where a share of the tokens are replaced, a masked
    language model by the share of masked tokens that it finds, an encoder by the cosine between both embeddings of
    a text, the mean of all.

    Args:
        ids: of each text, without special tokens.
        generator: fills the places to be replaced; None: tokens at random, each as likely as it is in the texts.
        texts: what the texts are, for people.
    """
    kind, models = head_kind(onnx_model), (torch_model, onnx_model)
    if kind == "discriminator":
        scorers = [Scorer(model, device="cpu") for model in models]
        if generator is None:
            shown, replaced_N = _at_random(ids)
            by = "tokens at random"
        else:
            found = corrupted(scorers[0], MaskedTokenPredictor(generator, device="cpu"), ids, share=SHARE)
            shown = [part.tolist() for part in np.split(found.shown_N, np.cumsum([len(one) for one in ids])[:-1])]
            replaced_N, by = found.replaced_N, "the run's generator"
        curves = [float(roc_auc_score(replaced_N, np.concatenate(scorer.logits(shown)))) for scorer in scorers]
        return Quality(
            "AUC", curves[0], curves[1], f"{replaced_N.size:,} tokens of {texts}, some replaced by {by}"
        )
    if kind == "generator":
        shares = [_found(MaskedTokenPredictor(model, device="cpu"), ids) for model in models]
        count = sum(len(places) for places in _places(ids))
        return Quality("accuracy", shares[0], shares[1], f"{count:,} masked tokens of {texts}")
    decoded = [torch_model.tokenizer.decode(one) for one in ids]
    one, other = (TextEncoder(model, device="cpu").encode(decoded) for model in models)
    cosines = (one * other).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1))
    return Quality("cosine of embeddings", 1.0, float(cosines.mean()), f"{len(ids):,} of {texts}")


def of_task(torch_model: LoadedModel, onnx_model: LoadedModel, examples: Sequence[Any]) -> Quality:
    """What a fine-tuned network comes to on examples that have their answers, by its task's own metric."""
    figures, metric = [], ""
    for model in (torch_model, onnx_model):
        predictor = Predictor(model, device="cpu")
        rows = predictor.problem.encode(examples, predictor.input_spec)
        metric = predictor.problem.metric
        figures.append(predictor.problem.score(examples, predictor.predict_rows(examples, rows))[metric])
    return Quality(metric, figures[0], figures[1], f"{len(examples):,} examples of dev")


def _places(ids: Sequence[list[int]]) -> list[NDArray[np.int64]]:
    """Of each text a share of its tokens, one at least, the same at every call."""
    draws = np.random.default_rng(0)
    wanted = [min(len(one), max(1, round(SHARE * len(one)))) for one in ids]
    return [np.sort(draws.choice(len(one), count, replace=False)) for one, count in zip(ids, wanted, strict=True)]


def _at_random(ids: Sequence[list[int]]) -> tuple[list[list[int]], NDArray[np.bool_]]:
    """The texts with a share of their tokens replaced by tokens from anywhere in them, and where (N)."""
    draws, pool = np.random.default_rng(1), np.concatenate([np.array(one, np.int64) for one in ids])
    shown = [list(one) for one in ids]
    for one, places in zip(shown, _places(ids), strict=True):
        for place, token in zip(places.tolist(), draws.choice(pool, len(places)).tolist(), strict=True):
            one[place] = token
    flat_N = np.concatenate([np.array(one, np.int64) for one in shown])
    return shown, flat_N != pool


def _found(predictor: MaskedTokenPredictor, ids: Sequence[list[int]]) -> float:
    """The share of masked tokens that are held likeliest."""
    right, places = 0, _places(ids)
    for text, part_n, log_probabilities_nV in predictor(ids, places):
        best_n = log_probabilities_nV.argmax(-1).numpy()
        right += int((best_n == np.array(ids[text])[part_n]).sum())
    return right / sum(map(len, places))

"""The loss of quality of a network with 8-bit weights: the same metric of both networks on the same texts.

Shapes: N tokens of all texts, n masked ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from electra.analysis.corruption import corrupt_texts, flatten, sample_mask_positions
from electra.objectives.metric_labels import metric_label
from electra.serving.backends import LoadedModel, head_kind
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.predictor import Predictor
from electra.serving.scorer import Scorer
from electra.serving.text_encoder import TextEncoder

SHARE = 0.15
"""The fraction of tokens that are replaced or masked."""


@dataclass(frozen=True)
class QuantizationEffect:
    """A metric of the PyTorch network and of the onnxruntime network.

    Attributes:
        on: what the metric was measured on, for people.
    """

    metric: str
    torch: float
    onnx: float
    on: str

    def __str__(self) -> str:
        change = self.onnx - self.torch
        return f"{self.metric} {self.onnx:.4f} (PyTorch, 32 bits: {self.torch:.4f}, {change:+.4f}), on {self.on}"


def compare_on_texts(
    torch_model: LoadedModel,
    onnx_model: LoadedModel,
    ids: Sequence[list[int]],
    *,
    generator: LoadedModel | None = None,
    texts: str = "the texts",
) -> QuantizationEffect:
    """Compare a network that was not fine-tuned.

    The metric of a discriminator is the area under the ROC curve on texts with some tokens replaced; that of a
    masked language model, the accuracy at masked positions; that of an encoder, the mean cosine between both
    embeddings of a text.

    Args:
        ids: the token ids of each text, without special tokens.
        generator: fills the positions to be replaced; None: random tokens, with their frequencies in the texts.
        texts: what the texts are, for people.
    """
    kind, models = head_kind(onnx_model), (torch_model, onnx_model)
    if kind == "discriminator":
        scorers = [Scorer(model, device="cpu") for model in models]
        if generator is None:
            corrupted, replaced_N = _replace_at_random(ids)
            source = "random tokens"
        else:
            tokens = corrupt_texts(scorers[0], MaskedTokenPredictor(generator, device="cpu"), ids, share=SHARE)
            ends = np.cumsum([len(text) for text in ids])[:-1]
            corrupted = [part.tolist() for part in np.split(tokens.corrupted_N, ends)]
            replaced_N, source = tokens.replaced_N, "the run's generator"
        areas = [float(roc_auc_score(replaced_N, np.concatenate(scorer.logits(corrupted)))) for scorer in scorers]
        return QuantizationEffect(
            "AUC", areas[0], areas[1], f"{replaced_N.size:,} tokens of {texts}, some replaced by {source}"
        )
    if kind == "generator":
        accuracies = [_masked_accuracy(MaskedTokenPredictor(model, device="cpu"), ids) for model in models]
        count = sum(map(len, _mask_positions(ids)))
        return QuantizationEffect("accuracy", accuracies[0], accuracies[1], f"{count:,} masked tokens of {texts}")
    decoded = [torch_model.tokenizer.decode(text) for text in ids]
    first, second = (TextEncoder(model, device="cpu").encode(decoded) for model in models)
    cosines = (first * second).sum(1) / (np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1))
    return QuantizationEffect("cosine of embeddings", 1.0, float(cosines.mean()), f"{len(ids):,} of {texts}")


def compare_on_task(
    torch_model: LoadedModel, onnx_model: LoadedModel, examples: Sequence[Any]
) -> QuantizationEffect:
    """Compare a fine-tuned network on labeled examples, by its task's metric."""
    values, metric = [], ""
    for model in (torch_model, onnx_model):
        predictor = Predictor(model, device="cpu")
        rows = predictor.problem.encode(examples, predictor.input_spec)
        metric = predictor.problem.metric
        values.append(predictor.problem.compute_metrics(examples, predictor.predict_rows(examples, rows))[metric])
    return QuantizationEffect(metric_label(metric), values[0], values[1], f"{len(examples):,} examples of dev")


def _mask_positions(ids: Sequence[list[int]]) -> list[NDArray[np.int64]]:
    """The same positions at every call."""
    return sample_mask_positions(ids, SHARE, np.random.default_rng(0))


def _replace_at_random(ids: Sequence[list[int]]) -> tuple[list[list[int]], NDArray[np.bool_]]:
    """Replace some tokens by random tokens of the texts; the corrupted texts, and which tokens differ (N)."""
    rng, original_N = np.random.default_rng(1), flatten(ids)
    corrupted = [list(text) for text in ids]
    for text, positions in zip(corrupted, _mask_positions(ids), strict=True):
        for position, token in zip(positions, rng.choice(original_N, len(positions)).tolist(), strict=True):
            text[position] = token
    return corrupted, flatten(corrupted) != original_N


def _masked_accuracy(predictor: MaskedTokenPredictor, ids: Sequence[list[int]]) -> float:
    """The fraction of masked tokens that get the highest probability."""
    correct, positions = 0, _mask_positions(ids)
    for text, part_n, log_probabilities_nV in predictor(ids, positions):
        best_n = log_probabilities_nV.argmax(-1).numpy()
        correct += int((best_n == np.array(ids[text])[part_n]).sum())
    return correct / sum(map(len, positions))

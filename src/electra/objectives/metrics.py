"""Held-out metrics of masked language models and of discriminators, accumulated over batches.

`compute` gives their keys, as in metrics.jsonl; metric_labels.py has their labels for people.

Shapes: N chosen positions, n those of one block, E embedding size, V vocabulary, T tokens.
"""

import math

import numpy as np
import torch
from torch import Tensor

from electra.modeling.device import widest_float
from electra.modeling.kernels.cross_entropy import PLAIN, ROWS, Sampling, draw, sum_slices


class MaskedLanguageModelMetrics:
    """Loss, accuracy and entropy of a masked language model at masked positions."""

    def __init__(self) -> None:
        self.count = 0
        self.loss = self.entropy = 0.0
        self.correct = self.sampled = 0

    def add(
        self,
        hidden_NE: Tensor,
        table_VE: Tensor,
        bias_V: Tensor,
        *,
        targets_N: Tensor,
        masked_N: Tensor,
        uniforms_N: Tensor,
        sampling: Sampling = PLAIN,
    ) -> Tensor:
        """Add a batch, and return a sampled token for each of the N positions.

        Args:
            hidden_NE: the outputs of the head's hidden layer.
            masked_N: True at the positions that count in the metrics.
            uniforms_N: random numbers in [0, 1) to sample with.
            sampling: how the samples are drawn.
        """
        samples = []
        for start in range(0, len(targets_N), ROWS):
            rows = slice(start, start + ROWS)
            target_n, masked_n = targets_N[rows], masked_N[rows]
            logits_Vn = (table_VE @ hidden_NE[rows].T).float().add_(bias_V[:, None])
            logits_Vn -= logits_Vn.amax(0)
            weights_Vn = logits_Vn.exp()
            sums_nS = sum_slices(weights_Vn)
            total_n = sums_nS.cumsum(1)[:, -1]
            if sampling.plain:
                sample_n = draw(weights_Vn, sums_nS, uniforms_N[rows])
            else:
                sampling_weights_Vn = sampling.weights(logits_Vn, target_n)
                sample_n = draw(sampling_weights_Vn, sum_slices(sampling_weights_Vn), uniforms_N[rows])
            samples.append(sample_n)
            target_logit_n = logits_Vn.gather(0, target_n[None]).squeeze(0)
            loss_n = total_n.log() - target_logit_n
            entropy_n = total_n.log() - weights_Vn.mul_(logits_Vn).sum(0) / total_n
            self.count += int(masked_n.sum())
            dtype = widest_float(loss_n.device)
            self.loss += float(loss_n[masked_n].to(dtype).sum())
            self.entropy += float(entropy_n[masked_n].to(dtype).sum())
            self.correct += int((target_logit_n == 0.0)[masked_n].sum())  # 0 is the largest logit
            self.sampled += int((sample_n == target_n)[masked_n].sum())
        return torch.cat(samples)

    def compute(self) -> dict[str, float]:
        """The metrics of all batches; empty if no position was added."""
        if not self.count:
            return {}
        return {
            "eval/masked_lm_loss": self.loss / self.count,
            "eval/masked_lm_accuracy": self.correct / self.count,
            "eval/masked_lm_sample_accuracy": self.sampled / self.count,
            "eval/generator_entropy": self.entropy / self.count,
        }

    def compute_restored(self) -> dict[str, float]:
        """The metrics of a network that predicts the original tokens from text with replaced tokens."""
        return {
            "eval/restored_loss": self.loss / max(self.count, 1),
            "eval/restored_accuracy": self.correct / max(self.count, 1),
        }

    def compute_filled(self) -> dict[str, float]:
        """The metrics of a discriminator that also fills [MASK]; empty if no position was added."""
        if not self.count:
            return {}
        return {"eval/filled_loss": self.loss / self.count, "eval/filled_accuracy": self.correct / self.count}


class DetectionMetrics:
    """How well a discriminator's logits separate replaced tokens from original ones."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []
        self.replaced: list[Tensor] = []

    def add(self, logits_T: Tensor, replaced_T: Tensor) -> None:
        self.logits.append(logits_T.float().cpu())
        self.replaced.append(replaced_T.cpu())

    def auc(self) -> float:
        """Area under the ROC curve; NaN if there is only one class."""
        from sklearn.metrics import roc_auc_score  # it takes a second to load

        logits_T, replaced_T = self._concatenate()
        if not 0 < replaced_T.sum() < len(replaced_T) or not np.isfinite(logits_T).all():
            return math.nan
        return float(roc_auc_score(replaced_T, logits_T))

    def compute(self) -> dict[str, float]:
        from sklearn.metrics import average_precision_score

        logits_T, replaced_T = self._concatenate()
        share = float(replaced_T.mean()) if len(replaced_T) else 0.0
        # log(1 + e^x) - y x, the cross-entropy of a logit x and a label y, without overflow
        loss = float((np.logaddexp(0.0, logits_T) - replaced_T * logits_T).mean()) if len(logits_T) else 0.0
        flagged_T = logits_T > 0
        hits = float((flagged_T & replaced_T).sum())
        both = 0 < share < 1 and bool(np.isfinite(logits_T).all())
        return {
            "eval/discriminator_loss": loss,
            "eval/majority_loss": -sum(p * math.log(p) for p in (share, 1 - share) if p > 0),
            "eval/discriminator_auc": self.auc(),
            "eval/discriminator_average_precision": (
                float(average_precision_score(replaced_T, logits_T)) if both else math.nan
            ),
            "eval/discriminator_precision": hits / max(float(flagged_T.sum()), 1.0),
            "eval/discriminator_recall": hits / max(float(replaced_T.sum()), 1.0),
            "eval/replaced_share": share,
        }

    def _concatenate(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.logits:
            return np.zeros(0), np.zeros(0, dtype=bool)
        return torch.cat(self.logits).double().numpy(), torch.cat(self.replaced).numpy()

"""A kind of task: classification with ordered labels, such as stars: far misses cost more.

    electra finetune MODEL --kind ordinal --data reviews.csv --out OUT --plugin ordinal_task.py
    electra predict OUT "A quiet film." --plugin ordinal_task.py

The data, the head, the predictions and the metrics are those of classification. Labels that are numbers are
ordered by their value.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from electra import register_task
from electra.tasks.base import TaskBatch
from electra.tasks.classification import Classification


@register_task("ordinal")
@dataclass(frozen=True)
class Ordinal(Classification):
    """One of several ordered labels."""

    kind = "ordinal"

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """Return the squared distance (B) between the cumulative distributions of prediction and answer."""
        labels_K = torch.arange(len(self.labels), device=x_BLD.device)
        predicted_BK = head(x_BLD).float().softmax(-1).cumsum(-1)
        answer_BK = (labels_K >= batch.targets["answer"][:, None]).float()
        return ((predicted_BK - answer_BK) ** 2).sum(-1)

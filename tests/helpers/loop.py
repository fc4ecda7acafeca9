"""A trainer of a toy objective, and the files that it writes."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.modeling.flops import Network, Networks
from electra.objectives.base import Counts, StepOutput, TrainableModule
from electra.objectives.health import SLOWER
from electra.training.batch_source import BatchSource
from electra.training.config import (
    CheckpointConfig,
    EvaluationConfig,
    OptimizerConfig,
    TrackingConfig,
    TrainConfig,
    TrainerConfig,
)
from electra.training.precision import Precision, PrecisionName
from electra.training.run_context import RunContext
from electra.training.run_folder import RunFolder
from electra.training.time_budget import Deadline
from electra.training.trainer import Outcome, Trainer

LENGTH, VOCABULARY = 8, 11

CLOCKS = ("seconds", "tokens_per_second", "evaluation_seconds")
"""Metrics that depend on the machine."""


class NextId(TrainableModule):
    """Predicts (id + 1) mod V from an id, with dropout, so that hidden randomness would show."""

    def __init__(self, *, dropout: float = 0.2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Embedding(VOCABULARY, 16), nn.Dropout(dropout), nn.Linear(16, VOCABULARY), nn.LayerNorm(VOCABULARY)
        )

    def forward(self, batch: Batch, counts: Counts | None = None) -> StepOutput:
        counts = counts or self.counts(batch)
        targets_BL = (batch.input_ids_BL + 1) % VOCABULARY
        inside_BL = torch.arange(LENGTH) < batch.lengths_B[:, None]
        logits = self.net(batch.input_ids_BL)[inside_BL]
        loss = F.cross_entropy(logits, targets_BL[inside_BL], reduction="sum") / counts["tokens"]
        return StepOutput(loss, {"generator_loss": loss.detach()})

    def begin_step(self, step: int, steps: int | None) -> None:
        pass

    def counts(self, batch: Batch) -> Counts:
        return {"tokens": batch.lengths_B.sum()}

    def networks(self, length: int) -> Networks:
        return {"net": Network(head="replaced-token", hidden_size=5)}

    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        return {}


def batch_of(step: int, part: int, size: int) -> Batch:
    generator = torch.Generator().manual_seed(1000 * step + part)
    ids_BL = torch.randint(VOCABULARY, (size, LENGTH), generator=generator)
    lengths_B = torch.randint(2, LENGTH + 1, (size,), generator=generator)
    return Batch(ids_BL, torch.zeros_like(ids_BL), lengths_B, seed=step)


def healthy(examples: int) -> dict[str, float]:
    return {
        "eval/discriminator_auc": 0.8, "eval/unigram_auc": 0.8, "eval/masked_lm_accuracy": 0.3,
        "eval/masked_lm_sample_accuracy": 0.2, "eval/masked_lm_loss": 4.0, "eval/generator_entropy": 4.0,
        "eval/discriminator_loss": 0.3, "eval/majority_loss": 0.4,
    }  # fmt: skip


def train(
    path: Path,
    config: TrainConfig,
    *,
    objective: nn.Module | None = None,
    micro_batches: Callable[[int], list[Batch]] = lambda step: [batch_of(step, 0, 4)],
    identity: str = "the data",
    warmup_steps: int = 3,
    optimizer: OptimizerConfig | None = None,
    checkpoint: CheckpointConfig | None = None,
    evaluation: EvaluationConfig | None = None,
    evaluate: Callable[[int], dict[str, float]] = healthy,
    waits_seldom: bool = False,
    rows: Callable[[int], list[dict[str, Any]]] = lambda step: [],
    excluded_steps: Sequence[int] = (),
    precision: PrecisionName = "float32",
    deadline: Deadline | None = None,
) -> tuple[Trainer, Outcome]:
    path.mkdir(exist_ok=True)
    sections = TrainerConfig(
        config,
        optimizer=optimizer or OptimizerConfig(learning_rate=0.05, warmup_steps=warmup_steps),
        evaluation=evaluation or EvaluationConfig(),
        checkpoint=checkpoint or CheckpointConfig(every=4),
        tracking=TrackingConfig(tensorboard=False),
    )
    context = RunContext(
        BatchSource(
            micro_batches, epochs=lambda steps: 1.0, sequence_length=LENGTH, identity={"data": identity},
            describe_rows=rows,
        ),
        evaluate=evaluate,
        run_folder=RunFolder(path),
        config_text=lambda steps: f"steps = {steps}\n",
        precision=Precision(precision, "", 1e9),
        device=torch.device("cpu"),
        checkpoint_texts={"tokenizer.json": "{}"},
        deadline=deadline or Deadline(),
    )  # fmt: skip
    trainer = Trainer(objective or NextId(), sections, context)
    trainer.progress.excluded_steps = list(excluded_steps)
    if waits_seldom:
        trainer.device = torch.device("cuda")  # the trainer itself puts nothing there
    return trainer, trainer.run()


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.objective.named_parameters()}


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def metrics(path: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without times and speeds."""
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    records = [record for record in records if record.get("health") != SLOWER]
    return [{k: v for k, v in r.items() if k not in CLOCKS} for r in records]

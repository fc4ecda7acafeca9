"""The settings of a very small run."""

from pathlib import Path

from electra.config import load_config
from electra.pretraining.config import PretrainConfig

SMALL = [
    "model.hidden_size=32", "model.embedding_size=32", "model.feed_forward_size=64", "model.heads=2",
    "model.layers=1", "generator.layers=1", "generator.hidden_size=16", "generator.feed_forward_size=32",
    "packing.sequence_length=32", "train.batch_size=8", "train.report_every=5", "evaluation.examples=16",
    "train.precision=float32", "tracking.tensorboard=false", "optimizer.warmup_steps=5",
]  # fmt: skip


def config(data: Path, out: Path, *overrides: str) -> PretrainConfig:
    return load_config(PretrainConfig, "electra-tiny", [*SMALL, f"data={data}", f"out={out}", *overrides])


def command(data: Path, out: Path, *arguments: str) -> list[str]:
    options = [
        part for override in SMALL for part in ("--" + override.partition("=")[0], override.partition("=")[2])
    ]
    return ["pretrain", "electra-tiny", "--data", str(data), "--out", str(out), *options, *arguments]

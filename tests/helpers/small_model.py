"""A small MODEL for tests: a folder with a network of random weights and a small tokenizer."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig
from electra.modeling.heads import ReplacedTokenHead
from electra.preparation.config import TokenizerKind
from electra.preparation.tokenizer_training import train_tokenizer
from electra.tasks.base import Problem

TEXTS = [
    "The cat sat on the mat.",
    "A dog ate my homework, twice!",
    "Ein naïves Café über Zürich",
    "中文 and English",
]
LENGTH = 16


def write_model(
    folder: Path,
    *,
    kind: TokenizerKind = "wordpiece",
    head: Callable[[Any], Any] = ReplacedTokenHead,
    encoder: type[Any] = BertConfig,
    problem: Problem | None = None,
    **shape: Any,
) -> Path:
    """Write a model into a folder; `encoder` is the class of its config, `shape` are fields that differ.

    A model with a `problem` has its head, and is one that was fine-tuned.
    """
    tokenizer = train_tokenizer(TEXTS * 5, vocabulary_size=150, kind=kind)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    usual = encoder(
        layers=2, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, max_positions=40,
        vocabulary_size=400, initializer_range=0.4, linear_initializer_range=0.4,
    )  # fmt: skip
    config = replace(usual, **shape)
    huggingface.save(
        folder / "model", encoder=config.build(), head=(problem.build_head if problem else head)(config), card="",
        tokenizer_json=folder / "tokenizer.json", max_length=LENGTH, task=problem.to_dict() if problem else None,
    )  # fmt: skip
    return folder / "model"

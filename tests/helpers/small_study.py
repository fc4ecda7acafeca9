"""A small study: two objectives, with networks of one layer."""

from pathlib import Path
from typing import Any

from electra.commands.study import StudyCommand

STUDY = """
title = "Two objectives"
base = "BASE"
control = "electra"
paper = "a paper"
tasks = ["chunking"]

[arms.electra]
says = "ELECTRA"
paper = 85.0

[arms.bert]
says = "BERT"
extends = ["objectives/masked-lm"]
paper = 82.2
"""
BASE = """
extends = "quickstart"

[model]
layers = 1
hidden_size = 32
embedding_size = 32
feed_forward_size = 64
heads = 2

[generator]
hidden_size = 16
feed_forward_size = 32
heads = 1

[train]
batch_size = 8
compile = "off"

[evaluation]
examples = 16
interim_examples = 8

[optimizer]
warmup_steps = 5

[tracking]
tensorboard = false
"""


def command(study_file: Path, data: Path, tmp_path: Path, **others: Any) -> StudyCommand:
    settings = {"out": tmp_path / "out", "budget": 1.5e9, "seeds": 1, "task_seeds": 1}
    return StudyCommand(study=str(study_file), data=data, **{**settings, **others})

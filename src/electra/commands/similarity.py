"""`electra similarity`: do the embeddings of like texts lie close together?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tyro
from rich.console import Group, RenderableType
from rich.table import Table

from electra.errors import ConfigError, DataError
from electra.tasks.metrics import compute_metrics

if TYPE_CHECKING:
    from electra.serving.text_encoder import TextEncoder


@dataclass(frozen=True)
class SimilarityConfig:
    """The command line of `electra similarity`."""

    model: tyro.conf.Positional[str]
    """A run, an export, a fine-tuning, or a Hugging Face folder or id."""
    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Pairs of texts, each text as one argument: the cosine of each pair is shown."""
    task: str = "sts-b"
    """sts-b, or any name for a table of your own."""
    data: Path | None = None
    """GLUE's folder, or a table with two columns of texts and one of numbers, such as a .csv file."""
    columns: tuple[str, str, str] | None = None
    """Of a table of your own: the two columns of texts and that of the numbers."""
    json: bool = False
    """The figures as one JSON object."""


@dataclass(frozen=True)
class Similarity:
    """Correlations of the cosine with people's judgement, by split; or the cosines of given pairs."""

    correlations: dict[str, dict[str, float]]
    pairs: list[tuple[float, str, str]]
    in_json: bool

    def __rich__(self) -> RenderableType:
        if self.in_json:
            return json.dumps(self.correlations or [list(pair) for pair in self.pairs], ensure_ascii=False)
        if self.pairs:
            return Group(*(f"{cosine:.4f}\t{first}\t{second}" for cosine, first, second in self.pairs))
        table = Table("", "Spearman", "Pearson", title="cosine of mean-pooled states", title_justify="left")
        for split, found in self.correlations.items():
            table.add_row(split, f"{found['spearman']:.4f}", f"{found['pearson']:.4f}")
        return table


def run(config: SimilarityConfig) -> Similarity:
    """Correlate the cosine of two texts' embeddings (mean-pooled states) with how alike people find them.

    Examples:
        electra similarity MODEL --data GLUE
        electra similarity MODEL "A man plays a flute." "Someone makes music."
        electra similarity MODEL --task mine --data pairs.csv --columns left right score
    """
    from electra.finetuning.config import load_task_config
    from electra.finetuning.load_task import load_task
    from electra.finetuning.seed_run import DEV
    from electra.serving.text_encoder import TextEncoder
    from electra.tasks import glue
    from electra.tasks.classification import Regression

    encoder = TextEncoder(config.model)
    if config.texts:
        if len(config.texts) % 2:
            raise ConfigError(f"texts are compared in twos, but {len(config.texts)} were given")
        firsts, seconds = list(config.texts[::2]), list(config.texts[1::2])
        cosines = _cosines(encoder, firsts, seconds)
        return Similarity({}, list(zip(cosines, firsts, seconds, strict=True)), config.json)
    if config.data is None:
        raise ConfigError("give two texts, or --data with pairs of texts that people have judged")
    settings = {"model": config.model, "task": config.task, "data.path": config.data}
    if glue.canonical_name(config.task) is None:
        settings["kind"] = "regression"
        if config.columns is not None:
            if len(set(config.columns)) < 3:
                raise ConfigError("--columns: name three: two of texts and one of numbers")
            settings |= dict(zip(("data.text", "data.pair", "data.label"), config.columns, strict=True))
    task, _ = load_task(load_task_config(settings))
    if not isinstance(task.problem, Regression) or not task.problem.pair:
        raise DataError(f"{config.data}: pairs of texts with a number are wanted; name the columns with --columns")
    found = {}
    splits = {split: task.splits.get(split, ()) for split in (DEV, "test")}
    if config.data.is_file():  # nothing is learnt, so nothing has to be held out of it
        splits = {"all": [*task.splits["train"], *task.splits[DEV]]}
    for split, there in splits.items():
        examples = [example for example in there if example.answer is not None]
        if examples:
            cosines = _cosines(encoder, [e.first for e in examples], [e.second or "" for e in examples])
            answers = [float(example.answer) for example in examples]
            found[split] = compute_metrics(("spearman", "pearson"), answers, cosines)
    return Similarity(found, [], config.json)


def _cosines(encoder: TextEncoder, firsts: list[str], seconds: list[str]) -> list[float]:
    embeddings_ND = encoder.encode([*firsts, *seconds])
    embeddings_ND /= np.linalg.norm(embeddings_ND, axis=1, keepdims=True)
    cosines: list[float] = (embeddings_ND[: len(firsts)] * embeddings_ND[len(firsts) :]).sum(1).tolist()
    return cosines

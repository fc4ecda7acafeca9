"""`electra similarity`: the cosine of text embeddings, compared with human ratings of similarity."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Group, RenderableType
from rich.table import Table

from electra.config import PositiveInt


@dataclass(frozen=True)
class SimilarityConfig:
    """The command line of `electra similarity`."""

    model: tyro.conf.Positional[str]
    """A run, an export folder, the output of a fine-tuning, a Hugging Face folder or id, or the included model
    wiki-tiny."""
    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Pairs of texts, one text per argument: the cosine of each pair is printed."""
    task: str = "sts-b"
    """The task sts-b, or any name for your own table."""
    data: Path | None = None
    """Folder of GLUE, or a table with two columns of texts and one of numbers, such as a .csv file."""
    columns: tuple[str, str, str] | None = None
    """Columns of your own table: the two texts and the number."""
    max_length: PositiveInt | None = None
    """Maximum number of tokens that are read at once; a longer text is read in parts. Default: as many as the
    model can read."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    json: bool = False
    """Print one JSON object."""

    def problems(self) -> Iterator[str]:
        if len(self.texts) % 2:
            yield f"texts are compared in pairs, so give an even number of them, got {len(self.texts)}"
        if not self.texts and self.data is None:
            yield "give two texts, or --data with pairs of texts and similarity ratings"
        if self.columns is not None and len(set(self.columns)) < 3:
            yield "--columns: give three different columns: the two texts and the number"


@dataclass(frozen=True)
class Similarity:
    """The correlations of the cosine with human ratings, by split; or the cosines of given pairs."""

    correlations: dict[str, dict[str, float]]
    pairs: list[tuple[float, str, str]]
    in_json: bool

    def __rich__(self) -> RenderableType:
        if self.in_json:
            return json.dumps(self.correlations or [list(pair) for pair in self.pairs], ensure_ascii=False)
        if self.pairs:
            return Group(*(f"{cosine:.4f}\t{first}\t{second}" for cosine, first, second in self.pairs))
        table = Table("", "Spearman", "Pearson", title="cosine of mean-pooled hidden states", title_justify="left")
        for split, correlation in self.correlations.items():
            table.add_row(split, f"{correlation['spearman']:.4f}", f"{correlation['pearson']:.4f}")
        return table


def run(config: SimilarityConfig) -> Similarity:
    """Correlate the cosine of text embeddings (mean-pooled hidden states) with human ratings of similarity.

    Examples:
        electra similarity MODEL --data GLUE
        electra similarity MODEL "A man plays a flute." "Someone makes music."
        electra similarity MODEL --task mine --data pairs.csv --columns left right score
    """
    from electra.finetuning.zero_shot import correlate_similarity
    from electra.serving.text_encoder import TextEncoder

    encoder = TextEncoder(config.model, max_length=config.max_length, device=config.device)
    if config.texts:
        firsts, seconds = config.texts[::2], config.texts[1::2]
        cosines = encoder.cosine_similarity(firsts, seconds).tolist()
        return Similarity({}, list(zip(cosines, firsts, seconds, strict=True)), config.json)
    assert config.data is not None
    correlations = correlate_similarity(encoder, config.model, config.task, config.data, columns=config.columns)
    return Similarity(correlations, [], config.json)

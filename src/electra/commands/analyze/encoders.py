"""`electra analyze compare`: compare two encoders layer by layer on the same words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from electra.config import NonNegativeInt, PositiveInt, Range

if TYPE_CHECKING:
    from electra.reports.analysis import AnalysisReport


@dataclass(frozen=True)
class AnalyzeCompareConfig:
    """The command line of `electra analyze compare`."""

    models: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="MODEL MODEL", help_behavior_hint="(required)"),
    ]
    """Two encoders: runs, export folders, Hugging Face folders or ids. Their vocabularies may differ."""
    text: Path
    """CoNLL-U (the file's name ends in .conllu) with tags and heads; or plain text with a sentence per line,
    without probes."""
    chunks: Path | None = None
    """Text for one more probe: columns with a word per line and its chunk tag, or any other tag, in the last
    column (CoNLL-2000). Default: no such probe."""
    words: Annotated[int, Range(ge=100)] = 5_000
    """Maximum number of words of each text, in whole sentences (a random sample); memory and time grow with it."""
    neighbours: PositiveInt = 10
    """Number of nearest words and sentences that are compared."""
    queries: tuple[str, ...] = ()
    """Words of the text whose nearest neighbors are shown. Default: a random sample."""
    sentences: tuple[str, ...] = ()
    """Your own sentences whose nearest neighbors in the text are shown. Default: a random sample of the text."""
    resamples: PositiveInt = 1_000
    """Number of bootstrap resamples of the sentences, for the intervals."""
    seed: NonNegativeInt = 0
    """Random seed of the samples, the held-out sentences, the control tasks and the resamples."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    out: Path | None = None
    """Folder for compare.json, compare.png and compare.svg; existing ones are replaced. Default: no files."""

    def problems(self) -> Iterator[str]:
        if len(self.models) != 2:
            yield f"MODEL: name two encoders (the same one twice is allowed), got {len(self.models)}"
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            yield f"--out: {self.out} is a file; name a folder"
        if not all(sentence.strip() for sentence in self.sentences):
            yield "--sentences: one of them is empty"


def run(config: AnalyzeCompareConfig) -> AnalysisReport:
    """Compare two encoders: the similarity of their layers, linear probes, attention, and nearest neighbors.

    For every layer: CKA with all layers of the other encoder, linear probes with control tasks (parts of speech,
    depth in the tree, chunks), and isotropy; for every head: the entropy of attention, and what it attends to; and
    the nearest words and sentences in both.

    Examples:
        electra analyze compare RUN/export/discriminator RUN/export/generator --text dev.conllu --out compare
        electra analyze compare ELECTRA BERT --text dev.conllu --chunks train.txt --queries bank spring
    """
    from electra.analysis.compare_encoders import CompareOptions, compare
    from electra.reports.analysis import make_output_folder, save_report

    make_output_folder(config.out)
    options = CompareOptions(
        config.words, config.neighbours, config.queries, config.sentences, config.resamples, config.seed
    )
    results = compare(config.models, config.text, chunks=config.chunks, options=options, device=config.device)
    return save_report("compare", results, config.out)

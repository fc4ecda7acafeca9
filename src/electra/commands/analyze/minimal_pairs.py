"""`electra analyze minimal-pairs`: how often the good one of two sentences is more likely to a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from electra.commands.analyze.options import CHUNK, Models, missing_models, score_in_chunks
from electra.config import NonNegativeInt, PositiveInt

if TYPE_CHECKING:
    from electra.analysis.minimal_pairs import ScoreResults, SentencePair
    from electra.reports.analysis import AnalysisReport
    from electra.serving.likelihood import LikelihoodScorer


@dataclass(frozen=True)
class AnalyzeMinimalPairsConfig:
    """The command line of `electra analyze minimal-pairs`."""

    models: Models
    """Discriminators, masked or causal language models: runs, export folders, Hugging Face folders or ids."""
    data: tuple[Path, ...]
    """A folder of .jsonl files as in BLiMP, or files (.jsonl, .csv, .tsv, .parquet) with a column of good and a
    column of bad sentences."""
    good_column: str | None = None
    """Column of the good sentences. Default: sentence_good, good, grammatical or acceptable."""
    bad_column: str | None = None
    """Column of the bad sentences. Default: sentence_bad, bad, ungrammatical or unacceptable."""
    pairs: PositiveInt | None = None
    """Maximum number of pairs of each file, from its beginning. Default: all."""
    resamples: PositiveInt = 1000
    """Number of bootstrap resamples of the pairs, for the intervals."""
    seed: NonNegativeInt = 0
    """Random seed of the resamples."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    out: Path | None = None
    """Folder for minimal-pairs.json, .png and .svg; existing ones are replaced. Default: no files."""

    def problems(self) -> Iterator[str]:
        yield from missing_models(self.models)


def run(config: AnalyzeMinimalPairsConfig) -> AnalysisReport:
    """Measure how often a good sentence is more likely to a model than a bad one. Nothing is trained.

    Each model is evaluated with every score that its head allows. All scores are shown; none is selected by its
    result.

    Examples:
        electra analyze minimal-pairs RUN RUN/export/generator --data BLIMP --out minimal-pairs
        electra analyze minimal-pairs RUN --data pairs.tsv --good-column correct --bad-column wrong
    """
    from electra.analysis.minimal_pairs import evaluate_pairs, read_pairs
    from electra.export.display_name import display_names
    from electra.reports.analysis import make_output_folder, save_report
    from electra.serving.likelihood import SCORES, load_likelihood_scorer

    make_output_folder(config.out)
    pairs = read_pairs(config.data, pairs=config.pairs, columns=(config.good_column, config.bad_column))
    # All models are loaded before the first one is used, so that a mistake is found early.
    models = [load_likelihood_scorer(model, device=config.device) for model in config.models]
    scores, in_windows = [], {}
    for name, model in zip(display_names(config.models), models, strict=True):
        model_scores, in_windows[name] = _score_pairs(name, model, pairs)
        scores += model_scores
    results = evaluate_pairs(pairs, scores, resamples=config.resamples, seed=config.seed)
    results["in_windows"] = in_windows
    used = {score.score for score in scores}
    results["meanings"] = {name: meaning for name, meaning in SCORES.items() if name in used}
    return save_report("minimal-pairs", results, config.out)


def _score_pairs(name: str, model: LikelihoodScorer, pairs: list[SentencePair]) -> tuple[list[ScoreResults], int]:
    """The results of each score of a model, and the number of sentences that it read in windows."""
    import numpy as np

    from electra.analysis.minimal_pairs import ScoreResults, correct, sentences_of

    parts = score_in_chunks(name, model, list(sentences_of(pairs)), chunk=2 * CHUNK)
    longer_P = np.concatenate([part.token_counts for part in parts]).reshape(-1, 2) @ [1, -1]
    results = [
        ScoreResults(name, score, correct(np.concatenate([part.scores[score] for part in parts])), longer_P)
        for score in model.names
    ]
    return results, sum(part.windowed for part in parts)

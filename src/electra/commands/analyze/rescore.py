"""`electra analyze rescore`: rescore a speech recognizer's n-best lists with a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from electra.commands.analyze.options import Models, missing_models, score_in_chunks
from electra.config import NonNegativeInt, PositiveInt, Range
from electra.errors import require

if TYPE_CHECKING:
    from electra.analysis.rescoring import HypothesisTable, ModelScores
    from electra.reports.analysis import AnalysisReport
    from electra.serving.likelihood import LikelihoodScorer


@dataclass(frozen=True)
class AnalyzeRescoreConfig:
    """The command line of `electra analyze rescore`."""

    models: Models
    """Discriminators, masked or causal language models: runs, export folders, Hugging Face folders or ids."""
    data: Path
    """N-best lists: a table (.csv, .tsv, .jsonl, .parquet) with a row for each hypothesis and the columns
    transcription (or id), hypothesis and score; or .jsonl with one list per line: reference, and hypotheses with
    text and score."""
    references: Path | None = None
    """A table of references: transcription, and id or hypothesis (the recognizer's first best). The column
    transcription of --data then holds the first best hypothesis. Default: --data holds the references."""
    scale: Literal["auto", "probability", "log"] = "auto"
    """Whether scores are probabilities or logarithms (higher is better); auto: probabilities if all lie between 0
    and 1."""
    folds: Annotated[int, Range(ge=2)] = 5
    """Number of folds of the utterances; each is evaluated with the weights fitted on the others."""
    resamples: PositiveInt = 1000
    """Number of bootstrap resamples of the utterances, for the intervals."""
    seed: NonNegativeInt = 0
    """Random seed of the folds and of the resamples."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    out: Path | None = None
    """Folder for rescore.json, rescore.png and rescore.svg; existing ones are replaced. Default: no files."""

    def problems(self) -> Iterator[str]:
        yield from missing_models(self.models)


def run(config: AnalyzeRescoreConfig) -> AnalysisReport:
    """Select hypotheses by the recognizer's score together with a model's, and count the word errors.

    The weight of the model and a penalty per word are fitted on some utterances and evaluated on others. Each
    model is evaluated with every score that its head allows; all scores are shown.

    Examples:
        electra analyze rescore RUN RUN/export/generator --data nbest.csv --out rescore
        electra analyze rescore RUN --data alternatives.csv --references first-bests.csv --folds 10
    """
    require("electra analyze rescore", "speech", "jiwer")
    from electra.analysis.n_best import NORMALIZATION, read_n_best_lists
    from electra.analysis.rescoring import HypothesisTable, evaluate_rescoring
    from electra.export.display_name import display_names
    from electra.reports.analysis import make_output_folder, save_report
    from electra.serving.likelihood import SCORES, load_likelihood_scorer

    make_output_folder(config.out)
    lists = read_n_best_lists(config.data, references=config.references, scale=config.scale)
    table = HypothesisTable.from_utterances(lists.utterances, folds=config.folds, seed=config.seed)
    # All models are loaded before the first one is used, so that a mistake is found early.
    models = [load_likelihood_scorer(model, device=config.device) for model in config.models]
    texts = [text for utterance in lists.utterances for text in utterance.texts]
    scores, in_windows = [], {}
    for name, model in zip(display_names(config.models), models, strict=True):
        model_scores, in_windows[name] = _score_hypotheses(name, model, texts, table)
        scores += model_scores
    results = evaluate_rescoring(table, scores, resamples=config.resamples, seed=config.seed)
    used = {score.score for score in scores}
    results |= {
        "left_out": lists.left_out, "scale": lists.scale, "first_best_added": lists.first_best_added,
        "empty_hypotheses": lists.empty, "normalisation": NORMALIZATION, "in_windows": in_windows,
        "meanings": {name: meaning for name, meaning in SCORES.items() if name in used},
    }  # fmt: skip
    return save_report("rescore", results, config.out)


def _score_hypotheses(
    name: str, model: LikelihoodScorer, texts: list[str], table: HypothesisTable
) -> tuple[list[ModelScores], int]:
    """The likelihoods of all hypotheses by each score of a model, and the number that it read in windows."""
    import numpy as np

    from electra.analysis.n_best import UNKNOWN
    from electra.analysis.rescoring import ModelScores

    parts = score_in_chunks(name, model, texts, unknown=UNKNOWN)
    scores = [
        ModelScores(name, score, table.likelihoods(np.concatenate([part.scores[score] for part in parts])))
        for score in model.names
    ]
    return scores, sum(part.windowed for part in parts)

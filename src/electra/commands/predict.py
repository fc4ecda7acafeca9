"""`electra predict`: labels, values, tags or answers of a fine-tuned model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from tyro.conf import Positional

from electra.config import PositiveInt
from electra.errors import ConfigError
from electra.readers.read import is_table
from electra.serving.text_files import Lines, WrittenFile, check_place, warn_of_paths

if TYPE_CHECKING:
    from electra.tasks.conll import Columns


@dataclass(frozen=True)
class PredictConfig:
    """The command line of `electra predict`."""

    model: Positional[str]
    """Output folder of electra finetune, or an ONNX folder that was exported from one."""
    texts: Positional[tuple[str, ...]] = ()
    """Texts, one per argument; for pairs two per pair: text and text, or question and passage. For tagging, texts
    are split at spaces: put spaces around punctuation marks if they are words of their own in the training
    data."""
    input: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """File with texts: .txt (one text per line), .jsonl, .csv, .tsv or .parquet, each also compressed as .gz or
    .zst; for tagging, columns with one word per line (.txt, .tsv, .conll) or .conllu; for questions also .json
    in SQuAD's format; for labels of single texts also a task in one .json file, as CLINC150's, whose test texts
    are predicted; - for standard input, one text per line."""
    text_column: str | None = None
    """Column of the text in the input file; for tagging, the number of the column of words. Default: the column
    of the fine-tuning."""
    pair_column: str | None = None
    """Column of the second text, or of the passage."""
    max_length: PositiveInt | None = None
    """Maximum number of tokens of a text; the rest is cut off. If the model was fine-tuned with data.long windows
    or memory: of a window. At least 8. Default: the same as in the fine-tuning."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    top: PositiveInt | None = None
    """Number of labels to give with their scores, the highest first; not for tags, answers and numbers. Default: a
    printed line has the predicted label, .jsonl has all of them, and a table has a column for each label if there
    are at most 10."""
    output: Path | None = None
    """File for the predictions: .jsonl, .csv or .tsv; .json for answers to SQuAD's questions; for tagging, the
    format of the input. An existing file is replaced. Default: they are printed."""

    def problems(self) -> Iterator[str]:
        if not self.texts and self.input is None:
            yield "give a text, or --input FILE (- for standard input)"


def run(config: PredictConfig) -> Lines | WrittenFile:
    """Predict with a fine-tuned model. The predictions are in the order of the input.

    Without --output, one line is printed per text: the prediction and the text, separated by a tab. For a single
    label, the number between them is the probability of the label, from 0 to 1. With --top K, a line begins with
    the K most probable labels, each followed by its probability.

    Examples:
        electra predict OUT "A film to remember." "Two hours of my life."
        electra predict OUT --input reviews.csv --text-column review --output predicted.csv
    """
    warn_of_paths(config.texts)
    from electra.serving import prediction_files
    from electra.serving.predictor import Predictor
    from electra.tasks.texts import check_top

    check_place(config.output)
    predictor = Predictor(config.model, max_length=config.max_length, device=config.device)
    check_top(predictor.problem, config.top, "--top")
    if config.input is not None:
        path = Path(config.input)
        problem = predictor.problem
        reads_single_texts = not (problem.is_extractive or problem.reads_words or predictor.pairs)
        is_questions = path.suffix == ".json" and not reads_single_texts
        is_tagged = predictor.problem.reads_words and prediction_files.is_tagged_text(config.input)
        if config.texts and (is_questions or is_tagged):
            raise ConfigError(f"{path}: cannot be combined with texts on the command line; leave one of them out")
        if is_questions:
            return prediction_files.predict_squad(predictor, path, output=config.output)
        if is_tagged:
            layout = _word_columns(config, path)
            return prediction_files.predict_tags(
                predictor, path, layout, output=config.output,
                check_columns=not layout.conllu and config.text_column is None and ".conll" not in path.suffixes,
            )  # fmt: skip
    columns = config.text_column, config.pair_column
    if config.input is not None and is_table(Path(config.input)):
        trained = _training_columns(config.model)
        columns = columns[0] or trained[0], columns[1] or trained[1]
    inputs = prediction_files.read_inputs(predictor, config.texts, config.input, columns=columns)
    predictions = predictor.stream(inputs)
    if config.output is None:
        lines = []
        for _, text, prediction in predictions:
            joined = text if isinstance(text, str) else "\t".join(text)
            lines.append(prediction_files.format_line(predictor.problem, prediction, joined, top=config.top))
        return Lines(lines)
    records = ((record, prediction) for record, _, prediction in predictions)
    return prediction_files.write_table(
        config.output, records, answer_key=predictor.problem.answer_key, top=config.top
    )


def _training_columns(model: str) -> tuple[str | None, str | None]:
    """The columns that the model was trained on, if its folder has the config of the fine-tuning."""
    from electra.finetuning.results import find_finetuning, load_finetuning_config
    from electra.tasks import glue

    folder = find_finetuning(model)
    if folder is None:
        return None, None
    config = load_finetuning_config(folder)
    name = glue.canonical_name(config.task) if config.kind == "named" else None
    texts = (config.data.text, config.data.pair) if name is None else glue.TASKS[name].texts
    return texts[0], texts[1] if len(texts) > 1 else None


def _word_columns(config: PredictConfig, path: Path) -> Columns:
    """Which column of a file has the words, and which field of CoNLL-U gets the tags."""
    from electra.finetuning.results import find_finetuning, load_finetuning_config
    from electra.tasks import conll

    if ".conllu" in path.name:
        field = None
        if (folder := find_finetuning(config.model)) is not None:
            trained = load_finetuning_config(folder)
            field = trained.data.label or trained.task
        return {"xpos": conll.XPOS, "feats": conll.FEATS}.get(field or "", conll.UPOS)
    column = config.text_column or _training_columns(config.model)[0]
    if column is not None and not column.removeprefix("-").isdigit():
        raise ConfigError(f"--text-column: {column!r} is not a column of a CoNLL file; give its number, from 0")
    return conll.Columns(int(column or 0), None)

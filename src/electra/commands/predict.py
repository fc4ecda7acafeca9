"""`electra predict`: labels, values, tags or answers of a fine-tuned model."""

from __future__ import annotations

import csv
import io
import json
import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from electra.commands.text_results import STANDARD_INPUT, Lines, Written, no_text, write_lines
from electra.errors import ConfigError, DataError
from electra.readers.base import TableReader, get_reader
from electra.readers.files import read_lines
from electra.readers.read import read_records
from electra.tasks import conll
from electra.tasks.table_columns import SECONDS, TEXTS, find_text_columns

if TYPE_CHECKING:
    from electra.serving.predictor import Predictor, Text
    from electra.tasks.base import Prediction

logger = logging.getLogger(__name__)

AT_ONCE = 4096
"""Texts that are held and sorted by length at a time, so that a file may have any size."""
QUESTIONS, PASSAGES = ("question",), ("context", "passage")
"""Usual names of columns, for models that answer questions."""
Record = dict[str, Any]


@dataclass(frozen=True)
class PredictConfig:
    """The command line of `electra predict`."""

    model: Positional[str]
    """A folder that `electra finetune` wrote, or an ONNX folder made of one."""
    texts: Positional[tuple[str, ...]] = ()
    """Texts, each as one argument; for pairs and questions two each: text and text, question and passage."""
    input: str | None = None
    """A .txt (one text a line), .jsonl, .csv, .tsv or .parquet, each also .gz or .zst; for tagging words in
    columns, a word a line (.txt, .tsv, .conll), or .conllu; for questions also .json in SQuAD's format; - for
    standard input, one text a line."""
    text_column: str | None = None
    """The column of the text in INPUT (for tagging, the number of the words' column); else the one of training."""
    pair_column: str | None = None
    """The column of the second text, or of the passage."""
    output: Path | None = None
    """Write to this file instead of showing the result: .jsonl, .csv or .tsv; .json for SQuAD's predictions; for
    tagged text, as INPUT."""


def run(config: PredictConfig) -> Lines | Written:
    """Say what a fine-tuned model makes of texts, in the order of the input.

    Examples:
        electra predict OUT "A film to remember." "Two hours of my life."
        electra predict OUT --input reviews.csv --text-column review --output predicted.csv
    """
    from electra.serving.predictor import Predictor

    if not config.texts and config.input is None:
        raise ConfigError("give a text, or --input FILE (- for standard input)")
    predictor = Predictor(config.model)
    words = config.input is not None and predictor.problem.kind == "tagging" and _is_columns(config.input)
    if config.texts and config.input is not None and (words or Path(config.input).suffix == ".json"):
        raise ConfigError("give texts or --input with such a file, not both")
    if config.input is not None and Path(config.input).suffix == ".json":
        return _questions(config, predictor, Path(config.input))
    if config.input is not None and words:
        return _tagged(config, predictor, Path(config.input))
    records = _with_text(_records(config, predictor), config.input)
    found = _predicted(records, predictor)
    if config.output is None:
        return Lines([_line(text, prediction) for _, text, prediction in found])
    lines = _lines_of(
        config.output, ((record, prediction) for record, _, prediction in found), predictor.problem.says
    )
    header = config.output.suffix.lower() != ".jsonl"
    count = write_lines(config.output, lines)
    return Written(max(0, count - header), "prediction", config.output)


def _predicted(
    records: Iterator[tuple[Record, Text]], predictor: Predictor
) -> Iterator[tuple[Record, Text, Prediction]]:
    done = 0
    while group := list(islice(records, AT_ONCE)):
        if done:
            logger.info("predicted %s texts", f"{done:,}", extra={"progress": (done, None)})
        predictions = predictor([text for _, text in group])
        for (record, text), prediction in zip(group, predictions, strict=True):
            yield record, text, prediction
        done += len(group)


def _with_text(records: Iterator[tuple[Record, Text]], name: str | None) -> Iterator[tuple[Record, Text]]:
    """The same.

    Raises:
        DataError: at the end, where there was no text, or only empty ones.
    """
    some = False
    for record, text in records:
        some = some or bool("".join(text).strip())
        yield record, text
    if not some:
        raise no_text(name)


def _records(config: PredictConfig, predictor: Predictor) -> Iterator[tuple[Record, Text]]:
    """Every input: what is known of it, and its text or texts."""
    given = list(config.texts)
    if predictor.pairs:
        if len(given) % 2:
            raise ConfigError(
                f"this model takes two texts each time, but {len(given)} were given; give them in twos"
            )
        for first, second in zip(given[::2], given[1::2], strict=True):
            yield {"text": first, "pair": second}, (first, second)
    else:
        for text in given:
            yield {"text": text}, text
    if config.input is None:
        return
    path = Path(config.input)
    if config.input == STANDARD_INPUT or not isinstance(get_reader(path), TableReader):
        if predictor.pairs:
            raise DataError(f"{config.input}: this model takes two texts each time; give a table with two columns")
        for text in _lines(config.input):
            yield {"text": text}, text
        return
    trained = _columns_of_training(config.model)
    usual = (QUESTIONS, PASSAGES) if predictor.problem.kind == "answering" else (TEXTS, SECONDS)
    columns: tuple[str, str | None] | None = None
    for line, record in read_records(path):
        if columns is None:
            columns = find_text_columns(
                path, list(record), config.text_column or trained[0], config.pair_column or trained[1],
                pairs=predictor.pairs, usual=usual, options=("--text-column", "--pair-column"),
            )  # fmt: skip
        texts = [_text(record.get(name), path, line, name) for name in columns if name]
        yield record, tuple(texts) if predictor.pairs else texts[0]


def _lines(name: str) -> Iterator[str]:
    numbered = enumerate(sys.stdin.buffer, start=1) if name == STANDARD_INPUT else read_lines(Path(name))
    for number, line in numbered:
        try:
            text = (line or b"").decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{name}:{number}: broken UTF-8 ({error.reason}); mend this line") from error
        if text and not text.isspace():
            yield text
        else:
            logger.warning("%s:%s is passed over: the line is empty", name, number)


def _columns_of_training(model: str) -> tuple[str | None, str | None]:
    """The columns that the model was trained on, where its folder says so."""
    from electra.finetuning.results import find_finetuning, load_finetuning_config
    from electra.tasks import glue

    folder = find_finetuning(model)
    if folder is None:
        return None, None
    config = load_finetuning_config(folder)
    name = glue.canonical_name(config.task) if config.kind == "named" else None
    texts = (config.data.text, config.data.pair) if name is None else glue.SPECS[name].texts
    return texts[0], texts[1] if len(texts) > 1 else None


def _text(value: Any, path: Path, line: int, column: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{path}:{line}: the text in column {column!r} is {type(value).__name__}, not a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can spell half a surrogate pair
        raise DataError(f"{path}:{line}: broken Unicode in column {column!r} ({error.reason})") from error
    return value


def _is_columns(name: str) -> bool:
    """Whether an input holds tagged text, or words alone, a word a line."""
    path = Path(name)
    file = path.with_suffix("") if path.suffix in (".gz", ".zst") else path
    return name != STANDARD_INPUT and file.suffix.lower() not in (".jsonl", ".csv", ".parquet")


def _tagged(config: PredictConfig, predictor: Predictor, path: Path) -> Written | Lines:
    """Words in columns, a word a line; the tags go into a column behind them, or into the field of CoNLL-U."""
    from electra.finetuning.results import find_finetuning, load_finetuning_config

    column = config.text_column or _columns_of_training(config.model)[0]
    if ".conllu" in path.name:
        field = None
        if (folder := find_finetuning(config.model)) is not None:
            trained = load_finetuning_config(folder)
            field = trained.data.label or trained.task
        columns = {"xpos": conll.XPOS, "feats": conll.FEATS}.get(field or "", conll.UPOS)
    elif column is not None and not column.removeprefix("-").isdigit():
        raise ConfigError(f"--text-column: {column!r} is no column of tagged text; give its number, from 0")
    else:
        columns = conll.Columns(int(column or 0), None)
    if config.output is not None and not _is_columns(str(config.output)):
        raise ConfigError(
            f"--output: tagged text goes out as it came in; call the file {config.output.stem}{path.suffix}"
        )
    try:
        if not columns.conllu and config.text_column is None and ".conll" not in path.suffixes:
            conll.check_is_columns(path, columns, getattr(predictor.problem, "labels", ()))
        sentences = conll.read(path, columns)
    except DataError as error:
        hint = "a model that tags reads words in columns from such a file; whole sentences a line: --input -"
        raise DataError(f"{error}\n  {hint}") from error
    tags = [prediction["tags"] for prediction in predictor([sentence.words for sentence in sentences])]
    if config.output is None:
        return Lines([
            "\n".join(f"{word}\t{tag}" for word, tag in zip(sentence.words, found, strict=True)) + "\n"
            for sentence, found in zip(sentences, tags, strict=True)
        ])  # fmt: skip
    conll.write(path, config.output, columns, tags)
    return Written(len(tags), "prediction", config.output)


def _questions(config: PredictConfig, predictor: Predictor, path: Path) -> Written | Lines:
    """Questions in SQuAD's format; answers by the id of the question."""
    from electra.tasks import squad_files

    if predictor.problem.kind != "answering":
        raise ConfigError(f"{path}: files of questions are for models that answer them; {config.model} does not")
    if config.output is not None and config.output.suffix != ".json":
        raise ConfigError(
            f"--output: SQuAD's predictions go out as .json; call the file {config.output.stem}.json"
        )
    questions, notes = squad_files.read_questions(path)
    for note in notes:
        logger.info("%s", note)
    predictions = predictor([(question.question, question.context) for question in questions])
    answers = {one.id: prediction["answer"] for one, prediction in zip(questions, predictions, strict=True)}
    if config.output is None:
        return Lines([f"{name}\t{answer}" for name, answer in answers.items()])
    write_lines(config.output, [json.dumps(answers, ensure_ascii=False, indent=1)])
    return Written(len(answers), "prediction", config.output)


def _line(given: Text, prediction: Prediction) -> str:
    """What a person reads: the answer, how sure the model is, and the text or texts."""
    text = given if isinstance(given, str) else "\t".join(given)
    if "tags" in prediction:
        return " ".join(f"{word}/{tag}" for word, tag in zip(prediction["words"], prediction["tags"], strict=True))
    if "label" in prediction:
        return f"{prediction['label']}\t{prediction['scores'][prediction['label']]:.3f}\t{text}"
    if "labels" in prediction:
        return f"{', '.join(prediction['labels']) or '–'}\t{text}"
    if "value" in prediction:
        return f"{prediction['value']:.3f}\t{text}"
    return f"{prediction['answer'] or '(no answer)'}\t{text}"


def _lines_of(path: Path, found: Iterable[tuple[Record, Prediction]], says: str) -> Iterator[str]:
    """Each record with its prediction: a JSON object, or a line of a table behind that of the columns' names."""
    suffix = path.suffix.lower()
    if suffix not in (".jsonl", ".csv", ".tsv"):
        raise ConfigError(f"--output: {path.name} should end in .jsonl, .csv or .tsv")
    names: list[str] = []
    for record, prediction in found:
        said = _flat(prediction, says, flat=suffix != ".jsonl")
        if there := [name for name in said if name in record]:
            raise DataError(
                f"the input has {', '.join(map(repr, there))} already, which the prediction would replace; "
                "give the column another name"
            )
        both = {**{name: _cell(value, suffix) for name, value in record.items()}, **said}
        if suffix == ".jsonl":
            yield json.dumps(both, ensure_ascii=False, default=str)
            continue
        if not names:
            names = list(both)
            yield _row(names, suffix)
        if more := [name for name in both if name not in names]:
            raise DataError(f"{path}: a row has {', '.join(more)}, which the first has not; write .jsonl instead")
        yield _row([both.get(name, "") for name in names], suffix)


def _cell(value: Any, suffix: str) -> Any:
    """A value of the input as it goes into a file; a table's cells hold lists as the predictions have them."""
    return ",".join(map(str, value)) if isinstance(value, list) and suffix != ".jsonl" else value


def _row(values: list[Any], suffix: str) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter="," if suffix == ".csv" else "\t", lineterminator="").writerow(values)
    return stream.getvalue()


def _flat(prediction: Prediction, says: str, *, flat: bool) -> Record:
    """A prediction's keys as columns: `predicted`, and the score of each label."""
    answer = prediction[says]
    scores = prediction.get("scores")
    if not flat:
        cut = {"cut": True} if prediction.get("cut") else {}  # the text was too long, and its end not read
        return {"predicted": answer, **({"scores": scores} if scores is not None else {}), **cut}
    joined = ",".join(map(str, answer)) if isinstance(answer, list) else answer
    each = {f"score {label}": score for label, score in scores.items()} if isinstance(scores, dict) else {}
    return {"predicted": joined, **each}

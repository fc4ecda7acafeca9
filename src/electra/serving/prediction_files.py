"""The files of `electra predict`: the texts in them, and the predictions written next to the texts.

Tables get new columns. Tagged text (CoNLL, CoNLL-U) and questions (SQuAD) are written in their own formats.
"""

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra.errors import ConfigError, DataError
from electra.readers.base import COMPRESSIONS, TableReader, get_reader
from electra.readers.lines import CONVERT_ENCODING, MAX_LINE, read_lines
from electra.readers.read import read_records
from electra.serving.text_files import (
    STANDARD_INPUT,
    Lines,
    WrittenFile,
    check_suffix,
    no_text_error,
    table_row,
    write_lines,
)
from electra.tasks import conll
from electra.tasks.json_splits import SUFFIX as JSON_SUFFIX
from electra.tasks.table_columns import find_text_columns
from electra.tasks.texts import highest_scores

if TYPE_CHECKING:
    from electra.serving.predictor import Predictor
    from electra.tasks.base import Prediction, Problem, Text

logger = logging.getLogger(__name__)

TABLE_SUFFIXES = (".jsonl", ".csv", ".tsv")
LABELS_IN_COLUMNS = 10
"""Maximum number of labels that have a column of scores each."""
Record = dict[str, Any]


def read_inputs(
    predictor: "Predictor",
    texts: Sequence[str],
    name: str | None,
    *,
    columns: tuple[str | None, str | None] = (None, None),
) -> Iterator[tuple[Record, "Text"]]:
    """The texts of the command line, then those of a file: the fields of each row, and its text or texts.

    Args:
        name: the path of a table or text file, - for standard input (one text per line), or None.
        columns: the column of the text and that of the second text in a table. None: detected.

    Raises:
        ConfigError: the model needs pairs of texts, and their number is odd.
        DataError: the file cannot be read; or, after the last row, there was no text at all.
    """
    has_text = False
    for record, text in _read_inputs(predictor, texts, name, columns):
        has_text = has_text or bool("".join(text).strip())
        yield record, text
    if not has_text:
        raise no_text_error(name)


def _read_inputs(
    predictor: "Predictor", texts: Sequence[str], name: str | None, columns: tuple[str | None, str | None]
) -> Iterator[tuple[Record, "Text"]]:
    if predictor.pairs:
        if len(texts) % 2:
            raise ConfigError(
                f"this model needs pairs of texts, but {len(texts)} texts were given; give two per pair"
            )
        for first, second in zip(texts[::2], texts[1::2], strict=True):
            yield {"text": first, "pair": second}, (first, second)
    else:
        for text in texts:
            yield {"text": text}, text
    if name is None:
        return
    if Path(name).suffix == JSON_SUFFIX:
        yield from _read_test_split(Path(name))
        return
    if name != STANDARD_INPUT and isinstance(get_reader(Path(name)), TableReader):
        yield from _read_table(predictor, Path(name), columns)
        return
    if predictor.pairs:
        raise DataError(f"{name}: this model needs pairs of texts; give a table with two columns")
    for text in _read_text_lines(name):
        yield {"text": text}, text


def _read_test_split(path: Path) -> Iterator[tuple[Record, "Text"]]:
    """The test texts of a task in one .json file, with their labels."""
    from electra.tasks.tabular import read_test_texts

    try:
        rows = read_test_texts(path)
    except DataError as error:
        hint = "this model predicts the test texts of such a file; other input: .txt, .jsonl, .csv, .tsv, .parquet"
        raise DataError(f"{error}\n  {hint}") from error
    logger.info("%s: its %s test texts are predicted", path, f"{len(rows):,}")
    for text, label in rows:
        yield {"text": text, "label": label}, text


def _read_table(
    predictor: "Predictor", path: Path, columns: tuple[str | None, str | None]
) -> Iterator[tuple[Record, "Text"]]:
    names: tuple[str, str | None] | None = None
    for line, record in read_records(path):
        if names is None:
            names = find_text_columns(
                path, list(record), *columns, pairs=predictor.pairs,
                usual=predictor.problem.column_names, options=("--text-column", "--pair-column"),
            )  # fmt: skip
        texts = [_checked_text(record.get(name), path, line, name) for name in names if name]
        yield record, tuple(texts) if predictor.pairs else texts[0]


def _checked_text(value: Any, path: Path, line: int, column: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{path}:{line}: the text in column {column!r} is {type(value).__name__}, not a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can contain half of a surrogate pair
        raise DataError(f"{path}:{line}: broken Unicode in column {column!r} ({error.reason})") from error
    return value


def _read_text_lines(name: str) -> Iterator[str]:
    """The lines of a file. A broken line is an error, because predictions are matched by line."""
    numbered = enumerate(sys.stdin.buffer, start=1) if name == STANDARD_INPUT else read_lines(Path(name))
    for number, line in numbered:
        if line is None:
            raise DataError(f"{name}:{number}: the line is longer than {MAX_LINE >> 20} MiB; split it")
        try:
            text = line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}:{number}: broken UTF-8 ({error.reason}); fix this line; or, {CONVERT_ENCODING}"
            ) from error
        if text and not text.isspace():
            yield text
        else:
            logger.warning("%s:%s is skipped: the line is empty", name, number)


def format_line(problem: "Problem", prediction: "Prediction", text: str, *, top: int | None = None) -> str:
    """The line that is printed for a text, with parts that are separated by tabs.

    Args:
        text: the text, or both texts separated by a tab.
        top: number of labels before the text, each with its score, the highest first (see `check_top`). None: the
            prediction, as the kind of task prints it.
    """
    if top is None:
        return problem.format_prediction(prediction, text)
    labels = (f"{label}\t{score:.3f}\t" for label, score in highest_scores(prediction["scores"], top).items())
    return "".join(labels) + text


def write_table(
    path: Path,
    predictions: Iterable[tuple[Record, "Prediction"]],
    *,
    answer_key: str,
    top: int | None = None,
) -> WrittenFile:
    """Write each record with its prediction, as .jsonl, .csv or .tsv.

    Args:
        answer_key: the key of the answer in a prediction.
        top: number of labels that are written with their scores, the highest first. None: all of them in .jsonl;
            in a table all if there are few (`LABELS_IN_COLUMNS`), else none.

    Raises:
        ConfigError: the suffix of the file is another one.
        DataError: the input has a column of the same name as the prediction, or the file cannot be written.
    """
    check_suffix(path, TABLE_SUFFIXES)
    suffix = path.suffix.lower()
    count = write_lines(path, _table_lines(path, predictions, answer_key, suffix, top))
    has_header = suffix != ".jsonl"
    return WrittenFile(max(0, count - has_header), "prediction", path)


def _table_lines(
    path: Path, predictions: Iterable[tuple[Record, "Prediction"]], answer_key: str, suffix: str, top: int | None
) -> Iterator[str]:
    """A JSON object per record, or a header and a row per record."""
    names: list[str] = []
    fields_of = _json_fields if suffix == ".jsonl" else _columns
    for record, prediction in predictions:
        added = fields_of(prediction, answer_key, top)
        if existing := [name for name in added if name in record]:
            raise DataError(
                f"the input already has a column {', '.join(map(repr, existing))}, which the prediction would "
                "replace; rename this column"
            )
        if suffix == ".jsonl":
            yield json.dumps({**record, **added}, ensure_ascii=False, default=str)
            continue
        row = {**{name: _cell(value) for name, value in record.items()}, **added}
        if not names:
            names = list(row)
            yield table_row(names, suffix)
        if more := [name for name in row if name not in names]:
            raise DataError(
                f"{path}: a row has {', '.join(more)}, which the first row lacks; write .jsonl instead"
            )
        yield table_row([row.get(name, "") for name in names], suffix)


def _json_fields(prediction: "Prediction", answer_key: str, top: int | None) -> Record:
    fields = {"predicted": prediction[answer_key]}
    if (scores := prediction.get("scores")) is not None:
        fields["scores"] = highest_scores(scores, top) if isinstance(scores, dict) else scores
    return {**fields, "cut": True} if prediction.get("cut") else fields


def _columns(prediction: "Prediction", answer_key: str, top: int | None) -> Record:
    """A prediction as columns of a table: `predicted`, the `confidence` in a single label, scores of labels."""
    answer, scores = prediction[answer_key], prediction.get("scores")
    columns = {"predicted": _cell(answer)}
    if not isinstance(scores, dict):
        return columns
    if isinstance(answer, str):
        columns["confidence"] = scores[answer]
    if top is not None:
        for place, (label, score) in enumerate(highest_scores(scores, top).items(), start=1):
            columns |= {f"label {place}": label, f"score {place}": score}
    elif len(scores) <= LABELS_IN_COLUMNS:
        columns |= {f"score {label}": score for label, score in scores.items()}
    return columns


def _cell(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value


def is_tagged_text(name: str) -> bool:
    """Whether an input of this name is tagged text or a list of words, with one word per line."""
    path = Path(name)
    file = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    return name != STANDARD_INPUT and file.suffix.lower() not in (".jsonl", ".csv", ".parquet")


def predict_tags(
    predictor: "Predictor", path: Path, columns: conll.Columns, *, output: Path | None, check_columns: bool
) -> WrittenFile | Lines:
    """Tag a file with one word per line. The tags become the last column, or a field of CoNLL-U.

    Args:
        columns: which column has the words, and which field gets the tags.
        output: None: the words and tags are returned as lines.
        check_columns: refuse a file that may have one sentence per line.

    Raises:
        ConfigError: the output has another format than the input.
        DataError: the file cannot be read.
    """
    if output is not None and (output.suffix in COMPRESSIONS or not is_tagged_text(str(output))):
        stem, plain = (one.with_suffix("") if one.suffix in COMPRESSIONS else one for one in (output, path))
        raise ConfigError(
            f"--output: tagged text keeps the format of the input, without compression; name it "
            f"{stem.stem}{plain.suffix}"
        )
    try:
        if check_columns:
            conll.check_is_columns(path, columns, getattr(predictor.problem, "labels", ()))
        sentences = conll.read(path, columns)
    except DataError as error:
        hint = "a tagging model reads one word per line from such a file; to give one sentence per line: --input -"
        raise DataError(f"{error}\n  {hint}") from error
    tags = [prediction["tags"] for prediction in predictor([sentence.words for sentence in sentences])]
    if output is not None:
        conll.write(path, output, columns, tags)
        return WrittenFile(len(tags), "prediction", output)
    return Lines([
        "".join(f"{word}\t{tag}\n" for word, tag in zip(sentence.words, of_words, strict=True))
        for sentence, of_words in zip(sentences, tags, strict=True)
    ])  # fmt: skip


def predict_squad(predictor: "Predictor", path: Path, *, output: Path | None) -> WrittenFile | Lines:
    """Answer the questions of a file in SQuAD's format. The answers are written by the id of the question.

    Args:
        output: None: the ids and answers are returned as lines.

    Raises:
        ConfigError: the model does not answer questions, or the output is no .json file.
        DataError: the file cannot be read.
    """
    from electra.tasks import squad_files

    if not predictor.problem.is_extractive:
        raise ConfigError(
            f"{path}: a .json file has questions, or single texts with labels, and this model reads "
            + ("pairs of texts; give a table" if predictor.pairs else "words; give a file with one word per line")
        )
    if output is not None and output.suffix != ".json":
        raise ConfigError(f"--output: SQuAD's predictions are a .json file; name it {output.stem}.json")
    questions, notes = squad_files.read_questions(path)
    for note in notes:
        logger.info("%s", note)
    predictions = predictor([(question.question, question.context) for question in questions])
    answers = {one.id: prediction["answer"] for one, prediction in zip(questions, predictions, strict=True)}
    if output is None:
        return Lines([f"{name}\t{answer}" for name, answer in answers.items()])
    write_lines(output, [json.dumps(answers, ensure_ascii=False, indent=1)])
    return WrittenFile(len(answers), "prediction", output)

"""Predictions as rows of a table or as JSON lines: which scores are written."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from predicting_models import TEXTS, write_models

from electra.commands.predict import PredictConfig, run
from electra.errors import ConfigError, DataError
from electra.serving import prediction_files
from electra.serving.prediction_files import format_line, write_table
from electra.serving.predictor import Predictor
from electra.tasks.classification import Classification
from electra.tasks.conll import Columns

PREDICTIONS: list[dict[str, Any]] = [
    {"label": "fair", "scores": {"bad": 0.1, "good": 0.2, "fair": 0.7}},
    {"label": "bad", "scores": {"bad": 0.5, "good": 0.3, "fair": 0.2}},
]


def written(path: Path, **options: Any) -> list[dict[str, Any]]:
    write_table(path, [({"id": i}, one) for i, one in enumerate(PREDICTIONS)], answer_key="label", **options)
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines] if path.suffix == ".jsonl" else list(csv.DictReader(lines))


def test_a_table_has_the_confidence_and_a_column_for_each_label(tmp_path: Path) -> None:
    assert written(tmp_path / "a.csv")[1] == {
        "id": "1", "predicted": "bad", "confidence": "0.5", "score bad": "0.5", "score good": "0.3",
        "score fair": "0.2",
    }  # fmt: skip


def test_many_labels_have_no_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_files, "LABELS_IN_COLUMNS", 2)
    assert written(tmp_path / "a.csv")[0] == {"id": "0", "predicted": "fair", "confidence": "0.7"}


def test_a_table_of_the_labels_with_the_highest_scores(tmp_path: Path) -> None:
    assert [list(row.values()) for row in written(tmp_path / "a.csv", top=2)] == [
        ["0", "fair", "0.7", "fair", "0.7", "good", "0.2"],
        ["1", "bad", "0.5", "bad", "0.5", "good", "0.3"],
    ]
    assert list(written(tmp_path / "a.csv", top=9)[0])[-2:] == ["label 3", "score 3"]


def test_json_has_the_highest_scores_first(tmp_path: Path) -> None:
    assert [list(row["scores"]) for row in written(tmp_path / "a.jsonl")] == [
        ["fair", "good", "bad"], ["bad", "good", "fair"],
    ]  # fmt: skip
    assert [list(row["scores"]) for row in written(tmp_path / "a.jsonl", top=1)] == [["fair"], ["bad"]]


def test_sets_of_labels_have_no_confidence(tmp_path: Path) -> None:
    prediction = {"labels": ["sea"], "scores": {"sea": 0.8, "sky": 0.4}}
    write_table(tmp_path / "a.csv", [({}, prediction)], answer_key="labels")
    assert (tmp_path / "a.csv").read_text().splitlines() == ["predicted,score sea,score sky", "sea,0.8,0.4"]


def test_a_printed_line_has_the_highest_labels_with_their_scores() -> None:
    problem = Classification(("accuracy",), labels=("bad", "good", "fair"))
    prediction = {"label": "fair", "scores": {"bad": 0.1, "good": 0.2, "fair": 0.7}}
    assert format_line(problem, prediction, "a text", top=2) == "fair\t0.700\tgood\t0.200\ta text"
    assert format_line(problem, prediction, "a\tb", top=1) == format_line(problem, prediction, "a\tb")


def test_the_test_texts_of_a_task_in_one_file(tmp_path: Path) -> None:
    """CLINC150 is distributed in this way."""
    model = write_models(tmp_path)("labels")
    path, out = tmp_path / "data_full.json", tmp_path / "out.csv"
    lists = {"train": [["a cat", "good"]], "test": [[text, "good"] for text in TEXTS], "oos_test": [["x", "oos"]]}
    path.write_text(json.dumps(lists))
    expected = [one["label"] for one in Predictor(model)([*TEXTS, "x"])]
    assert [
        line.split("\t")[0] for line in str(run(PredictConfig(model, input=str(path)))).splitlines()
    ] == expected
    run(PredictConfig(model, input=str(path), output=out))
    rows = [tuple(row.values())[:3] for row in csv.DictReader(out.read_text().splitlines())]
    assert rows == [*zip(TEXTS, ["good"] * len(TEXTS), expected, strict=False), ("x", "oos", expected[-1])]
    path.write_text(json.dumps({"train": lists["train"]}))
    with pytest.raises(DataError, match="there is no test text"):
        run(PredictConfig(model, input=str(path)))


def test_a_line_that_is_too_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra.readers.lines.MAX_LINE", 10)
    (path := tmp_path / "texts.txt").write_text("short\n" + "long " * 9 + "\n")
    with pytest.raises(DataError, match=r"texts\.txt:2: the line is longer than .* MiB; split it"):
        list(prediction_files._read_text_lines(str(path)))


@pytest.mark.parametrize(
    ("output", "name"), [("o.conll.gz", "o.conll"), ("o.jsonl", "o.conll"), ("o.zst", "o.conll")]
)
def test_tagged_text_is_not_compressed(output: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"without compression; name it {name}$"):
        prediction_files.predict_tags(
            None,  # type: ignore[arg-type]  # it is refused before the model is used
            tmp_path / "in.conll.gz", Columns(), output=tmp_path / output, check_columns=False,
        )  # fmt: skip

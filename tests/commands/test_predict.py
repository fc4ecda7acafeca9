"""`electra predict`: every kind of input, and predictions in its order."""

import csv
import gzip
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from predicting_models import PAIRS, TEXTS, Models, write_models

from electra.cli import main
from electra.commands.predict import PredictConfig, run
from electra.config import check
from electra.errors import CheckpointError, ConfigError, DataError
from electra.serving import predictor
from electra.serving.predictor import Predictor
from electra.serving.text_files import Lines, WrittenFile


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return write_models(tmp_path_factory.mktemp("models"))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def lines(result: object) -> list[str]:
    assert isinstance(result, Lines)
    return result.lines


def test_the_networks_give_different_predictions(models: Models) -> None:
    """Otherwise the tests below could not detect a wrong order."""
    labels = [one["label"] for one in Predictor(models("labels"))(TEXTS)]
    assert len(set(labels)) > 1 and labels != labels[::-1]
    answers = [one["answer"] for one in Predictor(models("answering"))(PAIRS)]
    assert len(set(answers)) == 3


def test_one_prediction_per_line(models: Models, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", models("labels"), *TEXTS]) == 0
    actual = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    expected = Predictor(models("labels"))(TEXTS)
    assert [(label, text) for label, _, text in actual] == [
        (one["label"], text) for one, text in zip(expected, TEXTS, strict=True)
    ]
    assert [float(score) for _, score, _ in actual] == [
        pytest.approx(one["scores"][one["label"]], abs=1e-3) for one in expected
    ]


@pytest.mark.parametrize("kind", ["labels", "multilabel"])
def test_the_most_probable_labels_are_printed(
    kind: str, models: Models, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", models(kind), *TEXTS, "--top", "2"]) == 0
    for line, one in zip(capsys.readouterr().out.splitlines(), Predictor(models(kind))(TEXTS), strict=True):
        first, highest, second, lower, _ = line.split("\t")
        ordered = sorted(one["scores"], key=one["scores"].__getitem__, reverse=True)
        assert [first, second] == ordered[:2]
        assert float(highest) == pytest.approx(one["scores"][first], abs=1e-3) and float(lower) <= float(highest)


@pytest.mark.parametrize("kind", ["multilabel", "regression", "tagging"])
def test_every_kind_has_a_line(kind: str, models: Models) -> None:
    expected = Predictor(models(kind))(TEXTS)
    actual = lines(run(PredictConfig(models(kind), tuple(TEXTS))))
    for line, one, text in zip(actual, expected, TEXTS, strict=True):
        if kind == "tagging":
            assert line == " ".join(f"{word}/{tag}" for word, tag in zip(text.split(), one["tags"], strict=True))
        elif kind == "multilabel":
            assert line == f"{', '.join(one['labels']) or '–'}\t{text}"
        else:
            assert line == f"{one['value']:.3f}\t{text}"


def test_pairs_and_questions_are_two_arguments(models: Models) -> None:
    given = tuple(text for pair in PAIRS for text in pair)
    for kind, key in (("pair", "label"), ("answering", "answer")):
        expected = [one[key] or "(no answer)" for one in Predictor(models(kind))(PAIRS)]
        actual = lines(run(PredictConfig(models(kind), given)))
        assert [line.split("\t")[0] for line in actual] == expected
        with pytest.raises(ConfigError, match="needs pairs of texts, but 5 texts were given"):
            run(PredictConfig(models(kind), given[:5]))


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_a_table_gets_columns_and_keeps_its_order(
    ending: str, models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictor, "CHUNK_TEXTS", 2)
    (tmp_path / "in.csv").write_text("id,review\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS)))
    out = tmp_path / f"out{ending}"
    result = run(PredictConfig(models("labels"), input=str(tmp_path / "in.csv"), output=out))
    assert result == WrittenFile(5, "prediction", out) and str(result) == f"5 predictions: {out}"
    rows, expected = table(out), Predictor(models("labels"))(TEXTS)
    assert list(rows[0]) == [
        "id", "review", "predicted", "confidence", "score bad", "score good", "score fair",
    ]  # fmt: skip
    assert [(row["id"], row["review"]) for row in rows] == [(str(i), text) for i, text in enumerate(TEXTS)]
    assert [row["predicted"] for row in rows] == [one["label"] for one in expected]
    assert [float(row["score fair"]) for row in rows] == pytest.approx(
        [one["scores"]["fair"] for one in expected], abs=1e-4
    )
    assert [float(row["confidence"]) for row in rows] == [max(one["scores"].values()) for one in expected]
    assert not list(tmp_path.glob(".*"))


def test_json_lines_keep_the_fields_of_the_input(models: Models, tmp_path: Path) -> None:
    path, out = tmp_path / "in.jsonl.gz", tmp_path / "out.jsonl"
    path.write_bytes(
        gzip.compress("".join(json.dumps({"n": i, "text": t}) + "\n" for i, t in enumerate(TEXTS)).encode())
    )
    run(PredictConfig(models("multilabel"), input=str(path), output=out))
    expected = Predictor(models("multilabel"))(TEXTS)
    for i, (line, one) in enumerate(zip(out.read_text().splitlines(), expected, strict=True)):
        record = json.loads(line)
        assert (record["n"], record["text"], record["predicted"]) == (i, TEXTS[i], one["labels"])
        assert record["scores"] == pytest.approx(one["scores"], abs=1e-4)


def test_lists_of_the_input_are_written_as_those_of_the_predictions(models: Models, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a dog", "tags": ["sea", "land"]}\n')
    run(PredictConfig(models("multilabel"), input=str(tmp_path / "in.jsonl"), output=tmp_path / "out.csv"))
    assert table(tmp_path / "out.csv")[0]["tags"] == "sea,land"


def test_columns_can_be_named(models: Models, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,said,then\n" + "".join(f"x,{a},{b}\n" for a, b in PAIRS))
    expected = [one["label"] for one in Predictor(models("pair"))(PAIRS)]
    config = PredictConfig(
        models("pair"), input=str(tmp_path / "in.csv"), text_column="said", pair_column="then",
        output=tmp_path / "out.csv",
    )  # fmt: skip
    run(config)
    assert [row["predicted"] for row in table(tmp_path / "out.csv")] == expected


def test_questions_in_a_table(models: Models, tmp_path: Path) -> None:
    """A column named answer is not the passage, and a column named text is not the question."""
    (tmp_path / "in.csv").write_text(
        "text,question,answer,context\n" + "".join(f"x,{a},?,{b}\n" for a, b in PAIRS)
    )
    run(PredictConfig(models("answering"), input=str(tmp_path / "in.csv"), output=tmp_path / "out.csv"))
    expected = [one["answer"] for one in Predictor(models("answering"))(PAIRS)]
    assert [row["predicted"] for row in table(tmp_path / "out.csv")] == expected


def test_questions_of_a_squad_file(models: Models, tmp_path: Path) -> None:
    paragraphs = [
        {"context": context, "qas": [{"id": f"q{i}", "question": question}]}
        for i, (question, context) in enumerate(PAIRS)
    ]
    path, out = tmp_path / "dev.json", tmp_path / "answers.json"
    path.write_text(json.dumps({"data": [{"title": "x", "paragraphs": paragraphs}]}))
    expected = [one["answer"] for one in Predictor(models("answering"))(PAIRS)]
    assert run(PredictConfig(models("answering"), input=str(path), output=out)) == WrittenFile(
        3, "prediction", out
    )
    assert json.loads(out.read_text()) == {f"q{i}": answer for i, answer in enumerate(expected)}
    actual = lines(run(PredictConfig(models("answering"), input=str(path))))
    assert actual == [f"q{i}\t{answer}" for i, answer in enumerate(expected)]
    for other, message in (
        ("labels", r"dev\.json: 'data' is the name of no split; .*\n  this model predicts the test texts"),
        ("pair", r"dev\.json: a .json file has questions, or .* reads pairs of texts; give a table"),
        (
            "tagging",
            r"dev\.json: a .json file has questions, or .* reads words; give a file with one word per line",
        ),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            run(PredictConfig(models(other), input=str(path)))


def test_tags_become_a_column(models: Models, tmp_path: Path) -> None:
    path, out = tmp_path / "in.conll", tmp_path / "out.conll"
    path.write_text("".join("".join(f"{word}\tX\n" for word in text.split()) + "\n" for text in TEXTS))
    expected = [one["tags"] for one in Predictor(models("tagging"))(TEXTS)]
    assert run(PredictConfig(models("tagging"), input=str(path), output=out)) == WrittenFile(5, "prediction", out)
    sentences = [block.splitlines() for block in out.read_text().strip().split("\n\n")]
    assert [[line.split("\t")[0] for line in block] for block in sentences] == [text.split() for text in TEXTS]
    assert [[line.split("\t")[-1] for line in block] for block in sentences] == expected
    shown = lines(run(PredictConfig(models("tagging"), input=str(path))))
    assert [block.split()[1::2] for block in shown] == expected


def test_tags_become_a_field_of_conll_u(models: Models, tmp_path: Path) -> None:
    path, out = tmp_path / "in.conllu", tmp_path / "out.conllu"
    fields = [f"{i}\t{word}\t_\t_\t_\t_\t_\t_\t_\t_\n" for i, word in enumerate(TEXTS[0].split(), 1)]
    path.write_text("# a comment\n" + "".join(fields) + "\n")
    [expected] = Predictor(models("tagging"))(TEXTS[:1])
    run(PredictConfig(models("tagging"), input=str(path), output=out))
    written = out.read_text().splitlines()
    assert written[0] == "# a comment"
    assert [line.split("\t")[3] for line in written[1:] if line] == expected["tags"]
    for settings in ('task = "xpos"', 'task = "mine"\n[data]\nlabel = "xpos"'):
        (Path(models("tagging")) / "config.toml").write_text(f'model = "x"\n{settings}\n')
        run(PredictConfig(models("tagging"), input=str(path), output=out))
        (Path(models("tagging")) / "config.toml").unlink()
        assert [line.split("\t")[3:5] for line in out.read_text().splitlines()[1:] if line] == [
            ["_", tag] for tag in expected["tags"]
        ]


ONE = "I would stay here again.\n"
CHUNKS = "a DT B-NP\ndog NN I-NP\n\nmy PRP$ B-NP\ncat NN I-NP\n. . O\n"


@pytest.mark.parametrize(
    "text", [ONE, ONE * 2, ONE + "\n" + ONE, "my cat\n", "We saw it in 1999\nWe met her in 2001\n"]
)  # fmt: skip
def test_whole_sentences_are_not_taken_for_columns(text: str, models: Models, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=r"can be columns or a whole sentence; .*--text-column 0\n.*--input -"):
        run(PredictConfig(models("tagging"), input=str(path)))
    words = [line.split("\t")[0] for line in tagged_as_columns(models, path, "0")]
    assert words == [line.split()[0] for line in text.split("\n") if line]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("in.txt", CHUNKS),
        ("in.txt", CHUNKS.replace(" ", "\t")),
        ("in.txt", "a x O\ndog y B-PET\n"),
        ("in.txt", "a\ndog\n"),
        ("in.conll", ONE),
    ],
)
def test_columns_parted_by_blanks_are_read(name: str, text: str, models: Models, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    words = [line.split("\t")[0] for line in tagged_as_columns(models, tmp_path / name, None)]
    assert words == [line.split()[0] for line in text.split("\n") if line]


def tagged_as_columns(models: Models, path: Path, column: str | None) -> list[str]:
    shown = lines(run(PredictConfig(models("tagging"), input=str(path), text_column=column)))
    return [line for block in shown for line in block.splitlines() if line]


@pytest.mark.parametrize("kind", ["labels", "tagging"])
def test_standard_input(kind: str, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO("".join(f"{text}\n\n" for text in TEXTS).encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    actual = lines(run(PredictConfig(models(kind), input="-")))
    assert actual == lines(run(PredictConfig(models(kind), tuple(TEXTS))))


def test_a_text_file_and_arguments_together(models: Models, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a dog\r\n\n  \non the mat")
    actual = lines(run(PredictConfig(models("labels"), ("the cat",), input=str(tmp_path / "in.txt"))))
    assert [line.split("\t")[2] for line in actual] == ["the cat", "a dog", "on the mat"]


def test_the_columns_of_the_fine_tuning_are_the_default(models: Models, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,review\na dog,the cat sat\n")
    config = Path(models("labels")) / "config.toml"
    config.write_text('model = "x"\n[data]\ntext = "review"\n')
    try:
        out = tmp_path / "out.csv"
        run(PredictConfig(models("labels"), input=str(tmp_path / "in.csv"), output=out))
        scores = Predictor(models("labels"))(["the cat sat"])[0]["scores"]
        assert float(table(out)[0]["score bad"]) == pytest.approx(scores["bad"], abs=1e-4)
        run(PredictConfig(models("labels"), input=str(tmp_path / "in.csv"), text_column="text", output=out))
        scores = Predictor(models("labels"))(["a dog"])[0]["scores"]
        assert float(table(out)[0]["score bad"]) == pytest.approx(scores["bad"], abs=1e-4), (
            "an option is preferred"
        )
    finally:
        config.unlink()


def test_a_model_of_glue_knows_its_columns(models: Models, tmp_path: Path) -> None:
    """As in the official test.tsv, with quotation marks that are text, and an index column."""
    (tmp_path / "test.tsv").write_text('index\tquestion\tsentence\n0\ta "dog sat\tthe mat\n1\tmy cat\tthe "mat\n')
    config = Path(models("pair")) / "config.toml"
    config.write_text('model = "x"\ntask = "qnli"\n')
    try:
        run(PredictConfig(models("pair"), input=str(tmp_path / "test.tsv"), output=tmp_path / "out.csv"))
    finally:
        config.unlink()
    expected = Predictor(models("pair"))([('a "dog sat', "the mat"), ("my cat", 'the "mat')])
    rows = table(tmp_path / "out.csv")
    assert [float(row["score yes"]) for row in rows] == pytest.approx([one["scores"]["yes"] for one in expected])


def test_texts_that_are_cut_or_empty_are_counted(models: Models, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        run(PredictConfig(models("labels"), ("the cat sat", "the cat sat " * 20)))
        run(PredictConfig(models("labels"), ("the cat sat", " ")))
    assert "1 of 2 texts is too long and was cut (to 40 tokens)" in caplog.text
    assert "1 of 2 texts is empty; its prediction has no meaning (text 2)" in caplog.text


def test_warnings_count_all_chunks(
    models: Models, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(predictor, "CHUNK_TEXTS", 2)
    run(PredictConfig(models("labels"), ("the cat", "", " ", "a dog", "the cat")))
    assert caplog.messages == ["2 of 5 texts are empty; their predictions have no meaning (texts 2, 3)"]
    caplog.clear()
    run(PredictConfig(models("labels"), ("园丁 水手", "园丁 水手", "园丁 水手")))
    assert len(caplog.messages) == 1 and "% of the tokens are not in the vocabulary of the model" in caplog.text


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [("tagging", " ", "text 3 has no words"), ("labels", "a\udcff", "text 3: broken Unicode at character 2")],
)
def test_errors_count_all_chunks(
    kind: str, wrong: str, message: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictor, "CHUNK_TEXTS", 2)
    with pytest.raises(DataError, match=message):
        run(PredictConfig(models(kind), ("the cat", "a dog", wrong)))


@pytest.mark.parametrize("kind", ["tagging", "regression", "answering"])
def test_the_highest_labels_of_a_model_without_scores_are_refused(kind: str, models: Models) -> None:
    with pytest.raises(
        ConfigError, match=rf"^--top: .*classification, pair or multilabel.* of kind {kind}; leave"
    ):
        run(PredictConfig(models(kind), ("a", "b"), top=2))


@pytest.mark.parametrize(("name", "content"), [("in.txt", ""), ("in.txt", "\n \n"), ("in.csv", "text\n")])
def test_an_input_without_any_text_is_an_error(name: str, content: str, models: Models, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    for out in (None, tmp_path / "out.csv"):
        with pytest.raises(DataError, match=rf"there is no text in .*{name}; give a text, or --input"):
            run(PredictConfig(models("labels"), input=str(tmp_path / name), output=out))
    assert not (tmp_path / "out.csv").exists()
    with pytest.raises(DataError, match="there is no text in the command line"):
        run(PredictConfig(models("labels"), ("", " ")))
    assert len(lines(run(PredictConfig(models("labels"), ("", "a dog"))))) == 2


def test_json_lines_mark_cut_texts_and_have_the_most_probable_labels(models: Models, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    run(PredictConfig(models("labels"), ("the cat sat", "the cat sat " * 20), output=out, top=2))
    first, second = map(json.loads, out.read_text().splitlines())
    assert "cut" not in first and second["cut"] is True and len(first["scores"]) == 2


def test_a_folder_of_several_models_is_refused_with_their_names(models: Models) -> None:
    folder = Path(models("labels")).parent
    models("pair")
    with pytest.raises(CheckpointError, match=r"has several models: .*labels.*pair.*; give one of them"):
        run(PredictConfig(str(folder), ("a",)))


@pytest.mark.parametrize(
    ("kind", "name", "content", "options", "message"),
    [
        ("labels", "a.csv", "title,n\nx,1\n", {}, r"a\.csv: there is no column .* 'title', 'n'; .* --text-column"),
        ("labels", "a.csv", "title,n\nx,1\n", {"text_column": "titel"}, r"'titel'; .*did you mean 'title'\?$"),
        ("labels", "a.csv", "good film,1\nx,1\n", {}, "--text-column; or, if the first line is no header, put"),
        ("labels", "a.jsonl", '{"x": "a"}\n', {"text_column": "y"}, "name another one with --text-column$"),
        ("pair", "a.csv", "text,n\nx,1\n", {}, r"no column .*name it with --pair-column"),
        ("pair", "a.txt", "x\n", {}, "this model needs pairs of texts; give a table"),
        ("labels", "a.csv", "text,n\nx,1\ny\n", {}, r"a\.csv:3: 1 fields, but the header has 2"),
        ("labels", "a.jsonl", '{"text": "a"}\n{"text": 3}\n', {}, r"a\.jsonl:2: the text in column 'text' is int"),
        ("labels", "a.jsonl", '{"text": "a"}\n{"text": "\\ud800"}\n', {}, r"a\.jsonl:2: broken Unicode"),
        ("labels", "a.docx", "x", {}, "unknown file format"),
        ("tagging", "a.conll", "dog\n", {"text_column": "word"}, "--text-column: .*'word'.*number"),
        ("labels", "a.txt", "x\n", {"output": Path("out.xlsx")}, r"--output: out\.xlsx must end in"),
        ("tagging", "a.conll", "dog\n", {"output": Path("o.jsonl")}, r"the format of the.*name it o\.conll"),
        ("answering", "a.json", "{}", {"output": Path("o.csv")}, r"SQuAD's predictions are a .*o\.json"),
        ("labels", "a.csv", "text,predicted\nx,1\n", {"output": Path("o.csv")}, "a column 'predicted', which"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(
    kind: str, name: str, content: str, options: dict[str, object], message: str, models: Models, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises((ConfigError, DataError), match=message):
        run(PredictConfig(models(kind), input=str(tmp_path / name), **options))  # type: ignore[arg-type]


def test_other_mistakes(models: Models, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_text("x")
    run(PredictConfig(models("labels"), (str(tmp_path / "a.txt"),)))
    assert "a.txt is a file, but is read as a text" in caplog.text
    with pytest.raises(ConfigError, match="give a text, or --input FILE"):
        check(PredictConfig(models("labels")))
    with pytest.raises(CheckpointError, match="there is no folder"):
        run(PredictConfig(str(tmp_path / "none"), ("a",)))
    with pytest.raises(DataError, match="there is no such file"):
        run(PredictConfig(models("labels"), input=str(tmp_path / "none.txt")))
    with pytest.raises(ConfigError, match=r"there is no folder .*no; create it"):
        run(PredictConfig(models("labels"), ("a",), output=tmp_path / "no" / "out.csv"))
    with pytest.raises(ConfigError, match="is a folder; give a file"):
        run(PredictConfig(models("labels"), ("a",), output=tmp_path))

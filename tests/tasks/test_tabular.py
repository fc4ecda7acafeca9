"""The user's own tables, valid and invalid."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from table_task import read, read_records, read_texts

from electra.errors import ConfigError, DataError
from electra.finetuning.config import load_task_config
from electra.finetuning.load_task import load_task
from electra.tasks.base import Task
from electra.tasks.classification import Classification
from electra.tasks.config import DataConfig
from electra.tasks.multilabel import Multilabel
from electra.tasks.regression import Regression
from electra.tasks.tabular import find_files
from electra.tasks.texts import TextExample

GOOD = "text,label\n" + "".join(f"text {i},{'no' if i % 4 else 'yes'}\n" for i in range(40))


def labels(actual: Task) -> tuple[str, ...]:
    assert isinstance(actual.problem, Classification | Multilabel)
    return actual.problem.labels


def test_columns_with_usual_names_are_found(tmp_path: Path) -> None:
    for text, label in (("text", "label"), ("Review", "stars"), ("sentence", "Category")):
        actual = read_texts(
            "classification", tmp_path, train=f"id,{text},{label}\n1,a,x\n2,b,y\n", dev="text,label\nc,y\n"
        )
        assert actual.splits["train"] == [TextExample("a", None, 0), TextExample("b", None, 1)]
        assert actual.splits["dev"] == [TextExample("c", None, 1)]


def test_named_columns_are_used(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,said,label,mood\n" + "1,a,2,x\n1,b,2,y\n" * 5)
    actual = read("classification", {"train": tmp_path / "t.csv"}, text="said", label="mood")
    assert labels(actual) == ("x", "y") and {one.first for one in actual.splits["train"]} == {"a", "b"}
    assert (
        actual.problem.to_dict()["metrics"] == ("accuracy", "macro_f1", "matthews")
        and not actual.problem.to_dict()["pair"]
    )


def test_no_column_is_both_texts(tmp_path: Path) -> None:
    """The second text of QNLI has the name that others use for the first."""
    (tmp_path / "t.csv").write_text("index,question,sentence,label\n" + "1,why,because,x\n1,who,me,y\n" * 5)
    for named in ({"pair": "sentence"}, {"text": "question", "pair": "sentence"}):
        actual = read("pair", {"train": tmp_path / "t.csv"}, **named)
        assert {(one.first, one.second) for one in actual.splits["train"]} == {("why", "because"), ("who", "me")}
    with pytest.raises(DataError, match=r"both texts would be column 'sentence'; name two with --data\.text and"):
        read("pair", {"train": tmp_path / "t.csv"}, text="sentence", pair="sentence")


def test_both_columns_of_an_unusual_pair_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("left,right,label\na,b,x\n")
    with pytest.raises(
        DataError, match=r"the columns are 'left', .*; name two with --data\.text and --data\.pair$"
    ):
        read("pair", {"train": tmp_path / "t.csv"})
    (tmp_path / "t.csv").write_text("left,context,label\na,b,x\n")
    with pytest.raises(DataError, match=r"; name it with --data\.text; or, if the first line is no header"):
        read("pair", {"train": tmp_path / "t.csv"})


@pytest.mark.parametrize(
    ("header", "columns", "message"),
    [
        ("id,words,label", {}, r"t\.csv: .* a usual name for --data\.text; .*; name it with --data\.text"),
        ("id,text,mood", {}, r"no column with a usual name for --data\.label; .* name it with --data\.label"),
        ("review,stars,n", {"text": "reveiw"}, r"no column 'reveiw'; .* 'stars', 'n'; did you mean 'review'"),
        ("text,stars,n", {"label": "star"}, r"no column 'star'; .*did you mean 'stars'"),
        ("text,label,n", {"pair": "other"}, r"no column 'other'"),
        ("text,n,m", {"text": "text", "label": "txt"}, r"no column 'txt'.*; name another one with .*label; or"),
    ],
)  # fmt: skip
def test_missing_columns_are_refused(header: str, columns: dict[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\na,b,c\n")
    with pytest.raises(DataError, match=message):
        read("classification", {"train": tmp_path / "t.csv"}, **columns)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["10", "9", "2"], ("2", "9", "10")),
        (["3.5", "-1", "12"], ("-1", "3.5", "12")),
        (["b", "a", "10", "9"], ("10", "9", "a", "b")),
        (["nan", "2", "10"], ("10", "2", "nan")),
        (["2", "nan", "10"], ("10", "2", "nan")),
    ],
)
def test_labels_are_ordered_by_value_or_alphabetically(
    given: list[str], expected: tuple[str, ...], tmp_path: Path
) -> None:
    rows = "".join(f"text,{label}\n" * 3 for label in given)
    actual = read_texts("classification", tmp_path, train=f"text,label\n{rows}", dev=f"text,label\n{rows}")
    assert labels(actual) == expected
    assert [one.answer for one in actual.splits["dev"][::3]] == [expected.index(label) for label in given]


def test_labels_that_are_not_strings(tmp_path: Path) -> None:
    actual = read_records("classification", tmp_path, [{"text": "a", "label": x} for x in (4.0, 1.0, 4, 10)] * 3)
    assert labels(actual) == ("1", "4", "10")


def test_notes_have_the_distribution_of_labels(tmp_path: Path) -> None:
    actual = read_texts("classification", tmp_path, train=GOOD, dev=GOOD, test="text\nnew\n")
    assert actual.notes == (
        "train: 40 rows; no: 75.0%, yes: 25.0%",
        "dev: 40 rows; no: 75.0%, yes: 25.0%",
        "test: 1 row, without answers",
        "train: columns 'text', 'label'",
        "dev: columns 'text', 'label'",
        "test: columns 'text'",
    )


def test_dev_is_a_stratified_part_of_train(tmp_path: Path) -> None:
    actual = read_texts("classification", tmp_path, train=GOOD)
    counts = {split: Counter(one.answer for one in examples) for split, examples in actual.splits.items()}
    assert counts == {"train": {0: 27, 1: 9}, "dev": {0: 3, 1: 1}}
    everything = [one.first for examples in actual.splits.values() for one in examples]
    assert sorted(everything) == sorted(f"text {i}" for i in range(40))
    assert actual.notes[0] == "no dev file: 4 of the 40 training rows are used for it"
    assert read_texts("classification", tmp_path, train=GOOD).splits == actual.splits
    rare = read_texts("classification", tmp_path, train=f"{GOOD}once,maybe\n")
    assert any(note.startswith("1 label has no example in dev") for note in rare.notes)


def test_labels_that_train_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"dev\.csv:3: the label 'yess' does not occur .*; did you mean 'yes'.*no, yes"
    ):
        read_texts("classification", tmp_path, train=GOOD, dev="text,label\na,no\nb,yess\n")


def test_thousands_of_labels_are_a_mistake(tmp_path: Path) -> None:
    many = "text,label\n" + "".join(f"text,{i}\n" for i in range(5000)) * 3
    with pytest.raises(DataError, match=r"train\.csv: 5,000 different labels in 15,000 rows.*--kind regression"):
        read_texts("classification", tmp_path, train=many)
    each = "text,label\n" + "".join(f"text,title {i}\n" for i in range(200))
    with pytest.raises(DataError, match="200 different labels in 200 rows"):
        read_texts("classification", tmp_path, train=each)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("classification", "text,label\na,x\nb,x\n", r"train\.csv: there is only one label, 'x'"),
        ("classification", "text,label\na,x\n   ,y\n", r"train\.csv:3: the text in column 'text' is empty"),
        ("classification", "text,label\na,x\nb,\n", r"train\.csv:3: the label in column 'label' is missing"),
        ("classification", "text,label\n", r"train\.csv: the file has no rows"),
        ("classification", "text,label\na,x\nb,y\n", r"train\.csv: no label occurs twice, so no dev part"),
        ("regression", "text,score\na,1\nb,nan\n", r"train\.csv:3: the value should be a number, got 'nan'"),
        ("regression", "text,score\na,1\nb,inf\n", r"train\.csv:3: the value should be a number, got 'inf'"),
        ("regression", "text,score\na,1\nb,good\n", r"train\.csv:3: the value should be a number, got 'good'"),
        ("regression", "text,score\na,2\nb,2\n", "every value is 2; nothing can be learned"),
        ("multilabel", "text,labels\na,\nb,\n", "there is only one label, ''"),
        ("pair", "sentence1,sentence2,label\na,,x\n", r"train\.csv:2: the text in column 'sentence2' is empty"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_learned_are_refused(kind: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_texts(kind, tmp_path, train=text)


def test_a_missing_key_of_a_row_is_named(tmp_path: Path) -> None:
    whole = [{"text": "a", "stars": label} for label in "xyxy"]
    with pytest.raises(
        DataError, match=r"train\.jsonl:5: the label in column 'stars' is missing; fill in or remove"
    ):
        read_records("classification", tmp_path, [*whole, {"text": "b"}])
    with pytest.raises(
        DataError, match=r"train\.jsonl:5: the text in column 'text' is missing; fill in or remove"
    ):
        read_records("classification", tmp_path, [*whole, {"stars": "x"}])


@pytest.mark.parametrize("value", [None, 7, ["a"], "\ud800"])
def test_values_that_are_not_texts_are_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.jsonl:2: (the text in column 'text' is|invalid Unicode)"):
        read_records("classification", tmp_path, [{"text": "a", "label": 1}, {"text": value, "label": 2}])


def test_numbers_are_scaled_by_the_training_part(tmp_path: Path) -> None:
    rows = "".join(f"text {i},{i / 2}\n" for i in range(9))
    actual = read_texts(
        "regression", tmp_path, train=f"text,rating\n{rows}", dev="text,rating\na,3\n", test="text,rating\nb,\n"
    )
    assert isinstance(actual.problem, Regression) and (actual.problem.low, actual.problem.high) == (0, 4)
    assert actual.splits["dev"] == [TextExample("a", None, 3.0)] and actual.splits["test"] == [TextExample("b")]
    assert actual.notes[0] == "train: 9 rows, mean 2, from 0 to 4" and actual.problem.metric == "spearman"
    with pytest.raises(DataError, match=r"dev\.csv:2: the value should be a number, got ''; fix or remove"):
        read_texts("regression", tmp_path, train=f"text,rating\n{rows}", dev="text,rating\na,\n")
    for other in ("dev", "test"):
        (tmp_path / f"{other}.csv").unlink()
    assert len(read_texts("regression", tmp_path, train=f"text,rating\n{rows}").splits["dev"]) == 1


def test_pairs(tmp_path: Path) -> None:
    text = "premise,hypothesis,label\n" + "It rained.,It was wet.,yes\nIt rained.,It was dry.,no\n" * 5
    actual = read_texts("pair", tmp_path, train=text)
    assert actual.problem.to_dict()["pair"] and {one.second for one in actual.splits["train"]} == {
        "It was wet.", "It was dry.",
    }  # fmt: skip
    (tmp_path / "q.csv").write_text("question,answer,label\n" + "Who?,I.,1\nWho?,Seven.,0\n" * 5)
    assert read("pair", {"train": tmp_path / "q.csv"}).splits["train"][0].first == "Who?"


def test_scores_of_pairs_by_named_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,score\n" + "x,y,1\nv,w,2\n" * 5)
    actual = read("regression", {"train": tmp_path / "t.csv"}, text="a", pair="b")
    assert actual.problem.to_dict()["pair"] and set(actual.splits["dev"]) <= {
        TextExample("x", "y", 1.0), TextExample("v", "w", 2.0),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize(
    "header",
    [
        "genre\tid\tscore\tsentence1\tsentence2",
        "genre\tid\tlabel\tPremise\tHypothesis",
        "genre\tid\tlabel\ttext_a\ttext_b",
        "genre\tid\tlabel\tquery\tpassage",
    ],
)
def test_a_usual_pair_of_columns_is_read_as_one(kind: str, header: str, tmp_path: Path) -> None:
    """KorSTS has such columns."""
    for split in ("train", "dev"):
        (tmp_path / f"sts-{split}.tsv").write_text(f"{header}\n" + "news\t1\t2\tx\ty\nnews\t2\t3\tv\tw\n" * 9)
    files = {split: tmp_path / f"sts-{split}.tsv" for split in ("train", "dev")}
    actual = read(kind, files)
    first, second = header.split("\t")[-2:]
    assert actual.problem.takes_pairs
    assert {(one.first, one.second) for one in actual.splits["dev"]} == {("x", "y"), ("v", "w")}
    assert any(
        f"train: columns {first!r}, {second!r}" in note and "pairs of texts" in note for note in actual.notes
    )

    one = read(kind, files, text=first)
    assert not one.problem.takes_pairs and {example.second for example in one.splits["train"]} == {None}
    assert any(f"; to read {second!r} as the second text, set data.pair to it" in note for note in one.notes)


def test_a_second_column_is_only_read_with_its_first(tmp_path: Path) -> None:
    rows = "text,sentence1,sentence2,,label\n" + "a,b,c,d,x\ne,f,g,h,y\n" * 5
    actual = read_texts("classification", tmp_path, train=rows)
    assert {(one.first, one.second) for one in actual.splits["train"]} == {("a", None), ("e", None)}


def test_the_training_file_decides_about_pairs(tmp_path: Path) -> None:
    one, two = "sentence1,label\n" + "a,x\nb,y\n" * 5, "sentence1,sentence2,label\n" + "a,c,x\nb,d,y\n" * 5
    actual = read_texts("classification", tmp_path, train=one, dev=two)
    assert {example.second for examples in actual.splits.values() for example in examples} == {None}
    with pytest.raises(DataError, match=r"dev\.csv: there is no column with a usual name for --data\.pair"):
        read_texts("classification", tmp_path, train=two, dev=one)
    (tmp_path / "other.csv").write_text(two)
    (tmp_path / "train.csv").rename(tmp_path / "first.csv")
    (tmp_path / "first.csv").write_text(one)
    actual = read("classification", {"dev": tmp_path / "other.csv", "train": tmp_path / "first.csv"})
    assert not actual.problem.takes_pairs


def test_labels_of_the_test_split_are_optional(tmp_path: Path) -> None:
    for test, expected in (
        ("text,label\na,no\n", [0]),
        ("text,label\na,\nb,no\n", [None, None]),
        ("text\na\n", [None]),
    ):
        actual = read_texts("classification", tmp_path, train=GOOD, test=test)
        assert [one.answer for one in actual.splits["test"]] == expected


def test_a_column_beside_the_label_of_train_is_no_label_elsewhere(tmp_path: Path) -> None:
    train = "text,label,rating\n" + "a,1,3\nb,2,2\n" * 5
    actual = read_texts("classification", tmp_path, train=train, test="text,rating\na,1\n")
    assert [one.answer for one in actual.splits["test"]] == [None]
    with pytest.raises(DataError, match=r"dev\.csv: there is no column with a usual name for --data\.label"):
        read_texts("classification", tmp_path, train=train, dev="text,rating\na,1\n")


def names(actual: dict[str, Path]) -> dict[str, str]:
    return {split: path.name for split, path in actual.items()}


def test_files_are_found_by_their_names(tmp_path: Path) -> None:
    for name in ("train_2020.csv", "Validation.jsonl.gz", "test.parquet", "notes.txt", "labels.csv"):
        (tmp_path / name).touch()
    assert names(find_files(DataConfig(path=tmp_path))) == {
        "train": "train_2020.csv", "dev": "Validation.jsonl.gz", "test": "test.parquet",
    }  # fmt: skip
    actual = find_files(DataConfig(path=tmp_path, dev="labels.csv"))
    assert names(actual)["dev"] == "labels.csv"
    assert names(find_files(DataConfig(path=tmp_path / "labels.csv", test="test.parquet"))) == {
        "train": "labels.csv", "test": "test.parquet",
    }  # fmt: skip
    (tmp_path / "unknown-test.csv").touch()
    assert names(find_files(DataConfig(path=tmp_path)))["test"] == "test.parquet", "the first word decides"


def test_files_are_found_by_the_last_words_of_their_names(tmp_path: Path) -> None:
    for name in ("sts-train.tsv", "sts-dev.tsv", "sts_test.tsv"):
        (tmp_path / name).touch()
    assert names(find_files(DataConfig(path=tmp_path))) == {
        "train": "sts-train.tsv", "dev": "sts-dev.tsv", "test": "sts_test.tsv",
    }  # fmt: skip


def test_missing_and_ambiguous_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"there is no training file; name one train\.csv, or choose the files with --data\.train"
    ):
        find_files(DataConfig(path=tmp_path))
    for name in ("train.csv", "train-2.csv", "dev.csv"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"there are 2 files for train: train-2\.csv, train\.csv; choose one with"):
        find_files(DataConfig(path=tmp_path))
    assert names(find_files(DataConfig(path=tmp_path, train="train-2.csv"))) == {
        "train": "train-2.csv",
        "dev": "dev.csv",
    }
    with pytest.raises(DataError, match=r"data\.dev: there is no file .*none\.csv"):
        find_files(DataConfig(path=tmp_path, train="train.csv", dev="none.csv"))
    with pytest.raises(DataError, match="there is no such file or folder"):
        find_files(DataConfig(path=tmp_path / "none"))


def test_a_table_has_the_weights_that_were_asked_for(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(GOOD)
    actual = read("classification", {"train": tmp_path / "train.csv"}, class_weights=("balanced",))
    assert isinstance(actual.problem, Classification)
    assert actual.problem.weights == pytest.approx((40 / (2 * 30), 40 / (2 * 10)))
    assert "weights of the labels: no 0.667, yes 2" in actual.notes
    assert read("classification", {"train": tmp_path / "train.csv"}).problem.weights == ()  # type: ignore[attr-defined]


def test_weights_are_for_tables_with_one_label(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"text {i},{i / 7}\n" for i in range(40)))
    settings = {"model": "M", "kind": "regression", "data.path": tmp_path, "data.class_weights": ["balanced"]}
    with pytest.raises(
        ConfigError, match=r"data.class_weights: is for your own tables of kind classification or pair"
    ):
        load_task(load_task_config(settings))

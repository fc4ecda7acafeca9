"""Tables with any number of labels for a text."""

from pathlib import Path

from table_task import read_records, read_texts

from electra.tasks.multilabel import Multilabel


def test_several_labels_in_lists_or_strings(tmp_path: Path) -> None:
    lists = [
        {"text": "a", "labels": ["sea", "sky"]},
        {"text": "b", "labels": []},
        {"text": "c", "labels": ["land"]},
    ]
    strings = [{**one, "labels": ", ".join(one["labels"])} for one in lists]
    other = [{**one, "labels": ";".join(one["labels"])} for one in lists]
    for records, columns in ((lists, {}), (strings, {}), (other, {"separator": ";"})):
        actual = read_records("multilabel", tmp_path, records * 5, **columns)
        assert isinstance(actual.problem, Multilabel) and actual.problem.labels == ("land", "sea", "sky")
        answers = {one.first: one.answer for examples in actual.splits.values() for one in examples}
        assert answers == {"a": (1, 2), "b": (), "c": (0,)}


def test_a_tenth_of_sets_of_labels_is_a_tenth(tmp_path: Path) -> None:
    """It does not have a row of every rare set."""
    sets = [["a"], ["a", "b"], *([f"x{i // 3}"] for i in range(60))]
    records = [{"text": f"text {i}", "label": sets[i % 2] if i < 60 else sets[i - 58]} for i in range(120)]
    actual = read_records("multilabel", tmp_path, records)
    assert len(actual.splits["dev"]) == 12


def test_dev_of_sets_of_labels_that_occur_once(tmp_path: Path) -> None:
    records = [{"text": f"t{i}", "labels": [x for x in range(5) if i >> x & 1]} for i in range(32)]
    actual = read_records("multilabel", tmp_path, records)
    assert (len(actual.splits["train"]), len(actual.splits["dev"])) == (29, 3)


def test_an_empty_field_of_the_test_split_is_no_label_if_others_have_some(tmp_path: Path) -> None:
    train = "text,label\n" + "a,x\nb,y\n" * 5
    for test, expected in (("a,x\nb,\n", [(0,), ()]), ("a,\nb,\n", [None, None])):
        actual = read_texts("multilabel", tmp_path, train=train, test=f"text,label\n{test}")
        assert [one.answer for one in actual.splits["test"]] == expected

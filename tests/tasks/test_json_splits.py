"""A task in one .json file, as CLINC150 is distributed."""

import json
from pathlib import Path
from typing import Any

import pytest

from electra.errors import DataError
from electra.registry import tasks
from electra.tasks.base import Task
from electra.tasks.config import DataConfig, HeadConfig
from electra.tasks.texts import TextExample

CLINC = {
    "oos_val": [["who made you", "oos"]],
    "val": [["what is my balance", "balance"]],
    "train": [["show my balance", "balance"], ["freeze my card", "freeze_account"], ["stop it", "freeze_account"]],
    "oos_test": [["why is the sky blue", "oos"], ["sing", "oos"]],
    "test": [["freeze it", "freeze_account"]],
    "oos_train": [["tell me a joke", "oos"]],
}


def read(folder: Path, content: Any, *, kind: str = "classification", **settings: Any) -> Task:
    path = folder / "data_full.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    task: Task = tasks.get(kind).load_task("intents", DataConfig(path=path, **settings), HeadConfig())
    return task


def test_clinc150_is_read_with_the_sentences_without_an_intent(tmp_path: Path) -> None:
    task = read(tmp_path, CLINC)
    assert task.problem.output_names == ("balance", "freeze_account", "oos")
    assert [example.first for example in task.splits["train"]] == [
        "show my balance", "freeze my card", "stop it", "tell me a joke",
    ]  # fmt: skip
    assert task.splits["train"][3] == TextExample("tell me a joke", None, 2)
    assert [example.answer for example in task.splits["dev"]] == [2, 0]
    assert [example.answer for example in task.splits["test"]] == [2, 2, 1]


def test_without_the_lists_there_is_no_such_label(tmp_path: Path) -> None:
    task = read(tmp_path, {name: rows for name, rows in CLINC.items() if not name.startswith("oos")})
    assert task.problem.output_names == ("balance", "freeze_account")
    assert {split: len(examples) for split, examples in task.splits.items()} == {"train": 3, "dev": 1, "test": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ([["a text", "label"]], "expected an object with a list for each split"),
        ({"train": [], "val": []}, "there is no training text"),
        ({**CLINC, "domains": []}, "'domains' is the name of no split"),
        ({**CLINC, "train": {"a": "b"}}, "'train' is no list"),
        ({"train": [["a text"]]}, r"data_full.json:train\[1\]: expected \[text, label\], got \['a text'\]"),
        ({"train": [["ok", "x"], ["", "y"]]}, r"data_full.json:train\[2\]: the text .* is empty"),
        ({"train": [["ok", "x"], [3, "y"]]}, r"train\[2\]: the text .* is int, not a string"),
        ({"train": [["ok", "x"], ["b", None]]}, r"train\[2\]: the label is missing"),
        ({**CLINC, "val": [["new", "transfer"]]}, r"val\[1\]: the label 'transfer' does not occur in train"),
    ],
)
def test_a_file_with_another_layout_is_refused(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, content)


def test_settings_of_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no columns and no pairs; leave data\.text out"):
        read(tmp_path, CLINC, text="text")
    with pytest.raises(DataError, match="give --kind classification"):
        read(tmp_path, CLINC, kind="pair")


def test_a_folder_with_such_a_file_has_a_hint(tmp_path: Path) -> None:
    for name in ("data_small.json", "data_full.json"):
        (tmp_path / name).write_text(json.dumps(CLINC))
    with pytest.raises(
        DataError,
        match=r"no training file; name one .* If data_full\.json has all splits, .* --data .*data_full\.json",
    ):
        tasks.get("classification").load_task("clinc", DataConfig(path=tmp_path), HeadConfig())


@pytest.mark.parametrize(
    "files",
    [
        ["rt-polarity.neg", "rt-polarity.pos"],
        ["subj.objective", "subj.subjective"],
        ["train_5500.label"],
        ["sentiment-train"],
        ["binary/sentiment-train"],
        ["SICK_train.txt"],
    ],
)
def test_a_folder_of_senteval_has_a_hint(files: list[str], tmp_path: Path) -> None:
    for name in (*files, "notes.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a text\n")
    these, them = ("this file is", "it") if len(files) == 1 else ("these files are", "them")
    with pytest.raises(
        DataError,
        match=rf"no training file; name one .*\. If {these} SentEval's \({', '.join(files)}\), .*"
        rf"\(Other layouts\) says how to make a table of {them}$",
    ):
        tasks.get("classification").load_task("mr", DataConfig(path=tmp_path), HeadConfig())


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"train": [["a", "x"], ["b", "y"]] * 9}), encoding="utf-8-sig")
    task = tasks.get("classification").load_task("own", DataConfig(path=path), HeadConfig())
    assert len(task.splits["train"]) + len(task.splits["dev"]) == 18

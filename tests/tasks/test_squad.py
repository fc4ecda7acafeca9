"""Tasks from SQuAD's official files, and from other files in their format."""

import json
from pathlib import Path
from typing import Any

import pytest

from electra.errors import DataError
from electra.tasks.base import Task
from electra.tasks.config import DataConfig, HeadConfig
from electra.tasks.question_answering import QuestionAnswering, load_question_files
from electra.tasks.squad import TASKS


def squad(path: Path, contexts: int, *, impossible: bool) -> Path:
    paragraphs = []
    for i in range(contexts):
        asked = {"id": f"{path.stem} {i}", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
        others = [{"id": f"{path.stem} {i}n", "question": "?", "answers": [], "is_impossible": True}] * impossible
        paragraphs.append({"context": f"Ann saw {i}.", "qas": [asked, *others]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def load(name: str, folder: Path, **head: Any) -> Task:
    return TASKS[name].load_task(name, DataConfig(path=folder), HeadConfig(**head))


def test_tasks_from_the_official_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train-v1.1.json and dev-v1.1.json missing; the official files are at"):
        load("squad", tmp_path)
    for split in ("train", "dev"):
        squad(tmp_path / f"{split}-v1.1.json", 3, impossible=False)
        squad(tmp_path / f"{split}-v2.0.json", 2, impossible=True)
    first, second = load("squad", tmp_path), load("squad2", tmp_path, span="plain")
    assert first.problem == QuestionAnswering() and second.problem == QuestionAnswering("plain", True)
    assert (first.name, second.name) == ("squad-1.1", "squad-2.0")
    assert first.default_epochs == second.default_epochs == 2, "as in the original code"
    assert [len(first.splits[name]) for name in ("train", "dev")] == [3, 3]
    training = {name: [question.training for question in second.splits[name]] for name in ("train", "dev")}
    assert training == {"train": [True] * 4, "dev": [False] * 4}


def test_own_files_without_a_dev_file(tmp_path: Path) -> None:
    task = load_question_files("own", squad(tmp_path / "own.json", 20, impossible=True))
    contexts = {name: {question.context for question in task.splits[name]} for name in ("train", "dev")}
    assert (len(contexts["train"]), len(contexts["dev"])) == (18, 2) and not contexts["train"] & contexts["dev"]
    assert task.problem == QuestionAnswering(impossible=True)
    assert task.notes == (
        "own.json: 4 questions of 10% of the contexts are held out",
        "train: 36 questions, 18 of them without an answer", "dev: 4 questions, 2 of them without an answer",
    )  # fmt: skip


def test_questions_without_a_known_answer_are_not_evaluated(tmp_path: Path) -> None:
    def file(name: str, *answers: Any) -> Path:
        qas = [{"id": str(i), "question": "Who?", **given} for i, given in enumerate(answers)]
        path = tmp_path / name
        path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "Ann saw Bob", "qas": qas}]}]}))
        return path

    right = {"answers": [{"text": "Ann", "answer_start": 0}]}
    train = file("train.json", right)
    task = load_question_files("x", train, file("dev.json", right, {}))
    assert len(task.splits["dev"]) == 1
    assert task.notes[0] == "dev.json: 1 questions have no known answer and are left out"
    with pytest.raises(DataError, match=r"none\.json: no question has an answer"):
        load_question_files("x", train, file("none.json", {}, {}))

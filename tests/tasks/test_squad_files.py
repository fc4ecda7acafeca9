import json
from pathlib import Path
from typing import Any

import pytest

from electra.errors import DataError
from electra.tasks.squad_files import Question, hold_out, read_questions, write_predictions

CONTEXT = "Ann saw Bob. Bob saw Ann, and Eve."


def record(name: str = "1", *answers: tuple[str, int], **others: Any) -> dict[str, Any]:
    return {
        "id": name,
        "question": "Who?",
        "answers": [{"text": text, "answer_start": start} for text, start in answers],
        **others,
    }


def write_file(folder: Path, *records: Any, context: str = CONTEXT) -> Path:
    path = folder / "file.json"
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": records}]}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_both_versions(tmp_path: Path) -> None:
    path = write_file(
        tmp_path,
        record("1", ("Bob", 8), ("Ann", 0)),
        record("2", is_impossible=True, plausible_answers=[{"text": "Eve", "answer_start": 30}]),
        record("3", ("Eve", 30), is_impossible=False),
        {"id": "4", "question": "Unknown?"},
    )
    questions, notes = read_questions(path)
    assert questions == [
        Question("1", "Who?", CONTEXT, (("Bob", 8), ("Ann", 0))),
        Question("2", "Who?", CONTEXT, impossible=True),
        Question("3", "Who?", CONTEXT, (("Eve", 30),)),
        Question("4", "Unknown?", CONTEXT),
    ]
    assert notes == () and [question.has_answer for question in questions] == [True, True, True, False]


def test_a_wrong_answer_position_is_corrected_to_the_nearest_occurrence(tmp_path: Path) -> None:
    path = write_file(
        tmp_path, record("1", ("Bob", 10)), record("2", ("Bob", 12)), record("3", ("Bob", -5), ("Ann", 900))
    )
    questions, notes = read_questions(path, training=True)
    assert [question.answers for question in questions] == [
        (("Bob", 8),),
        (("Bob", 13),),
        (("Bob", 8), ("Ann", 21)),
    ]
    assert notes == (
        "file.json: 4 answers are not at their stated position; the nearest occurrence is used"
        " (the first is question '1')",
    )


def test_answers_that_are_not_in_the_context_are_only_for_evaluation(tmp_path: Path) -> None:
    path = write_file(
        tmp_path, record("1", ("Zoe", 3), ("Eve", 30)), record("2", ("Zoe", 0)), record("3", (" ", 3))
    )
    questions, notes = read_questions(path, training=True)
    assert [(question.id, question.answers) for question in questions] == [("1", (("Eve", 30),))]
    assert notes == (
        "file.json: 3 answers are not in their context (the first is question '1')",
        "file.json: 2 questions have no answer in their context and are left out (the first is question '2')",
    )
    questions, notes = read_questions(path)
    assert [question.answers for question in questions[:2]] == [(("Zoe", -1), ("Eve", 30)), (("Zoe", -1),)]
    assert notes == ("file.json: 3 answers are not in their context (the first is question '1')",)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            {"question": "?", "answers": []},
            "article 1, paragraph 1, question 2: no key 'id'; the keys are 'question'",
        ),
        ({"id": "2", "answers": []}, "question 2: no key 'question'"),
        (record("1", ("Bob", 8)), "question 2: the id '1' occurs twice"),
        ({"id": "2", "question": "?", "answers": "Bob"}, "question 2: 'answers' should be a list, got str"),
        (record("2", ("Bob", 8), is_impossible="no"), "'is_impossible' should be true or false, got str"),
        ({"id": "2", "question": "?", "answers": [{"text": "Bob"}]}, "question 2: no key 'answer_start'"),
        (record("2", ("Bob", True)), "'answer_start' should be a whole number, got bool"),
        ("Bob?", "question 2: should be an object with the key 'id', got str"),
        ({"id": "2", "question": "\ud800"}, "question 2: invalid Unicode in 'question'"),
    ],
)
def test_messages_name_the_place(tmp_path: Path, broken: Any, message: str) -> None:
    with pytest.raises(DataError, match=message.replace("?", r"\?")):
        read_questions(write_file(tmp_path, record("1", ("Bob", 8)), broken))


def test_training_needs_answers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="question 1: no key 'answers'"):
        read_questions(write_file(tmp_path, {"id": "1", "question": "?"}), training=True)
    with pytest.raises(DataError, match="no questions to learn from"):
        read_questions(write_file(tmp_path, record("1", ("Zoe", 0))), training=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"data": [', "invalid JSON"),
        (b"\xff\xfe", "invalid JSON"),
        (b"[1]", "should be an object with the key 'data', got list"),
        (b'{"rows": []}', "no key 'data'; the keys are 'rows'"),
        (b'{"data": [{"title": "x"}]}', "article 1: no key 'paragraphs'"),
        (b'{"data": [{"paragraphs": [{"qas": []}]}]}', "article 1, paragraph 1: no key 'context'"),
        (b'{"data": []}', "the file has no questions"),
    ],
)
def test_files_in_other_formats_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_questions(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_questions(tmp_path / "missing.json")


def test_train_and_dev_share_no_context() -> None:
    questions = [Question(str(i), "?", f"context {i % 20}", (("context", 0),), training=True) for i in range(60)]
    train, dev = hold_out(questions, 0.1, seed=3)
    assert len(dev) == 6 and len(train) == 54 and not {q.context for q in train} & {q.context for q in dev}
    assert not any(question.training for question in dev) and all(question.training for question in train)
    assert hold_out(questions, 0.1, seed=3) == (train, dev) != hold_out(questions, 0.1, seed=4)
    assert [len(part) for part in hold_out(questions[:2], 0.9, seed=0)] == [1, 1]
    with pytest.raises(DataError, match="about one context"):
        hold_out(questions[:1], 0.1, seed=0)


def test_files_for_the_official_script(tmp_path: Path) -> None:
    predictions = [{"id": "é", "answer": "Zoë", "null_odds": -1.5}, {"id": "2", "answer": "", "null_odds": 3.0}]
    write_predictions(tmp_path, predictions)
    assert json.loads((tmp_path / "predictions.json").read_text("utf-8")) == {"é": "Zoë", "2": ""}
    assert json.loads((tmp_path / "null_odds.json").read_text("utf-8")) == {"é": -1.5, "2": 3.0}
    with pytest.raises(DataError, match="cannot be written"):
        write_predictions(tmp_path / "missing", predictions)

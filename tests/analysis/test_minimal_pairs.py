"""Accuracies on minimal pairs by file, by paradigm and by length."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from electra.analysis.minimal_pairs import (
    ScoreResults,
    SentencePair,
    evaluate_pairs,
    paradigm_accuracies,
    read_pairs,
)
from electra.errors import DataError
from electra.serving.likelihood import Likelihoods


def scorer(texts: list[str]) -> Likelihoods:
    """Every "x" is unlikely; all other words are not."""
    counts = np.array([len(text.split()) for text in texts])
    scores = np.array([-3.0 * text.split().count("x") - 0.5 * len(text.split()) for text in texts])
    return Likelihoods(counts, {"sum": scores})


def write(path: Path, pairs: list[tuple[str, str]]) -> None:
    path.write_text("".join(json.dumps({"sentence_good": g, "sentence_bad": b}) + "\n" for g, b in pairs))


def test_accuracies_by_file(tmp_path: Path) -> None:
    write(tmp_path / "one.jsonl", [("a b", "a x"), ("a x", "a b"), ("a b", "b a"), ("x x", "x x x")])
    write(tmp_path / "two.jsonl", [("a", "x")] * 9)
    model: Any = scorer
    assert paradigm_accuracies(model, tmp_path, score="sum", pairs=100) == {
        "one": (1 + 0 + 0.5 + 1) / 4,
        "two": 1.0,
    }
    assert paradigm_accuracies(model, tmp_path, score="sum", pairs=2) == {"one": 0.5, "two": 1.0}


def test_a_folder_without_pairs_is_refused(tmp_path: Path) -> None:
    model: Any = scorer
    with pytest.raises(DataError, match=r"the folder has no \.jsonl"):
        paradigm_accuracies(model, tmp_path, score="sum", pairs=1)
    (tmp_path / "odd.jsonl").write_text('{"sentence_good": "a"}\n')
    with pytest.raises(DataError, match=r"odd\.jsonl:1: a pair needs"):
        paradigm_accuracies(model, tmp_path, score="sum", pairs=1)


def test_pairs_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "verbs.csv").write_text('good,bad\nhe goes,he go\n"a, b",a b\n')
    (tmp_path / "nouns.tsv").write_text("right\twrong\tfield\tparadigm\na dog\ta dogs\tmorphology\tnumber\n")
    assert read_pairs([tmp_path / "verbs.csv"]) == [
        SentencePair("verbs", None, "he goes", "he go"), SentencePair("verbs", None, "a, b", "a b")
    ]  # fmt: skip
    named = read_pairs([tmp_path / "nouns.tsv"], columns=("right", "wrong"))
    assert named == [SentencePair("number", "morphology", "a dog", "a dogs")]
    assert len(read_pairs([tmp_path / "verbs.csv"], pairs=1)) == 1


def test_the_format_of_blimp(tmp_path: Path) -> None:
    record = {
        "sentence_good": "a",
        "sentence_bad": "b",
        "field": "syntax/semantics",
        "UID": "case_1",
        "pairID": "0",
    }
    (tmp_path / "x.jsonl").write_text(json.dumps(record) + "\n")
    assert read_pairs([tmp_path]) == [SentencePair("case_1", "syntax_semantics", "a", "b")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "one,two\nx,y\n", r"a\.csv:2: a pair needs sentence_good and sentence_bad; there is no"),
        ("a.csv", "good,worse\nx,y\n", r"there is no column 'bad', the columns are 'good', 'worse'.* --good-c"),
        ("a.csv", "good,bad\nx,\n", r"a\.csv:2: bad is ''"),
        ("a.jsonl", '{"good": "x", "bad": 3}\n', r"a\.jsonl:1: bad is 3"),
        ("a.csv", "good,bad\n", r"a\.csv: the file has no pairs"),
        ("a.docx", "x", "unknown table format"),
    ],
)  # fmt: skip
def test_files_without_pairs_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_pairs([tmp_path / name])


def judged(score: str, right_P: Any, longer_P: Any = None) -> ScoreResults:
    longer_P = np.zeros(len(right_P), np.int64) if longer_P is None else np.array(longer_P)
    return ScoreResults("model", score, np.array(right_P, float), longer_P)


def test_paradigms_have_equal_weight() -> None:
    pairs = (
        [SentencePair("one", "x", "", "")] * 2
        + [SentencePair("two", "x", "", "")] * 6
        + [SentencePair("three", "y", "", "")] * 4
    )
    right_P = [1, 0.5, *[1, 0, 0, 0, 0, 0], *[1, 1, 1, 0]]
    actual = evaluate_pairs(pairs, [judged("s", right_P, [-1, 2, 0, 0, 0, 3, 0, 0, 0, 0, -4, 0])], resamples=50)
    [score] = actual["scores"]
    by_name = {name: one["value"] for name, one in score["paradigms"].items()}
    assert by_name == pytest.approx({"one": 0.75, "two": 1 / 6, "three": 0.75})
    assert score["overall"]["value"] == pytest.approx((0.75 + 1 / 6 + 0.75) / 3)
    assert score["fields"]["x"]["value"] == pytest.approx((0.75 + 1 / 6) / 2) and score["ties"] == 1
    lengths = {name: (one["pairs"], one["value"]) for name, one in score["lengths"].items()}
    assert lengths == {"shorter": (2, 1.0), "equal": (8, 3 / 8), "longer": (2, 0.25)}
    for one in (score["overall"], *score["paradigms"].values(), *score["lengths"].values()):
        assert one["interval"][0] <= one["value"] <= one["interval"][1]


def test_differences_are_means_over_paradigms_too() -> None:
    pairs = [SentencePair("one", None, "", "")] * 2 + [SentencePair("two", None, "", "")] * 8
    first, second = [1, 0, *[0] * 8], [1, 1, *[1, *[0] * 7]]
    actual = evaluate_pairs(pairs, [judged("a", first), judged("b", second)], resamples=50)
    [difference] = actual["differences"]
    assert difference["value"] == pytest.approx((0.5 + 1 / 8) / 2)
    overall = [score["overall"]["value"] for score in actual["scores"]]
    assert difference["value"] == pytest.approx(overall[1] - overall[0])
    assert difference["interval"][0] <= difference["value"] <= difference["interval"][1]


def test_a_length_without_pairs_has_no_accuracy() -> None:
    actual = evaluate_pairs([SentencePair("one", None, "", "")] * 3, [judged("s", [1, 0, 1])], resamples=10)
    assert actual["scores"][0]["lengths"]["longer"] == {"pairs": 0}
    assert actual["scores"][0]["fields"] == {} and actual["differences"] == []


def test_intervals_equal_those_of_scipy() -> None:
    random = np.random.default_rng(0)
    first_P, second_P = (random.random((2, 80)) < [[0.5], [0.7]]).astype(float)
    scores = [judged("a", first_P), judged("b", second_P), judged("c", first_P)]
    actual = evaluate_pairs([SentencePair("one", None, "", "")] * 80, scores, resamples=9000)

    def scipys(values: Any) -> Any:
        return stats.bootstrap((values,), np.mean, n_resamples=9000, method="percentile", random_state=1)

    expected = scipys(second_P).confidence_interval
    np.testing.assert_allclose(actual["scores"][1]["overall"]["interval"], expected, atol=0.015)
    pairs = {(one["first"], one["second"]): one for one in actual["differences"]}
    assert set(pairs) == {(0, 1), (0, 2), (1, 2)}
    expected = scipys(second_P - first_P).confidence_interval
    np.testing.assert_allclose(pairs[0, 1]["interval"], expected, atol=0.015)
    assert pairs[0, 1]["value"] == pytest.approx(second_P.mean() - first_P.mean())
    assert pairs[0, 2]["interval"] == [0, 0], "the same draws for all scores"

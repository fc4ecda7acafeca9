"""N-best lists in the formats of recognizers."""

import json
import math
from pathlib import Path

import pytest

from electra.analysis.n_best import clean_hypothesis, normalize_words, read_n_best_lists
from electra.errors import DataError

SNIPS = Path(__file__).parents[3] / "shared/data/tasks/asr-snips"
ROWS = """transcription,hypothesis,score
the cat sat,the cat sat,0.2
the cat sat,the cats sat,0.7
the cat sat,a cat sat,0.1
go home,go home,1.0
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What's the T.V., dear?", ["what", "s", "the", "t", "v", "dear"]),
        ("seven p._m <eps> [noise] <unk>", ["seven", "p", "m", "<unk>"]),
        ("flow Espan\u0303ol", ["flow", "español"]),
        ("[laughter] <eps> ...", []),
        ("90 songs", ["90", "songs"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert normalize_words(text) == words


def test_clean_hypothesis() -> None:
    assert clean_hypothesis("i  'd go [noise] at seven p._m to <unk> <eps>") == "i'd go at seven p m to <unk>"


def test_a_row_for_each_hypothesis(tmp_path: Path) -> None:
    actual = read_n_best_lists(write(tmp_path / "lists.csv", ROWS))
    assert actual.scale == "probability" and actual.left_out == {} and actual.first_best_added == 0
    [one, two] = actual.utterances
    assert one.reference == ["the", "cat", "sat"] and one.texts == ["the cats sat", "the cat sat", "a cat sat"]
    assert one.scores == pytest.approx([math.log(0.7), math.log(0.2), math.log(0.1)])
    assert two.texts == ["go home"] and two.scores == [0]


def test_ids_separate_lists_with_equal_transcriptions(tmp_path: Path) -> None:
    rows = "id,transcription,hypothesis,score\n1,go,go,-1.5\n1,go,no,-2\n2,go,low,3\n"
    actual = read_n_best_lists(write(tmp_path / "lists.csv", rows))
    assert actual.scale == "log" and [one.texts for one in actual.utterances] == [["go", "no"], ["low"]]
    assert actual.utterances[0].scores == [-1.5, -2]


def test_one_list_per_line(tmp_path: Path) -> None:
    lines = [
        {
            "reference": "go home",
            "hypotheses": [{"text": "no home", "score": -4}, {"text": "go home", "score": -3}],
        },
        {"reference": "go home", "hypotheses": [{"text": "home", "score": "-3.5"}]},
    ]
    path = write(tmp_path / "lists.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert [one.texts for one in read_n_best_lists(path).utterances] == [["go home", "no home"], ["home"]]


def test_empty_hypotheses_stay_and_are_counted(tmp_path: Path) -> None:
    rows = "transcription,hypothesis,score\ngo home,,0.6\ngo home,[noise],0.3\ngo home,go,0.1\n"
    actual = read_n_best_lists(write(tmp_path / "lists.csv", rows))
    assert actual.utterances[0].texts == ["", "", "go"] and actual.empty == 2
    assert read_n_best_lists(write(tmp_path / "lists.csv", ROWS)).empty == 0


def test_probabilities_of_0_have_a_logarithm(tmp_path: Path) -> None:
    path = write(tmp_path / "lists.csv", "transcription,hypothesis,score\na,b,0\na,c,1\n")
    assert read_n_best_lists(path).utterances[0].scores == pytest.approx([0, math.log(1e-12)])
    assert read_n_best_lists(path, scale="log").utterances[0].scores == [1, 0]


def test_references_by_the_first_best(tmp_path: Path) -> None:
    """The transcription is then the first best, whose score the file does not have; don't may be split as do
    n't."""
    lists = write(
        tmp_path / "lists.csv",
        "transcription,hypothesis,score\ni don't go,i do go,0.6\ni don't go,why don't go,0.4\nplease,fleas,1\n"
        "nobody,said,1\n",
    )
    references = write(
        tmp_path / "first.csv",
        "transcription,hypothesis\nplease play,please\ni don't know,i do n't go\nplease stop,please\n",
    )
    actual = read_n_best_lists(lists, references=references)
    [one] = actual.utterances
    assert one.reference == ["i", "don", "t", "know"] and one.texts == ["i don't go", "i do go", "why don't go"]
    assert one.scores == pytest.approx([math.log(0.6), math.log(0.6), math.log(0.4)])
    assert actual.left_out == {"whose first best has several references": 1, "without a reference": 1}
    assert actual.first_best_added == 1


def test_references_by_id(tmp_path: Path) -> None:
    lists = write(tmp_path / "lists.csv", "id,hypothesis,score\nu1,go,0.2\nu1,no,0.8\nu2,low,0.5\n")
    references = write(tmp_path / "said.tsv", "id\treference\nu2\tblow\nu1\tgo\n")
    actual = read_n_best_lists(lists, references=references)
    assert [(one.reference, one.texts) for one in actual.utterances] == [
        (["go"], ["no", "go"]),
        (["blow"], ["low"]),
    ]
    assert actual.first_best_added == 0


HEADER = "transcription,hypothesis,score\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", HEADER + "a,b,high\n", r"a\.csv:2: score is 'high', which is not a number"),
        ("a.csv", HEADER + "a,b,\n", r"a\.csv:2: score is empty, which is not a number"),
        ("a.csv", HEADER + "a,b,nan\n", r"a\.csv:2: score is 'nan'"),
        ("a.csv", "transcription,hypothesis\na,b\n", r"a\.csv:2: there is no score; the columns are 'trans"),
        ("a.csv", "hypothesis,score\na,1\n", r"2: a row needs transcription .* or an id, .*; rename"),
        ("a.csv", "id,hypothesis,score\n1,a,1\n", r"a\.csv:2: the list has no reference .* --references"),
        ("a.csv", HEADER + "...,b,1\n", r"a\.csv:2: the reference '\.\.\.' has no words"),
        ("a.csv", HEADER, r"a\.csv: the file has no hypotheses"),
        ("a.jsonl", '{"reference": "a", "hypotheses": []}\n', r"a\.jsonl:1: hypotheses is \[\]"),
        ("a.jsonl", '{"reference": "a", "hypotheses": ["b"]}\n', r"a\.jsonl:1: hypothesis 1 is 'b'"),
        ("a.jsonl", '{"reference": "a", "hypotheses": [{"text": "b"}]}\n', r"hypothesis 1: there is no score"),
        ("a.csv", "transcription,hypothesis,score\na,b,1\nb,b,1\n", r"each list has only one hypothesis, so"),
        (
            "a.csv",
            "id,transcription,hypothesis,score\n1,a,b,1\n2,a,b,1\n1,a,c,1\n",
            r"a\.csv:4: id '1' occurs again; the rows of a list must be consecutive",
        ),
        ("a.jsonl", '{"reference": "a", "hypothesis": null, "score": 1}\n', "hypothesis is null; expected a text"),
        ("a.jsonl", '{"reference": "a", "hypothesis": "b", "score": null}\n', "score is null, which is not"),
        ("a.jsonl", '{"reference": "a"}\n', "no hypothesis or text of a row, and no hypotheses of a list; the"),
        ("a.jsonl", '{"reference": "a", "hypothesis": "b", "score": true}\n', "score is True, which is no"),
    ],
)  # fmt: skip
def test_errors_name_the_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_n_best_lists(write(tmp_path / name, text))


def test_wrong_scales_and_references(tmp_path: Path) -> None:
    lists = write(tmp_path / "lists.csv", HEADER + "a,b,-3\n")
    with pytest.raises(DataError, match="a score is -3, which is not a probability"):
        read_n_best_lists(lists, scale="probability")
    for text, message in (
        ("transcription\nx\n", r"said\.csv:2: a reference needs an id or the first best"),
        ("hypothesis,text\nx,y\n", r"said\.csv:2: there is no reference or transcription"),
        ("transcription,hypothesis\nx,y\n", "no list has a reference"),
    ):
        references = write(tmp_path / "said.csv", text)
        with pytest.raises(DataError, match=message):
            read_n_best_lists(lists, references=references)


@pytest.mark.shared
@pytest.mark.skipif(not SNIPS.is_dir(), reason="../shared is not here")
def test_the_files_of_snips() -> None:
    actual = read_n_best_lists(SNIPS / "valid.conf.csv", references=SNIPS / "valid.supconf.csv")
    assert len(actual.utterances) == 696 and actual.left_out == {"whose first best has several references": 4}

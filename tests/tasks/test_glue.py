"""The nine tasks from files in the official format."""

import zipfile
from pathlib import Path

import pytest

from electra.errors import DataError
from electra.tasks import glue
from electra.tasks.base import Task
from electra.tasks.classification import Classification
from electra.tasks.config import DataConfig, HeadConfig
from electra.tasks.regression import Regression
from electra.tasks.texts import TextExample

NLI = "index\tpromptID\tpairID\tgenre\ts1_binary_parse\ts2_binary_parse\ts1_parse\ts2_parse"


MRPC = "#1 ID\t#2 ID\t#1 String\t#2 String"


def lines(*rows: str) -> str:
    return "".join(row + "\n" for row in rows)


FILES = {
    "CoLA/train.tsv": lines("gj04\t1\t\tThe ferry left.", 'gj04\t0\t*\tFerry the "left.'),
    "CoLA/dev.tsv": lines("gj04\t0\t*\tLeft ferry the."),
    "CoLA/test.tsv": lines("index\tsentence", "0\tThe clock stopped.", "1\tClock."),
    "SST-2/train.tsv": lines("sentence\tlabel", "a quiet film \t1", "two hours lost \t0"),
    "SST-2/dev.tsv": lines("sentence\tlabel", "it 's slow \t0"),
    "MRPC/train.tsv": lines(f"\ufeffQuality\t{MRPC}", '1\t7\t8\tHe "left.\tHe went.'),
    "MRPC/dev.tsv": lines(f"\ufeffQuality\t{MRPC}", "0\t1\t2\tA b.\tC d."),
    "MRPC/test.tsv": lines(f"\ufeffindex\t{MRPC}", "0\t1\t2\tE f.\tG h."),
    **{
        f"STS-B/{split}.tsv": lines(
            "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
            f"0\tnews\tf\t2012\t1\tnone\tnone\tOne {split}.\tTwo.\t4.250",
        )
        for split in ("train", "dev")
    },
    "MNLI/train.tsv": lines(
        f"{NLI}\tsentence1\tsentence2\tlabel1\tgold_label",
        "0\t1\t1n\tfiction\t(\t(\t(\t(\tIt rained.\tIt was wet.\tneutral\tentailment",
    ),
    **{
        f"MNLI/dev_{name}.tsv": lines(
            f"{NLI}\tsentence1\tsentence2\tlabel1\tlabel2\tgold_label",
            f"0\t1\t1n\tfiction\t(\t(\t(\t(\t{name} a.\tB.\tneutral\tneutral\tcontradiction",
        )
        for name in ("matched", "mismatched")
    },
    **{
        f"MNLI/test_{name}.tsv": lines(
            f"{NLI}\tsentence1\tsentence2", f"0\t1\t1n\tfiction\t(\t(\t(\t(\ttest {name}.\tB."
        )
        for name in ("matched", "mismatched")
    },
    "AX/diagnostic.tsv": lines("index\tsentence1\tsentence2", "0\tA fox.\tNo fox.", "1\tC.\tD."),
    "QQP/train.tsv": lines(
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "1\t1\t2\tWhat is a\tfoo", "2\t3\t4\tHow?\tHow so?\t1", "3\t5\tWhy", "", "4\t6\t7\tWho?\tWhere?\t0",
    ),
    "QQP/dev.tsv": lines("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "1\t1\t2\tA?\tB?\t0"),
    **{
        f"{folder}/{split}.tsv": lines(header, row)
        for split in ("train", "dev")
        for folder, header, row in (
            ("QNLI", "index\tquestion\tsentence\tlabel", "0\tWho?\tThe fox.\tnot_entailment"),
            ("RTE", "index\tsentence1\tsentence2\tlabel", "0\tA fox.\tA fox.\tentailment"),
            ("WNLI", "index\tsentence1\tsentence2\tlabel", "0\tIt fell.\tThe cup fell.\t1"),
        )
    },
}  # fmt: skip


@pytest.fixture
def download(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def load(name: str, data: Path) -> Task:
    return glue.TASKS[name].load_task(name, DataConfig(path=data), HeadConfig())


def answers(task: Task, split: str) -> list[object]:
    return [example.answer for example in task.splits[split]]


@pytest.mark.parametrize("name", glue.TASKS)
def test_every_task_is_read(name: str, download: Path) -> None:
    task = load(name, download)
    assert task.name == name and all(task.splits.values())
    assert all(answer is not None for split in ("train", "dev") for answer in answers(task, split))
    pairs = {example.second is not None for split in task.splits.values() for example in split}
    assert pairs == {task.problem.pair} == {name not in ("cola", "sst-2")}  # type: ignore[attr-defined]


def test_cola_has_no_header_and_no_quoting(download: Path) -> None:
    task = load("cola", download)
    expected = [TextExample("The ferry left.", None, 1), TextExample('Ferry the "left.', None, 0)]
    assert task.splits["train"] == expected
    assert task.splits["test"] == [TextExample("The clock stopped."), TextExample("Clock.")]
    assert task.problem.metric == "matthews" and task.problem.to_dict()["metrics"] == ("matthews", "accuracy")


def test_mrpc_has_a_byte_order_mark_and_is_symmetric(download: Path) -> None:
    task = load("mrpc", download)
    one = TextExample('He "left.', "He went.", 1)
    assert task.training_examples(task.splits["train"]) == [one, one.swapped]
    assert len(task.splits["train"]) == len(task.splits["dev"]) == len(task.splits["test"]) == 1
    assert "runs train on both orders of every pair" in task.notes and answers(task, "test") == [None]


def test_sts_b_has_values_from_0_to_5(download: Path) -> None:
    task = load("sts-b", download)
    assert isinstance(task.problem, Regression) and (task.problem.low, task.problem.high) == (0, 5)
    assert task.splits["dev"] == [TextExample("One dev.", "Two.", 4.25)] and task.symmetric
    assert task.problem.targets([4.25, 0, 5]).tolist() == pytest.approx([0.85, 0, 1])
    assert task.problem.metrics == ("spearman", "pearson")


def test_mnli_has_two_dev_and_two_test_splits_and_the_diagnostic_set(download: Path) -> None:
    task = load("mnli", download)
    assert isinstance(task.problem, Classification)
    assert list(task.splits) == ["train", "dev", "dev-mismatched", "test", "test-mismatched", "diagnostic"]
    assert answers(task, "train") == [task.problem.labels.index("entailment")]
    assert answers(task, "dev") == answers(task, "dev-mismatched") == [task.problem.labels.index("contradiction")]
    assert (
        task.splits["dev"][0].first == "matched a."
        and task.splits["test-mismatched"][0].first == "test mismatched."
    )
    assert [example.first for example in task.splits["diagnostic"]] == ["A fox.", "C."]
    (download / "AX/diagnostic.tsv").rename(download / "MNLI/diagnostic.tsv")
    assert load("mnli", download).splits == task.splits
    assert load("mnli", download / "MNLI").splits == task.splits


def test_short_lines_of_qqp_are_counted(download: Path) -> None:
    task = load("qqp", download)
    assert task.splits["train"] == [TextExample("How?", "How so?", 1), TextExample("Who?", "Where?", 0)]
    assert task.notes[0] == "train.tsv: 2 lines lack a column and are skipped"
    assert task.notes[1] == "train: 2 examples; 1: 50.0%, 0: 50.0%"
    assert task.problem.to_dict()["metrics"] == ("accuracy", "f1")


def test_a_short_line_of_a_test_split_is_refused(download: Path) -> None:
    """Predictions are submitted by number; those after it would belong to other lines."""
    (download / "QQP/test.tsv").write_text("id\tquestion1\tquestion2\n0\tA?\tB?\n1\tA?\n2\tC?\tD?\n")
    with pytest.raises(DataError, match=r"test\.tsv:3: the line lacks a column"):
        load("qqp", download)


def test_labels_of_a_test_split_are_ignored(download: Path) -> None:
    (download / "SST-2/test.tsv").write_text("sentence\tlabel\na film\t7\n")
    assert answers(load("sst-2", download), "test") == [None]


@pytest.mark.parametrize("spelling", ["STS-B", "stsb", "sts_b", "StsB"])
def test_names_in_any_spelling(spelling: str, download: Path) -> None:
    assert glue.canonical_name(spelling) == "sts-b" and glue.canonical_name("sts") is None
    (download / "STS-B").rename(download / spelling)
    assert (
        glue.TASKS["sts-b"].find_folder(download)
        == glue.TASKS["sts-b"].find_folder(download / spelling)
        == download / spelling
    )


def test_messages_about_missing_files_name_their_source(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder RTE; the official files are at https://glue"):
        load("rte", tmp_path)
    (tmp_path / "RTE").mkdir()
    with pytest.raises(DataError, match=r"train\.tsv and dev\.tsv of RTE missing; .*https://glue"):
        load("rte", tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("SST-2/dev.tsv", "sentence\tlabel\na\t1\nb\tso\n", r"dev\.tsv:3: .* one of 0, 1, got 'so'"),
        ("STS-B/dev.tsv", "sentence1\tsentence2\tscore\na\tb\t5.5\n", r"dev\.tsv:2: .* a number from 0 to 5"),
        ("STS-B/dev.tsv", "sentence1\tsentence2\tscore\na\tb\tnan\n", r"dev\.tsv:2: .* got 'nan'"),
        ("RTE/dev.tsv", "sentence1\tsentence\tlabel\na\tb\tc\n", r"dev\.tsv: no column 'sentence2'; the"),
        ("CoLA/train.tsv", "gj04\tx\t\tA.\n", r"train\.tsv:1: the label should be one of 0, 1"),
        ("QNLI/dev.tsv", "index\tquestion\tsentence\tlabel\n", r"dev\.tsv: the file has no examples"),
    ],
)  # fmt: skip
def test_messages_about_bad_files_name_the_line(file: str, text: str, message: str, download: Path) -> None:
    (download / file).write_text(text)
    name = glue.canonical_name(file.partition("/")[0])
    assert name is not None
    with pytest.raises(DataError, match=message):
        load(name, download)


def test_invalid_utf_8_is_refused(download: Path) -> None:
    (download / "SST-2/dev.tsv").write_bytes(b"sentence\tlabel\na\t1\nb\xff\t0\n")
    with pytest.raises(DataError, match=r"dev\.tsv:3: invalid UTF-8"):
        load("sst-2", download)


def test_a_submission_is_numbered_and_in_bounds() -> None:
    labels = glue.submission_text([{"label": "entailment"}, {"label": "not_entailment"}])
    assert labels == "index\tprediction\n0\tentailment\n1\tnot_entailment\n"
    values = glue.submission_text([{"value": 5.3}, {"value": -0.2}, {"value": 2.34567}])
    assert values == "index\tprediction\n0\t5.000\n1\t0.000\n2\t2.346\n"


def test_a_submission_has_the_servers_names(tmp_path: Path) -> None:
    assert glue.TASKS["cola"].submission_files() == {"test": "CoLA.tsv"}
    files = glue.TASKS["mnli"].submission_files()
    assert files == {"test": "MNLI-m.tsv", "test-mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"}
    path = tmp_path / "submission.zip"
    glue.write_submission(path, {"CoLA.tsv": "index\tprediction\n0\t1\n", "AX.tsv": "x"})
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["AX.tsv", "CoLA.tsv"]
        assert archive.read("CoLA.tsv") == b"index\tprediction\n0\t1\n"
    assert [file.name for file in tmp_path.iterdir()] == ["submission.zip"]
    with pytest.raises(DataError, match="cannot be written"):
        glue.write_submission(tmp_path / "no" / "submission.zip", {})

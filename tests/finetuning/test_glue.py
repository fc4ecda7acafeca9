"""All tasks of GLUE that have data in one call, and the submission."""

import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from electra.cli import main
from electra.commands.finetune import FinetuneCommand, run
from electra.errors import ConfigError, DataError
from electra.finetuning.config import FinetuneConfig, load_task_config
from electra.finetuning.glue import finetune_glue, write_submission
from electra.finetuning.results import FinetuneResult, SeedResult

WORDS = ["garden", "boat", "road", "town", "fox", "river"]


@pytest.fixture(scope="module", autouse=True)
def _products_are_not_timed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("electra.training.precision.product_flops", lambda dtype, device: 1e9)
        yield


def write(folder: Path, header: str, rows: list[str], test: list[str] | None = None, dev: str = "dev") -> None:
    folder.mkdir(parents=True)
    for name in ("train", dev):
        (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in ([header] if header else []) + rows))
    if test:
        (folder / "test.tsv").write_text("".join(f"{line}\n" for line in test))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tasks with six examples each, including WNLI; only dev of QQP."""
    folder = tmp_path_factory.mktemp("glue")
    write(folder / "CoLA", "", [f"x\t{i % 2}\t\t{word}" for i, word in enumerate(WORDS)],
          ["index\tsentence", "0\tfox", "1\triver"])  # fmt: skip
    pairs = [f"{i}\t{word}\ttown" for i, word in enumerate(WORDS)]
    rte = [f"{row}\t{('entailment', 'not_entailment')[i % 2]}" for i, row in enumerate(pairs)]
    write(folder / "RTE", "index\tsentence1\tsentence2\tlabel", rte, ["index\tsentence1\tsentence2", pairs[0]])
    write(
        folder / "WNLI", "index\tsentence1\tsentence2\tlabel", [f"{row}\t{i % 2}" for i, row in enumerate(pairs)]
    )
    nli = [f"{row}\t{('neutral', 'entailment', 'contradiction')[i % 3]}" for i, row in enumerate(pairs)]
    header = "index\tsentence1\tsentence2\tgold_label"
    write(folder / "MNLI", header, nli, dev="dev_matched")
    (folder / "MNLI" / "dev_mismatched.tsv").write_text("\n".join([header, *nli]) + "\n")
    (folder / "AX").mkdir()
    (folder / "AX" / "diagnostic.tsv").write_text(f"index\tsentence1\tsentence2\n{pairs[2]}\n")
    (folder / "QQP").mkdir()
    (folder / "QQP" / "dev.tsv").write_text(
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\ta\tb\t0\n"
    )
    return folder


def config(model: str, data: Path, out: Path) -> FinetuneConfig:
    return load_task_config({
        "model": model, "task": "glue", "data.path": data, "out": out, "train.epochs": 1, "train.batch_size": 4,
        "tracking.tensorboard": False, "train.precision": "float32", "train.device": "cpu",
    })  # fmt: skip


def test_tasks_with_data_are_run_and_averaged(small_model: str, data: Path, tmp_path: Path) -> None:
    actual = finetune_glue(config(small_model, data, tmp_path / "out"), from_mnli=True)
    assert list(actual.results) == ["cola", "mnli", "rte", "wnli"]
    assert actual.absent == ["SST-2", "MRPC", "STS-B", "QQP", "QNLI"]
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    medians = [results["tasks"][name]["median"] for name in ("cola", "mnli", "rte")]
    assert results["median"] == pytest.approx(sum(medians) / 3), "WNLI is not in the average"
    rte = json.loads((tmp_path / "out" / "rte" / "results.json").read_text())
    assert rte["pretrained"] == str(tmp_path / "out" / "mnli" / "model")
    assert list(json.loads((tmp_path / "out" / "mnli" / "results.json").read_text())["seeds"][0]["others"]) == [
        "dev-mismatched"
    ]
    cola = json.loads((tmp_path / "out" / "cola" / "results.json").read_text())
    assert cola["pretrained"] == small_model
    console = Console(width=200)
    with console.capture() as captured:
        console.print(actual)
    failed = [results["tasks"][name]["failed"] for name in actual.results]
    assert sum(failed) > 0, "six examples teach too little"
    assert "Matthews correlation" in captured.get()
    [line] = [line for line in captured.get().splitlines() if "failed runs" in line]
    assert [int(cell) for cell in line.replace("│", " ").split()[2:]] == [*failed, sum(failed)]


def test_small_tasks_start_from_mnli(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(data, more := tmp_path / "glue")
    scores = [f"{i}\t{word}\ttown\t{i % 6}" for i, word in enumerate(WORDS)]
    write(more / "STS-B", "index\tsentence1\tsentence2\tscore", scores)
    started: dict[str, str] = {}

    def finetuned(config: FinetuneConfig) -> FinetuneResult:
        started[config.task] = config.model
        return FinetuneResult(tmp_path, config.task, "x", [SeedResult(0, {"x": 0.5}, None, 1, 1.0)])

    monkeypatch.setattr("electra.finetuning.glue.finetune", finetuned)
    out = tmp_path / "out"
    for from_mnli, small in ((True, str(out / "mnli" / "model")), (False, "MODEL")):
        finetune_glue(config("MODEL", more, out), from_mnli=from_mnli)
        assert started == {"mnli": "MODEL", "cola": "MODEL", "wnli": "MODEL", "rte": small, "sts-b": small}


def test_the_submission_has_a_file_for_each_test_split(
    small_model: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "all.zip"
    assert main([
        "finetune", small_model, "--task", "glue", "--data", str(data), "--out", str(tmp_path / "out"),
        "--submission", str(archive), "--train.epochs", "1", "--tracking.tensorboard", "false",
        "--train.precision", "float32", "--train.device", "cpu",
    ]) == 0  # fmt: skip
    with zipfile.ZipFile(archive) as opened:
        texts = {name: opened.read(name).decode() for name in opened.namelist()}
    assert sorted(texts) == ["AX.tsv", "CoLA.tsv", "RTE.tsv"]
    assert [len(text.splitlines()) for _, text in sorted(texts.items())] == [2, 3, 2]
    assert texts["AX.tsv"].splitlines()[1].split("\t")[1] in ("neutral", "entailment", "contradiction")
    shown = capsys.readouterr().out
    assert "SST-2.tsv" in shown and "average" in shown


def test_mistakes_are_found_before_anything_is_trained(small_model: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no task of GLUE"):
        finetune_glue(config(small_model, tmp_path, tmp_path / "out"), from_mnli=False)
    (tmp_path / "less").mkdir()
    (tmp_path / "less" / "CoLA").symlink_to(data / "CoLA")
    with pytest.raises(ConfigError, match="has no MNLI"):
        finetune_glue(config(small_model, tmp_path / "less", tmp_path / "out"), from_mnli=True)
    wrong = tmp_path / "wrong"
    shutil.copytree(data, wrong)
    with (wrong / "WNLI" / "dev.tsv").open("a") as file:
        file.write("9\ta\tb\tmaybe\n")
    with pytest.raises(DataError, match=r"dev\.tsv:8: the label should be one of 0, 1, got 'maybe'"):
        finetune_glue(config(small_model, wrong, tmp_path / "out"), from_mnli=False)
    with pytest.raises(DataError, match="nothing to submit"):
        write_submission(tmp_path / "x.zip", {"cola": tmp_path})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fresh", [False, True])
def test_all_tasks_can_start_next_to_earlier_ones(
    fresh: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(config: FinetuneConfig, *, fresh: bool, **others: object) -> None:
        raise InterruptedError(f"fresh: {fresh}")

    monkeypatch.setattr("electra.finetuning.glue.finetune_glue", started)
    with pytest.raises(InterruptedError, match=f"fresh: {fresh}"):
        run(FinetuneCommand("MODEL", task="glue", data=data, out=tmp_path / "out", fresh=fresh))

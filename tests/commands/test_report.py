"""`electra report` from the command line."""

import json
from pathlib import Path

import pytest

from electra.cli import main


def test_it_writes_one_file_and_prints_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text(json.dumps({"step": 0, "tokens": 0, "eval/unigram_auc": 0.5}))
    out = tmp_path / "new" / "page.html"
    assert main(["report", str(run), "--out", str(out), "--title", "A & B"]) == 0
    assert "A &amp; B" in out.read_text(encoding="utf-8")
    assert capsys.readouterr().out.strip().endswith("page.html: 1 section")
    assert main(["report", str(run), "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip().endswith("page.html: 1 section (replaces an earlier file)")


def test_a_file_that_is_no_page_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text("", encoding="utf-8")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "x.pdf")]) == 2
    assert "--out: x.pdf must end in .html or .htm" in capsys.readouterr().err


@pytest.mark.parametrize("folders", [[], ["nowhere"]])
def test_missing_folders_are_refused(
    folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *folders, "--out", str(tmp_path / "page.html")]) == 2
    assert not list(tmp_path.iterdir())
    assert ("nowhere" if folders else "folder") in capsys.readouterr().err


def test_a_folder_as_the_file_to_write_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text("", encoding="utf-8")
    assert main(["report", str(tmp_path), "--out", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "is a folder; give a file" in message and "report.html" in message and ".partial" not in message

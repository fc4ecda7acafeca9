"""The plan of `electra prepare --dry-run`, compared with the real corpus."""

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from electra.errors import DataError
from electra.preparation import dry_run
from electra.preparation.config import PrepareConfig
from electra.preparation.dry_run import PreparePlan, plan_preparation

TEXTS = [
    f"The ferry number {i} leaves at {i % 24} o'clock, and {i * 7919} gulls fly after it." for i in range(4000)
]
LINES = "".join(json.dumps({"number": i, "body": text}) + "\n" for i, text in enumerate(TEXTS)).encode()


def planned(corpus: tuple[str, ...], out: Path, **options: object) -> PreparePlan:
    result = plan_preparation(PrepareConfig(corpus, out, **options))  # type: ignore[arg-type]
    assert not out.exists()
    return result


def test_the_plan_describes_sources(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_bytes(LINES)
    [source] = planned((str(tmp_path / "lines.jsonl"),), tmp_path / "out").sources
    assert (source.source.format, source.source.column) == ("jsonl", "body")
    assert source.beginning.startswith("The ferry number 0 leaves at 0 o'clock")
    assert source.characters == pytest.approx(sum(map(len, TEXTS)), rel=0.03)


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".zst", zstandard.compress)])
def test_a_large_source_is_estimated_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, pack
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(dry_run, "SAMPLE_CHARACTERS", 50_000)
    (tmp_path / f"text.txt{ending}").write_bytes(pack("\n\n".join(TEXTS).encode()))
    result = planned((str(tmp_path),), tmp_path / "out")
    assert result.characters == pytest.approx(sum(map(len, TEXTS)), rel=0.25)
    assert result.seconds > 0


def test_the_workers_share_the_planned_time(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS))
    alone, shared = (
        planned((str(tmp_path / "text.txt"),), tmp_path / "out", workers=workers).seconds for workers in (1, 4)
    )
    assert shared - dry_run.TRAINING_SECONDS == pytest.approx((alone - dry_run.TRAINING_SECONDS) / 4)


def test_standard_input_is_not_read_and_a_wrong_column_is_an_error(tmp_path: Path) -> None:
    assert planned(("-",), tmp_path / "out").sources == ()
    (tmp_path / "lines.jsonl").write_bytes(LINES)
    with pytest.raises(DataError, match="body"):
        planned((str(tmp_path / "lines.jsonl"),), tmp_path / "out", text_column="txt")

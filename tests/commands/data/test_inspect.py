"""`electra data inspect`: readable rows, and their statistics."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from electra.cli import main
from electra.commands.data.inspect import InspectConfig, InspectResult, _format_row, run
from electra.config import check
from electra.data import inspection
from electra.data.collate import collate
from electra.data.examples import ExampleSet
from electra.data.shards import SplitName, TokenData
from electra.data.tokenizer import load_tokenizer
from electra.errors import ConfigError, DataError
from electra.preparation import document_batches
from electra.preparation.config import PrepareConfig
from electra.preparation.merge import merge_data
from electra.preparation.run import prepare

SHORT = ("packing.sequence_length=32",)


@pytest.mark.parametrize("builder", ["contiguous", "full-sentences", "doc-sentences", "sentence-pairs", "stream"])
@pytest.mark.parametrize(("split", "seed"), [("train", 5), ("heldout", 0)])
def test_the_rows_are_those_of_a_run(data_folder: Path, split: SplitName, seed: int, builder: str) -> None:
    """Training rows are packed with the seed of the run, held-out rows are the same for all runs."""
    overrides = (*SHORT, "train.seed=5", f"packing.builder={builder}")
    actual = run(InspectConfig(data_folder, examples=30, split=split, overrides=overrides)).inspection
    data = TokenData.open(data_folder)
    examples = ExampleSet(getattr(data, split), actual.packing, seed=seed)
    tokenizer = load_tokenizer(data.tokenizer_path)
    for shown in actual.rows:
        row = int(shown.location.removeprefix("row ").partition(":")[0].replace(",", ""))
        batch = collate(examples, np.array([row]), special=data.special, seed=0, trim=True)
        [ids] = batch.input_ids_BL.tolist()
        whole = tokenizer.decode(ids, skip_special_tokens=True)
        text = " ".join(shown.segments)
        for mark in ("‹document begins› ", " ‹document ends›", "…"):
            text = text.replace(mark, "")
        assert text.replace("[SEP]", " ").split() == whole.split()
        assert f"{len(ids)} tokens" in shown.location
        assert len(shown.segments) == 1 + int(batch.segment_ids_BL.max())
        if builder == "full-sentences":  # a document begins after another, and only there
            assert shown.segments[0].count("‹document ends› [SEP] ‹document begins›") == ids.count(3) - 1
        if builder == "stream":
            assert str(_format_row(shown)).count("[SEP]") == ids.count(data.special.separate), "and no other"
            assert "[CLS]" not in str(_format_row(shown))
    if builder == "stream":
        assert 0 <= actual.dropped < 0.1, "less than a row at the end"
    elif builder != "sentence-pairs":
        assert actual.dropped == pytest.approx(0, abs=1e-9)


def test_windows_of_a_stream(data_folder: Path) -> None:
    """Without [CLS] and padding, and without the token after each."""
    overrides = (*SHORT, "packing.builder=stream")
    actual = run(InspectConfig(data_folder, examples=10**6, overrides=overrides)).inspection
    data = TokenData.open(data_folder)
    examples = ExampleSet(data.train, actual.packing, seed=0)
    tokenizer = load_tokenizer(data.tokenizer_path)
    assert len(actual.rows) == len(examples) and 0 < actual.dropped < 0.02
    batch = collate(examples, np.arange(len(examples)), special=data.special, seed=0, trim=True)
    for shown, ids in zip(actual.rows, batch.input_ids_BL.tolist(), strict=True):
        text = shown.segments[0]
        assert text.count("[SEP]") == ids.count(data.special.separate)
        for mark in ("‹document begins› ", " ‹document ends›", "…", " [SEP]", "[SEP] ", "[SEP]"):
            text = text.replace(mark, "")
        assert text.replace(" ", "") == tokenizer.decode(ids, skip_special_tokens=True).replace(" ", "")
    (console := Console(width=150, record=True)).print(InspectResult(actual))
    assert "at the ends of shards" in (printed := console.export_text()) and "[CLS]" not in printed


def test_a_byte_level_row_has_no_space_before_its_first_word(corpus_file: Path, tmp_path: Path) -> None:
    prepare(PrepareConfig((str(corpus_file),), tmp_path / "data", model="bpe", vocabulary_size=600, workers=1))
    actual = run(InspectConfig(tmp_path / "data", overrides=SHORT)).inspection
    texts = [text.removeprefix("‹document begins› ") for row in actual.rows for text in row.segments]
    assert texts and not any(text.startswith(" ") for text in texts)


def test_ends_of_documents_are_marked(data_folder: Path, corpus_file: Path) -> None:
    actual = run(InspectConfig(data_folder, examples=10**6, overrides=SHORT)).inspection
    assert len(actual.rows) == len(actual.lengths)
    begun = [row for row in actual.rows if "‹document begins›" in row.segments[0]]
    ended = [row for row in actual.rows if "‹document ends›" in row.segments[-1]]
    documents = TokenData.open(data_folder).train.documents
    assert len(begun) == len(ended) == documents > 300
    assert all(row.segments[0].startswith("‹document begins›") for row in begun)
    first = json.loads(corpus_file.read_text().splitlines()[0])["text"].lower().split(".")[0]
    assert any(first in row.segments[0] for row in begun)
    # A sentence that is cut at the end of a row continues in the next row.
    assert sum(row.segments[-1].endswith("…") for row in actual.rows) == sum(
        row.segments[0].startswith("…") for row in actual.rows
    )


def test_the_statistics_are_those_of_the_rows(data_folder: Path) -> None:
    actual = run(InspectConfig(data_folder, overrides=SHORT)).inspection
    assert actual.dropped == 0.0 and actual.shards == (1, 1)
    assert 0 < actual.one_segment < 0.5
    histogram = [line for line in InspectResult(actual).histogram() if "–" in line]
    assert sum(int(line.split("(")[0].split()[-1].replace(",", "")) for line in histogram) == len(actual.lengths)
    original = run(InspectConfig(data_folder, overrides=(*SHORT, "packing.builder=original"))).inspection
    assert 0.01 < original.dropped < 0.5
    options = ("packing.sequence_length=64", "packing.builder=original")
    everything = run(InspectConfig(data_folder, examples=10**6, overrides=options)).inspection
    assert any("⋯" in segment for row in everything.rows for segment in row.segments)


def test_rows_of_a_mixture_are_sampled_by_weight(
    data_folder: Path, corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of every part, also of those after a large part."""
    (corpus := tmp_path / "few.jsonl").write_text("".join(corpus_file.read_text().splitlines(keepends=True)[:40]))
    few, mixture = tmp_path / "few", tmp_path / "mixture"
    monkeypatch.setattr(document_batches, "BATCH_ITEMS", 8)
    given = {"tokenizer": data_folder / "tokenizer.json", "workers": 1, "shard_tokens": 500}
    prepare(PrepareConfig((str(corpus),), few, **given))
    merge_data((few, data_folder), mixture, weights=(3.0, 1.0))
    actual = run(InspectConfig(mixture, examples=200, overrides=SHORT)).inspection
    assert actual.mixture == [(str(few), 0.75), (str(data_folder), 0.25)]
    shares = [sum(f"({folder})" in row.location for row in actual.rows) / 200 for folder in (few, data_folder)]
    assert sum(shares) == 1 and abs(shares[0] - 0.75) < 0.1

    monkeypatch.setattr(inspection, "MAX_TOKENS", 1000)
    beginning = run(InspectConfig(mixture, examples=200, overrides=SHORT)).inspection
    assert actual.shards == (6, 6) and beginning.shards == (2, 6)
    assert {row.location.partition("(")[2].partition(")")[0] for row in beginning.rows} == {
        str(few),
        str(data_folder),
    }
    assert np.array_equal(beginning.lengths[-300:], actual.lengths[-300:]), "packed as in the whole"


def test_it_is_shown(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--split", "heldout", "--examples", "2", "--packing.sequence_length", "64"]
    assert main(["data", "inspect", str(data_folder), *options]) == 0
    shown = capsys.readouterr().out
    assert shown.count("[CLS]") >= 2 and "tokens per row" in shown and "█" in shown
    assert "of heldout-00000" in shown


def test_bad_input(data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match="no prepared data here"):
        run(InspectConfig(tmp_path))
    with pytest.raises(ConfigError, match="--examples: must be at least 0, got -1"):
        check(InspectConfig(data_folder, examples=-1))
    with pytest.raises(ConfigError, match="there is no such setting"):
        run(InspectConfig(data_folder, overrides=("packing.length=3",)))
    with pytest.raises(ConfigError, match="--seed: must be at least 0, got -1"):
        check(InspectConfig(data_folder, seed=-1))
    assert main(["data", "inspct", str(data_folder)]) == 2
    assert "no verb 'data inspct'; did you mean 'data inspect'?" in capsys.readouterr().err
    assert main(["data"]) == 2 and main(["data", "--help"]) == 0
    assert "electra data VERB" in capsys.readouterr().out

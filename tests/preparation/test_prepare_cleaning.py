"""Preparations that leave out copies and short documents."""

import json
import logging
from pathlib import Path
from random import Random

import pytest
from power import survived
from small_corpus import article, config, files, write_corpus

from electra.errors import DataError
from electra.preparation import document_batches
from electra.preparation import run as run_
from electra.preparation.run import prepare


def test_progress_counts_documents_that_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_batches, "BATCH_ITEMS", 8)
    caplog.set_level(logging.INFO, "electra")
    corpus = write_corpus(tmp_path / "a.jsonl", 40)
    corpus.write_text(corpus.read_text() * 2)
    manifest = prepare(config(corpus, tmp_path / "data", deduplicate=True)).manifest
    seen = [record.progress for record in caplog.records if record.msg == "Encoding"]  # type: ignore[attr-defined]
    assert len(seen) == 10 and len(set(seen)) == 10 and seen[-1][0] == seen[-1][1]
    assert manifest["statistics"]["left_out"] == {"a copy of an earlier one": 40}, "of all batches"


def test_copies_and_short_documents_are_left_out_and_counted(tmp_path: Path) -> None:
    random = Random(1)
    texts = [article(random) for _ in range(40)]
    lines = [*texts, "Noon.", *texts[:10], article(random), texts[0]]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in lines))
    manifest = prepare(config(corpus, tmp_path / "data", deduplicate=True, least_characters=20)).manifest
    assert manifest["statistics"]["documents"] == 41
    assert manifest["statistics"]["left_out"] == {"too short": 1, "a copy of an earlier one": 11}
    assert manifest["statistics"]["duplicate_share"] == 0 and not (tmp_path / "data/seen.hashes").exists()
    alone = tmp_path / "alone.jsonl"
    alone.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, lines[-2]]))
    prepare(config(alone, tmp_path / "alone"))
    assert files(tmp_path / "alone") == files(tmp_path / "data"), "as if they had never been there"
    with pytest.raises(DataError, match="left out by the filters"):
        prepare(config(corpus, tmp_path / "none", least_characters=10**6))


def test_deduplication_survives_a_power_loss_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_batches, "BATCH_ITEMS", 8)
    monkeypatch.setattr(run_, "COMMIT_CHARACTERS", 3000)
    random = Random(2)
    texts = [article(random) for _ in range(40)]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": random.choice(texts)}) + "\n" for _ in range(120)))
    whole = tmp_path / "whole"
    prepare(config(corpus, whole, deduplicate=True))

    def again(folder: Path) -> None:
        prepare(config(corpus, folder / "data", deduplicate=True, tokenizer=whole / "tokenizer.json"))

    def check(folder: Path) -> None:
        again(folder)
        assert files(folder / "data") == files(whole)

    assert survived(tmp_path, again, check) > 60

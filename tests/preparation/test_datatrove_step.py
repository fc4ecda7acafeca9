"""The step for datatrove pipelines: each task writes prepared data, and `merge_data` joins them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from object_store import BUCKET, Proxy

pytest.importorskip("datatrove", reason="the extra `corpus` is not installed")

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader

from electra.data.fetch import fetch_data
from electra.data.shards import TokenData
from electra.data.tokenizer import load_tokenizer
from electra.errors import ConfigError, DataError
from electra.preparation import datatrove_step
from electra.preparation.datatrove_step import TokenShards
from electra.preparation.encoding import encode_uncached
from electra.preparation.merge import merge_data
from electra.preparation.sentences import split_sentences

PART = "part-00000-of-00001"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datatrove_step, "BATCH_CHARACTERS", 20_000)


@pytest.fixture(scope="module")
def texts(corpus_file: Path) -> list[str]:
    return [json.loads(line)["text"] for line in corpus_file.read_text(encoding="utf-8").splitlines()]


def written(folder: Path) -> list[list[int]]:
    """Return the tokens of each document, training part first."""
    data, documents = TokenData.open(folder), list[list[int]]()
    for shard in data.train.shards + data.heldout.shards:
        ends = shard.sentence_ends[shard.document_ends - 1]
        documents += [part.tolist() for part in np.split(shard.tokens, ends)[:-1]]
    return documents


def expected(texts: list[str], tokenizer: Path) -> list[list[int]]:
    load = load_tokenizer(tokenizer)
    return [[one for part in split_sentences(text) for one in encode_uncached(load, part)] for text in texts]


def test_a_run_of_several_tasks_is_the_whole_corpus(texts: list[str], data_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for number in range(3):
        lines = [json.dumps({"id": "", "text": text}) + "\n" for text in texts[number::3]]
        (tmp_path / f"texts/{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    pipeline = [
        JsonlReader(str(tmp_path / "texts")),
        TokenShards(tmp_path / "shards", data_folder, heldout=0.1, shard_tokens=5000),
    ]
    LocalPipelineExecutor(pipeline, tasks=4, workers=1, logging_dir=str(tmp_path / "logs")).run()
    parts = sorted((tmp_path / "shards").iterdir())
    assert [part.name for part in parts] == [f"part-{rank:05d}-of-00004" for rank in range(3)], "the last had none"
    merge_data(tuple(parts), tmp_path / "data")
    assert sorted(written(tmp_path / "data")) == sorted(expected(texts, data_folder))
    data = TokenData.open(tmp_path / "data")
    assert len(data.train.shards) > 3 and 0.03 < data.heldout.documents / len(texts) < 0.2
    stats = json.loads((tmp_path / "logs/stats.json").read_text(encoding="utf-8"))[-1]["stats"]
    assert stats["total"] == len(texts)
    assert stats["tokens"]["total"] == data.train.tokens + data.heldout.tokens


def pass_through(step: TokenShards, texts: list[str], **task: int) -> list[str]:
    documents: Iterator[Document] = (Document(text=text, id=str(number)) for number, text in enumerate(texts))
    return [document.text for document in step.run(documents, **task)]


def test_documents_are_passed_to_the_next_step(texts: list[str], data_folder: Path, tmp_path: Path) -> None:
    assert pass_through(TokenShards(tmp_path, data_folder), texts[:20]) == texts[:20]


def test_a_task_that_is_run_again_replaces_its_part(texts: list[str], data_folder: Path, tmp_path: Path) -> None:
    step = TokenShards(tmp_path, data_folder, shard_tokens=2000)
    pass_through(step, texts, rank=1, world_size=2)
    stopped = step.run((Document(text=text, id="") for text in texts), rank=1, world_size=2)
    next(stopped)
    stopped.close()
    part = tmp_path / "part-00001-of-00002"
    with pytest.raises(DataError, match="prepare"):
        TokenData.open(part)
    pass_through(step, texts[:10], rank=1, world_size=2)
    assert sorted(written(part)) == sorted(expected(texts[:10], data_folder))
    assert not list(part.glob("*00001*")), "shards of the longer try are gone"


def test_an_object_store(texts: list[str], data_folder: Path, tmp_path: Path) -> None:
    """Simulated by the memory file system of fsspec."""
    store = fsspec.filesystem("memory")
    pass_through(TokenShards("memory://bucket/shards", data_folder), texts[:50])
    fetch_data("memory://bucket/shards/part-00000-of-00001", tmp_path / "part")
    assert sorted(written(tmp_path / "part")) == sorted(expected(texts[:50], data_folder))
    store.rm("/bucket", recursive=True)


def test_a_store_that_speaks_s3(
    object_store: tuple[Any, Proxy], texts: list[str], data_folder: Path, tmp_path: Path
) -> None:
    store, _ = object_store
    step, part = TokenShards(f"s3://{BUCKET}/shards", data_folder, shard_tokens=20_000), f"{BUCKET}/shards/{PART}"
    for name, some in (("first", texts), ("again", texts[:50])):
        pass_through(step, some)
        fetch_data(f"s3://{part}", tmp_path / name)
        assert sorted(written(tmp_path / name)) == sorted(expected(some, data_folder))
        here = {path.name for path in (tmp_path / name).iterdir()}
        assert {Path(path).name for path in store.ls(part, refresh=True)} == here, "nothing of the first is left"
        assert ("train-00001.tokens" in here) is (name == "first")


def test_a_connection_to_a_store_breaks(
    object_store: tuple[Any, Proxy], texts: list[str], data_folder: Path, tmp_path: Path
) -> None:
    (_, proxy), step = object_store, TokenShards(f"s3://{BUCKET}/shards", data_folder)
    proxy.file, proxy.breaks = b"train-00000.tokens", 1000
    with pytest.raises(Exception, match=r"[Cc]onnection"):
        pass_through(step, texts)
    assert proxy.breaks < 1000
    proxy.breaks = 0
    with pytest.raises(DataError, match=r"manifest\.json: cannot be fetched \(there is no such file\)"):
        fetch_data(f"s3://{BUCKET}/shards/{PART}", tmp_path / "part")
    proxy.breaks = 1
    pass_through(step, texts)
    assert proxy.breaks == 0
    fetch_data(f"s3://{BUCKET}/shards/{PART}", tmp_path / "part")
    assert sorted(written(tmp_path / "part")) == sorted(expected(texts, data_folder))


def test_invalid_settings_are_refused_before_the_pipeline_runs(data_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="heldout"):
        TokenShards(tmp_path, data_folder, heldout=0)
    with pytest.raises(ConfigError, match="shard_tokens"):
        TokenShards(tmp_path, data_folder, shard_tokens=0)
    with pytest.raises(DataError, match="nowhere"):
        TokenShards(tmp_path, tmp_path / "nowhere")

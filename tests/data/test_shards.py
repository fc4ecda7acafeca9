import contextlib
import io
import json
import os
import random
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electra.data import shards
from electra.data.shards import (
    FORMAT,
    Split,
    TokenData,
    copy_at_most,
    file_sha256,
    fingerprint,
    token_dtype,
    write_manifest,
)
from electra.data.tokenizer import describe_tokenizer
from electra.errors import DataError
from electra.preparation.encoding import Encoded
from electra.preparation.shard_writer import SplitWriter, count_tokens, write_unigram_fakes
from electra.preparation.tokenizer_training import train_tokenizer

U16 = np.dtype("<u2")


def batch(*documents: list[list[int]], dtype: np.dtype[Any] = U16) -> Encoded:
    """Encode documents, given as lists of sentences, which are lists of ids."""
    sentences = [sentence for document in documents for sentence in document]
    return Encoded(
        np.array([i for sentence in sentences for i in sentence], dtype),
        np.cumsum([len(sentence) for sentence in sentences], dtype=np.int64),
        np.cumsum([len(document) for document in documents], dtype=np.int64),
        unknown=0,
    )


def make_data(folder: Path, *, shard_tokens: int = 1000) -> dict[str, Any]:
    """Write a small finished data folder and return its manifest."""
    folder.mkdir()
    tokenizer = train_tokenizer(["some words to train on, and some more"] * 50, vocabulary_size=512)
    tokenizer.save(str(folder / "tokenizer.json"))
    size = describe_tokenizer(tokenizer)["vocabulary_size"]
    random = np.random.default_rng(0)
    records: dict[str, Any] = {}
    for split in ("train", "heldout"):
        writer = SplitWriter(folder, split, dtype=U16, shard_tokens=shard_tokens)  # type: ignore[arg-type]
        for _ in range(8):
            writer.add(
                batch([random.integers(5, size, 50).tolist(), [5, 6]], [random.integers(5, 9, 20).tolist()])
            )
        records[split] = writer.finish()
    counts = count_tokens(folder, records["train"], U16, size)
    np.save(folder / "unigram.npy", counts)
    for record in records["heldout"]:
        write_unigram_fakes(folder, record, dtype=U16, counts=counts, special=(0, 1, 2, 3, 4))
    checksum = file_sha256(folder / "tokenizer.json")
    splits = {split: {"shards": shards} for split, shards in records.items()}
    manifest = {
        "format": FORMAT,
        "tokenizer": {"sha256": checksum, **describe_tokenizer(tokenizer)},
        "dtype": "uint16",
        "splits": splits,
        "fingerprint": fingerprint(checksum, splits),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return manifest


def sentences_of(split: Split) -> list[list[list[int]]]:
    documents = []
    for shard in split.shards:
        starts = np.concatenate([[0], shard.sentence_ends[:-1]])
        sentences = [shard.tokens[a:b].tolist() for a, b in zip(starts, shard.sentence_ends, strict=True)]
        firsts = np.concatenate([[0], shard.document_ends[:-1]])
        documents += [sentences[a:b] for a, b in zip(firsts, shard.document_ends, strict=True)]
    return documents


def test_what_was_written_is_read(tmp_path: Path) -> None:
    make_data(tmp_path / "data", shard_tokens=200)
    data = TokenData.open(tmp_path / "data")
    assert len(data.train.shards) == 3 and [len(shard.tokens) for shard in data.train.shards] == [216, 216, 144]
    assert (data.train.tokens, data.train.sentences, data.train.documents) == (8 * 72, 24, 16)
    documents = sentences_of(data.train)
    assert [[len(sentence) for sentence in document] for document in documents] == [[50, 2], [20]] * 8
    assert documents[0][1] == [5, 6]
    assert data.special.ids == (0, 1, 2, 3, 4)
    everything = np.concatenate([shard.tokens for shard in data.train.shards])
    assert data.unigram_counts.tolist() == np.bincount(everything, minlength=data.vocabulary_size).tolist()
    assert data.tokenizer_path.is_file() and len(data.fingerprint) == 64


def test_unigram_fakes_are_15_percent_and_the_same_every_time(tmp_path: Path) -> None:
    make_data(tmp_path / "a")
    make_data(tmp_path / "b")
    one, other = (TokenData.open(tmp_path / name) for name in "ab")
    assert one.fingerprint == other.fingerprint
    (shard,) = one.heldout.shards
    assert shard.unigram is not None and one.train.shards[0].unigram is None
    differing = np.mean(shard.unigram != shard.tokens)
    assert 0.1 < differing <= 0.15
    drawn = shard.unigram[shard.unigram != shard.tokens]
    assert not set(drawn.tolist()) & set(one.special.ids)
    assert all(one.unigram_counts[drawn] > 0)


@pytest.mark.parametrize("kind", ["tokens", "sentences", "documents", "unigram"])
def test_damaged_and_truncated_files_are_named(tmp_path: Path, kind: str) -> None:
    make_data(tmp_path / "data")
    path = tmp_path / "data" / f"heldout-00000.{kind}"
    content = path.read_bytes()
    path.write_bytes(content[:-2])
    with pytest.raises(
        DataError, match=rf"heldout-00000\.{kind}: expected {len(content)} bytes, found {len(content) - 2}"
    ):
        TokenData.open(tmp_path / "data", verify=False)
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(
        DataError, match=rf"heldout-00000\.{kind}: expected sha256 [0-9a-f]{{64}}, found [0-9a-f]{{64}}"
    ):
        TokenData.open(tmp_path / "data")
    TokenData.open(tmp_path / "data", verify=False)
    path.unlink()
    with pytest.raises(DataError, match=rf"heldout-00000\.{kind}: the file is missing"):
        TokenData.open(tmp_path / "data")


def test_no_more_is_copied_than_the_manifest_says(tmp_path: Path) -> None:
    for size in (0, 99, 100):
        content = io.BytesIO(bytes(100))
        with pytest.raises(DataError, match="found more") if size < 100 else contextlib.nullcontext():
            copy_at_most(content, tmp_path / "copy", size, name="a file")
        assert (tmp_path / "copy").stat().st_size <= size and content.tell() == min(size + 1, 100)
    assert (tmp_path / "copy").stat().st_size == 100


def test_a_pipe_or_a_device_is_named(data_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(data_folder, tmp_path / "data"))
    for name in ("train-00000.tokens", "unigram.npy", "tokenizer.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    with pytest.raises(DataError, match="not a regular file") as refused:
        TokenData.open(folder)
    assert str(refused.value).count("it is not a regular file") == 3


def test_token_counts_of_more_bytes_than_the_vocabulary_needs_are_refused(
    data_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(data_folder, tmp_path / "data"))
    with (folder / "unigram.npy").open("ab") as file:
        file.write(b"\0")
    manifest = json.loads((folder / "manifest.json").read_text())
    write_manifest(folder, {**manifest, "unigram_counts": file_sha256(folder / "unigram.npy")})
    with pytest.raises(DataError, match=r"unigram\.npy: expected at most \d+ bytes, found"):
        TokenData.open(folder)


def test_a_checksum_of_any_size_takes_no_memory(data_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(data_folder, tmp_path / "data"))
    with (folder / "manifest.sha256").open("ab") as file:
        file.truncate(1 << 28)  # it takes no disk
    tracemalloc.start()
    with pytest.raises(DataError, match=r"it is damaged, or manifest\.sha256 is"):
        TokenData.open(folder)
    assert tracemalloc.get_traced_memory()[1] < 1 << 27
    tracemalloc.stop()


def test_another_tokenizer_is_noticed(tmp_path: Path) -> None:
    make_data(tmp_path / "data")
    train_tokenizer(["quite other words"] * 9, vocabulary_size=512).save(str(tmp_path / "data/tokenizer.json"))
    with pytest.raises(DataError, match=r"tokenizer\.json: expected sha256"):
        TokenData.open(tmp_path / "data", verify=False)


def test_folders_that_are_not_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="make it with `electra prepare"):
        TokenData.open(tmp_path)
    (tmp_path / "progress.json").write_text("{}")
    with pytest.raises(DataError, match="run the same `electra prepare` command again"):
        TokenData.open(tmp_path)
    for text, message in [
        ("{", "not a manifest"),
        ("[]", "not a manifest"),
        ('{"format": 99}', "format 99"),
        ('{"format": 1}', r"incomplete or invalid \('splits'\)"),
    ]:
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(DataError, match=message):
            TokenData.open(tmp_path)


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    assert token_dtype(1 << 16) == np.uint16 and token_dtype((1 << 16) + 1) == np.uint32
    wide = np.dtype("<u4")
    writer = SplitWriter(tmp_path, "train", dtype=wide, shard_tokens=10)
    writer.add(batch([[70_000, 3]], dtype=wide))
    writer.finish()
    assert np.fromfile(tmp_path / "train-00000.tokens", wide).tolist() == [70_000, 3]


@pytest.mark.parametrize("kept", range(11))
@pytest.mark.parametrize("lost", [1, 2])
def test_a_writer_resumes_from_its_last_commit(tmp_path: Path, kept: int, lost: int) -> None:
    def writer(name: str, state: dict[str, Any] | None = None) -> SplitWriter:
        (tmp_path / name).mkdir(exist_ok=True)
        return SplitWriter(tmp_path / name, "train", dtype=U16, shard_tokens=20, state=state)

    batches = [batch([[i, i + 1], [7]], [[8] * i]) for i in range(1, 13)]
    whole = writer("whole")
    full = [whole.add(part) for part in batches]
    records = whole.finish()
    assert full.count(True) == 4 and len(records) == 5

    killed = writer("resumed")
    for part in batches[:kept]:
        killed.add(part)
    state = json.loads(json.dumps(killed.commit()))
    for part in batches[kept : kept + lost]:  # a full shard is always committed, so no more than one is lost
        if killed.add(part):
            break
    killed.close()
    resumed = writer("resumed", state)
    for part in batches[kept:]:
        resumed.add(part)
    assert resumed.finish() == records
    names = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("whole", "resumed")]
    assert names[0] == names[1]


def test_a_shard_finished_after_the_commit_is_opened_again(tmp_path: Path) -> None:
    writer = SplitWriter(tmp_path, "train", dtype=U16, shard_tokens=5)
    writer.add(batch([[1, 2]]))
    state = writer.commit()
    assert writer.add(batch([[3, 4, 5]]))
    writer.close()
    assert (tmp_path / "train-00000.tokens").is_file()
    resumed = SplitWriter(tmp_path, "train", dtype=U16, shard_tokens=5, state=state)
    resumed.add(batch([[9, 9, 9, 9]]))
    resumed.finish()
    assert np.fromfile(tmp_path / "train-00000.tokens", U16).tolist() == [1, 2, 9, 9, 9, 9]


def test_lost_files_of_an_unfinished_preparation_are_noticed(tmp_path: Path) -> None:
    writer = SplitWriter(tmp_path, "train", dtype=U16, shard_tokens=100)
    writer.add(batch([[1, 2]]))
    state = writer.commit()
    writer.close()
    (tmp_path / "train-00000.tokens.partial").write_bytes(b"x")
    with pytest.raises(DataError, match="expected 4 bytes, found 1"):
        SplitWriter(tmp_path, "train", dtype=U16, shard_tokens=100, state=state)


def test_a_split_without_documents_has_no_shard(tmp_path: Path) -> None:
    writer = SplitWriter(tmp_path, "heldout", dtype=U16, shard_tokens=100)
    writer.add(batch())
    assert writer.finish() == [] and list(tmp_path.iterdir()) == []


def test_a_flip_of_any_byte_is_noticed(data_folder: Path, tmp_path: Path) -> None:
    copy, draw = tmp_path / "data", random.Random(0)
    shutil.copytree(data_folder, copy)
    TokenData.open(copy)
    read_later = {"rejects.jsonl", "progress.json"}
    for file in sorted(path for path in copy.iterdir() if path.name not in read_later):
        content = file.read_bytes()
        for place in draw.sample(range(len(content)), min(20, len(content))):
            flipped = content[place] ^ (1 << draw.randrange(8))
            file.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
            with pytest.raises(DataError):
                TokenData.open(copy)
        file.write_bytes(content)
    assert TokenData.open(copy).fingerprint == TokenData.open(data_folder).fingerprint


def test_a_missing_checksum_of_the_manifest_is_warned_of(
    data_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(data_folder, tmp_path / "data")
    TokenData.open(tmp_path / "data")
    assert not caplog.records
    (tmp_path / "data/manifest.sha256").unlink()
    TokenData.open(tmp_path / "data")
    assert "manifest.sha256 is missing, so changes of manifest.json cannot be detected" in caplog.text


def test_verified_files_are_not_read_again_unless_they_change(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(data_folder, tmp_path / "data")
    stamps = TokenData.open(tmp_path / "data").stamps
    assert len(stamps) >= 7
    read: list[str] = []

    def counting(path: Path) -> str:
        read.append(path.name)
        return file_sha256(path)

    monkeypatch.setattr(shards, "file_sha256", counting)
    TokenData.open(tmp_path / "data", verified=stamps)
    assert read == ["tokenizer.json", "unigram.npy"], "small ones, every time"
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    read.clear()
    TokenData.open(tmp_path / "copy", verified=stamps)
    assert "train-00000.tokens" in read, "as old and as large as the original, and another file"
    changed = tmp_path / "data/train-00000.tokens"
    content = bytearray(changed.read_bytes())
    content[0] ^= 1
    changed.write_bytes(content)
    with pytest.raises(DataError, match=r"train-00000\.tokens: expected sha256"):
        TokenData.open(tmp_path / "data", verified=stamps)


@pytest.mark.parametrize("dtype", ["O", "float64", ["i8", [3]], "|V1000000000", "int8"])
def test_tokens_of_another_type_are_refused(data_folder: Path, tmp_path: Path, dtype: Any) -> None:
    """numpy has types that are pointers or of any size."""
    folder = Path(shutil.copytree(data_folder, tmp_path / "data"))
    manifest = json.loads((folder / "manifest.json").read_text())
    write_manifest(folder, {**manifest, "dtype": dtype})
    with pytest.raises(DataError, match="the manifest is incomplete or invalid"):
        TokenData.open(folder)

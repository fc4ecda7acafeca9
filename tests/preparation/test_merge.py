"""Merging folders of prepared data; verifying them and counting what they hold."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_run import config

from electra.cli import main
from electra.data.examples import ExampleSet
from electra.data.shards import TokenData, file_sha256, write_manifest
from electra.errors import CheckpointError, ConfigError, DataError
from electra.folder_lock import acquire
from electra.preparation.config import PrepareConfig
from electra.preparation.merge import merge_data
from electra.preparation.run import prepare
from electra.pretraining.build import build_batches
from electra.pretraining.run import pretrain


@pytest.fixture(scope="module")
def parts(corpus_file: Path, data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two parts of different size, in several shards, prepared with one tokenizer."""
    folder = tmp_path_factory.mktemp("parts")
    lines = corpus_file.read_text(encoding="utf-8").splitlines(keepends=True)
    made = []
    for number, some in enumerate((lines[:150], lines[150:])):
        (text := folder / f"{number}.jsonl").write_text("".join(some), encoding="utf-8")
        made.append(folder / f"part-{number}")
        prepare(
            PrepareConfig(
                corpus=(str(text),), out=made[-1], tokenizer=data_folder / "tokenizer.json", workers=1,
                heldout=0.1, shard_tokens=8000,
            )
        )  # fmt: skip
    return made


def test_merged_data_have_all_shards(parts: list[Path], tmp_path: Path) -> None:
    result = merge_data(tuple(parts), tmp_path / "data")
    merged, apart = TokenData.open(tmp_path / "data"), [TokenData.open(part) for part in parts]
    assert merged.manifest["statistics"]["documents"] == 400
    for split in ("train", "heldout"):
        shards = [shard for data in apart for shard in getattr(data, split).shards]
        assert len(shards) == len(getattr(merged, split).shards) >= 2
        for merged_shard, theirs in zip(getattr(merged, split).shards, shards, strict=True):
            for kind in ("tokens", "sentence_ends", "document_ends"):
                assert np.array_equal(getattr(merged_shard, kind), getattr(theirs, kind))
    assert np.array_equal(merged.unigram_counts, sum(data.unigram_counts for data in apart))
    tokens = np.concatenate([shard.tokens for shard in merged.train.shards])
    assert np.array_equal(merged.unigram_counts, np.bincount(tokens, minlength=merged.vocabulary_size))
    shares = [np.mean(np.asarray(s.unigram) != np.asarray(s.tokens)) for s in merged.heldout.shards]
    assert all(0.1 < share < 0.16 for share in shares)
    assert merged.fingerprint not in {data.fingerprint for data in apart}
    assert "400 documents" in str(result)


def test_the_parts_are_not_changed(parts: list[Path], tmp_path: Path) -> None:
    before = {path: file_sha256(path) for part in parts for path in part.iterdir()}
    merge_data(tuple(parts), tmp_path / "data")
    assert {path: file_sha256(path) for part in parts for path in part.iterdir()} == before


def test_merged_data_can_be_trained_on(parts: list[Path], tmp_path: Path) -> None:
    merge_data(tuple(parts), tmp_path / "data")
    assert pretrain(config(tmp_path / "data", tmp_path / "run", "train.steps=5")).exit_code == 0


def test_parts_that_do_not_fit_together_are_refused(parts: list[Path], corpus_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    prepare(PrepareConfig(corpus=(str(corpus_file),), out=other, model="unigram", vocabulary_size=512, workers=1))
    with pytest.raises(DataError, match=r"another tokenizer than that of .*part-0.*--tokenizer"):
        merge_data((parts[0], other), tmp_path / "data")
    with pytest.raises(DataError, match="two of the folders hold the same data"):
        merge_data((parts[0], parts[0]), tmp_path / "data")
    with pytest.raises(ConfigError, match="at least two"):
        merge_data((parts[0],), tmp_path / "data")
    with pytest.raises(ConfigError, match="is not empty"):
        merge_data(tuple(parts), other)


def test_only_one_process_merges_into_a_folder(parts: list[Path], tmp_path: Path) -> None:
    with acquire(tmp_path / "data"), pytest.raises(CheckpointError, match=r"process \d+ .* is merging data; wait"):
        merge_data(parts, tmp_path / "data")
    merge_data(parts, tmp_path / "data")
    assert not (tmp_path / "data/taken.json").exists()


def test_a_finished_merge_is_reused(parts: list[Path], tmp_path: Path) -> None:
    out, weights = tmp_path / "data", (3.0, 1.0)
    first = merge_data(parts, out, weights=weights)
    (out / "tags.json").write_text("{}")  # of `electra data tags`
    made = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    again = merge_data(parts, out, weights=weights)
    assert again.reused and again.manifest == first.manifest and "nothing to do" in str(again)
    assert made == {path: path.stat().st_mtime_ns for path in out.iterdir()}
    for other_parts, other_weights in ((parts, (1.0, 3.0)), (list(reversed(parts)), weights)):
        with pytest.raises(ConfigError, match="is not empty: it holds other parts"):
            merge_data(other_parts, out, weights=other_weights)
    (out / "unigram.npy").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"unigram\.npy: expected sha256"):
        merge_data(parts, out, weights=weights)


def test_verify_lists_all_damage(parts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copies = [Path(shutil.copytree(part, tmp_path / part.name)) for part in parts]
    for name in ("train-00000.sentences", "unigram.npy"):
        (copies[0] / name).write_bytes(b"damaged")
    (copies[1] / "manifest.json").write_bytes(b"{")
    assert main(["data", "verify", str(copies[0]), str(parts[0]), str(copies[1])]) == 2
    said = capsys.readouterr().err
    for words in (
        "train-00000.sentences: ", "unigram.npy: expected sha256", f"delete {copies[0]}, then repeat the command",
        f"{parts[0]}: complete, every checksum matches",
        f"manifest.json: it is damaged, or manifest.sha256 is; delete {copies[1]}",
    ):  # fmt: skip
        assert words in said


def test_verify_and_stats(parts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    merge_data(tuple(parts), tmp_path / "data")
    assert main(["data", "verify", str(tmp_path / "data"), str(parts[0])]) == 0
    assert capsys.readouterr().out.count(": complete, every checksum matches; ") == 2
    assert main(["data", "stats", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr().out
    assert "tokens per document: 5%, 50%, 95%" in shown and "entries of the vocabulary occur" in shown
    file = next((tmp_path / "data").glob("train-00000.tokens"))
    content = bytearray(file.read_bytes())
    content[17] ^= 4
    file.unlink()  # it is a link to the file of the part
    file.write_bytes(content)
    assert main(["data", "verify", str(tmp_path / "data")]) == 2
    assert "train-00000.tokens: expected sha256" in capsys.readouterr().err


def test_a_mixture_is_sampled_by_weight_and_resumes(parts: list[Path], tmp_path: Path) -> None:
    merge_data(tuple(parts), tmp_path / "mixture", weights=(1.0, 3.0))
    mixture, apart = TokenData.open(tmp_path / "mixture"), [TokenData.open(part) for part in parts]
    assert mixture.mixture == ((len(apart[0].train.shards), 1.0), (len(apart[1].train.shards), 3.0))
    merge_data(tuple(parts), tmp_path / "other", weights=(3.0, 1.0))
    assert TokenData.open(tmp_path / "other").fingerprint != mixture.fingerprint
    tokens = [data.train.tokens for data in apart]
    shares = mixture.unigram_counts / mixture.unigram_counts.sum()
    expected = sum(w / 4 * d.unigram_counts / t for w, d, t in zip((1, 3), apart, tokens, strict=True))
    assert np.abs(shares - expected).max() < 1e-3

    settings = config(tmp_path / "mixture", tmp_path / "run", "train.steps=20", "checkpoint.every=10")
    drawn = build_batches(replace(settings, out=None), mixture, torch.device("cpu"))
    rows = np.array([row["row"] for step in range(20) for row in drawn.describe_rows(step)])
    first = len(ExampleSet(apart[0].train, settings.packing, seed=settings.train.seed))
    assert abs((rows < first).mean() - 1 / 4) < 0.08, "a quarter of the rows are from the first part"
    pretrain(settings)
    whole = (tmp_path / "run/checkpoints/step-00000020/model.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "run/checkpoints/step-00000020")
    pretrain(settings)
    assert (tmp_path / "run/checkpoints/step-00000020/model.safetensors").read_bytes() == whole


def test_counts_follow_the_weights_and_shares_the_sizes(data_folder: Path, tmp_path: Path) -> None:
    folders = []
    for name, text in (("fox", "a fox 字 \n" * 300), ("river", "the river\n\n" * 100)):
        (file := tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
        folders.append(tmp_path / name)
        prepare(PrepareConfig((str(file),), folders[-1], tokenizer=data_folder / "tokenizer.json", workers=1))
    merge_data(folders, tmp_path / "mixture", weights=(1.0, 3.0))
    mixture, apart = TokenData.open(tmp_path / "mixture"), [TokenData.open(folder) for folder in folders]
    fox, river = (int(np.argmax(data.unigram_counts)) for data in apart)
    counts = mixture.unigram_counts
    whole = [
        data.unigram_counts[token] / data.train.tokens for data, token in zip(apart, (fox, river), strict=True)
    ]
    assert counts[river] / counts[fox] == pytest.approx(3 * whole[1] / whole[0], rel=0.02)
    each = [data.manifest["statistics"] for data in apart]
    unknown = sum(one["unknown_share"] * one["tokens"] for one in each)
    assert each[0]["unknown_share"] > 0.2 and each[1]["unknown_share"] == 0
    statistics = mixture.manifest["statistics"]
    assert statistics["unknown_share"] * statistics["tokens"] == pytest.approx(unknown)
    assert [(one["documents"], one["duplicate_share"]) for one in each] == [(1, 0), (100, 0.99)]
    assert statistics["duplicate_share"] == pytest.approx(99 / 101), "of documents, not of tokens"


@pytest.mark.parametrize(
    ("weights", "problem"),
    [
        ((1.0,), "got 1 weights for 2 folders"),
        ((1.0, 0.0), "must be above 0"),
        ((1.0, float("nan")), "must be above 0"),
    ],
)
def test_invalid_weights_are_refused(
    parts: list[Path], tmp_path: Path, weights: tuple[float, ...], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        merge_data(tuple(parts), tmp_path / "mixture", weights=weights)


def test_mixtures_cannot_be_merged(parts: list[Path], tmp_path: Path) -> None:
    merge_data(tuple(parts), tmp_path / "mixture", weights=(1.0, 3.0))
    with pytest.raises(DataError, match="is a mixture already"):
        merge_data((tmp_path / "mixture", parts[0]), tmp_path / "more")


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "a/b", ".."])
def test_names_outside_of_a_part_are_refused(parts: list[Path], tmp_path: Path, name: str) -> None:
    part = Path(shutil.copytree(parts[0], tmp_path / "part"))
    manifest = json.loads((part / "manifest.json").read_text())
    manifest["splits"]["train"]["shards"][0]["name"] = name
    write_manifest(part, manifest)
    with pytest.raises(DataError, match="names a file that cannot be in its folder"):
        merge_data((part, parts[1]), tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_file_that_grows_is_not_copied_without_end(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Path(shutil.copytree(parts[0], tmp_path / "part"))

    def grow(source: Path, _: Path) -> None:
        with source.open("ab") as file:
            file.write(b"\0")
        raise OSError("another file system")

    monkeypatch.setattr(os, "link", grow)
    with pytest.raises(DataError, match=r"part/train-\S*: expected [\d,]+ bytes at most, by the manifest"):
        merge_data((part, parts[1]), tmp_path / "data")
    assert not list((tmp_path / "data").glob("*train-*"))


def test_links_of_a_part_become_files(parts: list[Path], tmp_path: Path) -> None:
    part = Path(shutil.copytree(parts[0], tmp_path / "part"))
    for path in list(part.glob("train-*")):
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    merge_data((part, parts[1]), tmp_path / "data")
    shutil.rmtree(part)
    assert not any(path.is_symlink() for path in (tmp_path / "data").iterdir())
    TokenData.open(tmp_path / "data")

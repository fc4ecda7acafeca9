import errno
import io
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from power import survived
from rich.console import Console
from small_corpus import WORDS, article, config, files, write_corpus

from electra.data.shards import TokenData
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError, ConfigError, DataError
from electra.folder_lock import acquire
from electra.preparation import run as run_
from electra.preparation.run import prepare
from electra.preparation.tokenizer_training import train_tokenizer


def untimed(manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "made": manifest["made"]["options"]}


def documents_of(data: TokenData, split: str) -> list[str]:
    tokenizer = load_tokenizer(data.tokenizer_path)
    texts = []
    for shard in getattr(data, split).shards:
        ends = shard.sentence_ends[shard.document_ends - 1]
        texts += [tokenizer.decode(part.tolist()) for part in np.split(shard.tokens, ends)[:-1]]
    return texts


def test_data_have_every_document_once(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "a.jsonl", 300)
    result = prepare(config(corpus, tmp_path / "data"))
    data = TokenData.open(tmp_path / "data")
    assert data.manifest == result.manifest
    train_texts, heldout_texts = documents_of(data, "train"), documents_of(data, "heldout")
    expected = [json.loads(line)["text"].lower() for line in corpus.read_text().splitlines()]
    actual = [text.replace(" .", ".") for text in train_texts + heldout_texts]
    assert sorted(actual) == sorted(expected), "every document occurs once, with all its words"
    assert len(heldout_texts) == 8, "a small corpus holds out eight documents"
    statistics = data.manifest["statistics"]
    assert statistics["documents"] == 300 and statistics["rejects"] == 0 and statistics["unknown_share"] == 0
    assert statistics["characters"] == sum(map(len, expected))
    assert statistics["tokens"] == data.train.tokens + data.heldout.tokens
    assert data.manifest["splits"]["train"]["sentences"] == data.train.sentences
    assert data.manifest["made"]["options"]["sources"] == [
        {"name": str(corpus), "bytes": corpus.stat().st_size, "column": "text"}
    ]
    assert not (tmp_path / "data/progress.json").exists()


def test_the_report_has_the_statistics(tmp_path: Path) -> None:
    result = prepare(config(write_corpus(tmp_path / "a.jsonl", 50), tmp_path / "data"))
    written = io.StringIO()
    Console(width=200, file=written).print(result)
    text = written.getvalue()
    for words in ("is prepared", "50 (0.0% of them copies)", "characters per token", "unknown tokens", "0.000%"):
        assert words in text
    assert f"{result.manifest['splits']['train']['tokens']:,} to train on" in text
    assert "! Only" in text, "warnings are in it"


@pytest.mark.parametrize("model", ["wordpiece", "bpe"])
def test_the_workers_do_not_change_the_files(tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra.preparation.document_batches.BATCH_CHARACTERS", 2000)
    corpus = write_corpus(tmp_path / "a.jsonl", 200)
    results = [
        prepare(config(corpus, tmp_path / str(n), workers=n, model=model, shard_tokens=4000)) for n in (1, 3)
    ]
    assert len(results[0].manifest["splits"]["train"]["shards"]) > 2
    assert files(tmp_path / "1") == files(tmp_path / "3")
    assert untimed(results[0].manifest) == untimed(results[1].manifest)


def test_a_killed_run_resumes_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    random = Random(3)
    lines = [json.dumps({"text": article(random, 100)}) if i % 20 else "{broken" for i in range(100)]
    for name, part in (("a", lines[:40]), ("b", lines[40:])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(part))
    # Small batches and commits. The process kills itself between two commits, after so many characters.
    program = f"""
import os, signal, sys
from pathlib import Path
from electra.preparation import document_batches, run
from electra.preparation.config import PrepareConfig

class KillingProgress(run.Progress):
    def add(self, *arguments, **options):
        super().add(*arguments, **options)
        if self.characters > int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    document_batches.BATCH_CHARACTERS, run.COMMIT_CHARACTERS, run.Progress = 15_000, 60_000, KillingProgress
    corpus = ({str(tmp_path / "a.jsonl")!r}, {str(tmp_path / "b.jsonl")!r})
    run.prepare(PrepareConfig(corpus, Path(sys.argv[1]), vocabulary_size=600, workers=int(sys.argv[3]),
                              shard_tokens=20_000))
"""
    (tmp_path / "program.py").write_text(program)

    def start(name: str, characters: int = 10**9, workers: int = 1) -> int:
        arguments = [str(tmp_path / "program.py"), str(tmp_path / name), str(characters), str(workers)]
        return subprocess.run([sys.executable, *arguments]).returncode

    committed = []
    for characters in (150_000, 300_000):
        assert start("killed", characters, workers=2) == -signal.SIGKILL
        committed.append(json.loads((tmp_path / "killed/progress.json").read_text())["documents"])
    assert 0 < committed[0] < committed[1] < 95, "killed twice in the middle"
    assert not (tmp_path / "killed/manifest.json").exists()
    for name in ("killed", "whole"):
        assert start(name) == 0
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    killed, whole = (TokenData.open(tmp_path / name).manifest for name in ("killed", "whole"))
    assert untimed(killed) == untimed(whole)
    assert whole["statistics"]["rejects"] == 5 and len(whole["splits"]["train"]["shards"]) > 3


def test_finished_data_are_reused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "a.jsonl", 50)
    first = prepare(config(corpus, tmp_path / "data"))
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").iterdir()}
    again = prepare(config(corpus, tmp_path / "data", workers=2))
    assert again.reused and again.manifest == first.manifest
    assert made == {path: path.stat().st_mtime_ns for path in (tmp_path / "data").iterdir()}
    with pytest.raises(
        DataError, match=r"other options \(vocabulary_size: 600 there, 700 now\); give another --out"
    ):
        prepare(config(corpus, tmp_path / "data", vocabulary_size=700))
    with pytest.raises(DataError, match=r"\(deduplicate: False there, True now\)"):
        prepare(config(corpus, tmp_path / "data", deduplicate=True))
    write_corpus(corpus, 51)
    with pytest.raises(DataError, match=r"other options \(sources: "):
        prepare(config(corpus, tmp_path / "data"))


def test_damaged_finished_data_are_an_error(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "a.jsonl", 50)
    prepare(config(corpus, tmp_path / "data"))
    tokens = tmp_path / "data/train-00000.tokens"
    tokens.write_bytes(bytes([tokens.read_bytes()[0] ^ 1]) + tokens.read_bytes()[1:])
    with pytest.raises(DataError, match=r"train-00000\.tokens: expected sha256 (.|\n)*delete .*data, then repeat"):
        prepare(config(corpus, tmp_path / "data"))
    (tmp_path / "data/manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"it is damaged(.|\n)*delete .*data, then repeat"):
        prepare(config(corpus, tmp_path / "data"))


def test_unfinished_data_with_other_options_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "a.jsonl", 50)

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(run_, "encode_in_order", stop)
        prepare(config(corpus, tmp_path / "data"))
    with pytest.raises(DataError, match=r"heldout: 0\.01 there, 0\.02 now"):
        prepare(config(corpus, tmp_path / "data", heldout=0.02))
    progress = tmp_path / "data/progress.json"
    progress.write_text(json.dumps({**json.loads(progress.read_text()), "seconds": 1000.0}))
    manifest = prepare(config(corpus, tmp_path / "data")).manifest
    assert manifest["statistics"]["documents"] == 50 and manifest["made"]["seconds"] > 1000, "both runs together"


def test_a_full_disk_is_an_error_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "a.jsonl", 50)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(DataError, match="the disk is full; make room"):
        patched.setattr(run_.SplitWriter, "add", full)
        prepare(config(corpus, tmp_path / "data"))
    assert prepare(config(corpus, tmp_path / "data")).manifest["statistics"]["documents"] == 50


def test_a_given_tokenizer_is_used(tmp_path: Path) -> None:
    tokenizer = train_tokenizer([" ".join(WORDS)] * 20, vocabulary_size=512)
    names = tokenizer.get_vocab()
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(names, key=lambda name: names[name])))
    corpus = write_corpus(tmp_path / "a.jsonl", 20)
    manifest = prepare(config(corpus, tmp_path / "data", tokenizer=tmp_path / "vocab.txt")).manifest
    assert manifest["tokenizer"]["vocabulary_size"] == len(names) and manifest["tokenizer"]["lowercase"]
    assert load_tokenizer(tmp_path / "data/tokenizer.json").get_vocab() == names


def test_a_tokenizer_that_takes_hangul_apart_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, text in (("ko.txt", "한국어"), ("de.txt", "Fähre")):
        (tmp_path / name).write_text("\n\n".join([" ".join(WORDS)] * 20 + [text]))
        (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
        for tokenizer in (None, tmp_path / "vocab.txt"):
            caplog.clear()
            prepare(config(tmp_path / name, tmp_path / f"{name}-{tokenizer is None}", tokenizer=tokenizer))
            assert ("takes apart" in caplog.text) == (name == "ko.txt" and tokenizer is not None)


def test_chinese(tmp_path: Path) -> None:
    random = Random(0)
    texts = ["".join(random.choices("渡轮七点离开港口中午回来岛上有一家咖啡馆", k=40)) + "。" for _ in range(40)]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    prepare(config(tmp_path / "a.txt", tmp_path / "data"))
    assert sorted(text.replace(" ", "") for split in ("train", "heldout")
                  for text in documents_of(TokenData.open(tmp_path / "data"), split)) == sorted(texts)  # fmt: skip


def test_rejects_are_listed_with_their_place(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "a.jsonl", 50)
    with corpus.open("ab") as file:
        file.write(b'{"text": "cut\n{"text": "\xff"}\n')
    manifest = prepare(config(corpus, tmp_path / "data")).manifest
    rejects = [json.loads(line) for line in (tmp_path / "data/rejects.jsonl").read_text().splitlines()]
    assert [(reject["source"], reject["line"]) for reject in rejects] == [(str(corpus), 51), (str(corpus), 52)]
    assert rejects[0]["reason"].startswith("broken JSON") and rejects[1]["reason"].startswith("broken UTF-8")
    assert manifest["statistics"]["rejects"] == 2
    assert any("3.8% of the lines (2) were rejected" in warning for warning in manifest["warnings"])


def test_names_need_not_be_utf8(tmp_path: Path) -> None:
    try:
        (folder := tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    except OSError:
        pytest.skip("this file system has only names in UTF-8")
    corpus = write_corpus(folder / os.fsdecode(b"\xe9.jsonl"), 50)
    with corpus.open("ab") as file:
        file.write(b"{broken\n")
    first = prepare(config(corpus, tmp_path / "data"))
    assert TokenData.open(tmp_path / "data").manifest["made"]["options"]["sources"][0]["name"] == str(corpus)
    [line] = (tmp_path / "data/rejects.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["source"] == str(corpus)
    assert prepare(config(corpus, tmp_path / "data")).reused
    again = prepare(config(corpus, folder / "data", tokenizer=tmp_path / "data"))
    assert again.manifest["fingerprint"] == first.manifest["fingerprint"]


def test_of_two_preparations_at_once_only_one_writes(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "a.jsonl", 50)
    with acquire(tmp_path / "data"), pytest.raises(CheckpointError, match=r"process \d+ .* is preparing"):
        prepare(config(corpus, tmp_path / "data"))
    options = ["--vocabulary-size", "600", "--workers", "1", "--out", str(tmp_path / "both")]
    command = [sys.executable, "-m", "electra", "prepare", str(corpus), *options]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [(process.communicate()[1], process.returncode) for process in both]
    assert min(status for _, status in said) == 0
    assert all("is preparing these data; wait for its end" in text for text, status in said if status)
    prepare(config(corpus, tmp_path / "alone"))
    assert files(tmp_path / "both") == files(tmp_path / "alone")
    TokenData.open(tmp_path / "both")


def test_one_document_is_split_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(article(Random(0), 1000))
    manifest = prepare(config(tmp_path / "a.txt", tmp_path / "data")).manifest
    assert manifest["splits"]["train"]["sentences"] == 980 and manifest["splits"]["heldout"]["sentences"] == 20
    text = "\n".join(manifest["warnings"])
    assert "The corpus is one document" in text and "the end of a document that is also trained on" in text


def test_warnings_about_statistics(tmp_path: Path) -> None:
    tokenizer = tmp_path / "vocab.txt"
    tokenizer.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n.\n")
    (tmp_path / "a.txt").write_text("\n\n".join(["The ferry."] * 40 + ["The baker."] * 40))
    manifest = prepare(config(tmp_path / "a.txt", tmp_path / "data", tokenizer=tokenizer)).manifest
    text = "\n".join(manifest["warnings"])
    for words in (
        "of the tokens are unknown",
        "98% of the documents are copies",
        "very short (10 characters",
        "Only ",
    ):
        assert words in text
    (tmp_path / "b.txt").write_text("The ferry")
    manifest = prepare(config(tmp_path / "b.txt", tmp_path / "b", tokenizer=tokenizer)).manifest
    assert any("too short to hold out a part (1 sentence)," in warning for warning in manifest["warnings"])
    (tmp_path / "c.txt").write_text("The ferry.\n\nThe baker.\n\nThe old baker.")
    manifest = prepare(config(tmp_path / "c.txt", tmp_path / "c", tokenizer=tokenizer)).manifest
    assert any("too short to hold out a part (3 sentences)," in warning for warning in manifest["warnings"])


def test_copies_of_a_document_are_in_one_split(tmp_path: Path) -> None:
    random = Random(0)
    texts = [article(random) for _ in range(60)] * 3
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    prepare(config(tmp_path / "a.jsonl", tmp_path / "data", heldout=0.2))
    data = TokenData.open(tmp_path / "data")
    heldout = documents_of(data, "heldout")
    assert heldout and not set(heldout) & set(documents_of(data, "train"))


def test_standard_input(tmp_path: Path) -> None:
    text = "\n\n".join(article(Random(i)) for i in range(30))
    command = [sys.executable, "-m", "electra", "prepare", "-", "--vocabulary-size", "600", "--workers", "1"]
    command += ["--out", str(tmp_path / "data")]
    for _ in range(2):
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
        assert TokenData.open(tmp_path / "data").manifest["statistics"]["documents"] == 30
        assert not list((tmp_path / "data").glob("stdin*"))
    assert b"nothing" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "The corpus is empty"),
        ("a.txt", b"\n \n", "The corpus has no document"),
        ("a.txt", b"\xff\xfe\xff\n\xff", "UTF-16"),
        (
            "a.txt",
            b"\xff\n\xff",
            "every line was rejected, the first: .*a.txt, line 1: broken UTF-8 .*; if .* iconv",
        ),
        ("a.txt", bytes(100), "a binary file"),
        ("a.jsonl", b'{"title": "x"}\n', "no column 'text'; the columns are 'title'"),
        ("a.txt", b"\x01\x02", "no token to train on"),
    ],
)
def test_an_unusable_corpus_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    tokenizer = tmp_path / "vocab.txt"
    tokenizer.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nx")
    (tmp_path / name).write_bytes(content)
    column = {"text_column": "text"} if name.endswith("jsonl") else {}
    with pytest.raises(DataError, match=message):
        prepare(config(tmp_path / name, tmp_path / "data", tokenizer=tokenizer, **column))


def test_the_command_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nx")
    corpus = write_corpus(tmp_path / "a.jsonl", 5)
    command = [sys.executable, "-m", "electra", "prepare", str(corpus), "--out", str(tmp_path / "data")]
    done = subprocess.run([*command, "--tokenizer", str(tmp_path / "vocab.txt")], capture_output=True, text=True)
    assert done.returncode == 2 and "the vocabulary has no [MASK]" in done.stderr
    assert not (tmp_path / "data").exists()


def test_problems_of_the_settings_are_shown_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(
            config(
                "a.txt", tmp_path, heldout=0.7, workers=0, shard_tokens=0, least_characters=-5, most_characters=-1
            )
        )
    for problem in (
        "--heldout: must be above 0 and at most 0.5, got 0.7",
        "--workers: must be at least 1, got 0",
        "--shard-tokens: must be at least 1, got 0",
        "--least-characters: must be at least 0, got -5",
        "--most-characters: must be at least 0, got -1",
    ):
        assert problem in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        prepare(config("a.txt", tmp_path, vocabulary_size=5, least_characters=9, most_characters=8))
    assert "--vocabulary-size: must be at least 512, got 5" in str(caught.value)
    assert "--most-characters: must be at least --least-characters (9), got 8" in str(caught.value)


def test_progress_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "electra")
    prepare(config(write_corpus(tmp_path / "a.jsonl", 50), tmp_path / "data"))
    done, total = [record.progress for record in caplog.records if hasattr(record, "progress")][-1]
    assert done == total > 0


def test_a_preparation_survives_a_power_loss_at_any_time(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", 60)
    whole = tmp_path / "whole"
    prepare(config(corpus, whole, shard_tokens=2000))

    def again(folder: Path) -> None:
        options = {"tokenizer": str(whole / "tokenizer.json"), "shard_tokens": 2000}
        prepare(config(corpus, folder / "data", **options))

    def check(folder: Path) -> None:
        if (folder / "data/manifest.json").exists():
            TokenData.open(folder / "data", verify=True)
        again(folder)
        assert files(folder / "data") == files(whole) and not list(folder.glob("data/.*"))

    assert survived(tmp_path, again, check) > 30

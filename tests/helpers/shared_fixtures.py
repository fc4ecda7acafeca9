"""A discriminator that knows some words, and nothing else; a small study and its tasks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from small_study import BASE, STUDY

from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.finetuning import seed_run
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import ReplacedTokenHead
from electra.preparation.tokenizer_training import train_tokenizer
from electra.tasks.base import TaskBatch

NOUNS = ["gardener", "sailor", "clock", "neighbour", "river", "teacher", "fox", "garden", "boat", "road", "town"]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[str], int, int], str]:
    """Makes a discriminator of texts with its words, the size of the vocabulary and the longest input."""

    def made(texts: Sequence[str], vocabulary_size: int, max_positions: int) -> str:
        folder = tmp_path_factory.mktemp("model")
        train_tokenizer(texts, vocabulary_size=vocabulary_size).save(str(folder / "tokenizer.json"))
        torch.manual_seed(0)
        config = BertConfig(
            layers=1, hidden_size=32, embedding_size=32, feed_forward_size=64, heads=2,
            max_positions=max_positions,
            vocabulary_size=tokenizers.vocabulary_size(load_tokenizer(folder / "tokenizer.json")),
            initializer_range=0.1, linear_initializer_range=0.1,
        )  # fmt: skip
        huggingface.save(
            folder / "model", encoder=BertEncoder(config), head=ReplacedTokenHead(config), card="",
            tokenizer_json=folder / "tokenizer.json",
        )  # fmt: skip
        return str(folder / "model")

    return made


@pytest.fixture(scope="session")
def small_model(make_model: Callable[[Sequence[str], int, int], str]) -> str:
    return make_model([" ".join([*NOUNS, "splendid", "dreadful"])] * 9, 150, 48)


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Calls a function when the batch of a step of a fine-tuning is built."""
    whole = seed_run.micro_batches

    def at(breaking_step: int, happens: Callable[[], None]) -> None:
        def micro_batches(config: Any, rows: Any, step: int, **others: Any) -> list[TaskBatch]:
            if step == breaking_step:
                happens()
            return whole(config, rows, step, **others)

        monkeypatch.setattr(seed_run, "micro_batches", micro_batches)

    return at


@pytest.fixture
def without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips the comparison of every export with transformers, which takes a second or two. Other tests do it."""
    monkeypatch.setattr("electra.pretraining.export.parity", lambda *_, **__: None)


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "two.toml").write_text(STUDY.replace("BASE", str(tmp_path / "base.toml")))
    return tmp_path / "two.toml"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Chunking in two files of a few sentences."""
    folder = tmp_path / "tasks" / "chunking-conll2000"
    folder.mkdir(parents=True)
    sentence = "the DT B-NP\nfox NN I-NP\nwatches VBZ B-VP\nthe DT B-NP\nmill NN I-NP\n. . O\n\n"
    for name in ("train.txt", "test.txt"):
        (folder / name).write_text(sentence * 12)
    return tmp_path / "tasks"


@pytest.fixture(scope="session")
def held_out_data(corpus_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data with a tenth of the documents held out. Not to be written to."""
    from electra.preparation.config import PrepareConfig
    from electra.preparation.run import prepare

    out = tmp_path_factory.mktemp("data") / "stories"
    config = PrepareConfig(corpus=(str(corpus_file),), out=out, vocabulary_size=520, workers=1, heldout=0.1)
    prepare(config)
    return out

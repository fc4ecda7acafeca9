"""Texts longer than a row, from the table to the exported model: cut, in windows, with memory."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import electra
from electra.cli import main
from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.finetuning.config import load_task_config
from electra.finetuning.results import FinetuneResult
from electra.finetuning.run import finetune
from electra.modeling.encoders.relative import RelativeConfig
from electra.modeling.heads import LanguageModelHead
from electra.preparation.tokenizer_training import train_tokenizer

NOUNS = ["gardener", "sailor", "clock", "neighbour", "river", "teacher", "fox", "garden", "boat", "road", "town"]
WORDS = [*NOUNS, "splendid", "dreadful"]
LENGTH = 16
SETTINGS: dict[str, Any] = {
    "kind": "classification", "train.precision": "float32", "train.batch_size": 16, "train.epochs": 3,
    "optimizer.learning_rate": 1e-2, "tracking.tensorboard": False, "train.device": "cpu", "train.dropout": 0.0,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _products_are_not_timed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("electra.training.precision.product_flops", lambda dtype, device: 1e9)
        yield


@pytest.fixture(scope="module")
def plain(make_model: Callable[[Sequence[str], int, int], str]) -> str:
    return make_model([" ".join(WORDS)] * 9, 150, LENGTH)


def save_memory_model(folder: Path, direction: Literal["left", "both"], memory_length: int = 20) -> str:
    train_tokenizer([" ".join(WORDS)] * 9, vocabulary_size=150).save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = RelativeConfig(
        layers=2, hidden_size=32, embedding_size=32, feed_forward_size=64, heads=2,
        direction=direction, memory_length=memory_length, type_vocabulary_size=1, initializer_range=0.1,
        linear_initializer_range=0.1,
        vocabulary_size=tokenizers.vocabulary_size(load_tokenizer(folder / "tokenizer.json")),
    )  # fmt: skip
    huggingface.save(
        folder / "model", encoder=config.build(), head=LanguageModelHead(config), card="",
        tokenizer_json=folder / "tokenizer.json", max_length=LENGTH,
    )  # fmt: skip
    return str(folder / "model")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of 3 to 80 words, mostly long; the third word from the end decides the label."""
    draw, folder = random.Random(0), tmp_path_factory.mktemp("reviews")
    for name, count in (("train", 320), ("dev", 40)):
        rows = []
        for number in range(count):
            word, label = (("splendid", "good"), ("dreadful", "bad"))[number % 2]
            words = draw.choices(NOUNS, k=draw.randint(1, 8) if number % 10 == 0 else draw.randint(20, 78))
            rows.append({"text": " ".join([*words, word, *draw.choices(NOUNS, k=2)]), "label": label})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def tune(model: str, data: Path, out: Path, **others: Any) -> FinetuneResult:
    settings = SETTINGS | {name.replace("__", "."): value for name, value in others.items()}
    return finetune(load_task_config({**settings, "model": model, "data.path": data, "out": out}))


def check_exported_predictions(out: Path, data: Path) -> None:
    """The exported model predicts the same for dev as the seed did."""
    known = [json.loads(line) for line in (out / "seed-0/dev.jsonl").read_text().splitlines()]
    texts = [json.loads(line)["text"] for line in (data / "dev.jsonl").read_text().splitlines()]
    actual = electra.load(out, device="cpu").predict(texts)
    for one, other in zip(actual, known, strict=True):
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-4)


def test_the_end_of_a_text_is_read_in_windows_and_cut_otherwise(plain: str, reviews: Path, tmp_path: Path) -> None:
    assert tune(plain, reviews, tmp_path / "cut").values("accuracy")[0] < 0.75
    actual = tune(plain, reviews, tmp_path / "windows", data__long="windows")
    assert actual.values("accuracy")[0] > 0.9
    check_exported_predictions(tmp_path / "windows", reviews)
    results = json.loads((tmp_path / "windows/model/config.json").read_text())["electra_task"]
    assert (results["max_length"], results["long"], results["longest"]) == (LENGTH, "windows", 4096)


@pytest.mark.parametrize("direction", ["left", "both"])
def test_with_memory(direction: Literal["left", "both"], reviews: Path, tmp_path: Path) -> None:
    model = save_memory_model(tmp_path, direction)
    actual = tune(model, reviews, tmp_path / "out", data__long="memory")
    assert actual.values("accuracy")[0] > 0.9
    check_exported_predictions(tmp_path / "out", reviews)


def test_texts_are_cut_at_the_longest(plain: str, reviews: Path, tmp_path: Path) -> None:
    actual = tune(plain, reviews, tmp_path / "out", data__long="windows", data__longest=LENGTH, train__epochs=1)
    cut = tune(plain, reviews, tmp_path / "cut", train__epochs=1)
    assert actual.values("accuracy") == cut.values("accuracy")


def test_settings_that_contradict_each_other_are_refused(
    plain: str, reviews: Path, tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(data: Path, *options: str) -> str:
        assert main(["finetune", plain, "--data", str(data), "--out", str(tmp_path / "no"), *options]) == 2
        assert not (tmp_path / "no").exists()
        return " ".join(capsys.readouterr().err.split())

    own = "--kind", "classification"
    assert "data.long: memory, but the model has none" in refused(reviews, *own, "--data.long", "memory")
    assert "longest: must be at least 8" in refused(reviews, *own, "--data.longest", "3")
    error = refused(tasks / "chunking-conll2000", "--task", "chunking", "--data.long", "windows")
    assert "data.long: windows is for labels and values of texts, not for tagging" in error

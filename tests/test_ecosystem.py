"""Every piece of Python in docs/guides/ecosystem.md runs, on tiny models in the places that the page names."""

import importlib.util
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_model import LENGTH, write_model

import electra
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import MaskedLanguageModelHead
from electra.tasks.conll import Sentence
from electra.tasks.tagging import build_tagging_task
from electra.tasks.tags import extract_spans

PAGE = Path(__file__).parents[1] / "docs/guides/ecosystem.md"
PIECES: list[str] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
WIDTH = 16
TEXT = "The cat sat on the mat."


def called(model: str) -> np.ndarray:
    """What transformers says of `TEXT`, for comparison."""
    from transformers import AutoModel, AutoTokenizer

    with torch.inference_mode():
        batch = AutoTokenizer.from_pretrained(model)(TEXT, return_tensors="pt")
        return np.asarray(AutoModel.from_pretrained(model)(**batch).last_hidden_state[0])


def features(names: dict[str, Any]) -> None:
    expected = called("RUN/export/discriminator")
    np.testing.assert_allclose(names["states"][0], expected, atol=1e-5)


def scored(names: dict[str, Any]) -> None:
    [ours] = electra.Scorer("RUN/export/discriminator")(["The cat sat on the math."])
    np.testing.assert_allclose(names["replaced"][0, 1:-1], ours.probabilities, atol=1e-5)


def filled(names: dict[str, Any]) -> None:
    assert len(names["guesses"]) == 3 and names["guesses"][0]["score"] >= names["guesses"][1]["score"]


def joined(names: dict[str, Any]) -> None:
    """The pipeline's spans are those of electra's tags."""
    assert {*names["tagger"].model.config.id2label.values()} == {"O", "B-NP", "I-NP"}
    [ours] = electra.load("OUT/model").predict(["The old man saw the sea ."])
    labels = electra.load("OUT/model").pretrained.task["labels"]  # type: ignore[index]
    assert labels == ["O", "B-NP", "E-NP", "I-NP", "S-NP"]
    assert len(names["spans"]) == len(extract_spans(ours["tags"])) > 1


def embedded(names: dict[str, Any]) -> None:
    ours = electra.load("RUN/export/discriminator").encode([TEXT, "A dog.", "The old clock."])
    np.testing.assert_allclose(names["embeddings"], ours, atol=1e-5)
    again = type(names["sentences"])("SENTENCES", device="cpu")
    np.testing.assert_allclose(again.encode([TEXT])[0], ours[0], atol=1e-5)


def in_documents(names: dict[str, Any]) -> None:
    """The spans are those of the tags."""
    doc = names["nlp"]("The old man saw\n the sea.")
    words = [token.text for token in doc if not token.is_space]
    [actual] = electra.load("OUT/model").predict([words])
    begun = sum(tag.startswith("B") for tag in actual["tags"])
    assert begun and len(doc.ents) == begun and {span.label_ for span in doc.ents} == {"NP"}
    assert len(names["nlp"]("")) == 0


def curated(names: dict[str, Any]) -> None:
    np.testing.assert_allclose(names["states"], called("RUN/export/discriminator")[1:-1], atol=1e-4)


CHECKS: list[Callable[[dict[str, Any]], None]] = [
    features, scored, filled, joined, embedded, in_documents, curated,
]  # fmt: skip


def libraries(code: str) -> list[str]:
    """The modules that a piece of code imports."""
    return list(dict.fromkeys(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RUN/export/discriminator, RUN/export/generator and OUT/model."""
    root = tmp_path_factory.mktemp("ecosystem")
    for name, made in (("discriminator", {}), ("generator", {"head": MaskedLanguageModelHead})):
        model = write_model(root / name, **made)  # type: ignore[arg-type]
        target = root / "RUN" / "export" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        model.rename(target)
    tags = ("B-NP", "I-NP", "I-NP", "O", "B-NP")
    problem = build_tagging_task("np", {"train": [Sentence(tuple("abcde"), tags, "a.txt", 1)]}).problem
    torch.manual_seed(1)
    config = BertConfig(
        layers=1, hidden_size=WIDTH, embedding_size=WIDTH, feed_forward_size=32, heads=2, max_positions=40,
        vocabulary_size=400, initializer_range=0.4, linear_initializer_range=0.4,
    )  # fmt: skip
    head = problem.build_head(config)
    torch.nn.init.normal_(head.prediction.weight)
    huggingface.save(
        root / "OUT" / "model", encoder=BertEncoder(config), head=head, card="", max_length=LENGTH,
        tokenizer_json=root / "generator" / "tokenizer.json", task=problem.to_dict(),
    )  # fmt: skip
    return root


def test_every_piece_has_a_check() -> None:
    assert len(PIECES) == len(CHECKS)


@pytest.mark.parametrize(
    ("code", "check"), [*zip(PIECES, CHECKS, strict=False)], ids=[one.__name__ for one in CHECKS]
)
def test_it_runs(
    code: str, check: Callable[[dict[str, Any]], None], folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in libraries(code):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed; it comes with the extra `ecosystem`")
    monkeypatch.chdir(folders)
    names: dict[str, Any] = {"__name__": "page"}
    with warnings.catch_warnings():  # those libraries' own
        warnings.simplefilter("ignore")
        exec(compile(code, f"{PAGE.name}: {check.__name__}", "exec"), names)
        check(names)

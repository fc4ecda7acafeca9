"""The effect of quantization: which value is that of which network."""

from pathlib import Path

from small_model import TEXTS, write_model

from electra.analysis.quantization import compare_on_texts
from electra.export.loading import load_pretrained


def test_each_value_is_that_of_its_network(tmp_path: Path) -> None:
    first, second = (load_pretrained(write_model(tmp_path / str(n), layers=n)) for n in (1, 3))
    ids = [one.ids for one in first.tokenizer.encode_batch(TEXTS * 20, add_special_tokens=False)]
    own, other = (compare_on_texts(one, one, ids) for one in (first, second))
    assert own.torch == own.onnx != other.torch == other.onnx
    both = compare_on_texts(first, second, ids)
    assert (both.torch, both.onnx) == (own.torch, other.torch)

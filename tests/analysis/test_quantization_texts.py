"""The texts that the effect of 8-bit weights is measured on."""

from dataclasses import replace
from pathlib import Path

from small_model import LENGTH, write_model

from electra.analysis.quantization_texts import read_quantization_texts
from electra.export.loading import load_pretrained


def test_texts_are_as_long_as_those_that_the_network_was_trained_on(tmp_path: Path) -> None:
    pretrained = load_pretrained(write_model(tmp_path / "model"))
    for trained_length, longest in ((None, LENGTH - 2), (8, 6)):
        name, ids = read_quantization_texts("MODEL", replace(pretrained, trained_length=trained_length), None)
        assert name == "our own sentences" and max(map(len, ids)) == longest

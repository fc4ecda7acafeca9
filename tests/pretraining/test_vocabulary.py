"""The vocabulary of a run that starts from pre-trained networks."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer

from electra.data.tokenizer import add_bert_pipeline
from electra.export.pretrained import Pretrained
from electra.preparation.tokenizer_training import train_tokenizer
from electra.pretraining.config import load_config
from electra.pretraining.vocabulary import with_vocabulary_transfer
from electra.pretraining.warm_start import WarmStart


@pytest.mark.parametrize("network_is_cased", [True, False])
def test_data_of_another_case_with_the_same_entries_are_a_warning(
    network_is_cased: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lower = train_tokenizer(["the ferry leaves at seven"] * 5, vocabulary_size=512)
    cased = add_bert_pipeline(Tokenizer.from_str(lower.to_str()), False, False)
    (tmp_path / "config.json").touch()  # of the network
    of_network, of_data = (cased, lower) if network_is_cased else (lower, cased)
    of_data.save(str(tmp_path / "tokenizer.json"))
    data: Any = SimpleNamespace(tokenizer_path=tmp_path / "tokenizer.json", folder=tmp_path)
    encoder: Any = None
    start = WarmStart(Pretrained(encoder, None, of_network, None, 32))
    config = load_config("electra-tiny", {"init.discriminator": str(tmp_path)})
    assert with_vocabulary_transfer(start, data, config) == start
    was = "cased" if network_is_cased else "lowercase"
    assert f"{tmp_path} was trained on {was} text, the data is not" in caplog.text

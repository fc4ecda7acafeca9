"""The exports of a run with random networks."""

from pathlib import Path

import pytest
import torch

from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead


@pytest.fixture(scope="session")
def exported_run(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a run: random networks over the vocabulary of the data."""
    folder = tmp_path_factory.mktemp("exports") / "run"
    tokenizer_json = data_folder / "tokenizer.json"
    size = tokenizers.vocabulary_size(load_tokenizer(tokenizer_json))
    config = BertConfig(
        layers=1, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, max_positions=32,
        vocabulary_size=size, initializer_range=0.4, linear_initializer_range=0.4,
    )  # fmt: skip
    for seed, (name, head) in enumerate(
        {"discriminator": ReplacedTokenHead, "generator": MaskedLanguageModelHead}.items()
    ):
        torch.manual_seed(seed)
        huggingface.save(
            folder / "export" / name, encoder=BertEncoder(config), head=head(config), card="",
            tokenizer_json=tokenizer_json,
        )  # fmt: skip
    return folder

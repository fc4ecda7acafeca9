"""A small discriminator and generator with a tokenizer."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.preparation.tokenizer_training import train_tokenizer

TEXTS = [
    "The cat sat on the mat.",
    "A dog ate my homework, twice!",
    "Ein naïves Café über Zürich",
    "中文 and English",
]

Network = tuple[BertEncoder, MaskedLanguageModelHead | ReplacedTokenHead]


@pytest.fixture(scope="session")
def tokenizer_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer(TEXTS * 5, vocabulary_size=120).save(str(path))
    return path


@pytest.fixture(scope="session")
def network(tokenizer_json: Path) -> Callable[..., Network]:
    """Makes an encoder with its head; the weights are large enough that wrong computations change the outputs."""

    def make(kind: str = "discriminator", *, embedding_size: int = 16, hidden_size: int = 32) -> Network:
        torch.manual_seed(0)
        config = BertConfig(
            layers=2, hidden_size=hidden_size, embedding_size=embedding_size, feed_forward_size=48, heads=4,
            vocabulary_size=tokenizers.vocabulary_size(load_tokenizer(tokenizer_json)), max_positions=40,
            initializer_range=0.2, linear_initializer_range=0.2,
        )  # fmt: skip
        head = ReplacedTokenHead(config) if kind == "discriminator" else MaskedLanguageModelHead(config)
        encoder = BertEncoder(config)
        with torch.no_grad():
            for module in (encoder, head):
                for name, parameter in module.named_parameters():
                    if "norm" in name or name.endswith("bias"):
                        parameter += 0.2 * torch.randn_like(parameter)
        return encoder, head

    return make


@pytest.fixture
def export(network: Callable[..., Network], tokenizer_json: Path, tmp_path: Path) -> Callable[..., Path]:
    """Writes a network and returns its folder."""

    def write(kind: str = "discriminator", folder: Path = tmp_path / "model", **shape: int) -> Path:
        encoder, head = network(kind, **shape)
        huggingface.save(
            folder, encoder=encoder, head=head, tokenizer_json=tokenizer_json, card="# A card", max_length=24
        )
        return folder

    return write

"""The heads of generator and discriminator against those of transformers with the same weights."""

import pytest
import torch
from torch import nn

from electra.modeling.encoders.bert import BertConfig
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead, SentencePairHead

CONFIG = BertConfig(
    layers=1,
    hidden_size=24,
    embedding_size=16,
    heads=2,
    vocabulary_size=50,
    initializer_range=0.3,
    linear_initializer_range=0.3,
)


def add_noise(module: nn.Module) -> None:
    """Add noise to all parameters, so that a missing bias or LayerNorm changes the output."""
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=random)


@pytest.fixture(scope="module")
def transformers_electra():  # type: ignore[no-untyped-def]
    pytest.importorskip("transformers")
    from transformers import ElectraConfig
    from transformers.models.electra import modeling_electra

    config = ElectraConfig(
        hidden_size=CONFIG.hidden_size, embedding_size=CONFIG.embedding_size, vocab_size=CONFIG.vocabulary_size
    )
    return modeling_electra, config


def test_replaced_token_head_equals_transformers(transformers_electra) -> None:  # type: ignore[no-untyped-def]
    modeling, config = transformers_electra
    head, reference = ReplacedTokenHead(CONFIG), modeling.ElectraDiscriminatorPredictions(config)
    add_noise(head)
    reference.dense.load_state_dict(head.dense.state_dict())
    reference.dense_prediction.load_state_dict(head.prediction.state_dict())
    x_BLD = torch.randn(3, 5, 24)
    logits_BL = head(x_BLD)
    assert logits_BL.shape == (3, 5)
    torch.testing.assert_close(logits_BL, reference(x_BLD), rtol=0, atol=1e-6)


def test_masked_language_model_head_equals_transformers(transformers_electra) -> None:  # type: ignore[no-untyped-def]
    modeling, config = transformers_electra
    head, reference = MaskedLanguageModelHead(CONFIG), modeling.ElectraGeneratorPredictions(config)
    add_noise(head)
    reference.dense.load_state_dict(head.dense.state_dict())
    reference.LayerNorm.load_state_dict(head.norm.state_dict())
    x_ND, table_VE = torch.randn(7, 24), torch.randn(50, 16)
    torch.testing.assert_close(head(x_ND), reference(x_ND), rtol=0, atol=1e-6)
    expected_NV = reference(x_ND) @ table_VE.T + head.bias
    torch.testing.assert_close(head.logits(x_ND, table_VE), expected_NV, rtol=0, atol=1e-5)


def test_the_token_table_is_not_a_parameter_of_the_head() -> None:
    assert {name for name, _ in MaskedLanguageModelHead(CONFIG).named_parameters()} == {
        "bias", "dense.bias", "dense.weight", "norm.bias", "norm.weight",
    }  # fmt: skip


def test_initialization_of_the_head() -> None:
    head = MaskedLanguageModelHead(CONFIG)
    assert (head.bias == 0).all() and (head.dense.bias == 0).all()
    assert head.dense.weight.abs().max() <= 2 * CONFIG.linear_initializer_range


def test_a_pair_is_judged_through_a_layer_with_tanh() -> None:
    head, x_BD = SentencePairHead(CONFIG), 3 * torch.randn(4, 24)
    add_noise(head)
    hidden_BD = torch.tanh(x_BD @ head.dense.weight.T + head.dense.bias)
    expected_B = (hidden_BD * head.prediction.weight[0]).sum(1) + head.prediction.bias
    torch.testing.assert_close(head(x_BD), expected_B)

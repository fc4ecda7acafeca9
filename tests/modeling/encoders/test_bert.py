"""States and gradients of the encoder against those of transformers' ElectraModel with the same weights."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from electra.config import problems_of
from electra.export import huggingface
from electra.modeling.encoders.base import attention_mask, gather_positions
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.preparation.tokenizer_training import train_tokenizer

CONFIG = BertConfig(
    layers=3,
    hidden_size=32,
    embedding_size=32,
    feed_forward_size=64,
    heads=4,
    vocabulary_size=60,
    max_positions=40,
    dropout=0.0,
    attention_dropout=0.0,
    initializer_range=0.2,
    linear_initializer_range=0.2,
)
LENGTHS_B = torch.tensor([20, 7, 13])


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Ids, segments and mask of three rows of 20 tokens, two of them padded."""
    random = torch.Generator().manual_seed(1)
    ids_BL = torch.randint(5, 60, (3, 20), generator=random)
    mask_BL = torch.arange(20) < LENGTHS_B[:, None]
    segment_ids_BL = (torch.arange(20) >= 9).long().expand(3, -1)
    return ids_BL.masked_fill(~mask_BL, 0), segment_ids_BL * mask_BL, mask_BL


@pytest.fixture(params=[32, 16], ids=["square", "projected"])
def both(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    """The model of transformers with random weights, and our encoder, loaded from its saved folder."""
    pytest.importorskip("transformers")
    from transformers import ElectraConfig, ElectraModel

    config = ElectraConfig(
        vocab_size=60, embedding_size=request.param, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=40, initializer_range=0.2, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    reference = ElectraModel(config).eval()
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if name.endswith("bias") or "LayerNorm" in name:
                parameter += 0.3 * torch.randn_like(parameter)
    reference.save_pretrained(tmp_path)
    train_tokenizer(["a few words of text"], vocabulary_size=40).save(str(tmp_path / "tokenizer.json"))
    return reference, huggingface.load(tmp_path).encoder


def test_states_equal_transformers(both, batch) -> None:  # type: ignore[no-untyped-def]
    reference, encoder = both
    ids_BL, segment_ids_BL, mask_BL = batch
    expected = reference(ids_BL, token_type_ids=segment_ids_BL, attention_mask=mask_BL.long()).last_hidden_state
    actual = encoder(ids_BL, segment_ids_BL, mask_BL)
    assert (actual - expected)[mask_BL].abs().max() <= 1e-5
    expected, actual = reference(ids_BL).last_hidden_state, encoder(ids_BL)
    assert (actual - expected).abs().max() <= 1e-5


@pytest.mark.parametrize("layers", [1, 3])
def test_states_at_some_positions_equal_those_of_all(batch, layers: int) -> None:  # type: ignore[no-untyped-def]
    ids_BL, segment_ids_BL, mask_BL = batch
    encoder = BertEncoder(replace(CONFIG, layers=layers))
    positions_BN = torch.stack([torch.randperm(length)[:4] for length in LENGTHS_B.tolist()])
    weights_BND = torch.randn(3, 4, 32)
    rows_B1 = torch.arange(3)[:, None]
    gradients = []
    for states_BND in (
        encoder(ids_BL, segment_ids_BL, mask_BL)[rows_B1, positions_BN],
        encoder(ids_BL, segment_ids_BL, mask_BL, positions_BN=positions_BN),
    ):
        gradients.append(torch.autograd.grad((states_BND * weights_BND).sum(), list(encoder.parameters())))
    torch.testing.assert_close(
        encoder(ids_BL, segment_ids_BL, mask_BL, positions_BN=positions_BN),
        encoder(ids_BL, segment_ids_BL, mask_BL)[rows_B1, positions_BN],
    )
    for from_all, from_some in zip(*gradients, strict=True):
        torch.testing.assert_close(from_some, from_all, rtol=1e-4, atol=1e-5)


def test_gradients_equal_transformers(both, batch) -> None:  # type: ignore[no-untyped-def]
    reference, encoder = both
    ids_BL, segment_ids_BL, mask_BL = batch
    weights_BLD = torch.randn(3, 20, 32) * mask_BL[..., None]
    (encoder(ids_BL, segment_ids_BL, mask_BL) * weights_BLD).sum().backward()
    states = reference(ids_BL, token_type_ids=segment_ids_BL, attention_mask=mask_BL.long()).last_hidden_state
    (states * weights_BLD).sum().backward()
    attention = reference.encoder.layer[0].attention.self
    pairs = [
        # row 0 is [PAD], which transformers does not train
        (encoder.embeddings.token.weight.grad[1:], reference.embeddings.word_embeddings.weight.grad[1:]),
        (encoder.embeddings.position.weight.grad, reference.embeddings.position_embeddings.weight.grad),
        (encoder.embeddings.segment.weight.grad, reference.embeddings.token_type_embeddings.weight.grad),
        (encoder.embeddings.norm.weight.grad, reference.embeddings.LayerNorm.weight.grad),
        (
            encoder.blocks[0].attention.query_key_value.weight.grad,
            torch.cat([part.weight.grad for part in (attention.query, attention.key, attention.value)]),
        ),
        (encoder.blocks[2].feed_forward.inner.bias.grad, reference.encoder.layer[2].intermediate.dense.bias.grad),
        (
            encoder.blocks[1].attention_norm.bias.grad,
            reference.encoder.layer[1].attention.output.LayerNorm.bias.grad,
        ),
    ]
    for actual, expected in pairs:
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_padding_changes_no_token(batch) -> None:  # type: ignore[no-untyped-def]
    ids_BL, segment_ids_BL, mask_BL = batch
    encoder = BertEncoder(CONFIG).eval()
    padded = encoder(ids_BL, segment_ids_BL, mask_BL)
    for row, length in enumerate(LENGTHS_B.tolist()):
        unpadded = encoder(ids_BL[row : row + 1, :length], segment_ids_BL[row : row + 1, :length])
        torch.testing.assert_close(padded[row, :length], unpadded[0], rtol=0, atol=1e-5)


def test_segment_ids_default_to_zero(batch) -> None:  # type: ignore[no-untyped-def]
    encoder = BertEncoder(CONFIG).eval()
    torch.testing.assert_close(encoder(batch[0]), encoder(batch[0], torch.zeros_like(batch[0])))


def test_dropout_in_training_only(batch) -> None:  # type: ignore[no-untyped-def]
    for name in ("dropout", "attention_dropout"):
        encoder = BertEncoder(replace(CONFIG, **{name: 0.5}))
        assert not torch.equal(encoder(batch[0]), encoder(batch[0])), name
        encoder.eval()
        assert torch.equal(encoder(batch[0]), encoder(batch[0])), name


def test_shared_tables_are_the_same_parameters() -> None:
    first = BertEncoder(CONFIG)
    second = BertEncoder(replace(CONFIG, embedding_size=32, hidden_size=16, heads=2), tables=first.embeddings)
    for name in ("token", "position", "segment"):
        assert getattr(second.embeddings, name).weight is getattr(first.embeddings, name).weight, name
    assert second.embeddings.norm.weight is not first.embeddings.norm.weight
    assert second(torch.ones(1, 4, dtype=torch.long)).shape == (1, 4, 16)


def test_attention_mask_only_where_a_row_is_padded() -> None:
    assert attention_mask(torch.tensor([4, 4]), 4) is None
    mask_BL = attention_mask(torch.tensor([1, 4]), 4)
    assert mask_BL is not None
    assert mask_BL.tolist() == [[True, False, False, False], [True] * 4]


def test_initialization() -> None:
    config = replace(
        CONFIG, vocabulary_size=5000, hidden_size=64, initializer_range=0.02, linear_initializer_range=0.08
    )
    encoder = BertEncoder(config)
    # Truncation at two standard deviations multiplies the standard deviation by .88.
    for weight, deviation in (
        (encoder.embeddings.token.weight, 0.02),
        (encoder.blocks[0].attention.query_key_value.weight, 0.08),
        (encoder.projection.weight, 0.08),
    ):
        assert weight.std().item() == pytest.approx(0.88 * deviation, rel=0.1)
        assert weight.abs().max() <= 2 * deviation
    for name, parameter in encoder.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name


def test_all_problems_of_a_config_are_reported() -> None:
    bad = replace(CONFIG, heads=5, layers=0, dropout=1.0)
    assert [problem.partition(":")[0] for problem in problems_of(bad)] == ["layers", "dropout"]
    assert [problem.partition(":")[0] for problem in problems_of(replace(CONFIG, heads=5))] == ["heads"]
    assert not list(problems_of(CONFIG))


@torch.no_grad()
def test_a_mask_of_pairs_holds_at_some_positions() -> None:
    torch.manual_seed(0)
    encoder, ids_BL = BertEncoder(CONFIG).eval(), torch.randint(5, 50, (2, 7))
    bias_BLL = torch.where(torch.ones(7, 7, dtype=torch.bool).tril(), 0.0, -1e4).expand(2, -1, -1)
    positions_BN = torch.tensor([[0, 3, 6], [2, 2, 5]])
    some_BND = encoder(ids_BL, None, bias_BLL, positions_BN=positions_BN)
    torch.testing.assert_close(some_BND, gather_positions(encoder(ids_BL, None, bias_BLL), positions_BN))

"""Initialization of weights."""

from typing import Literal

import pytest
import torch

from electra.modeling.encoders.bert import BertConfig, BertEncoder, Block
from electra.modeling.encoders.deberta import DebertaConfig
from electra.modeling.encoders.modernbert import ModernBertBlock, ModernBertConfig
from electra.modeling.init import initialize
from electra.modeling.kernels.disentangled_attention import attend_disentangled
from electra.modeling.kernels.rotary import rotary_angles, rotate


def encoder(*, hidden: int, heads: int) -> BertEncoder:
    torch.manual_seed(0)
    return BertEncoder(
        BertConfig(
            layers=2, hidden_size=hidden, embedding_size=128, feed_forward_size=64, heads=heads,
            vocabulary_size=500, max_positions=64, dropout=0.0, attention_dropout=0.0, initializer_range=0.05,
            linear_initializer_range=0.08,
        )
    )  # fmt: skip


def attention_of_first_block(network: BertEncoder) -> torch.Tensor:
    """Return the attention probabilities (H, L, L) over random text, in the plain form."""
    block = network.blocks[0]
    assert isinstance(block, Block)
    ids_BL = torch.randint(5, 500, (8, 48), generator=torch.Generator().manual_seed(1))
    x_BLD = network.projection(network.embeddings(ids_BL))
    query, key, _ = (
        part.view(8, 48, block.attention.heads, -1).transpose(1, 2)
        for part in block.attention.query_key_value(x_BLD).chunk(3, -1)
    )
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1).mean(0).detach()


@pytest.mark.parametrize(("hidden", "heads", "share"), [(128, 4, 0.5), (128, 2, 0.5), (64, 4, 0.2), (64, 2, 0.5)])
def test_heads_of_the_first_block_attend_to_neighbors(hidden: int, heads: int, share: float) -> None:
    network = encoder(hidden=hidden, heads=heads)
    network.attend_to_neighbors()
    for head, (attention_LL, offset) in enumerate(
        zip(attention_of_first_block(network), (-1, 1, -2, 2), strict=False)
    ):
        by_offset = {o: attention_LL.diagonal(o).mean().item() for o in range(-8, 9)}
        assert max(by_offset, key=by_offset.__getitem__) == offset, head
        assert by_offset[offset] > share


@pytest.mark.parametrize(
    ("embedding", "hidden", "heads"), [(128, 128, 4), (128, 128, 2), (256, 256, 4), (128, 64, 2)]
)
def test_heads_with_rotary_positions_attend_to_neighbors(embedding: int, hidden: int, heads: int) -> None:
    torch.manual_seed(0)
    config = ModernBertConfig(
        layers=2, hidden_size=hidden, embedding_size=embedding, feed_forward_size=64, heads=heads,
        vocabulary_size=500, initializer_range=0.05, linear_initializer_range=0.08,
    )  # fmt: skip
    network = config.build()
    for _ in range(2):  # a second network with the same table changes nothing
        network.attend_to_neighbors()
    block = network.blocks[0]
    assert isinstance(block, ModernBertBlock)
    ids_BL = torch.randint(5, 500, (8, 100), generator=torch.Generator().manual_seed(1))
    x_BLD = network.embeddings(ids_BL)
    angles = rotary_angles(torch.arange(100), hidden // heads, config.rope_theta)
    packed_BLGHK = rotate(block.attention.query_key_value(x_BLD).unflatten(-1, (3, heads, -1))[:, :, :2], *angles)
    query, key = (x.transpose(1, 2) for x in packed_BLGHK.unbind(2))
    attention_HLL = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1).mean(0).detach()
    for attention_LL, offset in zip(attention_HLL, (-1, 1, -2, 2), strict=False):
        by_offset = {o: attention_LL.diagonal(o).mean().item() for o in range(-60, 61)}
        assert max(by_offset, key=by_offset.__getitem__) == offset
        assert by_offset[offset] > 0.4


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("hidden", "heads", "share"), [(128, 4, 0.5), (128, 2, 0.5), (64, 2, 0.5)])
def test_heads_of_modernbert_with_learned_positions_attend_to_neighbors(
    hidden: int, heads: int, share: float, norm: Literal["pre", "post"]
) -> None:
    torch.manual_seed(0)
    config = ModernBertConfig(
        layers=2, hidden_size=hidden, embedding_size=128, feed_forward_size=64, heads=heads, vocabulary_size=500,
        max_positions=64, initializer_range=0.05, linear_initializer_range=0.08, position_encoding="learned",
        norm=norm, bias=True,
    )  # fmt: skip
    network = config.build()
    network.attend_to_neighbors()
    block = network.blocks[0]
    assert isinstance(block, ModernBertBlock)
    x_BLD = network.embeddings(torch.randint(5, 500, (8, 48), generator=torch.Generator().manual_seed(1)))
    query, key, _ = block.attention.query_key_value(x_BLD).unflatten(-1, (3, heads, -1)).transpose(1, 3).unbind(2)
    attention_HLL = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1).mean(0).detach()
    for attention_LL, offset in zip(attention_HLL, (-1, 1, -2, 2), strict=False):
        by_offset = {o: attention_LL.diagonal(o).mean().item() for o in range(-30, 31)}
        assert max(by_offset, key=by_offset.__getitem__) == offset
        assert by_offset[offset] > share


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("hidden", "heads"), [(128, 4), (128, 2), (256, 4)])
def test_heads_with_a_relative_table_attend_to_neighbors(hidden: int, heads: int, shared: bool) -> None:
    torch.manual_seed(0)
    config = DebertaConfig(
        layers=2, hidden_size=hidden, embedding_size=hidden, feed_forward_size=64, heads=heads,
        vocabulary_size=500, initializer_range=0.05, linear_initializer_range=0.08, dropout=0.0,
        attention_dropout=0.0,
        share_position_projections=shared,
    )  # fmt: skip
    network = config.build()
    network.attend_to_neighbors()
    attention = network.blocks[0].attention
    ids_BL = torch.randint(5, 500, (8, 100), generator=torch.Generator().manual_seed(1))
    x_BLD = network.embeddings(ids_BL)
    one_hot_BLGHK = attention.query_key_value(x_BLD).unflatten(-1, (3, heads, -1)).detach()
    vectors = attention._position_vectors(*network.relative_positions(100))
    attention_HLL = torch.zeros(heads, 100, 100)
    for column in range(100):  # values that are 1 at one key give the attention to it
        one_hot_BLGHK[:, :, 2] = 0.0
        one_hot_BLGHK[:, column, 2] = 1.0
        attention_HLL[:, :, column] = (
            attend_disentangled(None, one_hot_BLGHK, vectors, None, None, 0.0)[..., 0].mean(0).T
        )
    for attention_LL, offset in zip(attention_HLL.detach(), (-1, 1, -2, 2), strict=False):
        by_offset = {o: attention_LL.diagonal(o).mean().item() for o in range(-60, 61)}
        assert max(by_offset, key=by_offset.__getitem__) == offset
        assert by_offset[offset] > 0.3


def test_positions_that_tell_neighbors_are_as_large_as_random_ones() -> None:
    shape = {
        "layers": 1,
        "hidden_size": 64,
        "embedding_size": 64,
        "vocabulary_size": 50,
        "initializer_range": 0.05,
    }
    for config in (BertConfig(**shape), ModernBertConfig(**shape, position_encoding="learned")):  # type: ignore[arg-type]
        network = config.build()
        network.attend_to_neighbors()
        assert network.embeddings.position.weight.std().item() == pytest.approx(0.05, rel=1e-3)


def test_by_default_heads_attend_everywhere() -> None:
    assert attention_of_first_block(encoder(hidden=128, heads=4)).max() < 0.2


def test_standard_deviations_are_those_of_the_config() -> None:
    network = encoder(hidden=128, heads=4)
    truncated = 0.88  # factor of the standard deviation after truncation at two standard deviations
    block = network.blocks[1]
    assert isinstance(block, Block)
    assert network.embeddings.token.weight.std().item() == pytest.approx(0.05 * truncated, rel=0.02)
    assert block.feed_forward.inner.weight.std().item() == pytest.approx(0.08 * truncated, rel=0.03)
    assert not block.feed_forward.inner.bias.any()
    initialize(network, 0.05, linear_range=0.0)
    assert block.feed_forward.inner.weight.std().item() == pytest.approx(truncated / 128**0.5, rel=0.03)

"""Embedding tables that are shared with another encoder."""

import torch

from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.sharing import DetachedEmbedding, layer_group, standalone_parameters

SHAPE = BertConfig(
    layers=1, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, vocabulary_size=20,
    dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
IDS = torch.tensor([[3, 7, 7, 1]])


def pair() -> tuple[BertEncoder, BertEncoder]:
    torch.manual_seed(0)
    first = BertEncoder(SHAPE)
    return first, BertEncoder(SHAPE, tables=first.embeddings, sharing="disentangled")


def test_the_difference_starts_at_zero_and_only_it_gets_a_gradient() -> None:
    first, second = pair()
    torch.testing.assert_close(second.embeddings.token.weight, first.embeddings.token.weight)
    second(IDS).square().sum().backward()
    assert first.embeddings.token.weight.grad is None
    difference = dict(second.named_parameters())["embeddings.token.difference"]
    assert difference.grad is not None and difference.grad[7].any() and not difference.grad[2].any()


def test_a_standalone_copy_computes_the_same() -> None:
    _, second = pair()
    with torch.no_grad():
        for name, parameter in second.named_parameters():
            if name.endswith("difference"):
                parameter.normal_()
    copy = BertEncoder(SHAPE)
    copy.load_state_dict(dict(standalone_parameters(second)))
    torch.testing.assert_close(copy(IDS), second(IDS))


def test_only_the_token_table_can_be_shared() -> None:
    first = BertEncoder(SHAPE)
    second = BertEncoder(SHAPE, tables=first.embeddings, sharing="tokens")
    assert second.embeddings.token is first.embeddings.token
    assert second.embeddings.position is not first.embeddings.position


def test_groups_are_of_consecutive_blocks() -> None:
    assert [layer_group(layer, layers=6, groups=2) for layer in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [layer_group(layer, layers=4, groups=4) for layer in range(4)] == [0, 1, 2, 3]


def test_a_sum_can_be_given_without_a_change_of_the_table() -> None:
    first, second = pair()
    embedding, wanted_VE = second.embeddings.token, torch.randn(20, 16)
    assert isinstance(embedding, DetachedEmbedding)
    before_VE = first.embeddings.token.weight.detach().clone()
    embedding.start_from(wanted_VE, keep_table=True)
    torch.testing.assert_close(embedding.weight, wanted_VE)
    assert torch.equal(first.embeddings.token.weight, before_VE)

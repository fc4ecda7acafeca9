"""Borrowed tables."""

import torch

from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.sharing import standalone_parameters

SHAPE = BertConfig(
    layers=1, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, vocabulary_size=20,
    dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
IDS = torch.tensor([[3, 7, 7, 1]])


def pair() -> tuple[BertEncoder, BertEncoder]:
    torch.manual_seed(0)
    lender = BertEncoder(SHAPE)
    return lender, BertEncoder(SHAPE, tables=lender.embeddings, sharing="disentangled")


def test_a_difference_starts_at_nothing_and_is_learnt_alone() -> None:
    lender, borrower = pair()
    torch.testing.assert_close(borrower.embeddings.token.weight, lender.embeddings.token.weight)
    borrower(IDS).square().sum().backward()
    assert lender.embeddings.token.weight.grad is None
    difference = dict(borrower.named_parameters())["embeddings.token.difference"]
    assert difference.grad is not None and difference.grad[7].any() and not difference.grad[2].any()


def test_a_copy_that_stands_alone_computes_the_same() -> None:
    _, borrower = pair()
    with torch.no_grad():
        for name, parameter in borrower.named_parameters():
            if name.endswith("difference"):
                parameter.normal_()
    alone = BertEncoder(SHAPE)
    alone.load_state_dict(dict(standalone_parameters(borrower)))
    torch.testing.assert_close(alone(IDS), borrower(IDS))


def test_tokens_alone_may_be_shared() -> None:
    lender = BertEncoder(SHAPE)
    borrower = BertEncoder(SHAPE, tables=lender.embeddings, sharing="tokens")
    assert borrower.embeddings.token is lender.embeddings.token
    assert borrower.embeddings.position is not lender.embeddings.position

"""An encoder without padding against the same encoder with padding."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from configs import make_encoder_config

from electra.modeling.encoders.base import attention_mask
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.encoders.states import compute_states
from electra.modeling.kernels import document_attention
from electra.modeling.kernels.documents import DocumentMask

CONFIG = BertConfig(
    layers=2, hidden_size=16, embedding_size=8, feed_forward_size=32, heads=2, vocabulary_size=50, dropout=0.0,
    attention_dropout=0.0,
)  # fmt: skip
LENGTHS_B = torch.tensor([3, 7, 1, 5])
MASK_BL = attention_mask(LENGTHS_B, 7)
assert MASK_BL is not None
DOCUMENTS = DocumentMask.of_rows(LENGTHS_B.numpy(), 7)


def test_padding_undoes_unpadding() -> None:
    x_BLD = torch.arange(4 * 7 * 2.0).view(4, 7, 2)
    tokens_TD = DOCUMENTS.unpad(x_BLD)
    assert torch.equal(tokens_TD, x_BLD[MASK_BL])
    assert torch.equal(DOCUMENTS.pad(tokens_TD), x_BLD * MASK_BL[..., None])


def test_gradients_equal_those_of_indexing() -> None:
    x_BLD = torch.randn(4, 7, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(DOCUMENTS.unpad, x_BLD)
    assert torch.autograd.gradcheck(DOCUMENTS.pad, torch.randn(16, 3, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("positions_BN", [None, torch.tensor([[0, 2], [6, 0], [0, 0], [4, 1]])])
@pytest.mark.parametrize("attention_dropout", [0.0, 1e-9])  # above 0, training uses the kernel with dropout
def test_states_and_gradients_are_the_same(positions_BN: torch.Tensor | None, attention_dropout: float) -> None:
    torch.manual_seed(0)
    config = make_encoder_config(**{**vars(CONFIG), "attention_dropout": attention_dropout})
    encoder = BertEncoder(config).double().train()
    ids_BL, segments_BL = torch.randint(50, (4, 7)), torch.randint(2, (4, 7))
    results = []
    for mask in (MASK_BL, DOCUMENTS):
        encoder.zero_grad()
        x = encoder(ids_BL, segments_BL, mask, positions_BN=positions_BN)
        x = x if positions_BN is not None else x * MASK_BL[..., None]
        (x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view_as(x)).sum().backward()
        results.append([x.detach(), *(p.grad.clone() for p in encoder.parameters() if p.grad is not None)])
    assert len(results[0]) == len(results[1]) > 20
    for padded, unpadded in zip(*results, strict=True):
        torch.testing.assert_close(padded, unpadded, rtol=1e-9, atol=1e-12)


def test_states_at_padding_are_zero() -> None:
    encoder = BertEncoder(CONFIG).eval()
    x_BLD = encoder(torch.ones(4, 7, dtype=torch.long), None, DOCUMENTS)
    assert not x_BLD[~MASK_BL].any() and x_BLD[MASK_BL].all()


@pytest.mark.parametrize("reach", [0, 3])
def test_variable_length_attention_gets_the_documents(monkeypatch: pytest.MonkeyPatch, reach: int) -> None:
    """PyTorch's function needs a GPU; a plain version takes its place."""
    documents = DocumentMask.of_documents(np.array([(0, 4), (4, 9), (16, 16), (32, 2)]), 3, 16)
    packed_TGHK = torch.randn(31, 3, 2, 8)
    expected = document_attention.attend_documents(packed_TGHK, documents, 0.0, reach=reach)
    calls = []

    def plain(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, ends: torch.Tensor, _: torch.Tensor,
        longest: int, __: int, *, window_size: tuple[int, int],
    ) -> torch.Tensor:  # fmt: skip
        calls.append(window_size)
        assert ends.dtype == torch.int32 and longest >= int(ends.diff().max())
        parts = []
        for start, end in pairwise(ends.tolist()):
            q, k, v = (x[start:end].transpose(0, 1) for x in (query, key, value))
            distance = (torch.arange(end - start)[:, None] - torch.arange(end - start)).abs()
            near = distance <= (window_size[0] if window_size[0] >= 0 else end)
            parts.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=near).transpose(0, 1))
        return torch.cat(parts)

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", plain)
    monkeypatch.setattr(document_attention, "has_variable_length_attention", lambda *_: True)
    found = document_attention.attend_documents(packed_TGHK, documents, 0.0, reach=reach)
    torch.testing.assert_close(found, expected)
    assert calls == [(reach, reach) if reach else (-1, -1)]


def test_variable_length_attention_needs_what_flash_attention_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    capability = (8, 0)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
    cuda, usable = torch.device("cuda"), document_attention.has_variable_length_attention
    assert usable(cuda, torch.bfloat16, 0.0, 64) and usable(cuda, torch.float16, 0.0, 256)
    assert not usable(torch.device("cpu"), torch.bfloat16, 0.0, 64)
    assert not usable(cuda, torch.float32, 0.0, 64)
    assert not usable(cuda, torch.bfloat16, 0.1, 64)
    assert not usable(cuda, torch.bfloat16, 0.0, 20) and not usable(cuda, torch.bfloat16, 0.0, 264)
    capability = (7, 5)  # a T4
    assert not usable(cuda, torch.float16, 0.0, 64)


@pytest.mark.parametrize(
    ("kind", "in_one_call"), [("bert", True), ("modernbert", True), ("deberta", False), ("relative", False)]
)
def test_each_kind_says_whether_it_uses_variable_length_attention(
    monkeypatch: pytest.MonkeyPatch, kind: str, in_one_call: bool
) -> None:
    """The answer is that of a forward pass on a GPU, with a stand-in for the GPU."""
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 0))
    config = CONFIG.with_kind(kind, embedding_size=16)
    assert config.attends_in_one_call(torch.device("cuda"), torch.bfloat16) == in_one_call
    assert not config.attends_in_one_call(torch.device("cpu"), torch.bfloat16)
    assert not replace(config, attention_dropout=0.1).attends_in_one_call(torch.device("cuda"), torch.bfloat16)
    called = []
    monkeypatch.setattr(document_attention, "has_variable_length_attention", lambda *_: called.append(1))
    documents = DocumentMask.of_documents(np.array([(0, 3), (3, 3)]), 1, 6)
    compute_states(config.build(), torch.zeros(1, 6, dtype=torch.int64), None, documents)
    assert bool(called) == in_one_call


def test_values_roll_within_their_documents() -> None:
    documents = DocumentMask.of_documents(np.array([(0, 3), (3, 1), (8, 2)]), 2, 6)
    x_BLD = torch.arange(12.0, dtype=torch.float64, requires_grad=True).view(2, 6, 1)
    assert documents.roll(x_BLD, 1).flatten()[[0, 1, 2, 3, 8, 9]].tolist() == [2, 0, 1, 3, 9, 8]
    assert documents.roll(x_BLD, -1).flatten()[[0, 1, 2, 3, 8, 9]].tolist() == [1, 2, 0, 3, 9, 8]
    assert torch.autograd.gradcheck(lambda x: documents.roll(x, 1), x_BLD)

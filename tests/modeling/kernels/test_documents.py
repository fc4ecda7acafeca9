"""An encoder without padding against the same encoder with padding."""

import numpy as np
import pytest
import torch
from configs import make_encoder_config

from electra.modeling.encoders.base import attention_mask
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.kernels.documents import DocumentMask, copy_together, round_to_few

CONFIG = BertConfig(
    layers=2, hidden_size=16, embedding_size=8, feed_forward_size=32, heads=2, vocabulary_size=50, dropout=0.0,
    attention_dropout=0.0,
)  # fmt: skip
LENGTHS_B = torch.tensor([3, 7, 2, 5])
MASK_BL = attention_mask(LENGTHS_B, 7)
assert MASK_BL is not None
DOCUMENTS = DocumentMask.of_rows(LENGTHS_B.numpy(), 7)


def test_padding_undoes_unpadding() -> None:
    x_BLD = torch.arange(4 * 7 * 2.0).view(4, 7, 2)
    tokens_TD = DOCUMENTS.unpad(x_BLD)
    assert torch.equal(tokens_TD[:17], x_BLD[MASK_BL]) and len(tokens_TD) == 18
    assert torch.equal(DOCUMENTS.pad(tokens_TD), x_BLD * MASK_BL[..., None])


def test_gradients_equal_those_of_indexing() -> None:
    x_BLD = torch.randn(4, 7, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(DOCUMENTS.unpad, x_BLD)
    assert torch.autograd.gradcheck(DOCUMENTS.pad, torch.randn(18, 3, dtype=torch.float64, requires_grad=True))


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


def test_padding_of_packed_rows_is_at_the_end() -> None:
    documents = DocumentMask.of_documents(np.array([(0, 6), (6, 1), (10, 10)]), 2, 10)
    x_BLD = torch.arange(20.0, dtype=torch.float64).view(2, 10, 1)
    x_TD = documents.unpad(x_BLD)
    assert x_TD.flatten().tolist() == [6, 0, 1, 2, 3, 4, 5, *range(10, 20), 7] and documents.padding == 1
    assert documents.pad(x_TD).flatten().tolist() == [*range(7), 0, 0, 0, *range(10, 20)]
    assert documents.offsets_D.tolist() == [0, 1, 7, 17, 18]
    assert torch.autograd.gradcheck(documents.pad, x_TD.requires_grad_())


def test_full_rows_have_no_padding() -> None:
    documents = DocumentMask.of_rows(np.array([5, 5, 5, 5, 5]), 5)
    x_BLD = torch.randn(5, 5, 2)
    assert documents.padding == 0 and torch.equal(documents.pad(documents.unpad(x_BLD)), x_BLD)


def test_padding_is_documents_no_longer_than_a_row() -> None:
    """A kernel for all documents in one call needs the length of the longest one."""
    documents = DocumentMask.of_rows(np.array([20] * 51 + [5] + [0] * 8), 20)
    assert documents.padding == 1152 - 1025 and documents.offsets_D[-1] == 1152
    assert documents.offsets_D.diff()[60:].tolist() == [20] * 6 + [7]


def test_numbers_are_rounded_to_few() -> None:
    assert [round_to_few(n) for n in range(18)] == [*range(17), 18]
    assert [round_to_few(n) for n in (31, 33, 64, 65, 1000, 16_366)] == [32, 36, 64, 72, 1024, 16_384]
    assert all(n <= round_to_few(n) <= 1.125 * n for n in range(1, 5000))


def test_groups_have_few_shapes() -> None:
    rng = np.random.default_rng(0)
    shapes, tokens = set[tuple[int, int]](), set[int]()
    for _ in range(100):
        lengths_D = rng.integers(1, 101, size=rng.integers(1, 300))
        documents_D2 = np.stack([100 * np.arange(len(lengths_D)), lengths_D], 1)
        documents = DocumentMask.of_documents(documents_D2, len(lengths_D), 100)
        assert all(group.length <= 100 for group in documents.groups)
        values_T = torch.arange(1.0, len(documents.indices_T) + 1)
        same_T = documents.by_group(lambda x_dl, mask_dl: x_dl, values_T)
        assert torch.equal(same_T, values_T * (torch.arange(len(values_T)) < lengths_D.sum()))
        tokens.add(len(documents.indices_T))
        shapes |= {(group.documents, group.length) for group in documents.groups}
    assert len({documents for documents, _ in shapes}) <= 40 and len({length for _, length in shapes}) == 13
    assert len(tokens) <= 60


def test_values_roll_within_their_documents() -> None:
    documents = DocumentMask.of_documents(np.array([(0, 3), (3, 1), (8, 2)]), 2, 6)
    x_BLD = torch.arange(12.0, dtype=torch.float64, requires_grad=True).view(2, 6, 1)
    assert documents.roll(x_BLD, 1).flatten()[[0, 1, 2, 3, 8, 9]].tolist() == [2, 0, 1, 3, 9, 8]
    assert documents.roll(x_BLD, -1).flatten()[[0, 1, 2, 3, 8, 9]].tolist() == [1, 2, 0, 3, 9, 8]
    assert torch.autograd.gradcheck(lambda x: documents.roll(x, 1), x_BLD)


def test_tensors_of_a_mask_are_copied_in_one_call() -> None:
    tensors = [torch.arange(6).view(2, 3), None, torch.tensor([0, 3, 2**31 - 1], dtype=torch.int32), MASK_BL]
    calls: list[torch.Tensor] = []

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        calls.append(tensor)
        return tensor.clone()

    copies = copy_together(tensors, copy)
    assert len(calls) == 1 and copies[1] is None
    for one, other in zip(tensors, copies, strict=True):
        if one is not None and other is not None:
            assert one.dtype == other.dtype and torch.equal(one, other)

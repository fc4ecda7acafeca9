"""Attention of documents that are laid one after another, against each document alone."""

from dataclasses import replace
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from electra.modeling.encoders.bert import BertConfig
from electra.modeling.encoders.states import compute_states
from electra.modeling.kernels import document_attention
from electra.modeling.kernels.attention import attend_plain
from electra.modeling.kernels.document_attention import attend_documents
from electra.modeling.kernels.documents import DocumentMask

H, K = 2, 4
PLACES = [(0, 1), (1, 12), (13, 3), (16, 13), (29, 1), (32, 11), *((48 + 3 * n, 3) for n in range(18))]
DOCUMENTS = DocumentMask.of_documents(np.array(PLACES), 7, 16)
"""In groups of similar length, one of them with an empty document; rows end with padding, some of it in T."""
TOKENS = len(DOCUMENTS.indices_T)


def attend_alone(packed_TGHK: Tensor, documents: DocumentMask, reach: int) -> Tensor:
    parts = []
    tokens = len(packed_TGHK) - documents.padding
    for start, end in pairwise(documents.offsets_D.clamp(max=tokens).tolist()):
        positions = torch.arange(end - start)
        distance = positions[:, None] - positions
        visible = distance.abs() <= (reach or end)
        if documents.direction != "both":
            visible &= distance >= 0 if documents.direction == "left" else distance <= 0
        parts.append(
            attend_plain(None, packed_TGHK[None, start:end], visible[None, None], torch.ones(H, 1, 1, 1))[0]
        )
    return torch.cat([*parts, torch.zeros(documents.padding, *packed_TGHK.shape[2:])])


@pytest.mark.parametrize("direction", ["both", "left", "right"])
@pytest.mark.parametrize("reach", [0, 1, 2, 3, 5, 20])
def test_outputs_and_gradients_are_those_of_documents_alone(
    reach: int, direction: Literal["both", "left", "right"]
) -> None:
    torch.manual_seed(0)
    documents = replace(DOCUMENTS, direction=direction)
    packed_TGHK = torch.randn(TOKENS, 3, H, K, dtype=torch.float64, requires_grad=True)
    results = []
    for y_THK in (
        attend_documents(packed_TGHK, documents, 0.0, reach=reach),
        attend_alone(packed_TGHK, documents, reach),
    ):
        results.append((y_THK, torch.autograd.grad((y_THK**3).sum(), packed_TGHK)[0]))
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reach", [0, 2])
def test_gradients_are_those_of_small_differences(reach: int) -> None:
    documents = DocumentMask.of_documents(np.array([(0, 1), (1, 7), (8, 8)]), 2, 8)
    packed_TGHK = torch.randn(16, 3, H, K, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: attend_documents(x, documents, 0.0, reach=reach), packed_TGHK)


def test_in_half_precision_it_is_nearly_the_same() -> None:
    packed_TGHK = torch.randn(TOKENS, 3, H, K)
    for reach in (0, 2):
        rough = attend_documents(packed_TGHK.bfloat16(), DOCUMENTS, 0.0, reach=reach)
        exact = attend_documents(packed_TGHK, DOCUMENTS, 0.0, reach=reach)
        assert rough.dtype == torch.bfloat16
        torch.testing.assert_close(rough.float(), exact, rtol=0, atol=0.05)


def test_rows_without_documents_have_no_output() -> None:
    documents = DocumentMask.of_documents(np.array([(16, 5)]), 3, 16)
    packed_BLGHK = torch.randn(3, 16, 3, H, K)
    rows_BLHK = documents.pad(attend_documents(documents.unpad(packed_BLGHK), documents, 0.0, reach=2))
    assert rows_BLHK[1, :5].all() and not rows_BLHK[0].any() and not rows_BLHK[2].any()


@pytest.mark.parametrize("reach", [0, 3])
def test_variable_length_attention_gets_the_documents(monkeypatch: pytest.MonkeyPatch, reach: int) -> None:
    """PyTorch's function needs a GPU; a plain version takes its place."""
    documents = DocumentMask.of_documents(np.array([(0, 4), (4, 9), (16, 16), (32, 2)]), 3, 16)
    packed_TGHK = torch.randn(32, 3, 2, 8)
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
    torch.testing.assert_close(documents.pad(found), documents.pad(expected))
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
    shape = BertConfig(layers=1, hidden_size=16, heads=2, vocabulary_size=9, attention_dropout=0.0)
    config = shape.with_kind(kind, embedding_size=16)
    assert config.attends_in_one_call(torch.device("cuda"), torch.bfloat16) == in_one_call
    assert not config.attends_in_one_call(torch.device("cpu"), torch.bfloat16)
    assert not replace(config, attention_dropout=0.1).attends_in_one_call(torch.device("cuda"), torch.bfloat16)
    called = []
    monkeypatch.setattr(document_attention, "has_variable_length_attention", lambda *_: called.append(1))
    documents = DocumentMask.of_documents(np.array([(0, 3), (3, 3)]), 1, 6)
    compute_states(config.build(), torch.zeros(1, 6, dtype=torch.int64), None, documents)
    assert bool(called) == in_one_call

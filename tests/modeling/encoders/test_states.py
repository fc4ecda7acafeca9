"""Rows of several documents, against the same documents in rows of their own."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from configs import make_encoder_config
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.encoders.states import compute_states
from electra.modeling.flops import Network, flops_per_token, training_flops
from electra.modeling.kernels.documents import DocumentMask

LENGTH = 64
DOCUMENTS = torch.tensor([(0, 30), (30, 34), (64, 64), (128, 5), (133, 6), (139, 1), (140, 40)])
"""First position and length in a batch of four rows. The third ends with padding, the last is padding only."""
ROWS = 4
POSITIONS_BN = torch.tensor([[3, 31], [0, 5], [11, 10], [0, 0]])
SHAPE = {
    "layers": 3, "hidden_size": 16, "embedding_size": 16, "feed_forward_size": 32, "heads": 2,
    "vocabulary_size": 50, "max_positions": 64, "dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.3,
}  # fmt: skip
SHAPES: dict[str, dict[str, object]] = {
    "bert": {},
    "bert, projected": {"embedding_size": 8},
    "bert, kernel with dropout": {"attention_dropout": 1e-9},
    "relative": {"kind": "relative"},
    "modernbert": {"kind": "modernbert", "local_window": 0},
    "modernbert, short windows": {"kind": "modernbert", "local_window": 8},
    "modernbert, long windows": {"kind": "modernbert", "local_window": 40},
    "modernbert, local last": {"kind": "modernbert", "local_window": 8, "global_every": 2, "layers": 2},
    "deberta": {"kind": "deberta"},
    "deberta, convolution": {"kind": "deberta", "convolution_width": 3, "position_buckets": 8},
    "modernbert, learned": {"kind": "modernbert", "position_encoding": "learned", "type_vocabulary_size": 2},
}


def encoder_config(name: str) -> EncoderConfig:
    return make_encoder_config(**{**SHAPE, **SHAPES[name]})  # type: ignore[arg-type]


@pytest.mark.parametrize("positions_BN", [None, POSITIONS_BN], ids=["all positions", "selected positions"])
@pytest.mark.parametrize("name", SHAPES)
def test_documents_do_not_see_each_other(name: str, positions_BN: torch.Tensor | None) -> None:
    torch.manual_seed(0)
    encoder = encoder_config(name).build().double().train()
    ids_BL = torch.randint(50, (ROWS, LENGTH))
    documents = DocumentMask.of_documents(DOCUMENTS.numpy(), ROWS, LENGTH)
    packed = compute_states(encoder, ids_BL, None, documents, positions_BN=positions_BN)

    alone = torch.zeros(ROWS * LENGTH, 16, dtype=torch.double)
    for start, length in DOCUMENTS.tolist():
        states_lD = encoder(ids_BL.view(1, -1)[:, start : start + length])[0]
        alone = alone.index_copy(0, torch.arange(start, start + length), states_lD)
    alone = alone.view(ROWS, LENGTH, 16)
    if positions_BN is not None:
        assert packed.isfinite().all()
        with_tokens = ROWS - 1  # the states at padding have no meaning here
        packed = packed[:with_tokens]
        alone = alone[torch.arange(with_tokens)[:, None], positions_BN[:with_tokens]]
    torch.testing.assert_close(packed, alone, rtol=0, atol=1e-11)

    weights, parameters = torch.randn_like(alone), list(encoder.parameters())
    gradients = [
        torch.autograd.grad((states * weights).sum(), parameters, allow_unused=True) for states in (packed, alone)
    ]
    for ours, reference in zip(*gradients, strict=True):
        assert (ours is None) == (reference is None)
        if ours is not None:
            torch.testing.assert_close(ours, reference, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["bert", "modernbert, short windows", "relative"])
def test_embeddings_can_be_given(name: str) -> None:
    torch.manual_seed(0)
    encoder = encoder_config(name).build().eval()
    ids_BL = torch.randint(50, (ROWS, LENGTH))
    documents = DocumentMask.of_documents(DOCUMENTS.numpy(), ROWS, LENGTH)
    embeds_BLE = encoder.token_table(ids_BL)
    torch.testing.assert_close(
        compute_states(encoder, torch.zeros_like(ids_BL), None, documents, inputs_embeds_BLE=embeds_BLE),
        compute_states(encoder, ids_BL, None, documents),
    )


@pytest.mark.parametrize("name", ["bert", "modernbert", "modernbert, short windows"])
@pytest.mark.parametrize("direction", ["left", "right"])
def test_a_direction_hides_the_other_side(name: str, direction: str) -> None:
    torch.manual_seed(0)
    encoder = encoder_config(name).build().eval()
    ids_BL = torch.randint(49, (ROWS, LENGTH))
    documents = DocumentMask.of_documents(DOCUMENTS.numpy(), ROWS, LENGTH)
    documents = DocumentMask(**{**vars(documents), "direction": direction})
    changed_BL = ids_BL.clone()
    changed_BL[0, 40] = 49  # in the document at columns 30 to 63
    difference_L = (encoder(ids_BL, None, documents) - encoder(changed_BL, None, documents)).abs().amax(-1)[0]
    seen = range(40, LENGTH) if direction == "left" else range(30, 41)
    assert [bool(x > 0) for x in difference_L] == [column in seen for column in range(LENGTH)]


@torch.no_grad()
@pytest.mark.parametrize("direction", ["both", "left", "right"])
def test_an_encoder_that_reads_one_document_a_row_computes_the_same(
    direction: Literal["both", "left", "right"], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    encoder = encoder_config("bert").build().eval()
    ids_BL = torch.randint(50, (ROWS, LENGTH))
    documents = replace(DocumentMask.of_documents(DOCUMENTS.numpy(), ROWS, LENGTH), direction=direction)
    expected = compute_states(encoder, ids_BL, None, documents)
    capabilities = encoder.config.capabilities - {"document-mask"}
    monkeypatch.setattr(type(encoder.config), "capabilities", capabilities)
    torch.testing.assert_close(compute_states(encoder, ids_BL, None, documents)[:-1], expected[:-1])


@torch.no_grad()
@pytest.mark.parametrize("selected", [None, 57])
@pytest.mark.parametrize(
    "name", [name for name in SHAPES if name not in ("bert, kernel with dropout", "relative")]
)
def test_flops_of_packed_rows_are_those_that_torch_counts(name: str, selected: int | None) -> None:
    """Without kind relative, whose count leaves out scores of distances that no pair needs."""
    rows, lengths = 12, (200, 120, 64)  # these need no padding
    shape = {**SHAPE, "hidden_size": 64, "embedding_size": 64, "max_positions": 384, **SHAPES[name]}
    config = make_encoder_config(**shape)  # type: ignore[arg-type]
    length, starts = sum(lengths), (0, 200, 320)
    places = [
        (row * length + start, size) for row in range(rows) for start, size in zip(starts, lengths, strict=True)
    ]
    documents = DocumentMask.of_documents(np.array(places), rows, length)
    positions_BN = None if selected is None else torch.arange(selected).expand(rows, -1)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        compute_states(
            config.build().eval(), torch.zeros(rows, length, dtype=torch.long), None, documents,
            positions_BN=positions_BN,
        )  # fmt: skip
    share = 1.0 if selected is None else selected / length
    network = Network.from_config(config, head="none", output_share=share, trained=False)
    counted = flops_per_token((("encoder", network),), tuple((size, rows) for size in lengths))
    assert counter.get_total_flops() / (rows * length) == pytest.approx(counted, rel=0.01)


def test_rows_of_documents_of_one_length_are_packed() -> None:
    network = Network(layers=2, hidden_size=16, heads=2, vocabulary_size=50, output_share=0.15)

    def per_token(count: int) -> float:
        return flops_per_token((("masked LM", network),), ((64, count),))

    assert per_token(2) == training_flops({"masked LM": replace(network, packed=True)}, 64) / 64 > per_token(1)


@pytest.mark.parametrize(
    ("kind", "settings", "longest"),
    [("bert", {}, 60), ("modernbert", {}, 100), ("modernbert", {"position_encoding": "learned"}, 60),
     ("deberta", {}, 60), ("relative", {}, 60)],
)  # fmt: skip
def test_the_longest_input_is_that_of_the_training_except_with_rotary_positions(
    kind: str, settings: dict[str, object], longest: int
) -> None:
    config = make_encoder_config(**{"kind": kind, "max_positions": 100, **settings})
    assert config.longest_input(60) == longest
    assert config.longest_input(300) == (300 if kind in ("deberta", "relative") else 100)

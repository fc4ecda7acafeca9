"""DeBERTa's encoder against transformers' class, with the same weights."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from electra.config import problems_of
from electra.data.tokenizer import SpecialTokens
from electra.export.formats.base import FolderConfig, Networks
from electra.export.formats.deberta import DebertaFormat
from electra.modeling.encoders.base import gather_positions
from electra.modeling.encoders.deberta import DebertaConfig, DebertaEncoder
from electra.modeling.flops import Network, encoder_terms
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.kernels.documents import DocumentMask

V = 60
CONFIG = DebertaConfig(
    layers=3, hidden_size=32, embedding_size=32, feed_forward_size=48, heads=4, vocabulary_size=V,
    max_positions=24, position_buckets=8, initializer_range=0.3, linear_initializer_range=0.3,
)  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "v3": {},
    "one block": {"layers": 1},
    "two heads": {"heads": 2},
    "many buckets": {"position_buckets": 32},
    "released buckets": {"position_buckets": 256, "max_positions": 512},
    "no buckets": {"position_buckets": 0},
    "content to position only": {"position_to_content": False},
    "position to content only": {"content_to_position": False},
    "own projections": {"share_position_projections": False},
    "own projection, one term": {"share_position_projections": False, "position_to_content": False},
    "own projection, other term": {"share_position_projections": False, "content_to_position": False},
    "no norm of the table": {"relative_norm": False},
    "narrow embeddings": {"embedding_size": 16},
    "segments": {"type_vocabulary_size": 2},
    "v2": {"convolution_width": 3},
    "v2, one block": {"convolution_width": 5, "convolution_activation": "tanh", "layers": 1},
    "groups": {"convolution_width": 3, "convolution_groups": 4},
    "large epsilon": {"layer_norm_epsilon": 0.1},
}
LENGTHS = (1, 4, 12, 41)
"""One token; each distance in a row of its own; distances that share rows; some beyond the table."""


@pytest.fixture
def transformers_model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Build transformers' DebertaV2ForMaskedLM with the weights of our networks, in float64."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.deberta_v2 import modeling_deberta_v2 as modeling

    def root(x: Tensor, factor: int) -> Tensor:
        """The same as theirs, which is in float32."""
        return torch.tensor(float(x.shape[-1] * factor), dtype=torch.float64).sqrt()

    monkeypatch.setattr(modeling, "scaled_size_sqrt", root)

    def build(encoder: DebertaEncoder, head: MaskedLanguageModelHead) -> Any:
        checkpoint_format, special = DebertaFormat(), SpecialTokens(0, 1, 2, 3, 4)
        fields = checkpoint_format.write_config(encoder.config, "deberta-v2", "generator", special)
        model = transformers.DebertaV2ForMaskedLM(transformers.DebertaV2Config(**fields, pad_token_id=0))
        tensors = checkpoint_format.write_tensors(
            Networks(encoder, head), FolderConfig("deberta-v2", encoder.config, 0)
        )
        report = model.load_state_dict(tensors, strict=False)
        assert not report.unexpected_keys
        assert set(report.missing_keys) == {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
        return model.double().eval()

    return build


def networks(config: DebertaConfig) -> tuple[DebertaEncoder, MaskedLanguageModelHead]:
    torch.manual_seed(0)
    encoder, head = DebertaEncoder(config).eval(), MaskedLanguageModelHead(config).eval()
    with torch.no_grad():
        for parameter in (*encoder.parameters(), *head.parameters()):
            if parameter.ndim == 1:
                parameter += 0.2 * torch.randn_like(parameter)
    return encoder, head


def inputs(length: int) -> tuple[Tensor, Tensor]:
    ids_BL = torch.randint(V, (3, length), generator=torch.Generator().manual_seed(length))
    lengths_B1 = torch.tensor([length, length // 2, length - 1]).clamp(min=1)[:, None]
    return ids_BL, torch.arange(length) < lengths_B1


@pytest.mark.parametrize("shape", SHAPES)
def test_states_logits_and_gradients_equal_transformers(transformers_model: Any, shape: str) -> None:
    encoder, head = networks(replace(CONFIG, **SHAPES[shape]))
    model = transformers_model(encoder, head)
    encoder, head = encoder.double(), head.double()
    for length in LENGTHS:
        ids_BL, mask_BL = inputs(length)
        segments_BL = (torch.arange(length) >= length // 2).long().expand(3, -1)
        for mask in (None, mask_BL):
            x_BLD = encoder(ids_BL, segments_BL, mask)
            outputs = model(
                ids_BL, attention_mask=torch.ones_like(ids_BL) if mask is None else mask.long(),
                token_type_ids=segments_BL, output_hidden_states=True,
            )  # fmt: skip
            at_tokens = torch.ones_like(mask_BL) if mask is None else mask
            logits_BLV = head.logits(x_BLD, encoder.token_table.weight)
            assert (logits_BLV - outputs.logits)[at_tokens].abs().max() < 1e-12
            assert (x_BLD - outputs.hidden_states[-1])[at_tokens].abs().max() < 1e-12
    weights_BLV = torch.randn_like(logits_BLV) * at_tokens[..., None]
    (logits_BLV * weights_BLV).sum().backward()
    (outputs.logits * weights_BLV).sum().backward()
    checkpoint_format, theirs = DebertaFormat(), dict(model.named_parameters())
    compared = 0
    for name, parameter in encoder.named_parameters():
        expected = [
            theirs[f"deberta.{stored}"].grad for stored in checkpoint_format.encoder_names(encoder, name, "")
        ]
        gradient = parameter.grad
        assert gradient is not None
        if name == "embeddings.token.weight":  # transformers gives the row of [PAD] no gradient as an input
            gradient, expected = gradient[1:], [expected[0][1:]]
        assert (gradient - torch.cat(expected)).abs().max() < 1e-11 * max(1.0, float(gradient.abs().max()))
        compared += 1
    assert (
        compared == len([name for name in theirs if name.startswith("deberta.")]) - 2 * encoder.config.layers * 2
    )


@torch.no_grad()
def test_float32_agrees_with_float64() -> None:
    encoder, _ = networks(CONFIG)
    ids_BL, mask_BL = inputs(41)
    states_BLD = encoder(ids_BL, None, mask_BL)
    assert (states_BLD - encoder.double()(ids_BL, None, mask_BL))[mask_BL].abs().max() < 5e-5


@torch.no_grad()
@pytest.mark.parametrize("shape", ["v3", "one block", "no buckets", "position to content only", "v2, one block"])
@pytest.mark.parametrize("length", LENGTHS)
def test_states_at_some_positions_are_those_of_all(shape: str, length: int) -> None:
    encoder, _ = networks(replace(CONFIG, **SHAPES[shape]))
    ids_BL, mask_BL = inputs(length)
    positions_BN = torch.tensor([[0, 2], [1, 1], [1, 2]]).clamp(max=length // 2)
    for mask in (None, mask_BL):
        states_BND = encoder(ids_BL, None, mask, positions_BN=positions_BN)
        torch.testing.assert_close(states_BND, gather_positions(encoder(ids_BL, None, mask), positions_BN))


def test_gradients_through_some_positions_are_those_of_all() -> None:
    encoder, _ = networks(CONFIG)
    encoder = encoder.double()
    ids_BL, mask_BL = inputs(41)
    positions_BN, found = torch.tensor([[0, 2], [1, 1], [1, 2]]), []
    for selected in (True, False):
        if selected:
            states_BND = encoder(ids_BL, None, mask_BL, positions_BN=positions_BN)
        else:
            states_BND = gather_positions(encoder(ids_BL, None, mask_BL), positions_BN)
        found.append(torch.autograd.grad((states_BND**3).sum(), list(encoder.parameters())))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("shape", ["v3", "v2"])
def test_without_padding_the_states_are_the_same(shape: str) -> None:
    encoder, _ = networks(replace(CONFIG, **SHAPES[shape]))
    ids_BL, mask_BL = inputs(41)
    documents = DocumentMask.of_rows(mask_BL.sum(1).numpy(), 41)
    states_BLD = encoder(ids_BL, None, documents)
    assert (states_BLD - encoder(ids_BL, None, mask_BL))[mask_BL].abs().max() < 1e-5
    assert not states_BLD[~mask_BL].any()
    positions_BN = torch.tensor([[0, 2], [1, 1], [1, 2]])
    some_BND = encoder(ids_BL, None, documents, positions_BN=positions_BN)
    torch.testing.assert_close(some_BND, gather_positions(states_BLD, positions_BN))


@torch.no_grad()
def test_a_mask_of_pairs_is_added_to_the_scores() -> None:
    encoder, _ = networks(CONFIG)
    ids_BL, mask_BL = inputs(41)
    bias_BLL = torch.where(mask_BL, 0.0, -1e9)[:, None].expand(-1, 41, -1)
    difference = encoder(ids_BL, None, bias_BLL) - encoder(ids_BL, None, mask_BL)
    assert difference[mask_BL].abs().max() < 1e-5
    positions_BN = torch.tensor([[0, 2], [1, 1], [1, 2]])
    some_BND = encoder(ids_BL, None, bias_BLL, positions_BN=positions_BN)
    torch.testing.assert_close(some_BND, gather_positions(encoder(ids_BL, None, bias_BLL), positions_BN))


@torch.no_grad()
def test_embeddings_can_be_given_in_place_of_ids() -> None:
    encoder, _ = networks(replace(CONFIG, embedding_size=16))
    ids_BL, mask_BL = inputs(12)
    embeds_BLE = encoder.token_table(ids_BL)
    assert torch.equal(
        encoder(ids_BL, None, mask_BL), encoder(ids_BL * 0, None, mask_BL, inputs_embeds_BLE=embeds_BLE)
    )


@torch.no_grad()
def test_an_encoder_can_use_the_tables_of_another() -> None:
    encoder, _ = networks(replace(CONFIG, type_vocabulary_size=2))
    ids_BL, _ = inputs(12)
    for sharing in ("tables", "tokens", "detached", "disentangled"):
        other = replace(encoder.config, hidden_size=16).build_sharing(encoder.embeddings, sharing=sharing)  # type: ignore[arg-type]
        assert other(ids_BL).shape == (3, 12, 16)
        assert torch.equal(other.token_table(ids_BL), encoder.token_table(ids_BL))
        assert (other.token_table is encoder.token_table) == (sharing in ("tables", "tokens"))


@torch.no_grad()
@pytest.mark.parametrize("shape", ["v3", "narrow embeddings", "position to content only", "v2", "one block"])
@pytest.mark.parametrize("outputs", [None, 4])
def test_flops_are_those_that_torch_counts(shape: str, outputs: int | None) -> None:
    length, rows = 200, 40
    config = replace(CONFIG, **SHAPES[shape])
    encoder, _ = networks(config)
    positions_BN = None if outputs is None else torch.zeros(rows, outputs, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        encoder(torch.zeros(rows, length, dtype=torch.long), positions_BN=positions_BN)
    share = 1.0 if outputs is None else outputs / length
    terms = encoder_terms(Network.from_config(config, output_share=share), length, "modern")
    assert counter.get_total_flops() / rows == pytest.approx(sum(terms.values()), rel=0.01)


def test_a_compiled_encoder_has_the_same_states_and_gradients() -> None:
    encoder, _ = networks(CONFIG)
    encoder = encoder.double()
    ids_BL, mask_BL = inputs(41)
    positions_BN = torch.tensor([[0, 2], [1, 1], [1, 2]])
    compiled, found = torch.compile(encoder, backend="aot_eager", fullgraph=True), []
    for network in (encoder, compiled):
        states_BND = network(ids_BL, None, mask_BL, positions_BN=positions_BN)
        found.append([states_BND, *torch.autograd.grad((states_BND**3).sum(), list(encoder.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_the_head_for_replaced_tokens_is_one_linear_layer() -> None:
    head = ReplacedTokenHead(CONFIG)
    assert dict(head.named_parameters()).keys() == {"prediction.weight", "prediction.bias"}


def test_shapes_that_cannot_be_are_refused() -> None:
    for settings, message in (
        ({"content_to_position": False, "position_to_content": False}, "content_to_position: without it"),
        ({"position_buckets": 7}, "position_buckets: must be even"),
        ({"position_buckets": 48}, "position_buckets: 48 are too many for max_positions 24"),
        ({"convolution_width": 4}, "convolution_width: must be odd"),
        ({"convolution_groups": 5}, "convolution_groups: hidden_size 32 is not divisible"),
    ):
        assert any(message in problem for problem in problems_of(replace(CONFIG, **settings)))  # type: ignore[arg-type]


def test_the_table_of_distances_has_the_dropout_of_states() -> None:
    for dropout in (0.5, 0.0):
        encoder = DebertaEncoder(replace(CONFIG, dropout=dropout, attention_dropout=0.0))
        attention, x_BLD = encoder.blocks[0].attention, torch.randn(2, 4, 32)
        positions = encoder.relative_positions(4)
        first_BLD, second_BLD = (attention(x_BLD, positions, None, None, None) for _ in range(2))
        assert torch.equal(first_BLD, second_BLD) == (dropout == 0)

"""ModernBERT's encoder against transformers' class, with the same weights."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from electra.config import problems_of
from electra.data.tokenizer import SpecialTokens
from electra.export.formats.base import FolderConfig, Networks
from electra.export.formats.modernbert import ModernBertFormat
from electra.modeling.encoders.base import gather_positions
from electra.modeling.encoders.modernbert import ModernBertConfig, ModernBertEncoder
from electra.modeling.flops import Network, encoder_terms
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.kernels.documents import DocumentMask

V = 60
CONFIG = ModernBertConfig(
    layers=4, hidden_size=32, embedding_size=32, feed_forward_size=48, heads=4, vocabulary_size=V,
    max_positions=256, local_window=8, initializer_range=0.3, linear_initializer_range=0.3,
)  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "base": {},
    "one block": {"layers": 1},
    "local last": {"layers": 3},
    "two heads": {"heads": 2},
    "wide window": {"local_window": 64},
    "narrow window": {"local_window": 2},
    "every block global": {"local_window": 0},
    "every second global": {"global_every": 2},
    "biases": {"bias": True, "norm_bias": True},
    "other thetas": {"rope_theta": 500.0, "local_rope_theta": 50.0},
    "silu": {"activation": "silu"},
    "large epsilon": {"layer_norm_epsilon": 0.1},
}
LENGTHS = (4, 12, 25, 41)
"""In one window; in the reach of dense masks; in blocks, with and without a last block that is full."""


@pytest.fixture
def transformers_model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Build transformers' ModernBertForMaskedLM with the weights of our networks, in float64."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.modernbert import modeling_modernbert as modeling

    def rotate(
        query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
    ) -> tuple[Tensor, Tensor]:
        """The same as theirs, which rounds queries and keys to float32."""
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        half = modeling.rotate_half
        return query * cos + half(query) * sin, key * cos + half(key) * sin

    monkeypatch.setattr(modeling, "apply_rotary_pos_emb", rotate)

    def build(encoder: ModernBertEncoder, head: MaskedLanguageModelHead) -> Any:
        checkpoint_format, special = ModernBertFormat(), SpecialTokens(0, 1, 2, 3, 4)
        fields = checkpoint_format.write_config(encoder.config, "modernbert", "generator", special)
        model = transformers.ModernBertForMaskedLM(
            transformers.ModernBertConfig(**fields, pad_token_id=0, attn_implementation="sdpa")
        )
        tensors = checkpoint_format.write_tensors(
            Networks(encoder, head), FolderConfig("modernbert", encoder.config, 0)
        )
        report = model.load_state_dict(tensors, strict=False)
        assert not report.unexpected_keys and report.missing_keys == ["decoder.weight"]
        return model.double().eval()

    return build


def networks(config: ModernBertConfig) -> tuple[ModernBertEncoder, MaskedLanguageModelHead]:
    torch.manual_seed(0)
    encoder, head = ModernBertEncoder(config).eval(), MaskedLanguageModelHead(config).eval()
    with torch.no_grad():
        for parameter in (*encoder.parameters(), *head.parameters()):
            if parameter.ndim == 1:
                parameter += 0.2 * torch.randn_like(parameter)
    return encoder, head


def inputs(length: int) -> tuple[Tensor, Tensor]:
    ids_BL = torch.randint(V, (3, length), generator=torch.Generator().manual_seed(length))
    return ids_BL, torch.arange(length) < torch.tensor([length, length // 2, length - 1])[:, None]


@pytest.mark.parametrize("shape", SHAPES)
def test_states_logits_and_gradients_equal_transformers(transformers_model: Any, shape: str) -> None:
    encoder, head = networks(replace(CONFIG, **SHAPES[shape]))
    model = transformers_model(encoder, head)
    encoder, head = encoder.double(), head.double()
    for length in LENGTHS:
        ids_BL, mask_BL = inputs(length)
        for mask in (None, mask_BL):
            x_BLD = encoder(ids_BL, None, mask)
            outputs = model(
                ids_BL, attention_mask=None if mask is None else mask.long(), output_hidden_states=True
            )
            at_tokens = torch.ones_like(mask_BL) if mask is None else mask
            logits_BLV = head.logits(x_BLD, encoder.token_table.weight)
            assert (logits_BLV - outputs.logits)[at_tokens].abs().max() < 1e-12
            assert (x_BLD - outputs.hidden_states[-1])[at_tokens].abs().max() < 1e-12
    weights_BLV = torch.randn_like(logits_BLV) * at_tokens[..., None]
    (logits_BLV * weights_BLV).sum().backward()
    (outputs.logits * weights_BLV).sum().backward()
    checkpoint_format, theirs = ModernBertFormat(), dict(model.named_parameters())
    compared = set()
    for name, parameter in encoder.named_parameters():
        (stored,) = checkpoint_format.encoder_names(encoder, name, "modernbert")
        gradient, expected = parameter.grad, theirs[f"model.{stored}"].grad
        assert gradient is not None
        if name == "embeddings.token.weight":  # transformers gives the row of [PAD] no gradient
            gradient, expected = gradient[1:], expected[1:]
        assert (gradient - expected).abs().max() < 1e-11 * max(1.0, float(expected.abs().max())), name
        compared.add(f"model.{stored}")
    assert compared == {name for name in theirs if name.startswith("model.")}


@pytest.mark.parametrize("layers", [1, 4])
def test_deeper_networks_start_with_smaller_output_layers(layers: int) -> None:
    states = []
    for scaled in (False, True):
        torch.manual_seed(0)
        config = replace(CONFIG, layers=layers, depth_scaled_init=scaled)
        states.append(ModernBertEncoder(config).state_dict())
    plain, smaller = states
    outputs = {name for name in plain if name.endswith(("attention.output.weight", "feed_forward.outer.weight"))}
    assert len(outputs) == 2 * layers and plain.keys() == smaller.keys()
    for name, weight in plain.items():
        expected = weight / math.sqrt(2 * layers) if name in outputs else weight
        assert torch.equal(smaller[name], expected), name


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 3, 4])
@pytest.mark.parametrize("length", LENGTHS)
def test_states_at_some_positions_are_those_of_all(layers: int, length: int) -> None:
    encoder, _ = networks(replace(CONFIG, layers=layers))
    ids_BL, mask_BL = inputs(length)
    positions_BN = torch.tensor([[0, 2], [1, 0], [1, 2]])
    for mask in (None, mask_BL):
        states_BND = encoder(ids_BL, None, mask, positions_BN=positions_BN)
        torch.testing.assert_close(states_BND, gather_positions(encoder(ids_BL, None, mask), positions_BN))


@torch.no_grad()
def test_a_mask_of_pairs_is_added_to_the_scores_of_global_and_local_blocks() -> None:
    encoder, _ = networks(CONFIG)
    for length in LENGTHS:
        ids_BL, mask_BL = inputs(length)
        bias_BLL = torch.where(mask_BL, 0.0, -1e9)[:, None].expand(-1, length, -1)
        difference = encoder(ids_BL, None, bias_BLL) - encoder(ids_BL, None, mask_BL)
        assert difference[mask_BL].abs().max() < 1e-5


@torch.no_grad()
def test_what_is_far_away_reaches_a_token_only_through_global_blocks() -> None:
    ids_BL, _ = inputs(41)
    changed_BL = ids_BL.clone()
    changed_BL[:, 0] = (ids_BL[:, 0] + 1) % V
    encoder, _ = networks(replace(CONFIG, global_every=3))
    assert (encoder(ids_BL) - encoder(changed_BL))[:, -1].abs().max() > 1e-6
    encoder, _ = networks(replace(CONFIG, global_every=100))
    # The first block is always global; without its attention, four of 4 positions each are all that is seen.
    encoder.blocks[0].attention.output.weight.zero_()
    changed = (encoder(ids_BL) - encoder(changed_BL)).abs().amax((0, 2)) > 1e-6
    assert changed[:13].all() and not changed[13:].any()


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "post", "final_norm": False},
        {"position_encoding": "learned"},
        {"gated_feed_forward": False},
        {"first_attention_norm": True},
        {"type_vocabulary_size": 2},
        {"embedding_size": 16},
    ],
)
def test_each_step_from_bert_is_a_setting(settings: dict[str, Any]) -> None:
    """Each changes the network, and a network of it can be computed at any length."""
    config = replace(CONFIG, **settings)
    assert not list(problems_of(config))
    encoder, _ = networks(config)
    names = dict(encoder.named_parameters()).keys()
    assert settings.get("position_encoding") == "learned" or "embeddings.position.weight" not in names
    for length in LENGTHS:
        ids_BL, mask_BL = inputs(length)
        states_BLD = encoder(ids_BL, mask_BL.long(), mask_BL)
        assert states_BLD.shape == (3, length, 32) and states_BLD[mask_BL].isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"embedding_size": 16}, {"gated_feed_forward": False}, {"layers": 3}])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("outputs", [None, 2])
def test_flops_are_those_that_torch_counts(settings: dict[str, Any], length: int, outputs: int | None) -> None:
    config = replace(CONFIG, **settings)
    encoder, _ = networks(config)
    positions_BN = None if outputs is None else torch.zeros(1, outputs, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        encoder(torch.zeros(1, length, dtype=torch.long), positions_BN=positions_BN)
    share = 1.0 if outputs is None else outputs / length
    terms = encoder_terms(Network.from_config(config, output_share=share), length, "modern")
    assert counter.get_total_flops() == pytest.approx(sum(terms.values()), rel=0.01)


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated")
@pytest.mark.parametrize("documents", [False, True])
def test_a_compiled_encoder_has_the_same_states_and_gradients(documents: bool) -> None:
    encoder, _ = networks(replace(CONFIG, layers=2, global_every=2))
    encoder = encoder.double()
    ids_BL, mask_BL = inputs(25)
    mask = DocumentMask.of_rows(mask_BL.sum(1).numpy(), 25) if documents else mask_BL
    positions_BN = torch.tensor([[0, 2], [1, 1], [1, 2]])
    compiled, found = torch.compile(encoder, backend="aot_eager"), []
    for network in (encoder, compiled):
        states_BND = network(ids_BL, None, mask, positions_BN=positions_BN)
        found.append([states_BND, *torch.autograd.grad((states_BND**3).sum(), list(encoder.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_shapes_that_cannot_be_are_refused() -> None:
    for settings, message in (
        ({"local_window": 7}, "local_window: must be even"),
        ({"hidden_size": 20, "heads": 4}, "heads: rotary positions need an even head size"),
    ):
        assert any(message in problem for problem in problems_of(replace(CONFIG, **settings)))  # type: ignore[arg-type]
    assert len(list(problems_of(replace(CONFIG, hidden_size=20, heads=3)))) == 1  # not divisible: no head size
    encoder, _ = networks(replace(CONFIG, max_positions=10))
    with pytest.raises(ValueError, match="the inputs have 11 tokens, but the network has 10 positions"):
        encoder(torch.zeros(1, 11, dtype=torch.long))

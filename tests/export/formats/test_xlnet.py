"""`RelativeEncoder` and transformers' XLNet with the same weights compute the same, in float64."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from electra.data.tokenizer import SpecialTokens
from electra.errors import CheckpointError
from electra.export.formats.base import FolderConfig, Networks
from electra.export.formats.xlnet import XLNetFormat
from electra.modeling.encoders.base import EncoderConfig, gather_positions
from electra.modeling.encoders.relative import RelativeConfig, RelativeEncoder
from electra.modeling.heads import LanguageModelHead

transformers: Any = pytest.importorskip("transformers")

B, L, V = 3, 11, 60
CONFIG = RelativeConfig(
    layers=3, hidden_size=32, embedding_size=32, feed_forward_size=48, heads=4, vocabulary_size=V, dropout=0.2,
    attention_dropout=0.2, initializer_range=0.3, memory_length=9,
)  # fmt: skip
TOKENS_BL = torch.arange(L) < torch.tensor([11, 7, 4])[:, None]
TARGETS_BN = torch.tensor([[3, 5], [0, 6], [1, 3]])
Direction = Literal["both", "left"]
FORMAT = XLNetFormat()
SPECIAL = SpecialTokens(0, 1, 2, 3, 4)


def config_fields(config: EncoderConfig) -> dict[str, Any]:
    return FORMAT.write_config(config, "xlnet", "language-model", SPECIAL)


def stored_tensors(encoder: RelativeEncoder, bias_V: Tensor | None = None) -> dict[str, Tensor]:
    """Tensors in XLNet's names and layout, in float32."""
    head = None if bias_V is None else LanguageModelHead(encoder.config)
    if head is not None:
        head.bias = torch.nn.Parameter(bias_V)
    return FORMAT.write_tensors(Networks(encoder, head), FolderConfig("xlnet", encoder.config, 0))


def load_networks(tensors: dict[str, Tensor], config: EncoderConfig) -> tuple[Networks, list[str]]:
    problems: list[str] = []
    folder_config = FolderConfig("xlnet", config, 0)
    return FORMAT.load_networks(folder_config, dict(tensors), task=False, problems=problems), problems


def relative_config(direction: Direction, **settings: Any) -> EncoderConfig:
    return replace(CONFIG, direction=direction, **settings)


def in_float64(model: Any) -> Any:
    """transformers computes the encodings of distances in float32, which cannot be multiplied with float64."""
    encoding = model.transformer.relative_positional_encoding
    model.transformer.relative_positional_encoding = lambda *args, **kwargs: encoding(*args, **kwargs).double()
    return model.double().eval()


def transformers_model(config: EncoderConfig) -> Any:
    """A network with transformers' own random weights; biases and norms are random, too."""
    fields = config_fields(config)
    torch.manual_seed(0)
    model = transformers.XLNetLMHeadModel(transformers.XLNetConfig(**fields))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "layer_norm" in name:
                parameter += 0.3 * torch.randn_like(parameter)
    return in_float64(model)


def encoder_from_transformers(model: Any, config: EncoderConfig) -> tuple[RelativeEncoder, Tensor]:
    tensors = {name: tensor.float() for name, tensor in model.state_dict().items()}
    networks, problems = load_networks(tensors, config)
    assert not problems and isinstance(networks.head, LanguageModelHead)
    encoder = networks.encoder
    assert isinstance(encoder, RelativeEncoder)
    return encoder.double(), networks.head.bias.detach().double()


def transformers_from_encoder(config: EncoderConfig) -> tuple[Any, RelativeEncoder, Tensor]:
    torch.manual_seed(1)
    encoder = RelativeEncoder(config).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    bias_V = torch.randn(V)
    model = transformers_model(config)
    report = model.load_state_dict(stored_tensors(encoder, bias_V), strict=False)
    assert not report.unexpected_keys and report.missing_keys == ["lm_loss.weight"]
    assert model.lm_loss.weight is model.transformer.word_embedding.weight
    return model, encoder.double(), bias_V.double()


def inputs(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, segments, and a mask of visible keys for each query; each target has a visible key."""
    random = torch.Generator().manual_seed(seed)
    ids_BL, segment_ids_BL = (torch.randint(most, (B, L), generator=random) for most in (V, 2))
    permutation_BLL = torch.rand(B, L, L, generator=random) < 0.5
    permutation_BLL[:, :, 2] = True
    return ids_BL, segment_ids_BL, permutation_BLL


def permutation_mask(permutation_BLL: Tensor) -> Tensor:
    """transformers' `perm_mask`: 1 at keys that a query cannot see; no target sees itself."""
    return (~permutation_BLL | torch.eye(L, dtype=torch.bool)).double()


@torch.no_grad()
@pytest.mark.parametrize("direction", ["both", "left"])
@pytest.mark.parametrize("weights", ["transformers' weights", "electra's weights"])
def test_one_stream_with_and_without_memory_and_segments(direction: Direction, weights: str) -> None:
    config = relative_config(direction)
    if weights == "transformers' weights":
        model = transformers_model(config)
        encoder, bias_V = encoder_from_transformers(model, config)
    else:
        model, encoder, bias_V = transformers_from_encoder(config)
    (first_BL, segment_ids_BL, _), (second_BL, *_) = inputs(1), inputs(2)
    for segments in (None, segment_ids_BL):
        before = model(first_BL, token_type_ids=segments)
        outputs = encoder.encode(first_BL, segments)
        logits_BLV = F.linear(outputs.states_BND, encoder.embeddings.token.weight, bias_V)
        assert (logits_BLV - before.logits).abs().max() < 1e-12 and before.logits.std() > 0.5
        memory = torch.stack([mems.transpose(0, 1) for mems in before.mems])
        assert memory.shape == (3, B, 9, 32) and (outputs.memory_YBMD - memory).abs().max() < 1e-12
        after = model.transformer(second_BL, token_type_ids=segments, mems=list(before.mems))
        outputs = encoder.encode(second_BL, segments, memory_YBMD=outputs.memory_YBMD)
        assert (outputs.states_BND - after.last_hidden_state).abs().max() < 1e-12
        memory = torch.stack([mems.transpose(0, 1) for mems in after.mems])
        assert (outputs.memory_YBMD - memory).abs().max() < 1e-12


@torch.no_grad()
@pytest.mark.parametrize("direction", ["both", "left"])
@pytest.mark.parametrize("weights", ["transformers' weights", "electra's weights"])
@pytest.mark.parametrize("memory", [False, True])
def test_two_streams_under_permutation_and_padding(direction: Direction, weights: str, memory: bool) -> None:
    config = relative_config(direction)
    if weights == "transformers' weights":
        model = transformers_model(config)
        encoder, bias_V = encoder_from_transformers(model, config)
    else:
        model, encoder, bias_V = transformers_from_encoder(config)
    ids_BL, segment_ids_BL, permutation_BLL = inputs(2)
    mems = torch.randn(3, B, 9, 32, dtype=torch.float64) if memory else None
    outputs = encoder.encode(
        ids_BL, segment_ids_BL, TOKENS_BL, memory_YBMD=mems, permutation_BLL=permutation_BLL,
        targets_BN=TARGETS_BN,
    )  # fmt: skip
    logits_BNV = F.linear(outputs.targets_BND, encoder.embeddings.token.weight, bias_V)
    # A left-to-right XLNet of transformers takes such a mask only for a batch of one row.
    visible_BNL = gather_positions(permutation_BLL & TOKENS_BL[:, None], TARGETS_BN)
    if direction == "left":
        visible_BNL = visible_BNL & (torch.arange(L) < TARGETS_BN[:, :, None])
    for row in range(B):
        one = slice(row, row + 1)
        expected = model(
            ids_BL[one], token_type_ids=segment_ids_BL[one], attention_mask=TOKENS_BL[one].double(),
            perm_mask=permutation_mask(permutation_BLL)[one],
            target_mapping=F.one_hot(TARGETS_BN[one], L).double(),
            mems=None if mems is None else [states[one].transpose(0, 1) for states in mems],
            output_hidden_states=True,
        )  # fmt: skip
        # A target without visible keys sees all keys in transformers, and none in electra.
        has_keys_N = visible_BNL[row].any(-1) | memory
        assert (logits_BNV[row] - expected.logits[0])[has_keys_N].abs().max() < 1e-12
        states_LD = expected.hidden_states[-2][0]  # content and query stream in turn
        assert (outputs.states_BND[row] - states_LD)[TOKENS_BL[row]].abs().max() < 1e-12
    if direction == "both":
        expected = model(
            ids_BL, token_type_ids=segment_ids_BL, attention_mask=TOKENS_BL.double(),
            perm_mask=permutation_mask(permutation_BLL), target_mapping=F.one_hot(TARGETS_BN, L).double(),
            mems=None if mems is None else [states.transpose(0, 1) for states in mems],
        )  # fmt: skip
        assert (logits_BNV - expected.logits).abs().max() < 1e-12


def test_gradients_are_the_same() -> None:
    config = relative_config("both")
    model = transformers_model(config)
    encoder, _ = encoder_from_transformers(model, config)
    ids_BL, segment_ids_BL, permutation_BLL = inputs(2)
    mems = torch.randn(3, B, 9, 32, dtype=torch.float64)
    weights_BND = torch.randn(B, 2, 32, dtype=torch.float64)
    encoder.train().embeddings.dropout.p = 0.0  # the code path of training
    for block in encoder.blocks:
        block.dropout.p = block.attention.dropout.p = 0.0
    (
        encoder.encode(
            ids_BL, segment_ids_BL, memory_YBMD=mems, permutation_BLL=permutation_BLL, targets_BN=TARGETS_BN
        ).targets_BND
        * weights_BND
    ).sum().backward()
    expected = model.transformer(
        ids_BL, token_type_ids=segment_ids_BL, perm_mask=permutation_mask(permutation_BLL),
        target_mapping=F.one_hot(TARGETS_BN, L).double(), mems=[states.transpose(0, 1) for states in mems],
    ).last_hidden_state  # fmt: skip
    (expected * weights_BND).sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    expected_grads = FORMAT.read_state_dict(encoder, None, grads, FolderConfig("xlnet", config, 0), [])
    # In the last block, transformers computes states of tokens that nothing uses.
    for name, parameter in encoder.named_parameters():
        torch.testing.assert_close(parameter.grad, expected_grads[name], atol=1e-11, rtol=1e-9)


def test_weights_are_the_same_after_export_and_load() -> None:
    encoder = RelativeEncoder(CONFIG)
    bias_V = torch.randn(V)
    networks, problems = load_networks(stored_tensors(encoder, bias_V), CONFIG)
    assert not problems and networks.head is not None and torch.equal(networks.head.bias, bias_V)
    state_dict = networks.encoder.state_dict()
    assert state_dict.keys() == encoder.state_dict().keys()
    assert all(torch.equal(tensor, state_dict[name]) for name, tensor in encoder.state_dict().items())
    one_segment = replace(CONFIG, type_vocabulary_size=1)
    tensors = stored_tensors(RelativeEncoder(one_segment, query_stream=False))
    assert (tensors["transformer.mask_emb"] == 0).all()
    assert (tensors["transformer.layer.2.rel_attn.seg_embed"] == 0).all()
    networks, problems = load_networks(tensors, one_segment)
    assert not problems and networks.head is None


@torch.no_grad()
def test_transformers_loads_an_exported_folder(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from electra.json_files import json_text

    config = relative_config(
        "both", activation="gelu_tanh", layer_norm_epsilon=1e-5, type_vocabulary_size=1, memory_length=0
    )
    encoder = RelativeEncoder(config).eval()
    tensors = stored_tensors(encoder, torch.zeros(V))
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json_text({"model_type": "xlnet", **config_fields(config)}))
    model, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == "XLNetLMHeadModel" and not any(report.values())
    ids_BL, *_ = inputs(1)
    outputs = model(ids_BL)
    assert outputs.mems is None
    expected_BLV = F.linear(encoder.encode(ids_BL).states_BND, encoder.embeddings.token.weight)
    assert (outputs.logits - expected_BLV).abs().max() < 1e-5
    read = FORMAT.read_config(model.config.to_dict(), "config.json").encoder
    assert read == replace(config, linear_initializer_range=0.02)


def test_networks_of_transformers_have_segments() -> None:
    read = FORMAT.read_config(transformers.XLNetConfig().to_dict(), "config.json").encoder
    assert read.type_vocabulary_size == 2


def test_a_bare_xlnet_and_heads_of_other_tasks_are_read() -> None:
    tensors = stored_tensors(RelativeEncoder(CONFIG), torch.zeros(V))
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items() if "lm_loss" not in name}
    networks, problems = load_networks(bare, CONFIG)
    assert not problems and networks.head is None
    table_VD = tensors["transformer.word_embedding.weight"]
    networks, problems = load_networks(
        {**tensors, "lm_loss.weight": table_VD, "sequence_summary.summary.bias": torch.zeros(2)}, CONFIG
    )
    assert not problems and isinstance(networks.head, LanguageModelHead)


def test_wrong_tensors_and_configs_are_all_named() -> None:
    tensors = stored_tensors(RelativeEncoder(CONFIG), torch.zeros(V))
    table_VD = tensors["transformer.word_embedding.weight"]
    broken = {**tensors, "lm_loss.weight": table_VD + 1, "transformer.layer.1.other": table_VD}
    del broken["transformer.layer.0.rel_attn.r"]
    _, problems = load_networks(broken, CONFIG)
    for message in ("layer.0.rel_attn.r: is missing", "layer.1.other: is unknown", "lm_loss.weight: differs"):
        assert any(message in problem for problem in problems), message
    fields = {**config_fields(CONFIG), "bi_data": True, "clamp_len": 400, "attn_type": "other"}
    with pytest.raises(CheckpointError) as caught:
        FORMAT.read_config(fields, "config.json")
    for message in ("bi_data is True", "clamp_len is 400", "attn_type is 'other'"):
        assert message in str(caught.value)

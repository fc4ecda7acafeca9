"""Folders of type modernbert: written here and loaded by transformers, written there and loaded here."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError
from electra.export import huggingface
from electra.export.formats.detection_labels import LABELS
from electra.export.formats.modernbert import ModernBertFormat
from electra.export.parity import parity
from electra.modeling.encoders.modernbert import ModernBertConfig, ModernBertEncoder
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.task_heads import ConditionalSpanHead, SpanHead, TextHead, TokenHead
from electra.tasks.tagging import Tagging

transformers: Any = pytest.importorskip("transformers")

SHAPE = ModernBertConfig(
    layers=4, hidden_size=32, embedding_size=32, feed_forward_size=48, heads=4, max_positions=64, local_window=8,
    initializer_range=0.3, linear_initializer_range=0.3,
)  # fmt: skip
HEADS = {
    "generator": (MaskedLanguageModelHead, "ModernBertForMaskedLM"),
    "discriminator": (ReplacedTokenHead, "ModernBertForTokenClassification"),
    "token": (lambda config: TokenHead(config, 2), "ModernBertForTokenClassification"),
    "text": (lambda config: TextHead(config, 2, hidden=True), "ModernBertForSequenceClassification"),
    "span": (SpanHead, "ModernBertForQuestionAnswering"),
    "conditional span": (lambda config: ConditionalSpanHead(config, answerable=True), "ModernBertModel"),
}


@pytest.fixture
def config(tokenizer_json: Path) -> ModernBertConfig:
    return replace(SHAPE, vocabulary_size=tokenizers.vocabulary_size(load_tokenizer(tokenizer_json)))


def build(config: ModernBertConfig, head: Any) -> tuple[ModernBertEncoder, Any]:
    torch.manual_seed(0)
    networks = ModernBertEncoder(config).eval(), head(config).eval()
    with torch.no_grad():
        for network in networks:
            for parameter in network.parameters():
                if parameter.ndim == 1:
                    parameter += 0.2 * torch.randn_like(parameter)
    return networks


def inputs(config: ModernBertConfig) -> tuple[Tensor, Tensor]:
    ids_BL = torch.randint(config.vocabulary_size, (3, 41), generator=torch.Generator().manual_seed(1))
    return ids_BL, torch.arange(41) < torch.tensor([41, 20, 38])[:, None]


def same(one: nn.Module, other: nn.Module) -> bool:
    left, right = one.state_dict(), other.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "settings",
    [{}, {"embedding_size": 16}, {"bias": True, "norm_bias": True}, {"local_window": 0, "global_every": 1}],
)
def test_an_export_computes_the_same_in_transformers_and_loads_again(
    tokenizer_json: Path, tmp_path: Path, config: ModernBertConfig, head: str, settings: dict[str, Any]
) -> None:
    build_head, architecture = HEADS[head]
    encoder, module = build(replace(config, **settings), build_head)
    huggingface.save(tmp_path, encoder=encoder, head=module, tokenizer_json=tokenizer_json, card="")
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [architecture]
    ids_BL, mask_BL = inputs(config)
    difference = parity(tmp_path, encoder, module, ids_BL, None, mask_BL)
    assert difference is not None and difference < 1e-5
    loaded = huggingface.load(tmp_path)
    assert loaded.encoder.config.shape() == encoder.config.shape() and same(loaded.encoder, encoder)
    if head in ("generator", "discriminator"):
        assert loaded.head is not None and same(loaded.head, module)
    else:  # without the description of the task
        assert loaded.head is None


def test_a_tagger_with_the_labels_of_a_discriminator_is_a_tagger(
    tokenizer_json: Path, tmp_path: Path, config: ModernBertConfig
) -> None:
    problem = Tagging(LABELS, "none", "accuracy", LABELS[0])
    encoder, head = build(config, problem.build_head)
    huggingface.save(
        tmp_path, encoder=encoder, head=head, tokenizer_json=tokenizer_json, card="", task=problem.to_dict()
    )
    assert same(huggingface.load(tmp_path).head, head)  # type: ignore[arg-type]


def test_a_pipeline_of_transformers_marks_replaced_tokens(
    tokenizer_json: Path, tmp_path: Path, config: ModernBertConfig
) -> None:
    encoder, head = build(config, ReplacedTokenHead)
    huggingface.save(tmp_path, encoder=encoder, head=head, tokenizer_json=tokenizer_json, card="")
    text = "the fox sat by the river"
    marked = transformers.pipeline("token-classification", model=str(tmp_path), ignore_labels=[])(text)
    ids_BL = torch.tensor([load_tokenizer(tokenizer_json).encode(text).ids])
    probabilities_L = head(encoder(ids_BL)).sigmoid()[0, 1:-1]
    for token, probability in zip(marked, probabilities_L.tolist(), strict=True):
        label = "replaced" if probability > 0.5 else "original"
        assert token["entity"] == label
        assert token["score"] == pytest.approx(max(probability, 1 - probability), abs=1e-5)


def test_a_config_that_says_nothing_of_biases_has_none(
    tokenizer_json: Path, tmp_path: Path, config: ModernBertConfig
) -> None:
    encoder, head = build(config, MaskedLanguageModelHead)
    huggingface.save(tmp_path, encoder=encoder, head=head, tokenizer_json=tokenizer_json, card="")
    fields = json.loads((tmp_path / "config.json").read_text())
    for name in ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"):
        assert fields.pop(name) is False
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert same(huggingface.load(tmp_path).encoder, encoder)


def test_the_rotary_frequencies_of_older_files_are_read() -> None:
    fields = {"model_type": "modernbert", "global_rope_theta": 80_000.0, "local_rope_theta": 20_000.0}
    read = ModernBertFormat().read_config(fields, "config.json").encoder
    assert isinstance(read, ModernBertConfig)
    assert (read.rope_theta, read.local_rope_theta) == (80_000.0, 20_000.0)


@torch.no_grad()
@pytest.mark.parametrize("name", ["ModernBertModel", "ModernBertForMaskedLM"])
def test_a_folder_of_transformers_is_read(
    tokenizer_json: Path, tmp_path: Path, name: str, config: ModernBertConfig
) -> None:
    torch.manual_seed(0)
    theirs = getattr(transformers, name)(
        transformers.ModernBertConfig(
            vocab_size=config.vocabulary_size, hidden_size=48, intermediate_size=64, num_hidden_layers=5,
            num_attention_heads=4, local_attention=12, global_attn_every_n_layers=2, initializer_range=0.3,
            max_position_embeddings=100, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            cls_token_id=1, sep_token_id=2,
        )
    ).eval()  # fmt: skip
    theirs.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(tokenizer_json.read_text())
    loaded = huggingface.load(tmp_path)
    ids_BL, mask_BL = inputs(config)
    outputs = theirs(ids_BL, attention_mask=mask_BL.long(), output_hidden_states=True)
    states_BLD = loaded.encoder(ids_BL, None, mask_BL)
    assert (states_BLD - outputs.hidden_states[-1])[mask_BL].abs().max() < 1e-4
    if name == "ModernBertForMaskedLM":
        assert isinstance(loaded.head, MaskedLanguageModelHead)
        logits_BLV = loaded.head.logits(states_BLD, loaded.encoder.token_table.weight)
        assert (logits_BLV - outputs.logits)[mask_BL].abs().max() < 1e-4
    else:
        assert loaded.head is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_activation": "mish"}, "hidden_activation is 'mish'; electra computes gelu, "),
        ({"mlp_bias": True}, "attention_bias, mlp_bias, classifier_bias are"),
        ({"decoder_bias": False}, "decoder_bias is False; electra computes only True"),
        (
            {"classifier_pooling": "mean", "architectures": ["ModernBertForSequenceClassification"]},
            "classifier_pooling is 'mean'",
        ),
        ({"layer_types": ["sliding_attention"] * 4}, "layer_types: in electra the first layer"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type is 'yarn'"),
        ({"num_attention_heads": "four"}, "num_attention_heads must be a whole number, found 'four'"),
        ({"num_attention_heads": 5}, "heads: "),
    ],
)
def test_what_electra_does_not_compute_is_refused(
    tokenizer_json: Path, tmp_path: Path, config: ModernBertConfig, change: dict[str, Any], message: str
) -> None:
    encoder, head = build(config, MaskedLanguageModelHead)
    huggingface.save(tmp_path, encoder=encoder, head=head, tokenizer_json=tokenizer_json, card="")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(CheckpointError, match=message):
        huggingface.load(tmp_path)


def test_missing_and_additional_tensors_are_named(
    tokenizer_json: Path, tmp_path: Path, config: ModernBertConfig
) -> None:
    encoder, head = build(config, MaskedLanguageModelHead)
    huggingface.save(tmp_path, encoder=encoder, head=head, tokenizer_json=tokenizer_json, card="")
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.1.attn.extra.weight"] = tensors.pop("model.layers.1.attn.Wo.weight")
    tensors["decoder.weight"] = tensors["model.embeddings.tok_embeddings.weight"] + 1
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError) as caught:
        huggingface.load(tmp_path)
    for message in (
        "model.layers.1.attn.Wo.weight: is missing", "model.layers.1.attn.extra.weight: is unknown",
        "decoder.weight: differs",
    ):  # fmt: skip
        assert message in str(caught.value)


def test_a_network_between_bert_and_modernbert_is_exported_in_our_format(
    tokenizer_json: Path, tmp_path: Path, config: ModernBertConfig
) -> None:
    encoder, head = build(replace(config, norm="post", final_norm=False), ReplacedTokenHead)
    huggingface.save(tmp_path, encoder=encoder, head=head, tokenizer_json=tokenizer_json, card="")
    loaded = huggingface.load(tmp_path)
    assert loaded.encoder.config.shape() == encoder.config.shape() and same(loaded.encoder, encoder)
    assert loaded.head is not None and same(loaded.head, head)

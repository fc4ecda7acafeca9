"""Folders of type deberta-v2: written here and loaded by transformers, written there and loaded here."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn

from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError
from electra.export import huggingface
from electra.export.parity import parity
from electra.modeling.encoders.deberta import DebertaConfig, DebertaEncoder
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.task_heads import ConditionalSpanHead, SpanHead, TextHead, TokenHead

transformers: Any = pytest.importorskip("transformers")

SHAPE = DebertaConfig(
    layers=3, hidden_size=32, embedding_size=32, feed_forward_size=48, heads=4, max_positions=64,
    position_buckets=16, initializer_range=0.3, linear_initializer_range=0.3,
)  # fmt: skip
HEADS = {
    "generator": (MaskedLanguageModelHead, "DebertaV2ForMaskedLM"),
    "discriminator": (ReplacedTokenHead, "DebertaV2ForTokenClassification"),
    "token": (lambda config: TokenHead(config, 2), "DebertaV2ForTokenClassification"),
    "text": (lambda config: TextHead(config, 2, hidden=True), "DebertaV2ForSequenceClassification"),
    "span": (SpanHead, "DebertaV2ForQuestionAnswering"),
    "conditional span": (lambda config: ConditionalSpanHead(config, answerable=True), "DebertaV2Model"),
}
V3_FIELDS: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 32,
    "initializer_range": 0.3, "intermediate_size": 48, "max_position_embeddings": 64, "relative_attention": True,
    "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7, "max_relative_positions": -1, "position_biased_input": False,
    "num_attention_heads": 4, "num_hidden_layers": 3, "type_vocab_size": 0, "pad_token_id": 0,
}  # fmt: skip
"""The fields of a released DeBERTaV3, smaller."""


@pytest.fixture
def config(tokenizer_json: Path) -> DebertaConfig:
    return replace(SHAPE, vocabulary_size=tokenizers.vocabulary_size(load_tokenizer(tokenizer_json)))


def build(config: DebertaConfig, head: Any) -> tuple[DebertaEncoder, Any]:
    torch.manual_seed(0)
    networks = DebertaEncoder(config).eval(), head(config).eval()
    with torch.no_grad():
        for network in networks:
            for parameter in network.parameters():
                if parameter.ndim == 1:
                    parameter += 0.2 * torch.randn_like(parameter)
    return networks


def save_masked_lm(folder: Path, tokenizer_json: Path, config: DebertaConfig) -> None:
    encoder, head = build(config, MaskedLanguageModelHead)
    huggingface.save(folder, encoder=encoder, head=head, tokenizer_json=tokenizer_json, card="")


def inputs(config: DebertaConfig) -> tuple[Tensor, Tensor]:
    ids_BL = torch.randint(config.vocabulary_size, (3, 41), generator=torch.Generator().manual_seed(1))
    return ids_BL, torch.arange(41) < torch.tensor([41, 20, 38])[:, None]


def same(one: nn.Module, other: nn.Module) -> bool:
    left, right = one.state_dict(), other.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"embedding_size": 16, "type_vocabulary_size": 2},
        {"convolution_width": 3, "share_position_projections": False},
        {"position_buckets": 0, "relative_norm": False, "position_to_content": False},
    ],
)
def test_an_export_computes_the_same_in_transformers_and_loads_again(
    tokenizer_json: Path, tmp_path: Path, config: DebertaConfig, head: str, settings: dict[str, Any]
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


def test_a_convolution_has_one_group_if_its_folder_does_not_say(
    tokenizer_json: Path, tmp_path: Path, config: DebertaConfig
) -> None:
    save_masked_lm(tmp_path, tokenizer_json, replace(config, convolution_width=3))
    fields = json.loads((path := tmp_path / "config.json").read_text())
    assert fields.pop("conv_groups") == 1
    path.write_text(json.dumps(fields))
    loaded = huggingface.load(tmp_path).encoder.config
    assert isinstance(loaded, DebertaConfig) and (loaded.convolution_width, loaded.convolution_groups) == (3, 1)


def test_a_pipeline_of_transformers_marks_replaced_tokens(
    tokenizer_json: Path, tmp_path: Path, config: DebertaConfig
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


@torch.no_grad()
@pytest.mark.parametrize("left_out", [(), ("position_buckets", "norm_rel_ebd", "share_att_key")])
@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("name", ["DebertaV2Model", "DebertaV2ForMaskedLM"])
def test_a_folder_of_transformers_is_read(
    tokenizer_json: Path, tmp_path: Path, name: str, legacy: bool, left_out: tuple[str, ...], config: DebertaConfig
) -> None:
    torch.manual_seed(0)
    given = {field: value for field, value in V3_FIELDS.items() if field not in left_out}
    fields = transformers.DebertaV2Config(**given, vocab_size=config.vocabulary_size, legacy=legacy)
    theirs = getattr(transformers, name)(fields).eval()
    theirs.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(tokenizer_json.read_text())
    loaded = huggingface.load(tmp_path)
    ids_BL, mask_BL = inputs(config)
    outputs = theirs(ids_BL, attention_mask=mask_BL.long(), output_hidden_states=True)
    states_BLD = loaded.encoder(ids_BL, None, mask_BL)
    assert (states_BLD - outputs.hidden_states[-1])[mask_BL].abs().max() < 1e-4
    if name == "DebertaV2ForMaskedLM":
        assert isinstance(loaded.head, MaskedLanguageModelHead)
        logits_BLV = loaded.head.logits(states_BLD, loaded.encoder.token_table.weight)
        assert (logits_BLV - outputs.logits)[mask_BL].abs().max() < 1e-4
    else:
        assert loaded.head is None


def test_a_released_discriminator_is_read_without_its_head(
    tokenizer_json: Path, tmp_path: Path, config: DebertaConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """As the files of DeBERTaV3 are: no architectures, two heads, tables of the decoder, and in some of them the
    difference of the token table from that of the generator."""
    encoder, head = build(config, MaskedLanguageModelHead)
    huggingface.save(tmp_path, encoder=encoder, head=head, tokenizer_json=tokenizer_json, card="")
    tensors = load_file(tmp_path / "model.safetensors")
    for legacy, new in (("transform.dense", "dense"), ("transform.LayerNorm", "LayerNorm"), ("bias", "bias")):
        for name in [name for name in tensors if name.startswith(f"cls.predictions.{legacy}")]:
            tensors[name.replace(f"cls.predictions.{legacy}", f"lm_predictions.lm_head.{new}")] = tensors.pop(name)
    tensors["mask_predictions.classifier.weight"] = torch.zeros(1, 32)
    for name in ("position_embeddings.weight", "position_embeddings._weight", "word_embeddings._weight"):
        tensors[f"deberta.embeddings.{name}"] = torch.zeros(64, 32)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    fields = {"model_type": "deberta-v2", "vocab_size": config.vocabulary_size, **V3_FIELDS}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with caplog.at_level("INFO"):
        loaded = huggingface.load(tmp_path)
    assert loaded.head is None and same(loaded.encoder, encoder)
    assert {"mask_predictions.classifier.weight", "embeddings.word_embeddings._weight"} < set(loaded.unused)
    for name in ("lm_predictions.lm_head.bias", "position_embeddings.weight", "position_embeddings._weight"):
        assert name in caplog.text


def test_a_token_table_that_is_only_a_difference_is_refused(
    tokenizer_json: Path, tmp_path: Path, config: DebertaConfig
) -> None:
    save_masked_lm(tmp_path, tokenizer_json, config)
    tensors = load_file(tmp_path / "model.safetensors")
    table = "deberta.embeddings.word_embeddings"
    tensors[f"{table}._weight"] = tensors.pop(f"{table}.weight")
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"word_embeddings\.weight: is missing"):
        huggingface.load(tmp_path)


def test_a_vocabulary_of_sentencepiece_is_read(tmp_path: Path, config: DebertaConfig) -> None:
    """Unigram, with the names of special tokens of DeBERTaV3, in a table with more rows."""
    specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    tokenizer: Any = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=specials, unk_token="[UNK]")
    tokenizer.train_from_iterator(["the fox sat by the river and the dog ran far away"] * 20, trainer)
    torch.manual_seed(0)
    fields = transformers.DebertaV2Config(**V3_FIELDS, vocab_size=100)
    transformers.DebertaV2ForMaskedLM(fields).save_pretrained(tmp_path)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = huggingface.load(tmp_path)
    special = tokenizers.special_tokens(loaded.tokenizer)
    assert (special.pad, special.classify, special.separate, special.unknown, special.mask) == (0, 1, 2, 3, 4)
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("the fox").ids, skip_special_tokens=True) == "the fox"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model_type": "deberta"},
            "model_type is 'deberta'; the first DeBERTa has another attention; electra reads",
        ),
        ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'; electra computes only 'gelu'"),
        ({"position_biased_input": True}, "position_biased_input is True; electra computes only False"),
        ({"relative_attention": False}, "relative_attention is False; electra computes only True"),
        ({"pos_att_type": "c2p|p2p"}, "pos_att_type has p2p; electra computes c2p and p2c"),
        ({"pos_att_type": []}, "content_to_position: without it and position_to_content"),
        ({"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd is 'batch_norm'; electra computes layer_norm, none"),
        ({"conv_act": "mish"}, "conv_act is 'mish'; electra computes tanh, gelu, relu"),
        ({"attention_head_size": 5}, "attention_head_size: in electra it is"),
        ({"num_attention_heads": "four"}, "num_attention_heads must be a whole number, found 'four'"),
        ({"num_attention_heads": 5}, "heads: "),
    ],
)
def test_what_electra_does_not_compute_is_refused(
    tokenizer_json: Path, tmp_path: Path, config: DebertaConfig, change: dict[str, Any], message: str
) -> None:
    save_masked_lm(tmp_path, tokenizer_json, config)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(CheckpointError, match=message):
        huggingface.load(tmp_path)


def test_missing_and_additional_tensors_are_named(
    tokenizer_json: Path, tmp_path: Path, config: DebertaConfig
) -> None:
    save_masked_lm(tmp_path, tokenizer_json, config)
    tensors = load_file(tmp_path / "model.safetensors")
    layer = "deberta.encoder.layer.1.attention."
    tensors[f"{layer}extra.weight"] = tensors.pop(f"{layer}self.key_proj.weight")
    tensors["cls.predictions.decoder.weight"] = tensors["deberta.embeddings.word_embeddings.weight"] + 1
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError) as caught:
        huggingface.load(tmp_path)
    for message in (
        f"{layer}self.key_proj.weight: is missing", f"{layer}extra.weight: is unknown",
        "cls.predictions.decoder.weight: differs",
    ):  # fmt: skip
        assert message in str(caught.value)


def test_another_activation_is_exported_in_our_format(
    tokenizer_json: Path, tmp_path: Path, config: DebertaConfig
) -> None:
    encoder, head = build(replace(config, activation="relu"), ReplacedTokenHead)
    huggingface.save(tmp_path, encoder=encoder, head=head, tokenizer_json=tokenizer_json, card="")
    loaded = huggingface.load(tmp_path)
    assert loaded.encoder.config.shape() == encoder.config.shape() and same(loaded.encoder, encoder)
    assert loaded.head is not None and same(loaded.head, head)

"""Folders of all model types and many shapes: electra and transformers compute the same logits."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import make_encoder_config
from safetensors.torch import load_file, save_file

from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError
from electra.export import huggingface
from electra.export.formats.bert import BertFormat
from electra.export.parity import parity
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead, SentencePairHead

transformers: Any = pytest.importorskip("transformers")

SHAPE = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 80,
    "vocab_size": 110, "max_position_embeddings": 30, "initializer_range": 0.06, "pad_token_id": 0,
}  # fmt: skip
SHAPES = {
    "projected": {"embedding_size": 16},
    "square": {"embedding_size": 48},
    "one segment": {"type_vocab_size": 1},
    "three segments": {"type_vocab_size": 3},
    "tanh": {"hidden_act": "gelu_new"},
    "relu": {"hidden_act": "relu", "layer_norm_eps": 1e-5},
    "silu": {"hidden_act": "silu"},
    "one head": {"num_attention_heads": 1},
    "padding elsewhere": {"pad_token_id": 3},
}
CLASSES = [
    "ElectraForPreTraining", "ElectraForMaskedLM", "BertForMaskedLM", "BertForPreTraining", "RobertaForMaskedLM",
    "AlbertForMaskedLM", "AlbertForPreTraining",
]  # fmt: skip


def save_transformers_model(name: str, folder: Path, tokenizer_json: Path, **shape: Any) -> Any:
    """Save a network of transformers with random weights, biases and norms, and a tokenizer."""
    torch.manual_seed(0)
    config = getattr(transformers, re.sub("(For|Model).*", "Config", name))
    model = getattr(transformers, name)(config(**{**SHAPE, **shape})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer_json.read_text())
    return model


def inputs(segments: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    ids_BL = torch.randint(100, (3, 20), generator=random)
    mask_BL = torch.arange(20) < torch.tensor([20, 13, 4])[:, None]
    return {
        "input_ids": ids_BL,
        "token_type_ids": torch.randint(segments, (3, 20), generator=random),
        "attention_mask": mask_BL,
    }


@torch.no_grad()
def logits(pretrained: huggingface.Pretrained, batch: dict[str, torch.Tensor], *, segments: bool) -> torch.Tensor:
    types_BL = batch["token_type_ids"] if segments else None
    x_BLD = pretrained.encoder(batch["input_ids"], types_BL, batch["attention_mask"])
    if isinstance(pretrained.head, ReplacedTokenHead):
        return pretrained.head(x_BLD)
    assert isinstance(pretrained.head, MaskedLanguageModelHead)
    return pretrained.head.logits(x_BLD, pretrained.encoder.embeddings.token.weight)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_logits_are_those_of_transformers(
    name: str, shape: dict[str, Any], tokenizer_json: Path, tmp_path: Path
) -> None:
    if not name.startswith("Electra"):
        shape = {key: value for key, value in shape.items() if key != "embedding_size"}
    if name.startswith("Albert"):
        shape = {"embedding_size": 16, "num_hidden_groups": 2 if "hidden_act" in shape else 1, **shape}
    model = save_transformers_model(name, tmp_path, tokenizer_json, **shape)
    pretrained = huggingface.load(tmp_path)
    batch = inputs(shape.get("type_vocab_size", 2))
    if name.startswith("Roberta"):  # treats this id as padding everywhere
        batch["input_ids"][batch["input_ids"] == shape.get("pad_token_id", 0)] = 50
    paired = name in ("BertForPreTraining", "AlbertForPreTraining")
    for segments in (True, False):
        kwargs = batch if segments else {key: value for key, value in batch.items() if key != "token_type_ids"}
        with torch.no_grad():
            outputs = model(**kwargs)
            expected = outputs["prediction_logits" if paired else "logits"]
        if paired:
            expected_pairs = outputs["seq_relationship_logits" if name.startswith("Bert") else "sop_logits"]
            segments_BL = batch["token_type_ids"] if segments else None
            x_BLD = pretrained.encoder(batch["input_ids"], segments_BL, batch["attention_mask"])
            assert pretrained.pairs is not None
            assert (
                pretrained.pairs(x_BLD[:, 0]) - (expected_pairs[:, 1] - expected_pairs[:, 0])
            ).abs().max() < 1e-5
        difference = (logits(pretrained, batch, segments=segments) - expected)[batch["attention_mask"]].abs().max()
        assert difference < 1e-5
        assert expected.std() > 0.02  # they differ between tokens


@pytest.mark.parametrize("name", ["BertModel", "BertForPreTraining", "ElectraModel"])
def test_states_of_encoders_with_other_heads_are_those_of_transformers(
    name: str, tokenizer_json: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = save_transformers_model(name, tmp_path, tokenizer_json)
    with caplog.at_level("INFO", logger="electra"):
        pretrained = huggingface.load(tmp_path)
    assert ("pooler" in caplog.text) is (name == "BertModel")
    batch = inputs(2)
    base = getattr(model, "bert", model)
    with torch.no_grad():
        expected = base(**batch).last_hidden_state
        states_BLD = pretrained.encoder(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])
    assert (states_BLD - expected)[batch["attention_mask"]].abs().max() < 1e-5
    assert isinstance(pretrained.head, MaskedLanguageModelHead if name == "BertForPreTraining" else type(None))


def test_names_of_old_bert_files_are_read(tokenizer_json: Path, tmp_path: Path) -> None:
    """Files of the hub may have gamma and beta, and copies of the output's table and bias."""
    model = save_transformers_model("BertForMaskedLM", tmp_path, tokenizer_json)
    expected = huggingface.load(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    old["cls.predictions.decoder.weight"] = model.get_input_embeddings().weight.detach()
    old["cls.predictions.decoder.bias"] = model.cls.predictions.bias.detach()
    old["bert.embeddings.position_ids"] = torch.arange(30)[None]
    old["cls.seq_relationship.weight"] = torch.zeros(2, 48)
    save_file({name: tensor.clone() for name, tensor in old.items()}, tmp_path / "model.safetensors")
    pretrained = huggingface.load(tmp_path)
    for a, b in ((expected.encoder, pretrained.encoder), (expected.head, pretrained.head)):
        assert a is not None and b is not None
        assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    other = old | {"cls.predictions.decoder.weight": torch.zeros(110, 48)}
    save_file({name: tensor.clone() for name, tensor in other.items()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"cls.predictions.decoder.weight: differs from bert.embeddings"):
        huggingface.load(tmp_path)


FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"type_vocabulary_size": 1},
    "albert": {"embedding_size": 16, "share_layers": "all", "layer_groups": 2},
    "electra": {"embedding_size": 16, "share_layers": "attention"},
}


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("with_pairs", [True, False])
def test_a_masked_language_model_is_exported_with_its_model_type(
    tokenizer_json: Path, tmp_path: Path, family: Any, activation: Any, with_pairs: bool
) -> None:
    torch.manual_seed(0)
    shape = {"embedding_size": 32, "layers": 4, **FAMILIES[family]}
    config = make_encoder_config(
        hidden_size=32, feed_forward_size=48, heads=4, max_positions=40,
        vocabulary_size=tokenizers.vocabulary_size(load_tokenizer(tokenizer_json)), activation=activation,
        initializer_range=0.2, linear_initializer_range=0.2, **shape,
    )  # fmt: skip
    assert BertFormat().language_model_type(config) == family
    encoder, head = BertEncoder(config), MaskedLanguageModelHead(config, activation=config.head_activation)
    pairs = SentencePairHead(config) if with_pairs else None
    with torch.no_grad():
        head.bias.normal_()
    huggingface.save(
        tmp_path,
        encoder=encoder,
        head=head,
        tokenizer_json=tokenizer_json,
        card="",
        model_type=family,
        pairs=pairs,
    )
    batch = inputs(2)
    difference = parity(tmp_path, encoder, head, *(batch[key] for key in batch), pairs=pairs)
    assert difference is not None and difference < 1e-5
    written = json.loads((tmp_path / "config.json").read_text())
    model_class = getattr(transformers, written["architectures"][0])
    model, report = model_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert model.num_parameters() < 2e5
    special = tokenizers.special_tokens(load_tokenizer(tokenizer_json))
    assert model.config.pad_token_id == special.pad
    if family in ("roberta", "albert"):  # their defaults are ids of the released vocabularies
        assert (model.config.bos_token_id, model.config.eos_token_id) == (special.classify, special.separate)
    pair = transformers.AutoTokenizer.from_pretrained(tmp_path)("the cat", "a dog", return_tensors="pt")
    assert model(**pair) is not None, "a pair from transformers' tokenizer"
    back = huggingface.load(tmp_path)
    assert isinstance(back.head, MaskedLanguageModelHead) and torch.equal(back.head.bias, head.bias)
    assert (back.pairs is not None) == (with_pairs and family in ("bert", "albert"))
    ids_BL = batch["input_ids"]
    torch.testing.assert_close(back.encoder(ids_BL), encoder.eval()(ids_BL))
    if family == "albert":
        assert len({id(block) for block in back.encoder.blocks}) == 4
        assert back.encoder.config.layer_groups == 2
        assert sum(p.numel() for p in back.encoder.parameters()) == sum(p.numel() for p in encoder.parameters())


def test_parity_compares_the_head_for_pairs(tokenizer_json: Path, tmp_path: Path) -> None:
    config = make_encoder_config(
        layers=1, hidden_size=32, embedding_size=32, feed_forward_size=48, heads=4, max_positions=40,
        vocabulary_size=tokenizers.vocabulary_size(load_tokenizer(tokenizer_json)),
    )  # fmt: skip
    encoder, head, pairs = BertEncoder(config), MaskedLanguageModelHead(config), SentencePairHead(config)
    names = {"tokenizer_json": tokenizer_json, "card": "", "model_type": "bert"}
    huggingface.save(tmp_path, encoder=encoder, head=head, pairs=pairs, **names)
    with torch.no_grad():
        pairs.prediction.bias += 0.1
    assert parity(tmp_path, encoder, head, *inputs(2).values(), pairs=pairs) == pytest.approx(0.1, abs=1e-5)


@pytest.mark.parametrize("sharing", ["all", "attention", "feed-forward"])
def test_shared_weights_are_shared_after_loading(tokenizer_json: Path, tmp_path: Path, sharing: Any) -> None:
    """Also if the model type stores copies for each block, but not if the copies differ."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=32, feed_forward_size=48, heads=4, layers=4, embedding_size=16, layer_groups=2,
        vocabulary_size=tokenizers.vocabulary_size(load_tokenizer(tokenizer_json)), share_layers=sharing,
    )  # fmt: skip
    encoder = BertEncoder(config)
    huggingface.save(
        tmp_path, encoder=encoder, head=ReplacedTokenHead(config), tokenizer_json=tokenizer_json, card=""
    )
    back = huggingface.load(tmp_path).encoder
    assert (back.config.share_layers, back.config.layer_groups) == (sharing, 2)
    assert sum(p.numel() for p in back.parameters()) == sum(p.numel() for p in encoder.parameters())
    ids_BL = inputs(2)["input_ids"]
    torch.testing.assert_close(back(ids_BL), encoder.eval()(ids_BL))
    tensors = load_file(tmp_path / "model.safetensors")
    part = "output.dense" if sharing == "feed-forward" else "attention.self.key"
    tensors[f"electra.encoder.layer.1.{part}.weight"] += 1
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    separate = huggingface.load(tmp_path).encoder
    assert separate.config.share_layers == "none" and not torch.equal(separate(ids_BL), back(ids_BL))


def test_a_config_without_a_pad_id_is_loaded(tokenizer_json: Path, tmp_path: Path) -> None:
    save_transformers_model("BertForMaskedLM", tmp_path, tokenizer_json, pad_token_id=None)
    assert json.loads((tmp_path / "config.json").read_text())["pad_token_id"] is None
    huggingface.load(tmp_path)
    save_transformers_model("RobertaForMaskedLM", tmp_path, tokenizer_json, pad_token_id=None)
    with pytest.raises(CheckpointError, match="pad_token_id must be an id"):
        huggingface.load(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"embedding_size": 48}, "embedding_size is hidden_size"),
        ({"embedding_size": 16, "inner_group_num": 2}, "inner_group_num is 2; electra supports only 1"),
        ({"embedding_size": 16, "num_hidden_groups": 3}, "2 layers are not divisible into 3 groups"),
    ],
)
def test_an_unsupported_albert_is_refused(
    settings: dict[str, Any], message: str, tokenizer_json: Path, tmp_path: Path
) -> None:
    save_transformers_model("AlbertForMaskedLM", tmp_path, tokenizer_json, embedding_size=16)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(CheckpointError, match=message):
        huggingface.load(tmp_path)


def test_a_message_about_hundreds_of_tensors_is_short(tokenizer_json: Path, tmp_path: Path) -> None:
    save_transformers_model("BertForMaskedLM", tmp_path, tokenizer_json)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": 24}))
    with pytest.raises(CheckpointError) as caught:
        huggingface.load(tmp_path)
    assert "word_embeddings.weight: expected (110, 24), found (110, 48)" in str(caught.value)
    assert str(caught.value).endswith(" more") and len(str(caught.value).splitlines()) == 22
    save_file({"other": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"word_embeddings.weight: is missing; expected \(110, 24\)"):
        huggingface.load(tmp_path)

"""Hugging Face folders: transformers loads them, and the weights are unchanged after export and load."""

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError, DataError
from electra.export import huggingface
from electra.export.parity import parity
from electra.modeling.encoders.relative import RelativeEncoder
from electra.modeling.heads import LanguageModelHead
from electra.preparation.tokenizer_training import train_tokenizer

KINDS = {"discriminator": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}
VOCABULARY = Path(__file__).parents[3] / "shared/data/vocab/bert-uncased/vocab.txt"


def sample(vocabulary_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, two segments, and a mask that hides the ends of two rows."""
    random = torch.Generator().manual_seed(3)
    ids_BL = torch.randint(vocabulary_size, (3, 24), generator=random)
    segment_ids_BL = (torch.arange(24) >= 10).long().expand(3, -1)
    return ids_BL, segment_ids_BL, torch.arange(24) < torch.tensor([24, 11, 3])[:, None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("embedding_size", [16, 32], ids=["projected", "square"])
def test_transformers_computes_the_same_logits(export, network, kind, embedding_size) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("transformers")
    folder = export(kind, embedding_size=embedding_size)
    encoder, head = network(kind, embedding_size=embedding_size)
    difference = parity(folder, encoder, head, *sample(encoder.config.vocabulary_size))
    assert difference is not None and difference <= 1e-5
    assert encoder.training and head.training
    with torch.no_grad():  # a change of one bias is noticed
        head.dense.bias += 1e-3
    assert (parity(folder, encoder, head, *sample(encoder.config.vocabulary_size)) or 0) > 1e-5


def test_parity_is_none_without_transformers(export, network, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    folder = export()
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    encoder, head = network()
    assert parity(folder, encoder, head, torch.ones(1, 4, dtype=torch.long)) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("embedding_size", [16, 32])
def test_transformers_loads_all_weights(export, kind, embedding_size) -> None:  # type: ignore[no-untyped-def]
    transformers = pytest.importorskip("transformers")
    folder = export(kind, embedding_size=embedding_size)
    _, info = getattr(transformers, KINDS[kind]).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    model, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == "ElectraModel"
    assert not info["missing_keys"] and not info["mismatched_keys"]
    heads = ("discriminator_predictions.", "generator_predictions.", "generator_lm_head.")
    assert all(name.startswith(heads) for name in info["unexpected_keys"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("embedding_size", [16, 32])
def test_weights_are_unchanged_after_transformers_saved_them(
    export, network, tmp_path, kind, embedding_size
) -> None:  # type: ignore[no-untyped-def]
    transformers = pytest.importorskip("transformers")
    folder = export(kind, embedding_size=embedding_size)
    model = getattr(transformers, KINDS[kind]).from_pretrained(folder)
    model.save_pretrained(tmp_path / "saved")
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "saved")
    encoder, head = network(kind, embedding_size=embedding_size)
    for loaded in (huggingface.load(folder), huggingface.load(tmp_path / "saved")):
        assert type(loaded.head) is type(head) and loaded.max_length == 24
        assert not loaded.encoder.training
        for module, loaded_module in ((encoder, loaded.encoder), (head, loaded.head)):
            assert loaded_module is not None
            expected = module.state_dict()
            assert expected.keys() == loaded_module.state_dict().keys()
            for name, tensor in loaded_module.state_dict().items():
                assert torch.equal(tensor, expected[name]), name
            assert all(parameter.requires_grad for parameter in loaded_module.parameters())


def test_config_json_describes_the_network(export) -> None:  # type: ignore[no-untyped-def]
    folder = export("generator")
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["ElectraForMaskedLM"] and config["model_type"] == "electra"
    assert (config["embedding_size"], config["hidden_size"], config["intermediate_size"]) == (16, 32, 48)
    assert config["layer_norm_eps"] == 1e-12 and config["hidden_act"] == "gelu"
    assert huggingface.load(folder).encoder.config.layers == 2
    assert (folder / "README.md").read_text() == "# A card"
    assert not list(folder.glob(".*")), "no temporary files remain"


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_transformers_reads_the_same_ids(network, tmp_path, kind, lowercase) -> None:  # type: ignore[no-untyped-def]
    transformers = pytest.importorskip("transformers")
    texts = [
        "The cat sat on the mat.",
        "A dog ate my homework, twice!",
        "Ein naïves Café über Zürich",
        "中文 text",
    ]
    tokenizer = train_tokenizer(texts * 5, vocabulary_size=80, kind=kind, lowercase=lowercase)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    encoder, head = network()
    encoder.config = type(encoder.config)(**{**vars(encoder.config), "vocabulary_size": 400})
    huggingface.save(
        tmp_path / "model", encoder=encoder, head=head, tokenizer_json=tmp_path / "tokenizer.json", card="",
        max_length=24,
    )  # fmt: skip
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    for text in (*texts, "  Two  Spaces\tand é\n", "", "unseen: Ω 😀"):
        expected = tokenizer.encode(text)
        encoding = exported(text)
        assert encoding["input_ids"] == expected.ids
        assert encoding["token_type_ids"] == expected.type_ids
        expected, encoding = tokenizer.encode(text, "the Mat"), exported(text, "the Mat")
        assert (encoding["input_ids"], encoding["token_type_ids"]) == (expected.ids, expected.type_ids)
    special = tokenizers.special_tokens(tokenizer)
    assert exported.pad_token_id == special.pad and exported.mask_token_id == special.mask
    assert exported.cls_token_id == special.classify and exported.sep_token_id == special.separate
    assert exported.unk_token_id == special.unknown and exported.model_max_length == 24
    assert exported("[MASK]")["input_ids"][1] == special.mask, "a text with [MASK] has the mask token"
    batch = exported(["a cat", "a"], padding=True)
    assert batch["input_ids"][1][-1] == special.pad and batch["attention_mask"][1][-1] == 0
    assert len(exported("cat " * 50, truncation=True)["input_ids"]) == 24
    vocabulary = tmp_path / "model/vocab.txt"
    # Where accents are kept, letters are composed, and a vocab.txt cannot say so.
    assert vocabulary.exists() == (kind == "wordpiece" and lowercase)
    if vocabulary.exists():
        again = load_tokenizer(vocabulary, lowercase=lowercase)
        assert all(again.encode(text).ids == tokenizer.encode(text).ids for text in texts)
        settings = json.loads((tmp_path / "model/tokenizer_config.json").read_text())
        assert settings["do_lower_case"] is lowercase


def test_transformers_reads_the_same_ids_of_scripts_that_keep_their_marks(network, tmp_path) -> None:  # type: ignore[no-untyped-def]
    transformers = pytest.importorskip("transformers")
    texts = ["어제 그 영화를 봤다.", "हिन्दी की किताब", "เรือออกจากท่า", "Fähre CAFÉ", "봤다 ≠"]
    (tmp_path / "tokenizer.json").write_text(train_tokenizer(texts * 5, vocabulary_size=300).to_str())
    encoder, head = network()
    encoder.config = type(encoder.config)(**{**vars(encoder.config), "vocabulary_size": 400})
    huggingface.save(
        tmp_path / "model", encoder=encoder, head=head, tokenizer_json=tmp_path / "tokenizer.json", card="",
        max_length=24,
    )  # fmt: skip
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    for text in texts:
        assert exported(text)["input_ids"] == tokenizer.encode(text).ids
    assert not (tmp_path / "model/vocab.txt").exists(), "a vocab.txt would be read with BERT's rules"


def test_a_tokenizer_of_other_weights_is_refused(export, network, tmp_path) -> None:  # type: ignore[no-untyped-def]
    big = train_tokenizer(["".join(map(chr, range(0x4E00, 0x4F00)))] * 3, vocabulary_size=900)
    big.save(str(tmp_path / "big.json"))
    encoder, head = network()
    with pytest.raises(CheckpointError, match=r"big.json: the tokenizer has \d+ entries"):
        huggingface.save(tmp_path / "x", encoder=encoder, head=head, tokenizer_json=tmp_path / "big.json", card="")
    assert not (tmp_path / "x").exists()
    folder = export()
    big.save(str(folder / "tokenizer.json"))
    with pytest.raises(CheckpointError, match=r"token table has only \d+ rows"):
        huggingface.load(folder)


def test_missing_misshaped_and_unknown_tensors_are_all_named(export) -> None:  # type: ignore[no-untyped-def]
    folder = export()
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    del tensors["electra.encoder.layer.1.attention.self.key.weight"]
    tensors["electra.embeddings.word_embeddings.weight"] = torch.zeros(7, 16)
    tensors["electra.encoder.layer.0.crossattention.dense.weight"] = torch.zeros(2)
    save_file(tensors, weights)
    with pytest.raises(CheckpointError) as caught:
        huggingface.load(folder)
    message = str(caught.value)
    assert "electra.encoder.layer.1.attention.self.key.weight: is missing; expected (32, 32)" in message
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    assert f"electra.embeddings.word_embeddings.weight: expected ({rows}, 16), found (7, 16)" in message
    assert "electra.encoder.layer.0.crossattention.dense.weight: is unknown" in message
    assert message.count("electra.") == 3
    save_file(
        {**load_file(weights), "discriminator_predictions.dense.bias": torch.full((32,), torch.nan)}, weights
    )
    with pytest.raises(CheckpointError, match=r"discriminator_predictions.dense.bias: has values that are not"):
        huggingface.load(folder)


def test_a_head_without_its_hidden_layer_is_refused(export) -> None:  # type: ignore[no-untyped-def]
    folder = export()
    tensors = load_file(folder / "model.safetensors")
    del tensors["discriminator_predictions.dense.weight"], tensors["discriminator_predictions.dense.bias"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"discriminator_predictions.dense.weight: is missing"):
        huggingface.load(folder)


def test_an_untied_output_table_is_refused(export) -> None:  # type: ignore[no-untyped-def]
    folder = export("generator")
    tensors = load_file(folder / "model.safetensors")
    table = tensors["electra.embeddings.word_embeddings.weight"]
    save_file({**tensors, "generator_lm_head.weight": table.clone()}, folder / "model.safetensors")
    huggingface.load(folder)
    save_file({**tensors, "generator_lm_head.weight": table + 1}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"generator_lm_head.weight: differs from"):
        huggingface.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "mish"}, "hidden_act is 'mish'; electra supports gelu, "),
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; electra reads electra, bert, roberta, albert, xlnet"),
        ({"model_type": None}, "model_type must be a string, found None"),
        ({"model_type": ["bert"]}, r"model_type must be a string, found \['bert'\]"),
        ({"hidden_act": ["gelu"]}, r"hidden_act must be a string, found \['gelu'\]"),
        ({"vocab_size": 0}, "vocab_size must be at least 1, found 0"),
        ({"type_vocab_size": 0}, "type_vocabulary_size: must be at least 1"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"num_attention_heads": 5}, "heads: "),
        ({"hidden_size": "wide"}, "hidden_size must be a whole number, found 'wide'"),
    ],
)
def test_a_config_of_another_network_is_refused(export, change, message) -> None:  # type: ignore[no-untyped-def]
    folder = export()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(CheckpointError, match=message):
        huggingface.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layer": 3}, r"layer\.2\.rel_attn\.r_w_bias: is missing"),
        ({"n_layer": 1}, r"layer\.1\.rel_attn\.r_w_bias: is unknown"),
        ({"d_inner": 48}, r"layer\.0\.ff\.layer_1\.bias: expected \(48,\), found \(64,\)"),
    ],
)
def test_weights_of_another_xlnet_are_named(network, tokenizer_json, tmp_path, change, message) -> None:  # type: ignore[no-untyped-def]
    config = network("discriminator")[0].config.with_kind("relative", layers=2, feed_forward_size=64)
    config = replace(config, embedding_size=config.hidden_size)
    huggingface.save(
        tmp_path, encoder=RelativeEncoder(config), head=LanguageModelHead(config), tokenizer_json=tokenizer_json,
        card="",
    )  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(CheckpointError, match=message):
        huggingface.load(tmp_path)


def test_damaged_and_missing_files_are_named(export) -> None:  # type: ignore[no-untyped-def]
    folder = export()
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for part in (whole[: len(whole) // 2], whole[:4], b""):
        weights.write_bytes(part)
        with pytest.raises(CheckpointError, match=r"model.safetensors is damaged or cut short"):
            huggingface.load(folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"has no model.safetensors$"):
        huggingface.load(folder)
    weights.write_bytes(whole)
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").unlink()
    with pytest.raises(DataError, match=r"neither a tokenizer.json nor a vocab.txt"):
        huggingface.load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config.json cannot be read"):
        huggingface.load(folder)


def test_other_heads_are_read(export, caplog) -> None:  # type: ignore[no-untyped-def]
    folder = export()
    expected = huggingface.load(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["electra.embeddings.position_ids"] = torch.arange(40)[None]
    save_file(tensors, folder / "model.safetensors")
    loaded = huggingface.load(folder)
    assert torch.equal(loaded.encoder.projection.weight, expected.encoder.projection.weight)
    tuned = {name: tensor for name, tensor in tensors.items() if not name.startswith("discriminator_")}
    save_file({**tuned, "classifier.dense.weight": torch.zeros(3)}, folder / "model.safetensors")
    with caplog.at_level(logging.INFO, logger="electra"):
        assert huggingface.load(folder).head is None
    assert "ignored classifier.dense.weight" in caplog.text


def test_a_full_disk_is_a_checkpoint_error(network, tokenizer_json, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "file").write_text("")
    encoder, head = network()
    with pytest.raises(CheckpointError, match="cannot be written"):
        huggingface.save(
            tmp_path / "file/model", encoder=encoder, head=head, tokenizer_json=tokenizer_json, card=""
        )


@pytest.mark.shared
def test_the_vocabulary_of_bert_keeps_its_ids(network, tmp_path) -> None:  # type: ignore[no-untyped-def]
    transformers = pytest.importorskip("transformers")
    if not VOCABULARY.is_file():
        pytest.skip(f"{VOCABULARY} is missing")
    tokenizer = load_tokenizer(VOCABULARY)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    encoder, head = network()
    encoder.config = type(encoder.config)(**{**vars(encoder.config), "vocabulary_size": 30522})
    huggingface.save(
        tmp_path / "model", encoder=encoder, head=head, tokenizer_json=tmp_path / "tokenizer.json", card=""
    )
    assert (tmp_path / "model/vocab.txt").read_bytes() == VOCABULARY.read_bytes()
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    bert = transformers.BertTokenizer.from_pretrained(tmp_path / "model")
    for text in ("Hello, WORLD! Naïve café 中文 unaffable ﬁ\u200b…", "don't stop-believing 3.14 $5"):
        assert exported(text)["input_ids"] == bert(text)["input_ids"] == tokenizer.encode(text).ids
    assert exported("hello world")["input_ids"] == [101, 7592, 2088, 102]

"""States of words and statistics of attention, compared with transformers' hidden states and attentions."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_model import LENGTH, TEXTS, write_model

from electra.analysis.layers import ATTENTION_STATISTICS, LayerReader
from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.export.loading import load_pretrained
from electra.modeling.encoders.bert import BertEncoder
from electra.preparation.tokenizer_training import train_tokenizer

transformers: Any = pytest.importorskip("transformers")

SENTENCES = [
    ["A", "naïves", "Café", "twice", "!"],
    ["The", "cat", "sat"],
    ["dog"],
    ["over", "Zürich", "and", "English", "."],
]
SHAPE = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40,
    "pad_token_id": 0, "max_position_embeddings": 40, "initializer_range": 0.4, "attn_implementation": "eager",
}  # fmt: skip
XLNET = {
    "d_model": 24, "n_layer": 3, "n_head": 3, "d_inner": 40, "pad_token_id": 0, "initializer_range": 0.4,
    "dropout": 0.0,
}  # fmt: skip
MODERN = {**SHAPE, "global_attn_every_n_layers": 2, "cls_token_id": 2, "sep_token_id": 3}
DEBERTA = {
    **SHAPE, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "share_att_key": True,
    "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip
CONFIGS = {
    "electra": ("Electra", {**SHAPE, "embedding_size": 16}),
    "bert": ("Bert", SHAPE),
    "roberta": ("Roberta", {**SHAPE, "type_vocab_size": 1}),
    "albert": ("Albert", {**SHAPE, "embedding_size": 16}),
    "xlnet": ("XLNet", XLNET),
    "causal": ("XLNet", {**XLNET, "attn_type": "uni"}),
    "modernbert": ("ModernBert", {**MODERN, "local_attention": 4}),
    "modernbert, wide windows": ("ModernBert", {**MODERN, "local_attention": 12}),
    "deberta": ("DebertaV2", DEBERTA),
    "deberta, log buckets": ("DebertaV2", {**DEBERTA, "position_buckets": 4}),
    "deberta, own projections": ("DebertaV2", {**DEBERTA, "share_att_key": False, "norm_rel_ebd": "none"}),
    "deberta, one term": ("DebertaV2", {**DEBERTA, "pos_att_type": ["p2c"], "conv_kernel_size": 3}),
}


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer(TEXTS * 5, vocabulary_size=90).save(str(path))
    return path


@pytest.fixture(params=CONFIGS)
def both(request: pytest.FixtureRequest, tokenizer_json: Path, tmp_path: Path) -> tuple[LayerReader, Any]:
    """Our encoder, and that of transformers from the same folder."""
    name, shape = CONFIGS[request.param]
    size = tokenizers.vocabulary_size(load_tokenizer(tokenizer_json))
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**shape, vocab_size=size)
    model = getattr(transformers, f"{name}Model")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(tokenizer_json.read_text())
    return LayerReader(load_pretrained(tmp_path), device="cpu"), model


def given(reader: LayerReader, words: list[str]) -> tuple[torch.Tensor, list[int]]:
    """The ids of one sentence with its special tokens, and the word of each of its own tokens."""
    ids: list[int] = []
    owners: list[int] = []
    for number, word in enumerate(words):
        of_word = reader.tokenizer.encode(word, add_special_tokens=False).ids
        ids, owners = ids + of_word, owners + [number] * len(of_word)
    batcher = reader.batcher  # a network with a memory, such as XLNet, starts with [SEP]
    return torch.tensor([[batcher.start_token, *ids, batcher.special.separate]]), owners


@torch.no_grad()
def test_a_words_state_is_the_mean_of_its_tokens_at_every_layer(both: tuple[LayerReader, Any]) -> None:
    reader, model = both
    actual = reader.states(SENTENCES)
    assert actual.has_N.all() and reader.layers == len(actual.states_ZND) == 4
    first = 0
    for words in SENTENCES:
        ids, owners = given(reader, words)
        hidden = model(ids, output_hidden_states=True).hidden_states
        for number in range(len(words)):
            places = [1 + place for place, owner in enumerate(owners) if owner == number]
            for layer in range(4):
                expected = hidden[layer][0, places].mean(0).numpy()
                np.testing.assert_allclose(
                    actual.states_ZND[layer, first + number], expected, rtol=1e-3, atol=2e-5
                )
        first += len(words)


def plain(shares: np.ndarray, place: int) -> list[float]:
    """`ATTENTION_STATISTICS` of one token, from its attention probabilities (L,)."""
    end = len(shares) - 1
    text = [other for other in range(1, end) if shares[other] > 0]
    amount = sum(shares[other] for other in text)
    return [
        -sum(share * math.log(share) for share in shares if share > 0),
        math.log((shares > 0).sum()),
        sum(shares[other] * abs(place - other) for other in text) / amount,
        shares[0],
        shares[end],
        shares[place - 1] if place - 1 >= 1 else 0,
        shares[place],
        shares[place + 1] if place + 1 < end else 0,
    ]


@torch.no_grad()
def test_attention_statistics_equal_those_of_transformers(both: tuple[LayerReader, Any]) -> None:
    reader, model = both
    totals, tokens = np.zeros((3, 3, len(ATTENTION_STATISTICS))), 0
    for words in SENTENCES:
        ids, owners = given(reader, words)
        attentions = model(ids, output_attentions=True).attentions
        for block, of_block in enumerate(attentions):
            for head in range(3):
                for place in range(1, len(owners) + 1):
                    totals[block, head] += plain(of_block[0, head, place].numpy(), place)
        tokens += len(owners)
    actual = reader.attention(SENTENCES)
    for number, name in enumerate(ATTENTION_STATISTICS):
        np.testing.assert_allclose(actual[name], totals[..., number] / tokens, rtol=1e-3, atol=1e-5, err_msg=name)


def test_long_sentences_are_read_in_windows_and_no_word_is_lost(tmp_path: Path) -> None:
    reader = LayerReader(load_pretrained(write_model(tmp_path / "model")), device="cpu")
    words = ["the", "cat", "sat", "on", "the", "mat", "and", "a", "dog", "ate", "my", "homework"] * 3
    assert len(reader.tokenizer.encode(" ".join(words)).ids) > 2 * LENGTH
    actual = reader.states([words, ["the"]])
    assert actual.has_N.all() and actual.states_ZND.shape == (3, len(words) + 1, 16)
    assert np.abs(actual.states_ZND).sum(2).all()
    assert isinstance(reader.encoder, BertEncoder)
    np.testing.assert_allclose(actual.states_ZND[0, 0], actual.states_ZND[0, -1], rtol=1e-5)  # both come first
    shares = reader.attention([words])
    assert (shares["entropy"] <= shares["uniform"]).all() and (shares["first"] > 0).all()


def test_words_without_tokens_have_no_state(tmp_path: Path) -> None:
    reader = LayerReader(load_pretrained(write_model(tmp_path / "model")), device="cpu")
    actual = reader.states([["the", "\u200d", "cat"], ["\u200d"]])
    assert actual.has_N.tolist() == [True, False, True, False] and not actual.states_ZND[:, [1, 3]].any()


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_other_vocabularies_have_the_same_words(kind: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", kind=kind)  # type: ignore[arg-type]
    actual = LayerReader(load_pretrained(model), device="cpu").states(SENTENCES)
    assert actual.has_N.all() and actual.states_ZND.shape[1] == sum(map(len, SENTENCES))

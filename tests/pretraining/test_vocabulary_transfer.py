"""Pre-trained networks for data with another vocabulary."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.pretraining.test_warm_start import SMALL, config
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional as F

from electra.config import load_config
from electra.data.shards import TokenData
from electra.data.token_texts import TokenTexts
from electra.data.tokenizer import special_tokens
from electra.errors import ConfigError
from electra.export.loading import load_pretrained
from electra.export.pretrained import Pretrained
from electra.modeling.heads import MaskedLanguageModelHead
from electra.preparation.config import PrepareConfig
from electra.preparation.run import prepare
from electra.preparation.tokenizer_training import train_tokenizer
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import pretrain
from electra.pretraining.vocabulary_transfer import find_sources, with_tokenizer

WORDS = [
    "theory",
    "theorem",
    "therefore",
    "older",
    "other",
    "over",
    "there",
    "mother",
    "thereby",
    "rather",
    "weather",
]
TEXTS = [f"The {one} {two}s, {three}ed; {two}ing {one}." for one in WORDS for two in WORDS for three in WORDS[:4]]


def trained(kind: Any, size: int, **options: Any) -> Tokenizer:
    return train_tokenizer(TEXTS, kind=kind, vocabulary_size=size, **options)


@pytest.fixture(scope="module")
def other_data(corpus_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus with a byte-level tokenizer."""
    out = tmp_path_factory.mktemp("other") / "data"
    prepare(PrepareConfig(corpus=(str(corpus_file),), out=out, model="bpe", vocabulary_size=700, workers=1))
    return out


@pytest.fixture(scope="module")
def first(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(config(data_folder, tmp_path_factory.mktemp("runs") / "first")).run


def test_the_same_vocabulary_keeps_every_row() -> None:
    for kind in ("wordpiece", "bpe", "unigram"):
        tokenizer = trained(kind, 300)
        sources = find_sources(tokenizer, tokenizer)
        assert sources.pieces == tuple((number,) for number in range(len(sources.pieces)))
        assert (sources.special, sources.averaged, sources.new) == (5, 0, 0)


@pytest.mark.parametrize("old", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("new", ["wordpiece", "bpe", "unigram"])
def test_rows_come_from_the_same_text(old: Any, new: Any) -> None:
    size = {"wordpiece": 70, "bpe": 290, "unigram": 35}[old]
    before, after = trained(old, size), trained(new, 400)
    sources = find_sources(before, after)
    special = dict(zip(special_tokens(after).ids, special_tokens(before).ids, strict=True))
    old_texts, new_texts = TokenTexts(before), TokenTexts(after)
    assert sources.copied > 10 and sources.averaged > 10
    assert len(sources.pieces) == sources.special + sources.copied + sources.averaged + sources.new
    joined = 0
    for number, pieces in enumerate(sources.pieces):
        text = new_texts.texts[number]
        if text is None:
            assert pieces == (special[number],)
        elif pieces:
            parts = [part for piece in pieces if (part := old_texts.texts[piece])]
            content = b"".join(part.content for part in parts)
            assert content == (text.content.lower() if old == "wordpiece" else text.content)
            assert parts[0].begins_word == text.begins_word or not text.content.isalpha()
            joined += 1
    assert joined == sources.copied + sources.averaged


def with_byte_fallback(tokenizer: Tokenizer) -> Tokenizer:
    """A Unigram tokenizer with 256 more tokens, <0x00> to <0xFF>, as Llama, Gemma and mmBERT have them."""
    fields = json.loads(tokenizer.to_str())
    fields["model"]["vocab"] += [[f"<0x{byte:02X}>", -30.0] for byte in range(256)]
    fields["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(fields))


def test_tokens_of_byte_fallback_are_bytes() -> None:
    fallback, byte_level = with_byte_fallback(trained("unigram", 60)), trained("bpe", 300)
    pieces = find_sources(byte_level, fallback).pieces
    for name, same in (("<0x0A>", "Ċ"), ("<0xE2>", "â"), ("<0xA7>", "§")):
        assert pieces[fallback.token_to_id(name)] == (byte_level.token_to_id(same),)
    pieces = find_sources(fallback, byte_level).pieces
    for name, same in (("Ċ", "<0x0A>"), ("â", "<0xE2>"), ("t", "t")):  # a letter has a token of its own
        assert pieces[byte_level.token_to_id(name)] == (fallback.token_to_id(same),)
    words = trained("wordpiece", 80)
    pieces = find_sources(words, fallback).pieces
    assert pieces[fallback.token_to_id("<0x0A>")] == pieces[fallback.token_to_id("<0xE2>")] == ()
    assert (
        pieces[fallback.token_to_id("<0x74>")] == pieces[fallback.token_to_id("t")] == (words.token_to_id("##t"),)
    )


def test_rows_and_biases_are_copied_or_means(first: Path, data_folder: Path, other_data: Path) -> None:
    new = Tokenizer.from_file(str(other_data / "tokenizer.json"))
    for name in ("discriminator", "generator"):
        pretrained = load_pretrained(first / "export" / name)
        table_VE = pretrained.encoder.token_table.weight.detach().clone()
        bias_V = pretrained.head.bias.detach().clone() if name == "generator" else None  # type: ignore[union-attr]
        sources = find_sources(pretrained.tokenizer, new)
        assert sources.new > 0  # bytes that are no text
        adapted = with_tokenizer(pretrained, new, sources, seed=3)
        rows_WE = adapted.encoder.token_table.weight
        assert adapted.encoder.config.vocabulary_size == len(rows_WE) == len(sources.pieces)
        for number, pieces in enumerate(sources.pieces):
            if len(pieces) == 1:
                assert torch.equal(rows_WE[number], table_VE[pieces[0]])
            elif pieces:
                torch.testing.assert_close(rows_WE[number], table_VE[list(pieces)].mean(0))
            if bias_V is not None and pieces:
                assert isinstance(adapted.head, MaskedLanguageModelHead)
                torch.testing.assert_close(adapted.head.bias[number], bias_V[list(pieces)].mean())


def test_fresh_rows_look_like_the_old_ones_and_depend_on_the_seed(first: Path, other_data: Path) -> None:
    new = Tokenizer.from_file(str(other_data / "tokenizer.json"))

    def adapted(seed: int) -> Pretrained:
        pretrained = load_pretrained(first)
        return with_tokenizer(pretrained, new, find_sources(pretrained.tokenizer, new, fresh=True), seed=seed)

    one, again, other = (adapted(seed).encoder.token_table.weight.detach() for seed in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)
    old = load_pretrained(first)
    table_VE = old.encoder.token_table.weight.detach()
    special = special_tokens(new).ids, special_tokens(old.tokenizer).ids
    assert torch.equal(one[list(special[0])], table_VE[list(special[1])])
    assert one.std().item() == pytest.approx(table_VE.std().item(), rel=0.1)


def test_rows_behind_the_vocabulary_have_no_part(first: Path, other_data: Path) -> None:
    new, adapted = Tokenizer.from_file(str(other_data / "tokenizer.json")), []
    for padding in (0.0, 1e3):
        pretrained = load_pretrained(first / "export" / "generator")
        assert isinstance(pretrained.head, MaskedLanguageModelHead)
        table_VE, bias_V = pretrained.encoder.token_table.weight.detach(), pretrained.head.bias.detach()
        pretrained.encoder.embeddings.token = nn.Embedding.from_pretrained(
            F.pad(table_VE, (0, 0, 0, 8), value=padding)
        )
        pretrained.head.bias = nn.Parameter(F.pad(bias_V, (0, 8), value=padding))
        sources = find_sources(pretrained.tokenizer, new, fresh=True)
        adapted.append(with_tokenizer(pretrained, new, sources, seed=3))
    one, other = adapted
    assert torch.equal(one.encoder.token_table.weight, other.encoder.token_table.weight)
    assert torch.equal(one.head.bias, other.head.bias)


def test_a_run_with_another_vocabulary(
    first: Path, other_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    towers = [f"init.discriminator={first}", f"init.generator={first}"]
    for mode in ("transfer", "fresh"):
        with caplog.at_level("INFO", logger="electra"):
            run = pretrain(config(other_data, tmp_path / mode, *towers, f"init.vocabulary={mode}")).run
        assert f"({mode})" in (run / "log.txt").read_text() and "5 special and" in (run / "log.txt").read_text()
        size = TokenData.open(other_data).vocabulary_size
        assert load_config(PretrainConfig, run / "config.toml").model.vocabulary_size == size
        for name in ("discriminator", "generator"):  # the shared table is equal in both, so it can be shared
            assert load_pretrained(run / "export" / name).encoder.config.vocabulary_size == size
    settings = config(other_data, tmp_path / "transfer", *towers, "init.vocabulary=transfer", "train.steps=4")
    assert pretrain(settings).outcome.step == 4  # a finished run needs nothing


def test_a_transfer_needs_a_network() -> None:
    with pytest.raises(ConfigError, match="vocabulary: transfer needs a pre-trained network"):
        load_config(PretrainConfig, "electra-tiny", [*SMALL, "init.vocabulary=transfer"])

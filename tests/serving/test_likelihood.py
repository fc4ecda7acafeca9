"""Likelihood scores of texts, compared with plain loops over one text and with transformers."""

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from configs import make_encoder_config
from safetensors.torch import load_file, save_file
from small_model import LENGTH, TEXTS, write_model

from electra.data import tokenizer as tokenizers
from electra.errors import CheckpointError
from electra.export import huggingface
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.encoders.bert import BertEncoder
from electra.modeling.encoders.relative import RelativeEncoder
from electra.modeling.heads import LanguageModelHead, MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.task_heads import TokenHead
from electra.preparation.tokenizer_training import train_tokenizer
from electra.serving import likelihood as likelihoods
from electra.serving.batching import overlapping_windows
from electra.serving.likelihood import SCORES, load_likelihood_scorer, tokenize_texts
from electra.serving.scorer import Scorer

SAMPLES = [*TEXTS, "", "the mat", "doge sates matte", "caton homes, Z"]


@pytest.fixture(scope="module")
def discriminator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("likelihood") / "discriminator")


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("likelihood") / "generator", head=MaskedLanguageModelHead)


def saved(folder: Path, encoder: Any, head: Any, **others: Any) -> Path:
    train_tokenizer(TEXTS * 5, vocabulary_size=150).save(str(folder / "tokenizer.json"))
    huggingface.save(
        folder / "model", encoder=encoder, head=head, tokenizer_json=folder / "tokenizer.json", card="", **others
    )
    return folder / "model"


def small(**others: Any) -> EncoderConfig:
    return make_encoder_config(
        layers=2, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, vocabulary_size=150,
        initializer_range=0.4, linear_initializer_range=0.4, **others,
    )  # fmt: skip


def test_scores_of_a_discriminator(discriminator: Path) -> None:
    actual = load_likelihood_scorer(discriminator, device="cpu")(SAMPLES)
    scored = Scorer(discriminator, device="cpu")(SAMPLES)
    assert actual.token_counts.tolist() == [len(one.tokens) for one in scored]
    for place, one in enumerate(scored):
        replaced = [float(p) for p in one.probabilities]
        odds = [math.log((1 - p) / p) for p in replaced]
        expected = {
            "log-odds-sum": sum(odds),
            "log-odds-mean": sum(odds) / len(odds) if odds else 0,
            "log-odds-max": min(odds, default=0),
            "log-original-sum": sum(math.log(1 - p) for p in replaced),
        }
        assert {name: actual.scores[name][place] for name in actual.scores} == pytest.approx(expected, abs=1e-4)


def test_score_of_electric(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = small(max_positions=40)
    model = saved(tmp_path, BertEncoder(config), ReplacedTokenHead(config), objective="electric")
    actual = load_likelihood_scorer(model, device="cpu")(SAMPLES)
    expected = [one.pseudo_log_likelihood for one in Scorer(model, device="cpu")(SAMPLES)]
    assert list(actual.scores) == ["electric-pll"]
    np.testing.assert_allclose(actual.scores["electric-pll"], expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["discriminator", "generator"])
def test_a_text_that_fits_is_not_read_in_windows(name: str, request: pytest.FixtureRequest) -> None:
    scorer = load_likelihood_scorer(request.getfixturevalue(name), device="cpu")
    counts = [scorer([" ".join(["the"] * tokens)]) for tokens in (LENGTH - 2, LENGTH - 1)]
    assert [int(one.token_counts[0]) for one in counts] == [LENGTH - 2, LENGTH - 1]
    assert [one.windowed for one in counts] == [0, 1]


def plain_pll(network: Any, tokenizer: Any, ids: list[int], *, words: bool) -> float:
    """One token at a time; with words=True, the later tokens of the same word (##) are masked, too."""
    special, total = tokenizers.special_tokens(tokenizer), 0.0
    for place, token in enumerate(ids):
        masked = [*ids]
        masked[place] = special.mask
        for later in range(place + 1, len(ids)):
            if not words or not (tokenizer.id_to_token(ids[later]) or "").startswith("##"):
                break
            masked[later] = special.mask
        with torch.no_grad():
            logits = network(torch.tensor([[special.classify, *masked, special.separate]])).logits
        total += logits[0, place + 1].log_softmax(-1)[token].item()
    return total


def test_pseudo_log_likelihoods_are_those_of_transformers(
    generator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import ElectraForMaskedLM

    monkeypatch.setattr(likelihoods, "MAX_BUFFERED_ROWS", 7)
    monkeypatch.setattr(likelihoods, "MAX_LOGIT_ROWS", 3)
    model: Any = load_likelihood_scorer(generator, device="cpu")
    network = ElectraForMaskedLM.from_pretrained(generator).eval()
    short = [text for text in SAMPLES if len(model.predictor.tokenizer.encode(text).ids) <= LENGTH]
    assert len(short) >= 5
    actual = model(short)
    several = 0
    for place, text in enumerate(short):
        ids = model.predictor.tokenizer.encode(text, add_special_tokens=False).ids
        assert actual.token_counts[place] == len(ids)
        for name, words in (("pll", False), ("pll-word-l2r", True)):
            expected = plain_pll(network, model.predictor.tokenizer, ids, words=words)
            assert actual.scores[name][place] == pytest.approx(expected, rel=1e-4, abs=1e-4)
        several += actual.scores["pll"][place] != actual.scores["pll-word-l2r"][place]
    assert several >= 2, "words of several tokens differ"


def test_a_long_text_is_read_in_windows(generator: Path) -> None:
    from transformers import ElectraForMaskedLM

    model: Any = load_likelihood_scorer(generator, device="cpu")
    tokenizer, special = model.predictor.tokenizer, model.predictor.batcher.special
    network = ElectraForMaskedLM.from_pretrained(generator).eval()
    text = " ".join(TEXTS * 2)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert len(ids) > 2 * LENGTH
    expected = 0.0
    for window in overlapping_windows(0, len(ids), LENGTH - 2):
        for place in range(window.keep_start, window.keep_end):
            masked = [special.mask if i == place else ids[i] for i in range(window.start, window.end)]
            with torch.no_grad():
                logits = network(torch.tensor([[special.classify, *masked, special.separate]])).logits
            expected += logits[0, place - window.start + 1].log_softmax(-1)[ids[place]].item()
    assert model([text, "the mat"]).scores["pll"][0] == pytest.approx(expected, rel=1e-4)


def test_score_of_a_causal_language_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = small(kind="relative", direction="left", type_vocabulary_size=1, memory_length=16)
    model: Any = load_likelihood_scorer(
        saved(tmp_path, RelativeEncoder(config), LanguageModelHead(config), max_length=64), device="cpu"
    )
    actual = model(SAMPLES)
    tokenizer, special = model.tokenizer, tokenizers.special_tokens(model.tokenizer)
    for place, text in enumerate(SAMPLES):
        row = [special.separate, *tokenizer.encode(text, add_special_tokens=False).ids]
        expected = 0.0
        for end in range(1, len(row)):
            with torch.no_grad():
                states_BND = model.model.encoder(torch.tensor([row[:end]]))
                logits = model.model.head.logits(states_BND[0, -1:], model.model.encoder.embeddings.token.weight)
            expected += logits[0].log_softmax(-1)[row[end]].item()
        assert actual.token_counts[place] == len(row) - 1
        assert actual.scores["log-likelihood"][place] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_unknown_words(discriminator: Path) -> None:
    scorer = Scorer(discriminator, device="cpu")
    tokenizer, unknown = scorer.tokenizer, tokenizers.special_tokens(scorer.tokenizer).unknown

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    [one, two, none] = tokenize_texts(tokenizer, ["the <unk> sat", "<unk> <unk>", "the mat"], "<unk>")
    assert one.ids == [*ids("the"), unknown, *ids("sat")] and two.ids == [unknown, unknown]
    assert two.word_ids == [0, 1] and none.ids == ids("the mat")
    assert one.word_ids == sorted(one.word_ids) and len(set(one.word_ids)) == 3
    [plain] = tokenize_texts(tokenizer, ["the <unk> sat"])
    assert len(plain.ids) > len(one.ids), "by default it is plain text"
    actual = load_likelihood_scorer(discriminator, device="cpu")(["the <unk> sat"], unknown="<unk>")
    expected = -scorer.logits([one.ids])[0].sum()
    assert actual.scores["log-odds-sum"][0] == pytest.approx(expected, rel=1e-5)


def test_every_score_has_a_description(discriminator: Path, generator: Path) -> None:
    for model in (discriminator, generator):
        names = load_likelihood_scorer(model).names
        assert set(names) <= set(SCORES) and list(load_likelihood_scorer(model)(["the mat"]).scores) == list(names)


def test_a_model_without_a_suitable_head_is_refused(discriminator: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(discriminator, tmp_path / "bare")
    tensors = load_file(bare / "model.safetensors")
    encoder = {name: tensor for name, tensor in tensors.items() if name.startswith("electra.")}
    save_file(encoder, bare / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"is an encoder without a head, .*RUN/export/generator"):
        load_likelihood_scorer(bare)
    (tmp_path / "tags").mkdir()
    config = small(max_positions=40)
    tags = saved(
        tmp_path / "tags",
        BertEncoder(config),
        TokenHead(config, 3),
        task={
            "kind": "tagging",
            "labels": ["O", "B-X", "I-X"],
            "scheme": "bio",
            "metric": "span_f1",
            "fallback": "O",
        },
    )
    with pytest.raises(CheckpointError, match="is fine-tuned for a task"):
        load_likelihood_scorer(tags)


def test_one_text_instead_of_a_list_is_refused(generator: Path) -> None:
    with pytest.raises(TypeError, match="give a list of texts"):
        load_likelihood_scorer(generator)("a text")

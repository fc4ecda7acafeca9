"""The encoder with a head: losses of a batch, outputs of a split, learning rates by depth."""

import math
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from electra.data.tokenizer import special_tokens
from electra.modeling.encoders.base import attention_mask
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.encoders.relative import RelativeEncoder
from electra.modeling.flops import training_flops
from electra.objectives.base import Counts
from electra.preparation.tokenizer_training import train_tokenizer
from electra.tasks.base import InputSpec, Rows, TaskBatch, collate
from electra.tasks.classification import Classification
from electra.tasks.conll import Sentence
from electra.tasks.long_texts import LongTextMethod, LongTexts
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.squad_files import Question
from electra.tasks.tagging import build_tagging_task
from electra.tasks.task_model import Reduction, TaskModel, batches_by_length, layer_decay_scales, layer_depths
from electra.tasks.texts import TextExample

WORDS = ["the", "ferry", "leaves", "harbour", "at", "seven", "and", "comes", "back", "noon", "whoever", "waits"]
LABELS = Classification(("accuracy",), pair=True, labels=("a", "b", "c"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([" ".join(WORDS)] * 9, vocabulary_size=120)


@pytest.fixture(scope="module")
def rows(tokenizer: Tokenizer) -> Rows:
    """Texts and pairs of many lengths."""
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, size)) for size in draw.integers(1, 25, 40)]
    examples = [
        TextExample(text, texts[-i] if i % 2 else None, int(draw.integers(3))) for i, text in enumerate(texts)
    ]
    return LABELS.encode(examples, InputSpec(tokenizer, 38))  # no multiple of 8


def encoder() -> BertEncoder:
    torch.manual_seed(0)
    return BertEncoder(BertConfig(
        layers=3, hidden_size=16, embedding_size=8, feed_forward_size=32, heads=2, vocabulary_size=120,
        max_positions=64, initializer_range=0.3, linear_initializer_range=0.3,
    ))  # fmt: skip


def network(reduction: Reduction = "mean") -> TaskModel:
    return TaskModel(encoder(), LABELS, reduction=reduction).eval()


def gradients(module: TaskModel, batches: list[TaskBatch], counts: Counts | None) -> list[torch.Tensor]:
    module.zero_grad()
    for batch in batches:
        module(batch, counts).loss.backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_of_a_batch_is_that_of_its_rows(reduction: Reduction, rows: Rows) -> None:
    module = network(reduction)
    each = [module(collate(rows, np.array([row]), pad=0)).loss.item() for row in range(6)]
    whole = module(collate(rows, np.arange(6), pad=0)).loss.item()
    assert whole == pytest.approx(sum(each) / (6 if reduction == "mean" else 1), rel=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_micro_batches_add_up_to_the_batch(reduction: Reduction, rows: Rows) -> None:
    """Also if the last one is smaller, and each is padded to its own longest row."""
    module = network(reduction)
    whole = gradients(module, [collate(rows, np.arange(16), pad=0)], None)
    parts = [collate(rows, indices, pad=0) for indices in (np.arange(7), np.arange(7, 14), np.arange(14, 16))]
    each = [module.counts(part) for part in parts]
    counts = {name: torch.stack([one[name] for one in each]).sum() for name in each[0]}
    for one, other in zip(whole, gradients(module, parts, counts), strict=True):
        assert torch.allclose(one, other, atol=1e-5, rtol=1e-5)


def test_outputs_keep_the_order_in_all_batches(rows: Rows) -> None:
    module = network()
    alone = [
        module.head(module.states(batch))[0].tolist()
        for batch in (collate(rows, np.array([row]), pad=0) for row in range(len(rows)))
    ]
    assert len({tuple(logits) for logits in alone}) == len(rows)
    for batch_tokens in (None, 1, 100, 10**6):
        actual = module.outputs(rows, pad=0, device=torch.device("cpu"), batch_tokens=batch_tokens)
        assert np.allclose([one["logits"] for one in actual], alone, atol=1e-5)


def test_outputs_are_without_dropout_and_leave_the_mode(rows: Rows) -> None:
    module = network()
    for training in (True, False):
        module.train(training)
        first, second = (module.outputs(rows, pad=0, device=torch.device("cpu")) for _ in range(2))
        assert all(np.array_equal(a["logits"], b["logits"]) for a, b in zip(first, second, strict=True))
        assert module.training == module.encoder.training == training


def test_rows_are_batched_by_length_within_the_tokens(rows: Rows) -> None:
    batches = list(batches_by_length(rows, 100))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(rows)))
    assert all(collate(rows, indices, pad=0).input_ids_BL.numel() <= 100 for indices in batches)
    assert [rows.lengths[indices].max() for indices in batches] == sorted(
        (rows.lengths[indices].max() for indices in batches), reverse=True
    )
    assert all(len(indices) == 1 for indices in batches_by_length(rows, 1))


def test_batches_have_few_lengths_but_none_longer_than_the_longest_row(rows: Rows) -> None:
    """Networks may have no positions for more."""
    longest = int(rows.lengths.max())
    assert longest % 8, "the length of the longest row of this test is not rounded"
    for row, length in enumerate(rows.lengths.tolist()):
        batch = collate(rows, np.array([row]), pad=0)
        assert batch.input_ids_BL.shape[1] == min(8 * math.ceil(length / 8), longest)
        assert not batch.input_ids_BL[0, length:].any() and batch.lengths_B.tolist() == [length]


def test_a_head_that_reads_only_the_first_state_gets_what_a_full_computation_gives(rows: Rows) -> None:
    module = network()
    batch = collate(rows, np.arange(12), pad=0)
    states_B1D = module.states(batch)
    mask_BL = attention_mask(batch.lengths_B, batch.input_ids_BL.shape[1])
    full_BLD = module.encoder(batch.input_ids_BL, batch.segment_ids_BL, mask_BL)
    assert states_B1D.shape == (12, 1, 16) and torch.allclose(states_B1D, full_BLD[:, :1], atol=1e-5)


def test_a_head_of_tokens_gets_all_states(tokenizer: Tokenizer) -> None:
    sentences = [Sentence(("the", "ferry", "waits"), ("O", "B-X", "O"), "a.txt", 1)]
    problem = build_tagging_task("tags", {"train": sentences}).problem
    module = TaskModel(encoder(), problem).eval()
    rows = problem.encode(sentences, InputSpec(tokenizer, 40))
    batch = collate(rows, np.array([0]), pad=special_tokens(tokenizer).pad)
    assert module.states(batch).shape == (1, rows.lengths[0], 16)
    expected = {
        name: module.networks(32)["encoder"].output_share for name, module in (("all", module), ("one", network()))
    }
    assert expected == {"all": 1.0, "one": 1 / 32}


def test_shared_blocks_have_the_depth_of_the_last_one() -> None:
    config = replace(encoder().config, layers=4, share_layers="all", layer_groups=2)
    actual = layer_depths(TaskModel(BertEncoder(config), LABELS))
    of_blocks = {name: depth for name, depth in actual.items() if ".blocks." in name}
    assert {name.split(".")[2] for name in of_blocks} == {"0", "2"}, "each once"
    assert {(name.split(".")[2], depth) for name, depth in of_blocks.items()} == {("0", 3), ("2", 1)}
    assert actual["encoder.embeddings.token.weight"] == 5


def test_depths_count_from_the_head() -> None:
    actual = layer_depths(network())
    assert actual["head.prediction.weight"] == 0
    for block in range(3):
        inside = {depth for name, depth in actual.items() if name.startswith(f"encoder.blocks.{block}.")}
        assert inside == {3 - block}
    assert actual["encoder.embeddings.token.weight"] == actual["encoder.projection.weight"] == 4
    assert set(actual) == {name for name, _ in network().named_parameters()}


@pytest.mark.parametrize(("mode", "more"), [("paper", 0), ("google", 1)])
def test_rates_fall_with_depth(mode: str, more: int) -> None:
    """ELECTRA, appendix B: the rate is multiplied by the decay at each layer; the code starts one higher."""
    d = 0.8
    actual = layer_decay_scales(network(), d, mode=mode)  # type: ignore[arg-type]
    assert actual["head.prediction.weight"] == actual["head.prediction.bias"] == 1
    assert actual["encoder.blocks.2.feed_forward.inner.weight"] == pytest.approx(d ** (1 + more))
    assert actual["encoder.blocks.0.attention.output.bias"] == pytest.approx(d ** (3 + more))
    for name in ("token.weight", "position.weight", "segment.weight", "norm.weight"):
        assert actual[f"encoder.embeddings.{name}"] == pytest.approx(d ** (4 + more))


def test_a_decay_of_one_changes_nothing() -> None:
    assert set(layer_decay_scales(network(), 1.0, mode="google").values()) == {1.0}


def test_a_given_head_is_used(rows: Rows) -> None:
    head = LABELS.build_head(replace(encoder().config, dropout=0.0))
    assert TaskModel(encoder(), LABELS, head=head).head is head


def test_in_a_left_to_right_network_the_first_state_is_that_of_the_last_token(
    tokenizer: Tokenizer,
) -> None:
    """There [CLS] has seen nothing, but heads predict from it whether there is an answer."""
    config = encoder().config.with_kind("relative", direction="left", embedding_size=16)
    inside = RelativeEncoder(config).eval()
    problem = QuestionAnswering(impossible=True)
    questions = [Question("1", "who waits", "the ferry waits"), Question("2", "who", "noon comes back and leaves")]
    rows = problem.encode(questions, InputSpec(tokenizer, 80))
    batch = collate(rows, np.arange(2), pad=0)
    found_BLD = TaskModel(inside, problem).eval().states(batch)
    full_BLD = inside(batch.input_ids_BL, batch.segment_ids_BL)
    assert not torch.allclose(found_BLD[0, 0], found_BLD[1, 0])
    for row, length in enumerate(batch.lengths_B.tolist()):
        assert torch.allclose(found_BLD[row, 0], full_BLD[row, length - 1], atol=1e-5)
        assert torch.allclose(found_BLD[row, 1:length], full_BLD[row, 1:length], atol=1e-5)


def test_an_unused_memory_adds_no_flops() -> None:
    config = encoder().config.with_kind("relative", embedding_size=16, memory_length=64)
    flops, ways = {}, (None, "windows", "memory")
    for way in ways:
        long = None if way is None else LongTexts(cast(LongTextMethod, way), 32)
        flops[way] = training_flops(TaskModel(RelativeEncoder(config), LABELS, long=long).networks(32), 32)
    bare = TaskModel(RelativeEncoder(replace(config, memory_length=0)), LABELS)
    assert flops[None] == flops["windows"] == training_flops(bare.networks(32), 32) < flops["memory"]

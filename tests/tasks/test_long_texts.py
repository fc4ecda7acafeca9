"""Texts longer than a row: the states that the head reads, and their gradients."""

from typing import Any

import numpy as np
import pytest
import torch
from configs import make_encoder_config
from tokenizers import Tokenizer
from torch import Tensor

from electra.modeling.encoders.base import EncoderModule
from electra.modeling.encoders.relative import RelativeEncoder
from electra.preparation.tokenizer_training import train_tokenizer
from electra.tasks.base import InputSpec, Rows, collate
from electra.tasks.classification import Classification
from electra.tasks.long_texts import LongTextMethod, LongTexts, split_into_windows
from electra.tasks.task_model import TaskModel, batches_by_length
from electra.tasks.texts import TextExample

WORDS = ["the", "ferry", "leaves", "harbour", "at", "seven", "and", "comes", "back", "noon"]
LABELS = Classification(("accuracy",), labels=("a", "b"))
WINDOW, ROOM = 12, 10
SIZES = (33, 4, ROOM, ROOM + 1, 2 * ROOM, 57, 1, 19)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([" ".join(WORDS)] * 9, vocabulary_size=80)


@pytest.fixture(scope="module")
def rows(tokenizer: Tokenizer) -> Rows:
    return rows_of(tokenizer, *SIZES)


def rows_of(tokenizer: Tokenizer, *sizes: int) -> Rows:
    draw = np.random.default_rng(0)
    examples = [TextExample(" ".join(draw.choice(WORDS, size)), None, size % 2) for size in sizes]
    return LABELS.encode(examples, InputSpec(tokenizer, 500))


def encoder(**settings: Any) -> EncoderModule:
    torch.manual_seed(0)
    return make_encoder_config(
        layers=2, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, vocabulary_size=80,
        initializer_range=0.3, linear_initializer_range=0.3, dropout=0.0, attention_dropout=0.0, **settings,
    ).build()  # fmt: skip


def relative(direction: str = "both") -> EncoderModule:
    return encoder(kind="relative", memory_length=9, direction=direction)


def network(inside: EncoderModule, method: LongTextMethod) -> TaskModel:
    return TaskModel(inside, LABELS, long=LongTexts(method, WINDOW)).eval()


def windows_by_hand(rows: Rows, row: int) -> list[Tensor]:
    first, *inside, last = rows.ids[rows.starts[row] : rows.starts[row + 1]].tolist()
    count = max(1, -(-len(inside) // ROOM))
    each = -(-len(inside) // count)
    return [torch.tensor([[first, *inside[each * i : each * (i + 1)], last]]) for i in range(count)]


def test_windows_hold_every_token_in_its_segment(tokenizer: Tokenizer) -> None:
    pair = TextExample(" ".join(WORDS[:7] * 3), " ".join(WORDS[7:] * 5))
    batch = collate(
        LABELS.encode([pair, TextExample("the ferry"), pair], InputSpec(tokenizer, 500)), np.arange(3), pad=0
    )
    windows = split_into_windows(batch, WINDOW)
    assert windows.counts_B.tolist() == [4, 1, 4] and windows.texts_K.tolist() == [0] * 4 + [1] + [2] * 4
    assert windows.ids_KW.shape[1] <= WINDOW
    for text in range(3):
        inside, segments = [], []
        for window in torch.nonzero(windows.texts_K == text)[:, 0].tolist():
            length = int(windows.lengths_K[window])
            ids, of = windows.ids_KW[window, :length], windows.segment_ids_KW[window, :length]
            assert ids[0] == batch.input_ids_BL[0, 0] and of[0] == 0, "[CLS]"
            assert ids[-1] == batch.input_ids_BL[1, 3] and of[-1] == of[-2], "[SEP]"
            inside += ids[1:-1].tolist()
            segments += of[1:-1].tolist()
        length = int(batch.lengths_B[text])
        assert inside == batch.input_ids_BL[text, 1 : length - 1].tolist()
        assert segments == batch.segment_ids_BL[text, 1 : length - 1].tolist()


def test_a_window_that_ends_with_the_first_text_of_a_pair_has_its_segment(tokenizer: Tokenizer) -> None:
    pair = TextExample(" ".join(["ferry"] * (ROOM - 1)), " ".join(["noon"] * ROOM))
    windows = split_into_windows(
        collate(LABELS.encode([pair], InputSpec(tokenizer, 500)), np.array([0]), pad=0), WINDOW
    )
    assert windows.segment_ids_KW.tolist() == [[0] * WINDOW, [0] + [1] * (WINDOW - 1)]


@pytest.mark.parametrize("kind", ["learnt", "both", "left"])
def test_windows_have_the_mean_of_their_states(kind: str, rows: Rows) -> None:
    inside = encoder() if kind == "learnt" else relative(kind)
    batch = collate(rows, np.arange(len(rows)), pad=0)
    states_B1D = network(inside, "windows").states(batch)
    for row, state_1D in enumerate(states_B1D):
        each = [inside(ids_BL)[0, -1 if kind == "left" else 0] for ids_BL in windows_by_hand(rows, row)]
        assert torch.allclose(state_1D[0], torch.stack(each).mean(0), atol=1e-5)


@pytest.mark.parametrize("direction", ["both", "left"])
def test_memory_has_the_state_of_the_last_window(direction: str, rows: Rows) -> None:
    inside = relative(direction)
    assert isinstance(inside, RelativeEncoder)
    states_B1D = network(inside, "memory").states(collate(rows, np.arange(len(rows)), pad=0))
    for row, state_1D in enumerate(states_B1D):
        memory = None
        for ids_BL in windows_by_hand(rows, row):
            actual = inside.encode(ids_BL, memory_YBMD=memory)
            memory = actual.memory_YBMD
        assert torch.allclose(state_1D[0], actual.states_BND[0, -1 if direction == "left" else 0], atol=1e-5)


@pytest.mark.parametrize("method", ["windows", "memory"])
def test_batches_give_the_same_outputs_as_single_texts(method: LongTextMethod, rows: Rows) -> None:
    module, device = network(relative(), method), torch.device("cpu")
    alone = [module.head(module.states(collate(rows, np.array([row]), pad=0)))[0] for row in range(len(rows))]
    for batch_tokens in (None, 1, 3 * WINDOW):
        actual = module.outputs(rows, pad=0, device=device, batch_tokens=batch_tokens)
        assert np.allclose([one["logits"] for one in actual], [logits.tolist() for logits in alone], atol=1e-5)
    whole = TaskModel(module.encoder, LABELS, head=module.head).outputs(rows, pad=0, device=device)
    for size, one, other in zip(SIZES, actual, whole, strict=True):
        assert np.allclose(one["logits"], other["logits"], atol=1e-5) == (size <= ROOM)


def gradient(module: TaskModel, rows: Rows) -> Tensor:
    """The gradient of each token's embedding."""
    module.zero_grad()
    module(collate(rows, np.arange(len(rows)), pad=0)).loss.backward()
    weights = module.encoder.embeddings.token.weight.grad
    assert weights is not None
    return weights.abs().amax(1)


def test_all_windows_have_a_gradient_but_with_memory_only_the_last_one(tokenizer: Tokenizer) -> None:
    """The first word is only in the first window."""
    text = " ".join(["ferry", *["noon"] * 24])
    rows = LABELS.encode([TextExample(text, None, 1)], InputSpec(tokenizer, 500))
    first, other, classify = int(rows.ids[1]), int(rows.ids[2]), int(rows.ids[0])
    through_all = gradient(network(relative(), "windows"), rows)
    assert min(through_all[[first, other, classify]]) > 0
    through_last = gradient(network(relative(), "memory"), rows)
    assert through_last[first] == 0 and min(through_last[[other, classify]]) > 0


def test_the_memory_changes_the_state(tokenizer: Tokenizer) -> None:
    module = network(relative(), "memory")
    one, other = (
        LABELS.encode([TextExample(" ".join([word, *["noon"] * 14]))], InputSpec(tokenizer, 500))
        for word in ("ferry", "harbour")
    )
    states = [module.states(collate(rows, np.array([0]), pad=0)) for rows in (one, other)]
    assert (states[0] - states[1]).abs().max() > 1e-4


def test_batches_with_memory_count_one_window_per_text(rows: Rows) -> None:
    assert [len(chosen) for chosen in batches_by_length(rows, 3 * WINDOW, tokens_at_once=WINDOW)][:2] == [3, 3]

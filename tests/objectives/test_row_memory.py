"""The memory of a stream's rows between batches."""

import math
from dataclasses import replace

import pytest
import torch
from contract import SPECIAL, batch, objective, rows

from electra.data.collate import Batch, StreamState
from electra.modeling.encoders.relative import RelativeEncoder
from electra.objectives.base import Objective
from electra.objectives.stream_memory import StreamMemory, stream_memories

KINDS = (
    "both relative",
    "causal-lm",
    "relative, masked-lm",
    "relative, replaced-token",
    "streamed permutation-lm",
)
each = pytest.mark.parametrize("name", KINDS)


def ours(name: str) -> Objective:
    found = objective(name.removeprefix("streamed "))
    if name.startswith("streamed"):  # rows of a stream have one segment
        found.encoder.config = replace(found.encoder.config, type_vocabulary_size=1)  # type: ignore[union-attr]
    return found


def window(step: int, *, fresh: bool = False, first: int = 0, count: int = 6) -> Batch:
    """The rows of a step: all of them full, as windows are."""
    whole = rows(batch(6, seed=step), slice(first, first + count))
    ids_BL = torch.where(whole.input_ids_BL == SPECIAL.pad, 5, whole.input_ids_BL)
    return replace(
        whole, input_ids_BL=ids_BL, lengths_B=torch.full((count,), 16),
        stream_state=StreamState(torch.full((count,), 7), torch.full((count,), fresh), first),
    )  # fmt: skip


def losses(one: Objective, *, steps: int, begin: int = 0) -> list[float]:
    return [one(window(step)).loss.item() for step in range(begin, begin + steps)]


def remembered(one: Objective) -> dict[str, torch.Tensor]:
    memories = {place: memory.rows() for place, memory in stream_memories(one).items()}
    return {place: rows_YBMD for place, rows_YBMD in memories.items() if rows_YBMD is not None}


@each
def test_the_memory_of_a_row_affects_that_row(name: str) -> None:
    one = ours(name)
    remembering = losses(one, steps=3)
    without = [ours(name)(window(step)).loss.item() for step in range(3)]
    assert remembering[0] == without[0] and remembering[1] != without[1]
    memory = one.memory.rows()
    assert memory is not None and memory.shape == (2, 6, 16, 32)
    fresh = one(window(4, fresh=True)).loss.item()
    assert fresh == pytest.approx(ours(name)(window(4)).loss.item(), rel=1e-5)


@each
def test_memories_of_micro_batches_equal_those_of_the_batch(name: str) -> None:
    whole, parted = ours(name), ours(name)
    for step in range(3):
        parts = [window(step, first=first, count=2) for first in (0, 2, 4)]
        counts = [parted.counts(part) for part in parts]
        totals = {key: torch.stack([one[key] for one in counts]).sum() for key in counts[0]}
        found = torch.stack([parted(part, totals).loss for part in parts]).sum()
        torch.testing.assert_close(found, whole(window(step)).loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(parted.memory.rows(), whole.memory.rows(), rtol=1e-5, atol=1e-5)


@each
def test_a_memory_can_be_restored(name: str) -> None:
    one, other = ours(name), ours(name)
    losses(one, steps=2)
    for place, memory in stream_memories(one).items():
        assert not list(memory.parameters()) and not list(memory.buffers())
        stream_memories(other)[place].restore(memory.rows())
    assert losses(other, steps=2, begin=2) == losses(one, steps=2, begin=2)
    other.memory.restore(ours(name).memory.rows())
    assert other.memory.rows() is None


@each
def test_an_evaluation_starts_empty_and_keeps_the_memory_of_training(name: str) -> None:
    one = ours(name)
    losses(one, steps=2)
    before = remembered(one)
    batches = [(window(step, fresh=step == 7), window(step, fresh=step == 7)) for step in (7, 8, 9)]
    figures = one.evaluate(batches)
    after = remembered(one)
    assert before.keys() == after.keys() and all(torch.equal(before[place], after[place]) for place in before)
    assert figures == one.evaluate(batches)
    one.memory.evaluation_length = 40
    longer = one.evaluate(batches)
    assert longer != figures and longer == one.evaluate(batches)
    assert one.memory.length == 16


def test_the_copy_with_unigram_fakes_has_a_memory_of_its_own() -> None:
    one = ours("relative, replaced-token")
    text = [window(step, fresh=step == 7) for step in (7, 8, 9)]
    others = [replace(each, input_ids_BL=each.input_ids_BL.roll(1, 1)) for each in text]
    same, changed = (one.evaluate(zip(text, copies, strict=True)) for copies in (text, others))
    assert same.keys() == changed.keys()
    assert {name for name in same if same[name] != pytest.approx(changed[name], nan_ok=True)} == {
        "eval/unigram_auc"
    }


def test_states_that_are_not_finite_become_zero() -> None:
    one = ours("causal-lm")
    losses(one, steps=1)
    spoilt = one.memory.rows().clone()  # type: ignore[union-attr]
    spoilt[:, 2] = torch.nan
    one.memory.restore(spoilt)
    assert math.isnan(losses(one, steps=1)[0])
    memory = one.memory.rows()
    assert memory is not None and bool(memory.isfinite().all())


def test_without_a_stream_there_is_no_memory() -> None:
    one = ours("causal-lm")
    first, second = (one(batch(4, seed=1)).loss.item() for _ in range(2))
    assert first == second and one.memory.rows() is None


def test_a_compiled_encoder_has_the_same_memory() -> None:
    from electra.training.update import compile_encoders

    plain, compiled = ours("causal-lm"), ours("causal-lm")
    compile_encoders(compiled, backend="eager")
    assert isinstance(compiled.encoder, RelativeEncoder)
    assert losses(compiled, steps=3) == pytest.approx(losses(plain, steps=3), rel=1e-5)


def test_a_long_memory_has_one_shape_from_the_first_step_on() -> None:
    """So that one graph is compiled, and each step costs what every other does."""
    one = ours("causal-lm")
    one.memory.length, shapes = 100, set()
    for step in range(3):
        losses(one, steps=1, begin=step)
        memory = one.memory.rows()
        assert memory is not None
        shapes.add(tuple(memory.shape))
        assert int((memory[-1].abs().amax(-1) > 0).sum()) == 6 * 16 * (step + 1)
    assert shapes == {(2, 6, 100, 32)}


def test_a_memory_has_the_length_of_the_model() -> None:
    config = ours("causal-lm").encoder.config
    assert StreamMemory(config).length == 16 and StreamMemory(replace(config, memory_length=0)).rows() is None

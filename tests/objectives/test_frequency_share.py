"""Tokens are drawn by frequency at the start of a run, then by the generator."""

from typing import Any

import pytest
import torch
from contract import batch, objective
from torch import Tensor

from electra.errors import ConfigError
from electra.objectives.generator_objective import GeneratorObjective
from electra.pretraining.config import load_config

NAME = "frequency first"


def at(step: int) -> GeneratorObjective:
    """The objective at a step of ten."""
    ours = objective(NAME)
    assert isinstance(ours, GeneratorObjective)
    ours.begin_step(step, 10)
    return ours


def samples(ours: GeneratorObjective) -> Tensor:
    one = batch(16, seed=5)
    masking = ours.draw_masks(one)
    return ours.sample(one, masking, None)


def test_samples_are_those_of_the_frequencies_then_those_of_the_generator() -> None:
    by_frequency, by_generator = objective("unigram fakes"), objective("replaced-token")
    assert isinstance(by_frequency, GeneratorObjective) and isinstance(by_generator, GeneratorObjective)
    early, late = at(4), at(5)
    assert early.generator is not None and by_generator.generator is not None
    by_generator.generator.load_state_dict(late.generator.state_dict())  # type: ignore[union-attr]
    assert torch.equal(samples(early), samples(by_frequency))
    assert torch.equal(samples(late), samples(by_generator))
    assert not torch.equal(samples(early), samples(late))


def test_trigrams_can_come_after_the_frequencies() -> None:
    by_frequency, by_trigram = objective("unigram fakes"), objective("trigram fakes")
    assert isinstance(by_frequency, GeneratorObjective) and isinstance(by_trigram, GeneratorObjective)
    assert not torch.equal(samples(by_frequency), samples(by_trigram))
    for step, same in ((4, by_frequency), (5, by_trigram)):
        ours = objective("frequency first, trigram")
        assert isinstance(ours, GeneratorObjective) and isinstance(same, GeneratorObjective)
        ours.begin_step(step, 10)
        assert torch.equal(samples(ours), samples(same))


def test_the_generator_is_neither_trained_nor_counted_before() -> None:
    for step, trained in ((4, False), (5, True)):
        ours = at(step)
        output = ours(batch(8, seed=2))
        output.loss.backward()
        blocks = [p for n, p in ours.named_parameters() if n.startswith("generator.encoder.blocks")]
        assert blocks and all((p.grad is not None) == trained for p in blocks)
        assert ("generator_loss" in output.parts) == trained == ("generator" in ours.networks(16))
        one = batch(8, seed=3)
        assert ("eval/masked_lm_loss" in ours.evaluate([(one, one)])) == trained


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective.fakes": "unigram"}, "frequency_share: is for fakes generator, bigram, trigram, not unigram"),
        ({"objective.kind": "adversarial"}, "frequency_share: has no effect on adversarial"),
        ({"objective.kind": "two-stage"}, "two stages have a share of their own, first_share"),
        (
            {"train.steps": None, "train.minutes": 3},
            "train.minutes: objective.frequency_share needs a fixed number",
        ),
    ],
)
def test_it_is_refused_where_it_has_no_meaning(settings: dict[str, Any], message: str) -> None:
    run = {"data": "data", "out": "out", "train.steps": 10, "objective.frequency_share": 0.3}
    given = {name: value for name, value in (run | settings).items() if value is not None}
    base = "electra-nano"
    with pytest.raises(ConfigError, match=message):
        load_config(base, given)

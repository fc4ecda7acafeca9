"""The config of a pre-training run: presets are complete, and all mistakes are reported together."""

from typing import Any

import pytest

from electra.config import flat, load_config, preset_names, read_toml
from electra.errors import ConfigError
from electra.modeling.encoders.relative import RelativeConfig
from electra.pretraining.config import PretrainConfig
from electra.pretraining.dry_run import dry_run
from electra.registry import encoders


def problems(*settings: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(PretrainConfig, "electra-tiny", settings)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


@pytest.mark.parametrize("name", ["objective.kind", "model.kind", "model.positions", "generator.kind"])
def test_a_kind_must_be_text(name: str) -> None:
    assert problems(f"{name}=[1]") == [f"{name}: must be text, got [1]"]


def test_all_settings_of_other_encoders_are_reported_together() -> None:
    directions, lengths = problems("model.direction=left", "model.memory_length=3")
    assert directions == "model.direction: needs kind relative, got 'left'; remove it, or set kind to relative"
    assert lengths.startswith("model.memory_length: needs kind relative, got 3")


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    "name", ["generator.width", "model.layer_norm_epsilon", "model.initializer_range", "train.minutes"]
)
def test_numbers_must_be_finite(name: str, value: str) -> None:
    assert problems(f"{name}={value}") == [f"{name}: must be a finite number, got {value}"]


@pytest.mark.parametrize("objective", [(), ("kind=two-stage", "first_stage=generator", "sharing=none")])
def test_a_generator_with_invalid_sizes_is_not_built(objective: tuple[str, ...]) -> None:
    settings = [f"objective.{setting}" for setting in objective]
    assert problems("generator.heads=-2", *settings) == ["generator.heads: must be at least 0, got -2"]


def test_settings_of_other_objectives_are_checked_although_they_are_not_used() -> None:
    kind = "objective.kind=masked-lm"
    invalid = ["discriminator_weight=x", "sampling_dropout=3", "temperature=inf"]
    assert sorted(problems(kind, *(f"objective.{setting}" for setting in invalid))) == [
        "objective.discriminator_weight: must be a number, got 'x'",
        "objective.sampling_dropout: must be true or false, got 3",
        "objective.temperature: must be a finite number, got inf",
    ]
    valid = ["discriminator_weight=2", "sampling_dropout=false"]
    config = load_config(PretrainConfig, "electra-tiny", [kind, *(f"objective.{setting}" for setting in valid)])
    assert config.objective.kind == "masked-lm"


def test_a_generator_with_relative_positions_shares_no_weights() -> None:
    kind = "generator.kind=relative"
    refused = ["objective.sharing: a generator of kind relative cannot share weights; set it to none"]
    assert problems(kind) == problems(kind, "objective.sharing=all") == refused
    assert (
        load_config(PretrainConfig, "electra-tiny", [kind, "objective.sharing=none"]).objective.sharing == "none"
    )


def test_a_deadline_that_cannot_be_kept_is_refused() -> None:
    assert problems("train.deadline=0.9") == ["train.deadline: must be at least 1 minute, got 0.9"]


def test_settings_of_the_optimizer_that_exclude_each_other() -> None:
    assert problems("optimizer.decay_share=.2", "optimizer.warmup_over_decay=true") == [
        "optimizer.decay_share: with warmup_over_decay the decay starts at step 0; leave one of them out"
    ]
    assert problems("optimizer.decay_share=.2", "optimizer.steps_before=10") == [
        "optimizer.decay_share: with steps_before the decay starts at step 0; leave one of them out"
    ]
    assert problems("optimizer.muon_momentum=.9") == [
        "optimizer.muon_momentum: is for matrices muon; leave it out"
    ]
    assert problems("optimizer.matrices=muon", "train.sharding=full") == [
        "optimizer.matrices: muon needs whole matrices on each process; set train.sharding to none"
    ]


def test_encoders_with_a_direction_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(encoders._registered, "my-relative", RelativeConfig)
    (problem,) = problems("objective.kind=causal-lm")
    assert problem.endswith("set model.kind relative or my-relative and model.direction left")


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_is_complete(preset: str) -> None:
    """Nothing is left to a default that the file does not show (paths and the length in minutes apart)."""

    def names(table: dict[str, Any], prefix: str = "") -> set[str]:
        paths: set[str] = set()
        for key, value in table.items():
            paths |= names(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key}
        return paths

    assert flat(PretrainConfig()).keys() - names(read_toml(preset)) <= {
        "data", "out", "train.minutes", "train.deadline", "init.discriminator", "init.generator",
        "init.trained_length", "init.from", "init.generator_layers", "init.vocabulary",
        "init.generator_trained_length",
    }  # fmt: skip
    assert dry_run(load_config(PretrainConfig, preset)).cost.flops > 0


@pytest.mark.parametrize("kind", ["modernbert", "deberta"])
def test_a_layer_norm_that_cannot_be_shared_is_refused(kind: str) -> None:
    settings = (f"model.kind={kind}", "objective.share_norm=true", "init.attention=random")
    assert any("objective.share_norm: kind" in line for line in problems(*settings))
    load_config(PretrainConfig, "electra-tiny", ["objective.share_norm=true"])

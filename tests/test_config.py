"""Configs: TOML with `extends`, dotted overrides, and every problem at once."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from electra import errors
from electra.config import COMMAND_LINE, flat, load_config, merged, overrides_of, preset_names, to_toml
from electra.config_fields import json_problem, settings
from electra.errors import ConfigError
from electra.finetuning.config import FinetuneConfig, load_task_config
from electra.pretraining.config import PretrainConfig
from electra.pretraining.early_check import EarlyConfig


@dataclass(frozen=True)
class Engine:
    power: float = 1.5
    """Kilowatts."""
    fuel: Literal["petrol", "steam"] = "steam"
    """What it burns."""

    def problems(self) -> Iterator[str]:
        if self.power <= 0:
            yield f"power: must be above 0, got {self.power}"


@dataclass(frozen=True)
class Train:
    name: str
    """Painted on its side."""
    wagons: int = 3
    """How many."""
    stops: tuple[str, ...] = ()
    """Where it halts."""
    home: Path | None = None
    """Where it sleeps."""
    engine: Engine = field(default_factory=Engine)

    def problems(self) -> Iterator[str]:
        if self.wagons > 10 * self.engine.power:
            yield "wagons: too many for the engine"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_that_extends_itself_is_named(tmp_path: Path) -> None:
    one = write(tmp_path, "one.toml", 'extends = "two.toml"\n')
    write(tmp_path, "two.toml", 'extends = ["one.toml"]\n')
    with pytest.raises(ConfigError, match=r"one.toml: extends itself \(one.toml -> two.toml -> one.toml\)"):
        load_config(Train, one)


def test_extends_merges_section_by_section(tmp_path: Path) -> None:
    write(tmp_path, "base.toml", 'name = "local"\n[engine]\npower = 2\nfuel = "petrol"\n')
    child = write(tmp_path, "child.toml", 'extends = "base.toml"\n[engine]\npower = 3.5\n')
    assert load_config(Train, child) == Train("local", engine=Engine(3.5, "petrol"))


def test_of_several_that_are_extended_the_last_one_wins(tmp_path: Path) -> None:
    write(tmp_path, "base.toml", 'name = "local"\nwagons = 1\n[engine]\npower = 2\nfuel = "petrol"\n')
    write(tmp_path, "part.toml", "wagons = 2\n[engine]\npower = 3\n")
    child = write(tmp_path, "child.toml", 'extends = ["base.toml", "part.toml"]\n[engine]\npower = 3.5\n')
    assert load_config(Train, child) == Train("local", wagons=2, engine=Engine(3.5, "petrol"))


def test_overrides_win_and_are_read_as_toml(tmp_path: Path) -> None:
    file = write(tmp_path, "a.toml", 'name = "local"\nwagons = 1\n')
    overrides = ["wagons=5", "engine.fuel=petrol", 'stops=["a", "b"]', "home=/somewhere", "name=12"]
    assert load_config(Train, file, overrides) == Train(
        "12", wagons=5, stops=("a", "b"), home=Path("/somewhere"), engine=Engine(fuel="petrol")
    )


@pytest.mark.parametrize(("text", "power"), [(".25", 0.25), ("+.5", 0.5), ("3.", 3.0)])
def test_a_number_may_lack_its_zero(text: str, power: float) -> None:
    assert load_config(Train, None, ["name=local", "wagons=0", f"engine.power={text}"]).engine.power == power
    assert load_config(Train, None, [f"name={text}"]).name == text


def test_a_dumped_config_loads_to_the_same(tmp_path: Path) -> None:
    config = Train("express", stops=("a",), engine=Engine(power=0.5))
    assert load_config(Train, write(tmp_path, "dump.toml", to_toml(config))) == config


def test_all_problems_are_named_together(tmp_path: Path) -> None:
    file = write(tmp_path, "bad.toml", 'wagon = 3\nwagons = "many"\nfuel = "coal"\n[engine]\nfuel = "steem"\n')
    with pytest.raises(ConfigError) as caught:
        load_config(Train, file, ["engine.powr=2"])
    message = str(caught.value)
    assert "6 problems" in message
    assert "wagon: there is no such setting; did you mean --wagons?" in message
    assert "wagons: must be a whole number, got 'many'" in message
    assert "fuel: there is no such setting; did you mean --engine.fuel?" in message
    assert "engine.fuel: must be one of petrol, steam (did you mean 'steam'?), got 'steem'" in message
    assert "engine.powr: there is no such setting; did you mean --engine.power?" in message
    assert "name: is missing; give --name VALUE" in message


@pytest.mark.parametrize("value", ["=1", ""])
@pytest.mark.parametrize(
    ("given", "of_pretraining", "of_finetuning"),
    [
        ("lr", "did you mean --optimizer.learning_rate?", "did you mean --optimizer.learning_rate?"),
        ("learning_rate", "did you mean --optimizer.learning_rate?", "did you mean --optimizer.learning_rate?"),
        ("per_device_train_batch_size", "did you mean --train.batch_size?", "did you mean --train.batch_size?"),
        ("mlm_probability", "did you mean --masking.share?", ""),
        (
            "max_steps",
            "did you mean --train.steps?",
            "give --train.epochs N (--dry-run shows the number of steps)",
        ),
        ("num_train_epochs", "give --train.steps N (an epoch is the rows that ", "did you mean --train.epochs?"),
        ("epochs", "give --train.steps N (an epoch is the rows that ", "did you mean --train.epochs?"),
        ("train.epochs", "give --train.steps N (an epoch is the rows that ", None),
        (
            "warmup_steps",
            "did you mean --optimizer.warmup_steps?",
            "give --optimizer.warmup_share S (a share of the steps, such as 0.1)",
        ),
        ("warmup_ratio", "did you mean --optimizer.warmup_steps?", "did you mean --optimizer.warmup_share?"),
        ("seed", "did you mean --train.seed?", None),
        ("bf16", "give --train.precision bfloat16", "give --train.precision bfloat16"),
        ("fp16", "give --train.precision float16", "give --train.precision float16"),
        *(
            (name, "did you mean --packing.sequence_length?", "did you mean --data.max_length?")
            for name in ("max_seq_length", "block_size", "length")
        ),
        ("max_length", "did you mean --packing.sequence_length?", None),
        ("packing.max_length", "did you mean --packing.sequence_length?", None),
        (
            "gradient_accumulation_steps",
            "give --train.micro_batch_size N (train.batch_size divided by these steps)",
            "give --train.micro_batch_size N (train.batch_size divided by these steps)",
        ),
        ("text_column", "", "did you mean --data.text?"),
        ("label_column", "", "did you mean --data.label?"),
        ("output_dir", "did you mean --out?", "did you mean --out?"),
    ],
)
def test_a_name_of_other_trainers_is_understood(
    given: str, of_pretraining: str, of_finetuning: str | None, value: str
) -> None:
    """`of_finetuning` is None if fine-tuning has the setting."""
    for config, hint in ((PretrainConfig, of_pretraining), (FinetuneConfig, of_finetuning)):
        if hint is not None:
            with pytest.raises(ConfigError) as caught:
                load_config(config, None, [f"{given}{value}"])
            assert f"{given}: there is no such setting{hint and '; '}{hint}" in str(caught.value)


def test_checks_of_sections_and_of_the_whole_are_gathered() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(Train, None, ["name=x", "engine.power=0", "wagosn=2"])
    assert "engine.power: must be above 0, got 0.0" in str(caught.value)
    assert "wagons: too many for the engine" in str(caught.value)
    assert "wagosn: there is no such setting" in str(caught.value)


def test_values_out_of_bounds_are_shown_with_values_of_the_wrong_type() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(PretrainConfig, None, ["train.steps=many", "train.report_every=-1"])
    assert "train.steps: must be a whole number, got 'many'" in str(caught.value)
    assert "train.report_every: must be at least 0, got -1" in str(caught.value)


def test_an_unknown_section_is_called_a_section() -> None:
    with pytest.raises(ConfigError, match="engin: there is no such section; did you mean 'engine'"):
        load_config(Train, None, ["name=x", "engin.power=2"])


def test_the_message_names_the_file_or_the_command_line(tmp_path: Path) -> None:
    def message(overrides: list[str]) -> str:
        with pytest.raises(ConfigError) as caught:
            load_config(Train, file, overrides, overrides_from=COMMAND_LINE)
        return str(caught.value).partition(":\n")[0]

    file = write(tmp_path, "a.toml", 'name = "local"\n')
    assert message(["wagosn=2"]) == "1 problem on the command line"
    file.write_text('name = "local"\nwagosn = 2\n')
    assert message(["wagons=3"]) == f"1 problem in {file}"
    assert message(["engine.powr=2"]) == f"2 problems in {file} and on the command line"
    with pytest.raises(ConfigError, match=r"1 problem on the command line:\n  train\.minuts"):
        load_config(
            PretrainConfig, "electra-tiny", ["data=D", "out=O", "train.minuts=1"], overrides_from=COMMAND_LINE
        )


def test_extends_of_an_unknown_preset_names_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "a.toml", 'extends = "electra-smal"\n')
    with pytest.raises(ConfigError, match=r"a\.toml: extends: no preset .*did you mean 'electra-small'"):
        load_config(Train, file)


def test_extends_of_a_preset_for_another_type_of_config_is_one_problem(tmp_path: Path) -> None:
    file = write(tmp_path, "a.toml", 'extends = "electra-nano"\n')
    with pytest.raises(ConfigError, match=r"a\.toml: extends 'electra-nano', a preset of electra pretrain"):
        load_config(Train, file)


def test_a_setting_of_another_section_is_pointed_to() -> None:
    with pytest.raises(ConfigError, match=r"engine.wagons: there is no such setting; did you mean --wagons"):
        load_config(Train, None, ["name=x", "engine.wagons=2"])


def test_true_is_not_a_number() -> None:
    with pytest.raises(ConfigError, match="wagons: must be a whole number, got True"):
        load_config(Train, None, ["name=x", "wagons=true"])


def test_a_setting_given_as_a_section_and_the_reverse() -> None:
    with pytest.raises(ConfigError, match="engine: is a section, not a setting"):
        load_config(Train, None, ["name=x", "engine=3"])
    with pytest.raises(ConfigError, match=r"data: is a section, .*; got 'a\.csv'; did you mean --data\.path\?"):
        load_task_config({"model": "M", "data": "a.csv"})
    with pytest.raises(ConfigError, match=r"name: must be text, got \{\}"):
        load_config(Train, None, ["name={}"])
    with pytest.raises(ConfigError, match="'name' is a setting, not a section"):
        load_config(Train, None, ["name=x", "name.first=y"])


@pytest.mark.parametrize(
    ("key", "hint"), [("max_length", "; did you mean --packing.sequence_length?"), ("foo", "")]
)
@pytest.mark.parametrize("config", [PretrainConfig, EarlyConfig])
def test_a_setting_given_as_a_section_is_refused_in_any_order(
    config: type, key: str, hint: str, tmp_path: Path
) -> None:
    wrong, right = f"data.{key}=64", "data=DATA"
    file = write(tmp_path, "a.toml", f'extends = "electra-tiny"\ndata.{key} = 64\n')
    preset = "electra-tiny"
    cases: list[tuple[str | Path, list[str]]] = [
        (preset, [wrong, right]), (preset, [right, wrong]), (preset, [wrong]), (file, [right]), (file, []),
    ]  # fmt: skip
    for source, overrides in cases:
        with pytest.raises(ConfigError) as caught:
            load_config(config, source, overrides)
        assert str(caught.value).splitlines()[-1] == f"  data.{key}: 'data' is a setting, not a section{hint}"
        assert str(caught.value).startswith("1 problem")


def test_a_setting_within_a_section_given_as_a_section_is_named_in_full() -> None:
    for overrides in (["train.steps=3", "train.steps.x=1"], ["train.steps.x=1", "train.steps=3"]):
        with pytest.raises(ConfigError, match=r"train\.steps\.x: 'train\.steps' is a setting, not a section"):
            load_config(PretrainConfig, "electra-tiny", overrides)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("electra-smal", "electra-small"),
        ("electra-plus-small", "electra-plus-nano"),
        ("elektra-base", "electra-base"),
    ],
)
def test_unknown_preset_suggests_one_of_the_same_family(given: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"{given!r}; did you mean {meant!r}"):
        load_config(Train, given)


@pytest.mark.parametrize(
    ("config", "given", "meant"),
    [(PretrainConfig, "train.minute", "train.minutes"), (FinetuneConfig, "data.labels", "data.label")],
)
def test_an_unknown_option_suggests_a_whole_one(
    config: type, given: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(config, None, [f"{given}=1"])
    assert f"{given}: there is no such setting; did you mean --{meant}?" in str(caught.value)
    monkeypatch.setattr(errors, "_command_line", False)
    assert f"{given}: there is no such setting; did you mean `{meant}`?" in str(caught.value)


def test_invalid_toml_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"bad\.toml: not valid TOML"):
        load_config(Train, write(tmp_path, "bad.toml", "name = \n"))


def test_settings_carry_their_documentation() -> None:
    actual = {setting.name: setting for setting in settings(Train)}
    assert actual["engine.power"].documentation == "Kilowatts."
    assert actual["engine.power"].default == "1.5"
    assert actual["name"].default == "required"
    assert actual["stops"].type == "a list of texts"


def test_flat_names_every_setting() -> None:
    assert flat(Train("x"))["engine.fuel"] == "steam"


def test_merged_leaves_its_arguments_alone() -> None:
    below = {"a": {"b": 1}}
    assert merged(below, {"a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}
    assert below == {"a": {"b": 1}}


def test_presets_are_listed() -> None:
    assert {"electra-tiny", "electra-small", "electra-base", "electra-large"} <= set(preset_names())


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    for override in (f"home={name}", *overrides_of({"home": Path(name)})):
        with pytest.raises(ConfigError, match=r"home: .* is not UTF-8, which a config must be; rename the file"):
            load_config(Train, write(tmp_path, "train.toml", 'name = "local"\n'), [override])


def test_a_required_setting_that_is_not_utf8_is_not_called_missing() -> None:
    overrides = overrides_of({"model": os.fsdecode(b"m\xe9del")})
    with pytest.raises(ConfigError, match=r"^1 problem in the overrides:\n  model: .* is not UTF-8.*$"):
        load_config(FinetuneConfig, None, overrides)


@pytest.mark.parametrize(
    ("value", "hint", "problem"),
    [
        (1, float, None), (["a"], tuple[str, ...], None), (("a",), tuple[str, ...], None),
        (None, int | None, None),
        ({"a": 1}, dict[str, int], None), ([1], Any, None), ("steam", Literal["petrol", "steam"], None),
        (True, int, "must be a whole number, found True"), (None, int, "must be a whole number, found None"),
        ("a", tuple[str, ...], "must be a list of texts, found 'a'"), (3, str, "must be text, found 3"),
        ("5.", float, "must be a number, found '5.'"), ([], dict[str, int], "must be dict, found []"),
        ([1], Literal["petrol"], "must be one of petrol, found [1]"),
    ],
)  # fmt: skip
def test_a_value_of_a_json_file_must_have_the_type_as_it_is(value: Any, hint: Any, problem: str | None) -> None:
    assert json_problem(value, hint) == problem

"""The longest input in the trainings of a network, which exports and later runs keep."""

from pathlib import Path

import pytest
import small_run

from electra.config import load_config
from electra.data.shards import TokenData
from electra.errors import ConfigError
from electra.export.loading import load_pretrained
from electra.pretraining.config import PretrainConfig
from electra.pretraining.export import trained_length
from electra.pretraining.init_config import InitConfig
from electra.pretraining.refused_settings import refuse_fixed
from electra.pretraining.resolve import resolve
from electra.pretraining.run import pretrain

SMALL = [*small_run.SMALL, "train.steps=2"]


def test_relative_positions_go_on_as_long_as_they_were_read(
    data_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They have no table that says what they know; what they looked at may change, and is said."""
    settings = ["model.embedding_size=32", f"data={data_folder}"]
    left = [one for one in SMALL if not one.startswith("generator.")] + settings
    first = pretrain(load_config(PretrainConfig, "txl-tiny", [*left, f"out={tmp_path / 'left'}"])).run
    both = load_config(
        PretrainConfig, "txl-tiny", [*left, f"out={tmp_path / 'both'}", f"init.discriminator={first}",
        "objective.kind=permutation-lm", "model.direction=both", "packing.sequence_length=24"],
    )  # fmt: skip
    with caplog.at_level("INFO", logger="electra"):
        second = pretrain(both).run
    assert "was left-to-right; in this run it is bidirectional" in caplog.text
    loaded = load_pretrained(second)
    assert loaded.max_length == 32 and loaded.encoder.config.direction == "both"


def test_rotary_positions_keep_the_longest_input_of_all_trainings(data_folder: Path, tmp_path: Path) -> None:
    def trained(name: str, *overrides: str) -> tuple[int, int | None]:
        settings = [*SMALL, f"data={data_folder}", f"out={tmp_path / name}", *overrides]
        loaded = load_pretrained(pretrain(load_config(PretrainConfig, "modern-tiny", settings)).run)
        return loaded.max_length, loaded.trained_length

    assert trained("first", "model.max_positions=128") == (128, 32)
    start = f"init.discriminator={tmp_path / 'first'}"
    assert trained("longer", start, "packing.sequence_length=64") == (128, 64)
    start = f"init.discriminator={tmp_path / 'longer'}"
    assert trained("shorter", start, "packing.sequence_length=16") == (128, 64)
    assert trained("shorter", start, "packing.sequence_length=16") == (128, 64)  # resumed
    with pytest.raises(ConfigError, match=r"init\.trained_length: decided by the networks"):
        refuse_fixed(InitConfig(), {"init.trained_length"})


@pytest.mark.parametrize("preset", ["electra-tiny", "modern-tiny", "deberta-tiny"])
def test_each_network_has_the_longest_input_of_its_own_trainings(
    data_folder: Path, tmp_path: Path, preset: str
) -> None:
    """A new generator knows only the rows of its run, unless it has the discriminator's table of positions."""

    def lengths(*overrides: str) -> list[int]:
        settings = [*SMALL, f"data={data_folder}", f"out={tmp_path / 'run'}", *overrides]
        resolved = resolve(load_config(PretrainConfig, preset, settings), TokenData.open(data_folder))
        return [trained_length(resolved.config, name) for name in ("discriminator", "generator")]

    run = pretrain(
        load_config(
            PretrainConfig, preset, [*SMALL, "train.steps=1", f"data={data_folder}", f"out={tmp_path / 'first'}"]
        )
    ).run
    export, short = run / "export", "packing.sequence_length=16"
    assert lengths() == [32, 32] and lengths(short) == [16, 16]
    towers = f"init.discriminator={export / 'discriminator'}", f"init.generator={export / 'generator'}"
    assert lengths(short, *towers) == [32, 32]
    assert lengths(short, towers[0], "objective.sharing=none") == [32, 16]
    assert lengths(short, towers[0], "objective.sharing=tokens") == [32, 16]
    shared = "objective.sharing=embeddings"
    assert lengths(short, towers[0], shared) == [32, 32 if preset == "electra-tiny" else 16]
    second = load_config(
        PretrainConfig, preset,
        [*SMALL, f"data={data_folder}", f"out={tmp_path / 'second'}", short, towers[0], "objective.sharing=none",
         "train.steps=1", "model.layers=1"],
    )  # fmt: skip
    second_run = pretrain(second).run
    assert lengths("packing.sequence_length=24", f"init.from={second_run}", "objective.sharing=none") == [32, 24]
    exports = [load_pretrained(second_run / "export" / name) for name in ("discriminator", "generator")]
    assert [one.trained_length or one.max_length for one in exports] == [32, 16]
    assert "an earlier one used up to 32" in (second_run / "export/discriminator/README.md").read_text()
    assert "Training used inputs of up to 16 " in (second_run / "export/generator/README.md").read_text()

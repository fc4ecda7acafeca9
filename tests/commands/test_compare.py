"""Two fine-tunings beside each other: surer of what is surely better, and of nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from electra.cli import main
from electra.commands.compare import CompareConfig, Comparison, run
from electra.config import to_toml
from electra.errors import CheckpointError, ConfigError, DataError
from electra.finetuning.config import load_task_config

COUNT = 200
LABELS = ["no" if i % 2 else "yes" for i in range(COUNT)]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    text = "text,label\n" + "".join(f"text {i},{label}\n" for i, label in enumerate(LABELS))
    for name in ("train", "dev"):
        (folder / f"{name}.csv").write_text(text)
    return folder


def result(folder: Path, data: Path, *wrong: range) -> Path:
    """A fine-tuning whose seeds are each wrong at some of the examples."""
    config = load_task_config({
        "model": "M", "kind": "classification", "data.path": data, "data.text": "text", "data.label": "label",
    })  # fmt: skip
    folder.mkdir()
    (folder / "config.toml").write_text(to_toml(config))
    (folder / "results.json").write_text(json.dumps({"seeds": [{"seed": seed} for seed in range(len(wrong))]}))
    for seed, places in enumerate(wrong):
        said = [{"yes": "no", "no": "yes"}[label] if i in places else label for i, label in enumerate(LABELS)]
        (folder / f"seed-{seed}").mkdir()
        lines = [
            {"label": label, "text": f"text {i}", "gold": gold}
            for i, (label, gold) in enumerate(zip(said, LABELS, strict=True))
        ]
        (folder / f"seed-{seed}" / "dev.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder


def compared(first: Path, second: Path, **options: Any) -> Comparison:
    return run(CompareConfig(first, second, **options))


def test_what_is_surely_better_is_said_to_be(table: Path, tmp_path: Path) -> None:
    worse = result(tmp_path / "worse", table, range(80), range(60))
    found = compared(worse, result(tmp_path / "better", table, range(20)))
    assert (found.first, found.second) == (pytest.approx(0.65), pytest.approx(0.9))
    assert found.interval[0] > 0.15 and found.interval[1] < 0.35 and found.probability < 0.01
    assert found.seeds == (2, 1) and found.deviations == (pytest.approx(0.0707, abs=1e-4), None)


def test_a_difference_of_few_examples_may_be_chance(table: Path, tmp_path: Path) -> None:
    one = result(tmp_path / "one", table, range(40))
    found = compared(one, result(tmp_path / "two", table, range(20, 56)))
    assert found.second - found.first == pytest.approx(0.02)
    assert found.interval[0] < 0 < found.interval[1] and found.probability > 0.3


def test_the_interval_is_that_of_the_paired_difference(table: Path, tmp_path: Path) -> None:
    """Where the second is wrong in the same examples and in ten more, only those ten vary."""
    found = compared(result(tmp_path / "one", table, range(90)), result(tmp_path / "two", table, range(100)))
    deviation = (0.05 * 0.95 / COUNT) ** 0.5  # of the share of 10 among 200
    assert found.interval == pytest.approx((-0.05 - 1.96 * deviation, -0.05 + 1.96 * deviation), abs=0.008)


def test_the_same_seed_draws_the_same(table: Path, tmp_path: Path) -> None:
    one, two = result(tmp_path / "one", table, range(40)), result(tmp_path / "two", table, range(30, 60))
    assert compared(one, two, resamples=50) == compared(one, two, resamples=50)
    assert compared(one, two, resamples=50) != compared(one, two, resamples=50, seed=1)


def test_json_is_one_line_in_a_pipe(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = result(tmp_path / "a-long-name-for-a-folder", table, range(40))
    assert main(["compare", str(one), str(one), "--resamples", "9", "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line)["difference"] == 0 and len(line) > 120


def test_what_cannot_be_compared_is_refused(table: Path, tmp_path: Path) -> None:
    one = result(tmp_path / "one", table, range(40))
    with pytest.raises(CheckpointError, match="no finished fine-tuning"):
        compared(one, tmp_path)
    with pytest.raises(ConfigError, match="resamples"):
        compared(one, one, resamples=0)
    other = tmp_path / "other"
    other.mkdir()
    for name in ("train", "dev"):
        (other / f"{name}.csv").write_text((table / f"{name}.csv").read_text().replace("text 7,", "text 8,"))
    with pytest.raises(CheckpointError, match="different data"):
        compared(one, result(tmp_path / "two", other, range(40)))
    (one / "seed-0" / "dev.jsonl").write_text('{"label": "yes"}\n')
    with pytest.raises(DataError, match="1 predictions for 200 examples"):
        compared(one, one)


def test_data_that_were_moved_are_found_where_they_are_said_to_be(table: Path, tmp_path: Path) -> None:
    folders = [result(tmp_path / name, table, range(20)) for name in ("one", "two")]
    moved = table.rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=r"is not there; say where: --data PATH"):
        compared(*folders)
    assert compared(*folders, data=moved).first == pytest.approx(0.9)


@pytest.mark.parametrize("change", [("text 7,no", "text 7,yes"), ("text 7,", "another text,")])
def test_data_that_have_changed_since_are_noticed(table: Path, tmp_path: Path, change: tuple[str, str]) -> None:
    """Predictions are of the examples of then; judged by others, they would seem bad."""
    one, two = result(tmp_path / "one", table, range(9)), result(tmp_path / "two", table, range(5))
    dev = table / "dev.csv"
    dev.write_text(dev.read_text().replace(*change))
    with pytest.raises(DataError, match=r"dev\.jsonl:8: .* they have changed since"):
        compared(one, two)

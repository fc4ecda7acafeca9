"""`torchrun -m electra pretrain`: the run of one process, by two; one of them dies, hangs, comes again."""

import json
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from launching import torchrun
from loop import CLOCKS
from safetensors.torch import load_file
from waiting import until

from electra.config import load_config
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import pretrain
from electra.reports.metrics import read_metrics

STEPS = 40
SETTINGS = {
    "model.hidden_size": 32, "model.embedding_size": 32, "model.feed_forward_size": 64, "model.heads": 2,
    "model.layers": 1, "generator.layers": 1, "generator.hidden_size": 16, "generator.feed_forward_size": 32,
    "packing.sequence_length": 32, "train.batch_size": 8, "train.report_every": 1, "evaluation.examples": 16,
    "train.precision": "float32", "tracking.tensorboard": "false", "optimizer.warmup_steps": 5,
    "train.steps": STEPS, "model.dropout": 0.0, "model.attention_dropout": 0.0, "checkpoint.every": 10,
    "checkpoint.keep": 4,
}  # fmt: skip
BREAKING = Path(__file__).with_name("breaking_worker.py")


def arguments(data: Path, out: Path, *more: str) -> list[str]:
    options = [part for name, value in SETTINGS.items() for part in (f"--{name}", str(value))]
    return ["pretrain", "electra-tiny", "--data", str(data), "--out", str(out), *options, *more]


def alone(data: Path, out: Path, **more: str | int) -> None:
    given = [f"{name}={value}" for name, value in {**SETTINGS, **more}.items()]
    pretrain(load_config(PretrainConfig, "electra-tiny", [*given, f"data={data}", f"out={out}"]))


@pytest.fixture(scope="module")
def one(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    alone(data_folder, out)
    return out


@pytest.fixture(scope="module")
def two(
    data_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    out = tmp_path_factory.mktemp("spread") / "run"
    return out, torchrun("-m", "electra", *arguments(data_folder, out))


def assert_same_losses(run: Path, expected: Path, *, steps: int = STEPS) -> None:
    mine, theirs = read_metrics(run), read_metrics(expected)
    assert len(mine.reports) == steps
    for name in ("loss", "generator_loss", "discriminator_loss", "gradient_norm", "tokens", "flops"):
        known = [report[name] for report in theirs.reports]
        assert [report[name] for report in mine.reports] == pytest.approx(known, rel=1e-5), name
    for left, right in zip(mine.evaluations, theirs.evaluations, strict=True):
        assert left.keys() == right.keys()
        for name in left.keys() - set(CLOCKS):
            # A rank or a sampled token may change with the last bit of a logit.
            coarse = name.endswith(("auc", "average_precision", "accuracy"))
            assert left[name] == pytest.approx(right[name], **({"abs": 0.01} if coarse else {"rel": 1e-3})), name


def test_losses_are_those_of_one_process(one: Path, two: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    run, done = two
    assert done.returncode == 0, done.stderr
    assert_same_losses(run, one)
    assert json.loads((run / "environment.json").read_text())["processes"] == 2


def test_packed_rows_are_those_of_one_process(data_folder: Path, tmp_path: Path) -> None:
    """Each process reads its share of the same rows, each of several documents or parts of them."""
    packed: dict[str, str | int] = {"packing.builder": "packed", "packing.sequence_length": 96, "train.steps": 6}
    alone(data_folder, tmp_path / "one", **packed)
    more = [part for name, value in packed.items() for part in (f"--{name}", str(value))]
    done = torchrun("-m", "electra", *arguments(data_folder, tmp_path / "two", *more))
    assert done.returncode == 0, done.stderr
    assert_same_losses(tmp_path / "two", tmp_path / "one", steps=6)
    assert "documents of similar length together" in (tmp_path / "two/log.txt").read_text()


def test_a_large_text_is_packed_by_the_main_process_while_the_other_waits(
    one: Path, data_folder: Path, tmp_path: Path
) -> None:
    done = torchrun(Path(__file__).with_name("large_worker.py"), *arguments(data_folder, tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert_same_losses(tmp_path / "run", one)
    assert done.stderr.count("tokens into examples, once") == 1


def test_only_the_main_process_prints_and_writes(
    one: Path, two: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    run, done = two
    assert done.stdout.count("run: ") == 1 and done.stderr.count(f"saved step-{STEPS:08d}") == 1
    assert "2 processes; the run ends if one of them does not answer for 10 minutes" in done.stderr
    assert {file.name for file in run.iterdir()} - {file.name for file in one.iterdir()} == {"log-1.txt"}
    assert f"step {STEPS}/{STEPS}" in (run / "log-1.txt").read_text()


def test_a_run_goes_on_with_another_number_of_processes(
    one: Path, two: tuple[Path, subprocess.CompletedProcess[str]], data_folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(two[0], run)
    for later in ("30", "40"):
        shutil.rmtree(run / f"checkpoints/step-000000{later}")
    alone(data_folder, run)
    assert_same_losses(run, one)


def test_two_processes_save_their_memories_and_one_process_resumes_them(data_folder: Path, tmp_path: Path) -> None:
    stream: dict[str, str | int] = {
        "model.positions": "relative", "model.memory_length": 32, "model.type_vocabulary_size": 1,
        "objective.sharing": "tokens", "init.attention": "random", "packing.builder": "stream",
        "train.micro_batch_size": 2,
    }  # fmt: skip
    alone(data_folder, expected := tmp_path / "expected", **stream)
    more = [part for name, value in stream.items() for part in (f"--{name}", str(value))]
    run = tmp_path / "run"
    done = torchrun("-m", "electra", *arguments(data_folder, run, *more))
    assert done.returncode == 0, done.stderr
    assert_same_losses(run, expected)
    for later in ("30", "40"):
        shutil.rmtree(run / f"checkpoints/step-000000{later}")
    alone(data_folder, run, **stream)
    assert_same_losses(run, expected)


def test_a_sharded_run_of_two_processes_equals_the_run_of_one(
    one: Path, data_folder: Path, tmp_path: Path
) -> None:
    """Sharded from a whole checkpoint on; then one process from a sharded one."""
    run, sharded = tmp_path / "run", ("--train.sharding", "full")
    shutil.copytree(one, run)
    for later in ("20", "30", "40"):
        shutil.rmtree(run / f"checkpoints/step-000000{later}")
    done = torchrun("-m", "electra", *arguments(data_folder, run, *sharded))
    assert done.returncode == 0, done.stderr
    assert_same_losses(run, one)
    assert len(list((run / "checkpoints/step-00000040").glob("shard-*.safetensors"))) == 2
    exported = load_file(run / "export/discriminator/model.safetensors")
    for name, value in load_file(one / "export/discriminator/model.safetensors").items():
        torch.testing.assert_close(exported[name], value, rtol=0, atol=1e-4)
    for later in ("30", "40"):
        shutil.rmtree(run / f"checkpoints/step-000000{later}")
    alone(data_folder, run)
    assert_same_losses(run, one)


def test_a_process_that_dies_ends_the_run_and_the_command_goes_on(
    one: Path, data_folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    broken = torchrun(BREAKING, "die", tmp_path / "broken", *arguments(data_folder, run))
    assert broken.returncode != 0
    assert "process 1 (of 2, counted from 0) does not answer" in broken.stderr
    assert [path.name for path in (run / "checkpoints").glob("step-*")] == ["step-00000010"]
    end = json.loads((run / "ended.json").read_text())
    assert end["message"].startswith("process 1 (of 2, counted from 0) does not answer") and end["step"] in (
        12,
        13,
    )
    done = torchrun(BREAKING, "die", tmp_path / "broken", *arguments(data_folder, run))
    assert done.returncode == 0, done.stderr
    assert_same_losses(run, one)


def test_torchrun_restarts_a_run_where_it_was(one: Path, data_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = torchrun(BREAKING, "die", tmp_path / "broken", *arguments(data_folder, run), restarts=1)
    assert done.returncode == 0, done.stderr
    assert "resuming from" in done.stderr
    assert_same_losses(run, one)


def is_stopped(process: str) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
def test_a_process_that_is_stopped_goes_on_later(one: Path, data_folder: Path, tmp_path: Path) -> None:
    marker, run = tmp_path / "stopped", tmp_path / "run"
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(torchrun, BREAKING, "stop", marker, *arguments(data_folder, run))
        until(lambda: marker.exists() and (process := marker.read_text()) and is_stopped(process))
        os.kill(int(marker.read_text()), signal.SIGCONT)
    assert started.result().returncode == 0, started.result().stderr
    assert_same_losses(run, one)


def test_a_process_that_hangs_is_noticed(data_folder: Path, tmp_path: Path) -> None:
    broken = torchrun(BREAKING, "hang", tmp_path / "broken", *arguments(data_folder, tmp_path / "run"))
    assert broken.returncode != 0
    assert (
        "process 1 (of 2, counted from 0) does not answer: it ended, or did nothing for 10 minutes"
        in broken.stderr
    )


def test_a_batch_that_does_not_divide_is_refused_before_anything_else(data_folder: Path, tmp_path: Path) -> None:
    refused = torchrun("-m", "electra", *arguments(data_folder, tmp_path / "run", "--train.batch_size", "9"))
    assert "the batch size 9 does not divide into 2 equal parts" in refused.stderr
    assert not (tmp_path / "run").exists()

"""Faults of the machine around a command: little memory, odd folders and names, two commands at once, SIGKILL.

Real processes, because each fault is one of a process.
"""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from safetensors.torch import load_file
from small_run import command
from small_server import write_run
from waiting import LIMIT

from electra.export.loading import load_pretrained

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the faults are made with Linux's means")

ELECTRA = (sys.executable, "-m", "electra")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
CLASSIFICATION = ("--kind", "classification", "--train.epochs", "1")
NOT_UTF_8 = os.fsdecode(b"caf\xe9")
WITHOUT_A_TEMPORARY_FOLDER = (
    sys.executable,
    "-c",
    "import sys, tempfile\n"
    "tempfile._candidate_tempdir_list = lambda: ['/proc/nowhere']\n"  # else the last one is the working folder
    "sys.modules['dill'] = None\n"  # if it is installed, torch imports it, and it wants one at once
    "from electra.cli import main\n"
    "sys.exit(main(sys.argv[1:]))\n",
)


def with_little_memory(module: str, *, mebibytes: int) -> tuple[str, ...]:
    """A program that has this much more memory for a command when a module and its libraries are loaded."""
    return (
        sys.executable,
        "-c",
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from electra.cli import main\n"
        f"import {module}\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (used + ({mebibytes} << 20),) * 2)\n"
        "sys.exit(main(sys.argv[1:]))\n",
    )


def start(
    arguments: Sequence[str], *, program: Sequence[str] = ELECTRA, environment: Mapping[str, str] = ENVIRONMENT
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*program, *arguments],
        env=environment,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """The exit status and what was written."""
    try:
        output, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    return process.returncode, output


def kill_at_write(number: int) -> tuple[str, ...]:
    """A program that runs a command and kills itself before it writes its n-th file of an export."""
    return (
        sys.executable,
        "-c",
        "import os, signal, sys\n"
        "from electra import durable\n"
        "from electra.cli import main\n"
        "written = 0\n"
        "def write_text(path, text, made=durable.write_text):\n"
        "    global written\n"
        "    written += 'export' in path.parts\n"
        f"    if written == {number}:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    made(path, text)\n"
        "durable.write_text = write_text\n"
        "sys.exit(main(sys.argv[1:]))\n",
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    lines = [f"the {'cat' if number % 2 else 'dog'} number {number},{number % 2}" for number in range(60)]
    path.write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    return path


def test_too_little_memory_is_said_with_the_remedy(data_folder: Path, tmp_path: Path) -> None:
    limited = with_little_memory("electra.pretraining.run", mebibytes=400)
    for table, remedy in (("random", "a smaller batch"), ("cooccurrence", "set init.token_table to random")):
        options = ["--train.steps", "5", "--model.feed_forward_size", "4096", "--init.token_table", table]
        arguments = command(data_folder, tmp_path / table, *options)
        status, output = end(start([*arguments, "--train.batch_size", "8192"], program=limited))
        assert status == 2, output
        assert "not enough memory" in output and remedy in output and "Traceback" not in output
    arguments[arguments.index("--out") + 1] = str(tmp_path / "smaller")
    status, output = end(start(arguments))
    assert status == 0, output


def test_too_little_memory_to_prepare_is_said_too(tmp_path: Path) -> None:
    """A document of five million characters and room for ten; without the limit it can be read."""
    text = "A fox follows the long road. " * 180_000
    (corpus := tmp_path / "corpus.jsonl").write_text(f"{json.dumps({'text': text})}\n" * 2)
    arguments = [
        "prepare",
        str(corpus),
        "--vocabulary_size",
        "600",
        "--workers",
        "1",
        "--out",
        str(tmp_path / "out"),
    ]
    status, output = end(start(arguments, program=with_little_memory("electra.preparation.run", mebibytes=10)))
    assert status == 2, output
    assert "not enough memory" in output and "Traceback" not in output
    status, output = end(start(arguments))
    assert status == 0, output


def test_files_are_as_private_as_umask_says(corpus_file: Path, table: Path, tmp_path: Path) -> None:
    private = ("sh", "-c", 'umask 077; exec "$@"', "sh", *ELECTRA)
    (out := tmp_path / "out").mkdir(mode=0o700)
    data, run, tuned = (str(out / name) for name in ("data", "run", "tuned"))
    commands = [
        ["prepare", str(corpus_file), "--out", data, "--vocabulary_size", "600", "--workers", "1"],
        command(out / "data", out / "run", "--train.steps", "2"),
        ["finetune", run, *CLASSIFICATION, "--data", str(table), "--out", tuned],
        ["predict", tuned, "--input", str(table), "--output", str(out / "predicted.csv")],
    ]
    if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
        commands.append(["export", tuned, "--to", "onnx", "--out", str(out / "graph")])
    for arguments in commands:
        status, output = end(start(arguments, program=private))
        assert status == 0, output
    written = list(out.rglob("*"))
    assert len(written) > 50
    assert [path for path in written if path.stat().st_mode & 0o077] == []


def test_no_home_to_write_to(data_folder: Path, tmp_path: Path) -> None:
    """Libraries keep caches at home; a command must not need one."""
    without = {name: value for name, value in ENVIRONMENT.items() if not re.match(r"XDG_|MPL", name)}
    without["HOME"] = "/proc/nowhere"
    arguments = command(data_folder, tmp_path / "run", "--train.steps", "2")
    status, output = end(start(arguments, environment=without))
    assert status == 0, output
    assert (tmp_path / "run/curves.png").is_file()
    status, output = end(start(["score", str(tmp_path / "run"), "the fox"], environment=without))
    assert status == 0 and "fox" in output


@pytest.mark.parametrize("verb", ["prepare", "pretrain", "finetune", "export", "score"])
def test_without_a_temporary_folder_a_command_works_or_says_it(
    verb: str, corpus_file: Path, data_folder: Path, table: Path, tmp_path: Path
) -> None:
    model, out = str(write_run(tmp_path / "model") / "export/discriminator"), str(tmp_path / "out")
    if verb == "export":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
    arguments = {
        "prepare": [str(corpus_file), "--vocabulary_size", "600", "--workers", "1", "--out", out],
        "pretrain": command(data_folder, tmp_path / "out", "--train.steps", "2")[1:],
        "finetune": [model, *CLASSIFICATION, "--data", str(table), "--out", out],
        "export": [model, "--to", "onnx", "--out", out],
        "score": [model, "the cat"],
    }[verb]
    status, output = end(start([verb, *arguments], program=WITHOUT_A_TEMPORARY_FOLDER))
    assert "Traceback" not in output
    if status:
        assert status == 2 and "electra: No usable temporary directory found in ['/proc/nowhere']" in output, (
            output
        )
        assert "set TMPDIR to a folder" in output
        status, output = end(start([verb, *arguments]))
    assert status == 0, output


def test_file_names_that_are_not_utf_8(corpus_file: Path, data_folder: Path, tmp_path: Path) -> None:
    """They can be read; the folder of a run, whose config has its path, cannot have one."""
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / f"{NOT_UTF_8}.jsonl").write_bytes(corpus_file.read_bytes())
    options = ["--vocabulary_size", "600", "--workers", "1"]
    status, output = end(start(["prepare", str(texts), "--out", str(tmp_path / "data"), *options]))
    assert status == 0, output
    assert json.loads((tmp_path / "data/manifest.json").read_text())["splits"]["train"]["shards"]
    run = tmp_path / NOT_UTF_8
    status, output = end(start(command(data_folder, run)))
    assert status == 2 and "is not UTF-8" in output and "rename" in output and not run.exists()


def test_models_and_texts_whose_names_are_not_utf_8(table: Path, tmp_path: Path) -> None:
    """They are read and written; a fine-tuning, whose config has their paths, cannot have them."""
    model, tuned = str(write_run(tmp_path / "model") / "export/discriminator"), tmp_path / "tuned"
    texts = tmp_path / f"{NOT_UTF_8}.csv"
    texts.write_bytes(table.read_bytes())
    finetune = ["finetune", model, *CLASSIFICATION, "--data"]
    status, output = end(start([*finetune, str(texts), "--out", str(tuned)]))
    assert status == 2 and "is not UTF-8" in output and "rename" in output and not tuned.exists(), output
    status, output = end(start([*finetune, str(table), "--out", str(tuned)]))
    assert status == 0, output
    renamed = tuned.rename(tmp_path / NOT_UTF_8)
    out = tmp_path / f"{NOT_UTF_8}.jsonl"
    for verb, source in (("score", model), ("predict", str(renamed))):
        options = ["--input", str(texts), "--output", str(out), *["--json"] * (verb == "score")]
        status, output = end(start([verb, source, *options]))
        assert status == 0, output
        assert out.read_text(encoding="utf-8").count('"text": "the cat number') == 30
        out.unlink()


@pytest.mark.parametrize("verb", ["prepare", "pretrain", "finetune", "export"])
def test_of_two_commands_with_one_folder_each_is_done_or_refused(
    verb: str, corpus_file: Path, data_folder: Path, table: Path, tmp_path: Path
) -> None:
    model, out = write_run(tmp_path / "model") / "export/discriminator", tmp_path / "out"
    arguments = {
        "prepare": [str(corpus_file), "--vocabulary_size", "600", "--workers", "1"],
        "pretrain": command(data_folder, out, "--train.steps", "30")[1:],
        "finetune": [str(model), *CLASSIFICATION, "--data", str(table)],
        "export": [str(model), "--to", "onnx"],
    }[verb]
    if verb == "export":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
    options = [] if "--out" in arguments else ["--out", str(out)]
    ended = [end(process) for process in [start([verb, *arguments, *options]) for _ in range(2)]]
    statuses = sorted(status for status, _ in ended)
    assert statuses in ([0, 2], [0, 0]), ended  # both, if the second began after the end of the first
    for status, output in ended:
        assert "Traceback" not in output
        if status == 2:
            assert str(out) in output and "give another --out" in output
    readers: dict[str, Callable[[], object]] = {
        "prepare": lambda: end(start(["data", "verify", str(out)])),
        "pretrain": lambda: load_pretrained(out),
        "finetune": lambda: load_pretrained(out / "model"),
        "export": lambda: end(start(["score", str(out), "the cat"])),
    }
    result = readers[verb]()
    assert not isinstance(result, tuple) or result[0] == 0, result


def test_a_kill_between_two_files_of_an_export_leaves_nothing_half_done(data_folder: Path, tmp_path: Path) -> None:
    """What is there can be loaded; the same command ends what is missing."""
    out = tmp_path / "run"
    arguments = command(data_folder, out, "--train.steps", "2")
    for number in (2, 5):
        status, output = end(start(arguments, program=kill_at_write(number)))
        assert status == -signal.SIGKILL, output
        for stored in (out / "export").glob("*/config.json"):  # without it a folder is no model
            load_pretrained(stored.parent)
    status, output = end(start(arguments))
    assert status == 0, output
    assert {folder.name for folder in (out / "export").iterdir()} == {"discriminator", "generator"}
    assert load_file(out / "export/discriminator/model.safetensors")


def test_a_kill_between_two_seeds_keeps_the_first(table: Path, tmp_path: Path) -> None:
    model = write_run(tmp_path / "model") / "export/discriminator"
    arguments = ["finetune", str(model), *CLASSIFICATION, "--data", str(table), "--seeds", "2"]
    program = (
        "import os, signal, sys\n"
        "from electra.cli import main\n"
        "from electra.finetuning import run\n"
        "def run_seed(*arguments, made=run.run_seed, seeds=[], **options):\n"
        "    seeds.append(1)\n"
        "    if len(seeds) == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return made(*arguments, **options)\n"
        "run.run_seed = run_seed\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    out, whole = tmp_path / "out", tmp_path / "whole"
    status, output = end(start([*arguments, "--out", str(out)], program=(sys.executable, "-c", program)))
    assert status == -signal.SIGKILL, output
    status, output = end(start([*arguments, "--out", str(out)]))
    assert status == 0, output
    status, _ = end(start([*arguments, "--out", str(whole)]))
    assert status == 0
    results = [json.loads((folder / "results.json").read_text())["seeds"] for folder in (out, whole)]
    metrics = [[(seed["seed"], seed["metrics"]) for seed in seeds] for seeds in results]
    assert len(metrics[0]) == 2 and metrics[0] == metrics[1]

"""Errors: what is said of those that do not come from this package."""

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import electra
from electra import errors
from electra.cli import main
from electra.errors import ConfigError, DataError, describe


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 524288 bytes."
        ),
        RuntimeError("can't start new thread"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_too_little_memory_is_said_in_words(error: Exception) -> None:
    said = describe(error)
    assert said.startswith("there is not enough memory") and str(error) in said
    assert "allow more (ulimit -v), and run the same command again" in said


def test_only_an_unexpected_error_has_its_type() -> None:
    assert (
        describe(DataError("corpus.txt: out of memory of its author")) == "corpus.txt: out of memory of its author"
    )
    assert describe(KeyError("name")) == "KeyError: 'name'"


@pytest.mark.parametrize(
    ("message", "python"),
    [
        ("out: is missing; give --out, the folder", "out: is missing; give `out`, the folder"),
        ("increase --train.epochs or --batch-size.", "increase `train.epochs` or `batch_size`."),
        ("make it with `electra prepare TEXT --out DATA`, or give --data", None),
        ("resume it: electra pretrain X --out RUN --fresh\n  or give --out", None),
        ("2 GPUs; give `torchrun --nproc-per-node 2`, or give --data", None),
        ("1–2 -- or 5--6; a word--another, ---data", "1–2 -- or 5--6; a word--another, ---data"),
    ],
)
def test_in_python_a_message_names_settings_and_commands_stay(
    message: str, python: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_command_line", False)
    expected = python or message.replace("give --data", "give `data`").replace("give --out", "give `out`")
    assert str(ConfigError(message)) == expected
    with errors.on_command_line():
        assert str(ConfigError(message)) == message
    assert str(ConfigError(message)) == expected


def test_the_command_shows_options_and_python_shows_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "electra-tiny"]) == 2
    assert "a run needs --data" in capsys.readouterr().err
    program = """
import electra
try:
    electra.pretrain(electra.load_config("electra-tiny", {}))
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("a run needs `data` (made by `electra prepare`) and `out`"), done.stderr


def test_options_and_commands_with_another_name_in_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    settings = {"model": "wiki-tiny", "task": "cola", "out": tmp_path / "out"}
    calls: list[tuple[Callable[[], object], str, str]] = [
        (lambda: electra.load_plugin("none.py"), "--plugin none.py: this is", "none.py: this is"),
        (
            lambda: electra.load_config("electra-tiny", {"objective.kind": "none"}),
            "others need --plugin FILE",
            "others need electra.load_plugin(FILE)",
        ),
        (
            lambda: electra.finetune(electra.load_task_config(settings)),
            "of the task's data, --data PATH",
            "give the folder or file of the task's data",
        ),
        (
            lambda: electra.load(tmp_path),
            f"electra pretrain PRESET --data {tmp_path} --out RUN",
            "electra.pretrain",
        ),
        (
            lambda: electra.load("wiki-tiny").predict(["one"]),
            "fine-tune it: electra finetune MODEL --task NAME",
            "fine-tune it: electra.finetune",
        ),
        (
            lambda: electra.Scorer("wiki-tiny/encoder"),
            "masked language model: electra score --surprisal",
            "masked language model: electra.load(MODEL).surprisal",
        ),
    ]
    for call, command, python in calls:
        for is_command, end in ((True, command), (False, python)):
            monkeypatch.setattr(errors, "_command_line", is_command)
            with pytest.raises(errors.ElectraError) as raised:
                call()
            message = str(raised.value)
            assert end in message and ("--" in message or "electra pretrain" in message) == is_command, message

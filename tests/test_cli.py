"""The command line: verbs, options, messages and exit statuses."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import tyro
from rich.console import Group
from rich.table import Table

from electra import __version__, cli
from electra.errors import ConfigError, DataError


@dataclasses.dataclass(frozen=True)
class FakeConfig:
    name: tyro.conf.Positional[str]
    """What to greet."""
    times: int = 1
    """How often."""
    dry_run: bool = False
    """Only say what would be done."""
    tone: Literal["warm", "formal"] | None = None
    """How it sounds."""


@dataclasses.dataclass(frozen=True)
class FakePretrainConfig:
    preset: tyro.conf.Positional[str]
    """A preset."""
    out: Path = Path("run")
    """The run folder."""
    fresh: bool = False
    """Start anew."""
    overrides: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Settings of the preset."""


@dataclasses.dataclass(frozen=True)
class Stopped:
    exit_code: int = 143

    def __str__(self) -> str:
        return "stopped [MASK]"


class Drawn:
    def __rich__(self) -> Group:
        table = Table("figure")
        table.add_row("one " * 24)
        return Group("[section] of :smile:", table)


def greet(config: FakeConfig) -> str:
    """Greet someone.

    Examples:
        electra greet Ada
        electra greet Ada --times 3
    """
    return f"{config.name} x{config.times} dry_run={config.dry_run}"


def pretrain(config: FakePretrainConfig) -> str:
    """Train something."""
    return repr(config)


def stopped(config: FakeConfig) -> Stopped:
    """Stop."""
    return Stopped()


def drawn(config: FakeConfig) -> Drawn:
    """Draw."""
    return Drawn()


def users_mistake(config: FakeConfig) -> None:
    """Fail with an error that the user can fix."""
    raise DataError("corpus.txt:3: not a line; write one")


def surprise(config: FakeConfig) -> None:
    """Fail with an unexpected error, or with a panic of a library in Rust."""
    raise (BaseException if config.name == "panic" else KeyError)("first\nsecond")


def without_memory(config: FakeConfig) -> None:
    """Fail because there is no memory."""
    raise MemoryError


def interrupted(config: FakeConfig) -> None:
    """Be interrupted."""
    raise KeyboardInterrupt


Electra = Callable[..., int]


@pytest.fixture
def electra(monkeypatch: pytest.MonkeyPatch) -> Electra:
    """Runs the command in this process, with this file's functions for verbs as well."""
    for verb in (greet, pretrain, stopped, drawn, users_mistake, surprise, without_memory, interrupted):
        monkeypatch.setitem(cli.VERBS, verb.__name__.replace("_", "-"), (f"{__name__}:{verb.__name__}", "fake"))
    return lambda *arguments: cli.main(arguments)


def test_a_command_without_arguments_shows_the_help(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra() == 0
    assert capsys.readouterr().out.startswith("usage: electra VERB")


def test_version(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("--version") == 0
    assert capsys.readouterr().out == f"electra {__version__}\n"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(option: str):
    heavy = ("torch", "numpy", "tyro", "rich", "tokenizers", "transformers", "pyarrow", "matplotlib")
    code = f"""
import sys
from electra import cli
status = cli.main([{option!r}])
print(*(name for name in {heavy!r} if name in sys.modules), file=sys.stderr)
sys.exit(status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
    assert "electra" in done.stdout


def test_a_verbs_help_shows_its_docstring_examples_and_options(
    electra: Electra, capsys: pytest.CaptureFixture[str]
):
    assert electra("greet", "--help") == 0
    shown = capsys.readouterr().out
    assert "electra greet Ada --times 3" in shown
    assert "--times INTEGER       How often. (default: 1)\n" in shown
    assert "--dry-run             Only say what would be done.\n" in shown
    assert "--no-dry-run" not in shown


def test_a_verb_is_called_with_its_config_and_its_result_shown(
    electra: Electra, capsys: pytest.CaptureFixture[str]
):
    assert electra("greet", "Ada", "--times", "3", "--dry-run") == 0
    assert capsys.readouterr().out == "Ada x3 dry_run=True\n"


def test_an_unknown_verb_gets_a_suggestion(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("pretran", "x") == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("electra: there is no verb 'pretran'; did you mean 'pretrain'?")
    assert shown.out == ""
    assert electra("analyse", "compare", "x") == 2  # British spelling of a verb of two words
    assert "there is no verb 'analyse'; did you mean 'analyze'?" in capsys.readouterr().err


def test_an_unknown_option_gets_a_suggestion(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("greet", "Ada", "--tmes", "3") == 2
    shown = capsys.readouterr().err
    assert "--tmes" in shown and "--times" in shown
    assert electra("greet", "Ada", "--nope", "some words", "--times", "3") == 2
    shown = capsys.readouterr().err
    assert "Unrecognized options: --nope " in shown and "words" not in shown


def test_a_missing_argument_and_a_wrong_type_are_the_users_mistakes(electra: Electra):
    assert electra("greet") == 2
    assert electra("greet", "Ada", "--times", "often") == 2


def test_without_arguments_all_required_ones_are_named(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("prepare") == 2
    shown = capsys.readouterr().err
    assert "CORPUS...: Files" in shown
    assert "--out PATH: Output folder." in shown


def test_an_unexpected_argument_is_not_called_an_option(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("greet", "Ada", "extra") == 2
    assert "electra greet does not expect the argument 'extra'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--times", "abc", "must be a whole number, got 'abc'"),
        ("--tone", "warn", "must be one of warm, formal (did you mean 'warm'?), got 'warn'"),
        ("--tone", "None", "must be one of warm, formal, got 'None'"),
    ],
)
def test_a_wrong_value_of_an_option_is_explained_in_plain_words(
    electra: Electra, capsys: pytest.CaptureFixture[str], option: str, value: str, message: str
):
    assert electra("greet", "Ada", option, value) == 2
    shown = " ".join(capsys.readouterr().err.replace("│", "").split())
    assert message in shown
    assert "INT " not in shown
    assert "None)" not in shown


def test_dotted_options_are_passed_on_as_overrides(electra: Electra, capsys: pytest.CaptureFixture[str]):
    arguments = [
        "--train.steps", "5", "tiny", "--train.learning-rate=1e-3", "--fresh", "--a.b", "-1", "--out", "o.d",
    ]  # fmt: skip
    assert electra("pretrain", *arguments) == 0
    assert capsys.readouterr().out.strip() == repr(
        FakePretrainConfig(
            preset="tiny",
            out=Path("o.d"),
            fresh=True,
            overrides=("train.steps=5", "train.learning_rate=1e-3", "a.b=-1"),
        )
    )


def test_an_override_without_a_value_is_passed_on_unchanged(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("pretrain", "tiny", "--train.steps", "--fresh") == 0
    assert "overrides=('train.steps',)" in capsys.readouterr().out


def test_a_misspelled_option_is_not_an_override(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("pretrain", "tiny", "--frsh") == 2
    assert "--fresh" in capsys.readouterr().err


def test_other_options_without_a_dot_are_overrides(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("pretrain", "tiny", "--steps", "5") == 0
    assert "overrides=('steps=5',)" in capsys.readouterr().out


def test_dotted_options_are_unknown_to_verbs_without_overrides(
    electra: Electra, capsys: pytest.CaptureFixture[str]
):
    assert electra("greet", "Ada", "--train.steps", "5") == 2
    assert "--train.steps" in capsys.readouterr().err


def test_a_users_mistake_is_one_message_and_exit_2(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("users-mistake", "x") == 2
    assert capsys.readouterr().err == "electra: corpus.txt:3: not a line; write one\n"


@pytest.mark.parametrize(("name", "error"), [("x", "KeyError"), ("panic", "BaseException")])
def test_an_unexpected_error_is_one_line(
    electra: Electra, capsys: pytest.CaptureFixture[str], name: str, error: str
):
    assert electra("surprise", name) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"electra: {error}: ")
    assert shown.endswith("(run again with --debug to see the traceback)\n")
    assert shown.count("\n") == 1


def test_too_little_memory_is_one_message_and_exit_2(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("without-memory", "x") == 2
    assert capsys.readouterr().err.startswith("electra: there is not enough memory\n  use less")


@pytest.mark.parametrize("arguments", [("--debug", "surprise", "x"), ("surprise", "x", "--debug")])
def test_debug_shows_the_traceback_before_or_after_the_verb(
    arguments: tuple[str, ...], electra: Electra, capsys: pytest.CaptureFixture[str]
):
    assert electra(*arguments) == 1
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert "in surprise" in shown


def test_an_interrupted_verb_exits_with_130(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("interrupted", "x") == 130
    assert capsys.readouterr().err == "electra: interrupted\n"


def test_a_result_may_name_the_exit_status(electra: Electra, capsys: pytest.CaptureFixture[str]):
    assert electra("stopped", "x") == 143
    assert capsys.readouterr().out == "stopped [MASK]\n"


def test_a_rich_result_is_not_wrapped_at_80_columns_and_has_no_markup(
    electra: Electra, capsys: pytest.CaptureFixture[str]
):
    assert electra("drawn", "x") == 0
    shown = capsys.readouterr().out
    assert "one " * 23 + "one" in shown
    assert "[section] of :smile:" in shown


def test_a_missing_module_is_an_unexpected_error(
    electra: Electra, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(cli.VERBS, "gone", ("electra.no_such_module:run", "fake"))
    assert electra("gone") == 1
    assert "ModuleNotFoundError" in capsys.readouterr().err


def test_a_config_error_keeps_its_lines(
    electra: Electra, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def run(config: FakeConfig) -> None:
        raise ConfigError("2 problems:\n  a\n  b")

    monkeypatch.setattr(sys.modules[__name__], "greet", run)
    assert electra("greet", "x") == 2
    assert capsys.readouterr().err == "electra: 2 problems:\n  a\n  b\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["talk"], ["talk", "--help"]])
def test_a_reader_that_closes_the_pipe_ends_the_command_without_a_message(arguments: list[str], unbuffered: str):
    code = f"""
import sys
from dataclasses import dataclass
from electra import cli

@dataclass(frozen=True)
class Config:
    pass

def run(config: Config) -> str:
    return run.__doc__

run.__doc__ = "A line.\\n\\n" * 100_000
cli.VERBS["talk"] = ("__main__:run", "fake")
sys.exit(cli.main({arguments!r}))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    ) as talk:
        assert talk.stdout is not None
        assert talk.stderr is not None
        assert talk.stdout.readline()
        talk.stdout.close()
        assert talk.stderr.read() == ""
    # Unbuffered, Python drops the part of a write that the pipe did not accept, and does not notice the error.
    assert talk.returncode == 1 or (unbuffered and talk.returncode == 0)


def test_the_installed_command_has_this_version():
    command = Path(sys.executable).parent / "electra"
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"electra {__version__}\n"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("steps = 5\nminutes = 1", (), "mine.toml: train.steps and train.minutes both set the length of the run"),
        ("minutes = 1", ("--train.steps", "5"), "mine.toml sets train.minutes, which is also a length of the run"),
        ("minutes = 1", (), ""),
        ("steps = 5", ("--train.minutes", "1"), ""),
    ],
)
def test_a_file_sets_one_length_of_a_run(
    content: str, options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The preset that the file extends sets train.steps; the file may set train.minutes instead."""
    file = tmp_path / "mine.toml"
    file.write_text(f'extends = "electra-nano"\n[train]\n{content}\n')
    assert cli.main(["pretrain", str(file), "--dry-run", *options]) == (2 if message else 0)
    output = capsys.readouterr()
    assert message in output.err
    if not message:
        assert "time of training and evaluations (train.minutes)" in output.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve", "nope", "--generator", "none"), "--generator: there is no folder none"),
        (
            ("finetune", "MODEL", "--task", "cola", "--data", "D", "--out", "O", "--init-from-task", "none"),
            "--init-from-task: there is no folder none",
        ),
        (("finetune", "none", "--task", "cola", "--data", "D", "--out", "O"), "electra: there is no folder none"),
    ],
)
def test_a_missing_model_is_named_before_anything_is_read(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err

"""The help of the command and of its verbs."""

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from electra import cli
from electra.config import PositiveFloat
from electra.help import verb_help


@pytest.mark.parametrize("verb", cli.VERBS)
def test_the_help_of_every_verb_has_two_examples_and_no_none(verb: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: electra {verb} ")
    assert len(re.findall(rf"^ +electra {verb}\b", shown, re.MULTILINE)) >= 2
    assert "None" not in shown and "(default: )" not in shown


@pytest.mark.parametrize(
    ("verb", "name"),
    [("prepare", "CORPUS"), ("data merge", "PART"), ("data verify", "FOLDER"), ("report", "FOLDER")],
)
def test_required_arguments_are_not_shown_as_optional(verb: str, name: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main([*verb.split(), "--help"]) == 0
    usage = capsys.readouterr().out.partition("\n\n")[0]
    assert f" {name}... " in f"{usage} " and f"[{name}" not in usage


def test_help_lists_every_verb_on_one_screen(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) < 24 and max(map(len, shown.splitlines())) <= 80
    assert all(re.search(rf" {verb.rpartition(' ')[2]}[ ,\n]", shown) for verb in cli.VERBS)
    assert all(re.search(rf"^{group} ", shown, re.MULTILINE) for group in cli.GROUPS)


@pytest.mark.parametrize("word", ["data", "analyze"])
def test_data_and_analyze_list_their_verbs(word: str, capsys: pytest.CaptureFixture[str]):
    verbs = {verb: summary for verb, (_, summary) in cli.VERBS.items() if verb.startswith(f"{word} ")}
    for arguments, status in (([word], 2), ([word, "--help"], 0), ([word, "-h"], 0)):
        assert cli.main(arguments) == status
        shown = capsys.readouterr().out
        assert all(
            re.search(rf"^  {verb.split()[1]} +{re.escape(verbs[verb])}$", shown, re.MULTILINE) for verb in verbs
        )
        assert shown.count(f"\n  electra {word} ") == 2, "two examples"
        assert max(map(len, shown.splitlines())) <= 80


@dataclasses.dataclass(frozen=True)
class EveryKind:
    models: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="MODEL...")]
    """Folders."""
    data: Path
    """Where the data
    are."""
    text: tyro.conf.Positional[str | None] = None
    """A text."""
    kind: Literal["a", "b"] | None = None
    """A kind. Default: the kind of the model."""
    shares: tuple[PositiveFloat, ...] = (0.5, 1.0)
    """Shares."""
    pair: tuple[str, str] | None = None
    """Two columns."""
    speed: bool = True
    """Leave the speed out."""
    long_name_of_an_option: int | None = None
    """A number."""
    overrides: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Settings."""


def every_kind(config: EveryKind) -> None:
    """First line
    goes on.

    Second
    paragraph.

    Examples:
        electra every-kind A
            with an indented line
    """


def test_every_kind_of_option_has_its_notation(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "70")
    assert (
        verb_help("every-kind", every_kind)
        == """\
usage: electra every-kind MODEL... --data PATH [TEXT] [OPTIONS]
               [--section.name VALUE]

First line goes on.

Second paragraph.

examples:
  electra every-kind A
      with an indented line

arguments:
  MODEL...              Folders.
  TEXT                  A text.

options:
  --data PATH           Where the data are. (required)
  --kind {a,b}          A kind. Default: the kind of the model.
  --shares NUMBER...    Shares. (default: 0.5 1.0)
  --pair TEXT TEXT      Two columns.
  --no-speed            Leave the speed out.
  --long-name-of-an-option INTEGER
                        A number.
  --section.name VALUE  Any setting of the config.
  -h, --help            Show this help.
"""
    )

"""Errors that a user can cause and fix. Each message says what happened, where, and how to fix it."""

import contextlib
import difflib
import importlib.util
import re
from collections.abc import Iterator, Sequence

NO_MEMORY = (
    "failed to map segment", "annot allocate memory", "can't allocate memory", "can't start new thread",
    "out of memory",
)  # fmt: skip
"""Parts of the messages of libraries and of the system when a library, a tensor or a thread finds no memory."""


_OPTION = re.compile(
    r"(?P<command>\b(?:electra [a-z]|torchrun )[^`\n;]*)|(?<![\w-])--(?P<name>[a-z][a-z0-9_.-]*[a-z0-9])"
)
_command_line = False  # of the process: threads and wrapped errors must agree


class ElectraError(ValueError):
    """Base of every error that the user can fix; the command prints it and exits with 2.

    Messages are written for the command line, as in "give --train.steps". In Python they name the setting or
    argument instead, as in "give `train.steps`"; commands, such as `electra prepare TEXT --out DATA`, stay.
    `caller_name` is for options and commands that have another name in Python.
    """

    def __str__(self) -> str:
        return for_caller(super().__str__())


@contextlib.contextmanager
def on_command_line() -> Iterator[None]:
    """Within the block, messages of errors name the options of the command line."""
    global _command_line
    before, _command_line = _command_line, True
    try:
        yield
    finally:
        _command_line = before


def for_caller(message: str) -> str:
    """A message that names options of the command line; outside of it, with settings and arguments instead."""
    return message if _command_line else _OPTION.sub(_name_setting, message)


def caller_name(option: str, python: str) -> str:
    """How the caller names something: by an option or a command of the command line, or as in Python.

    It is for what `for_caller` cannot know: an option whose setting has another name, and a command that is a
    function.
    """
    return option if _command_line else python


def _name_setting(found: re.Match[str]) -> str:
    return found["command"] or f"`{found['name'].replace('-', '_')}`"


class ConfigError(ElectraError):
    """A setting is unknown, of the wrong type, or contradicts another one."""


class DataError(ElectraError):
    """A corpus, a tokenizer or a folder of token shards cannot be used as it is."""


class CheckpointError(ElectraError):
    """A checkpoint or a run folder is damaged, missing, or of another run."""


class DivergedError(CheckpointError):
    """A run reached numbers that are not finite, and cannot continue."""


class ProcessError(ElectraError):
    """One of the processes that train together is gone or does not answer."""


class MissingExtraError(ElectraError):
    """A library is missing that only some verbs need. An extra of the package installs it."""


@contextlib.contextmanager
def in_option(name: str) -> Iterator[None]:
    """Put the name of an option, such as --generator, in front of the message of an error."""
    try:
        yield
    except ElectraError as error:
        raise type(error)(f"{name}: {error}") from error


def describe(error: BaseException) -> str:
    """Return what an exception says: the message of an error that the user can fix, else also its type."""
    if isinstance(error, ElectraError):
        return str(error)
    if is_out_of_memory(error):
        reason = str(error).partition("\n")[0]
        return (
            f"there is not enough memory{reason and f' ({reason})'}\n  use less (a smaller batch, shorter texts, "
            "fewer --workers), or allow more (ulimit -v), and run the same command again"
        )
    return f"{type(error).__name__}: {error}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether no memory was found: by Python, by a library, by the system, or on a GPU."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in NO_MEMORY)


def require(purpose: str, extra: str, *modules: str) -> None:
    """Check that modules of an extra are installed.

    Args:
        purpose: what needs them; the message begins with it.

    Raises:
        MissingExtraError: a module is missing.
    """
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        names = " and ".join(missing)
        raise MissingExtraError(f'{purpose} needs {names}; install the extra: pip install "electra[{extra}]"')


def did_you_mean(word: str, names: Sequence[str], *, section: str | None = None) -> str:
    """Return `"; did you mean 'x'?"`; empty if no name is similar to the word.

    A name with the same beginning is preferred, as electra-plus-tiny for electra-plus-small.

    Args:
        section: the names are settings of this section (with a dot at its end), which are options, too; the
            message names the whole option.
    """
    family = [name for name in names if "-" in word and name.startswith(word[: word.rindex("-") + 1])]
    matches = difflib.get_close_matches(word, family, n=1) or difflib.get_close_matches(word, names, n=1)
    matches = matches or [name for name in names if len(name) > 3 and word.startswith(name)]
    if not matches:
        return ""
    return f"; did you mean {repr(matches[0]) if section is None else f'--{section}{matches[0]}'}?"

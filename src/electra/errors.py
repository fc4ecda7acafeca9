"""Errors that a user can cause and fix. Each message says what happened, where, and how to fix it."""

import difflib
import importlib.util
from collections.abc import Sequence


class ElectraError(ValueError):
    """Base of every error that the user can fix; the command prints it and exits with 2."""


class ConfigError(ElectraError):
    """A setting is unknown, of the wrong type, or contradicts another one."""


class DataError(ElectraError):
    """A corpus, a tokenizer or a folder of token shards cannot be used as it is."""


class CheckpointError(ElectraError):
    """A checkpoint or a run folder is damaged, missing, or belongs to something else."""


class DivergedError(CheckpointError):
    """A run reached numbers that are not finite, and cannot continue."""


class ProcessError(ElectraError):
    """One of the processes that train together is gone or does not answer."""


class MissingExtraError(ElectraError):
    """A library is not installed that only some verbs need; it belongs to an extra of the package."""


def require(purpose: str, extra: str, *modules: str) -> None:
    """Check that modules of an extra are installed.

    Args:
        purpose: what needs them; the message begins with it.

    Raises:
        MissingExtraError: one is not.
    """
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        names = " and ".join(missing)
        raise MissingExtraError(f'{purpose} needs {names}; install the extra: pip install "electra[{extra}]"')


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """`"; did you mean 'x'?"`, or nothing when no known word is near."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    near = near or [name for name in known if len(name) > 3 and word.startswith(name)]  # a longer word for it
    return f"; did you mean {near[0]!r}?" if near else ""

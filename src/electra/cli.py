"""The `electra` command: find the verb, read its config, call it, show what it returns.

A verb is `run(config) -> result` in a module of `electra.commands`. The config is a dataclass, from which tyro
makes the options; the docstring of `run` is the help. Everything heavy is imported after the verb is known.
"""

import contextlib
import errno
import importlib
import inspect
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from electra import __version__

VERBS = {
    "quickstart": (
        "electra.commands.quickstart:run",
        "the whole way in minutes, on text this machine has",
    ),
    "prepare": ("electra.commands.prepare:run", "text -> a tokenizer and shards of tokens"),
    "data inspect": ("electra.commands.data.inspect:run", "prepared data as a run will see it, and lengths"),
    "data stats": ("electra.commands.data.stats:run", "documents, sentences, tokens and their lengths"),
    "data verify": ("electra.commands.data.verify:run", "whether every file of prepared data is whole"),
    "data fetch": ("electra.commands.data.fetch:run", "prepared data from a web server or an object store"),
    "data merge": ("electra.commands.data.merge:run", "what several machines prepared -> one folder"),
    "data tags": ("electra.commands.data.tags:run", "a part of speech for each token, for fakes of the same kind"),
    "pretrain": ("electra.commands.pretrain:run", "shards -> a trained discriminator and generator"),
    "status": ("electra.commands.status:run", "runs from outside: alive, how far, how well"),
    "finetune": ("electra.commands.finetune:run", "an encoder -> one that does your task"),
    "predict": ("electra.commands.predict:run", "labels, values, tags or answers of a fine-tuned model"),
    "compare": ("electra.commands.compare:run", "two fine-tunings: is one better, or was it chance?"),
    "prompt": ("electra.commands.prompt:run", "labels from a discriminator and a template, without training"),
    "similarity": ("electra.commands.similarity:run", "whether embeddings of like texts lie close together"),
    "study": ("electra.commands.study:run", "a table or figure of the paper, again, at a budget you set"),
    "report": ("electra.commands.report:run", "runs, fine-tunings, studies, analyses -> one HTML file"),
    "export": ("electra.commands.export:run", "a model -> folders for transformers, or for onnxruntime"),
    "flops": ("electra.commands.flops:run", "what a model costs to train and to use, term by term"),
    "analyze context": (
        "electra.commands.analyze.context:run",
        "what a longer memory is worth to a language model, and how quickly it reads",
    ),
    "analyze compare": (
        "electra.commands.analyze.encoders:run",
        "two encoders side by side: layers, probes, attention, neighbours",
    ),
    "analyze generator": (
        "electra.commands.analyze.generator:run",
        "what a generator proposes on held-out text, also over training",
    ),
    "analyze parts-of-speech": (
        "electra.commands.analyze.parts_of_speech:run",
        "which words look replaced, by tag and frequency, and whether they are harder",
    ),
    "analyze detect": (
        "electra.commands.analyze.detect:run",
        "whether a discriminator, or a tagger, finds the words that learners got wrong",
    ),
    "analyze calibrate": (
        "electra.commands.analyze.calibrate:run",
        "whether the probabilities of being replaced are right, and what mends them",
    ),
    "analyze minimal-pairs": (
        "electra.commands.analyze.minimal_pairs:run",
        "which of two sentences looks likelier, the right or the wrong one?",
    ),
    "analyze rescore": (
        "electra.commands.analyze.rescore:run",
        "a speech recogniser's n-best lists, with a model's word in it",
    ),
    "score": ("electra.commands.score:run", "how replaced each token of a text looks"),
    "serve": ("electra.commands.serve:run", "a model behind HTTP, and a page that shows what it sees"),
}
"""Each verb's function and its line in the help, in the order in which a newcomer meets them."""

USERS_MISTAKE, UNEXPECTED, INTERRUPTED = 2, 1, 130

FOLLOWS = int(os.environ.get("RANK", "0")) > 0
"""Whether torchrun started this process beside a leading one, which alone writes on the console."""
SPREAD = ("pretrain",)
"""Verbs that several processes do together."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    0: done; 1: an error that nobody foresaw; 2: a mistake that the user can mend; 130: interrupted; else what
    the verb's result names as its `exit_code`.
    """
    try:
        status = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read stdout has seen enough (`electra score ... | head`). Python flushes once more at exit,
        # which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNEXPECTED
    return status


def _run(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    first, *rest = [argument for argument in arguments if argument != "--debug"] or ["--help"]
    if first in ("-h", "--help"):
        sys.stdout.write(_help())
        return 0
    if first == "--version":
        sys.stdout.write(f"electra {__version__}\n")
        return 0
    from electra.console import show

    if any(verb.startswith(f"{first} ") for verb in VERBS):  # a verb of two words
        if not rest or rest[0] in ("-h", "--help"):
            sys.stdout.write(_help(beginning=f"{first} "))
            return USERS_MISTAKE if not rest else 0
        first, rest = f"{first} {rest[0]}", rest[1:]
    status, result = _attempt(first, rest, debug=debug)
    if not FOLLOWS:
        show(result)
    return status


def _help(beginning: str = "") -> str:
    """The help, or the part of it that is about verbs of one beginning."""
    width = max(map(len, VERBS))
    verbs = "\n".join(
        f"  {verb:{width}}  {summary}" for verb, (_, summary) in VERBS.items() if verb.startswith(beginning)
    )
    if beginning:
        return f"usage: electra {beginning}VERB [OPTIONS]\n\nverbs:\n{verbs}\n"
    return f"""usage: electra VERB [OPTIONS]

Pre-train ELECTRA text encoders: from a folder of text to a model that loads in transformers.

verbs:
{verbs}

options:
  -h, --help     this list; after a verb, what the verb takes and two examples
  --version      the version of electra
  --debug        with any verb: show the traceback of an error

examples:
  electra quickstart
  electra prepare my-texts/ --out data
"""


def _attempt(verb: str, arguments: list[str], *, debug: bool) -> tuple[int, object]:
    """Call a verb and turn whatever stops it into an exit status and a message."""
    from electra.console import complain, records_shown

    try:
        with contextlib.nullcontext() if FOLLOWS else records_shown():
            result = _call(verb, arguments)
        return int(getattr(result, "exit_code", 0)), result
    except SystemExit as stop:  # tyro's, after --help (0) or its message about an option (2)
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None), None
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            traceback.print_exc()
        status, message = _verdict(error)
        if not FOLLOWS:
            complain(f"electra: {message}")
        elif status == UNEXPECTED:  # what is the user's to mend the leader has found, too
            complain(f"electra, process {os.environ['RANK']}: {message}")
        return status, None


def _verdict(error: BaseException) -> tuple[int, str]:
    """The exit status and the message for what stopped a verb."""
    from electra.errors import ElectraError

    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, ElectraError):
        return USERS_MISTAKE, str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        where = f" ({error.filename})" if error.filename else ""
        return USERS_MISTAKE, f"the disk is full{where}\n  make room and give the same command again"
    if isinstance(error, OSError) and error.filename:
        return USERS_MISTAKE, f"{error.filename}: {(error.strerror or str(error)).lower()}; give another path"
    first_line = str(error).partition("\n")[0]
    return UNEXPECTED, f"{type(error).__name__}: {first_line} (run again with --debug to see the traceback)"


def _call(verb: str, arguments: list[str]) -> object:
    if verb not in VERBS:
        from electra.config import did_you_mean
        from electra.errors import ConfigError

        beginnings = [name.partition(" ")[0] for name in VERBS]
        near = did_you_mean(verb, list(dict.fromkeys([*VERBS, *beginnings])))
        raise ConfigError(f"there is no verb {verb!r}{near}\n  verbs: {', '.join(VERBS)}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and verb not in SPREAD:
        from electra.errors import ConfigError

        raise ConfigError(f"{verb} is the work of one process; start it without torchrun")
    module, _, name = VERBS[verb][0].partition(":")
    from electra.config import check

    run = getattr(importlib.import_module(module), name)
    config = _parse(verb, run, arguments)
    check(config)
    return run(config)


def _parse(verb: str, run: Callable[..., object], arguments: list[str]) -> object:
    """The config that `run` takes, read from the command line.

    A config with a field `overrides` takes settings of a TOML file as well, `--section.name VALUE`. Every
    other option that it does not know is an error, for which tyro looks up the options that are near.
    """
    import dataclasses

    import tyro

    config_type = config_type_of(run)
    names = [field.name for field in dataclasses.fields(config_type)]
    overrides: list[str] | None = None
    if "overrides" in names:
        arguments, overrides = _split_overrides(arguments, options=["help", *names])
    try:
        config = tyro.cli(
            config_type,
            args=arguments,
            prog=f"electra {verb}",
            description=inspect.getdoc(run),
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName),
        )
    except BrokenPipeError:  # the help's reader has seen enough
        sys.exit(UNEXPECTED)
    return config if overrides is None else dataclasses.replace(config, overrides=tuple(overrides))


def config_type_of(run: Callable[..., object]) -> type[Any]:
    """The dataclass that a verb takes. Other types of its signature may exist for type checkers only."""
    (parameter,) = inspect.signature(run).parameters.values()
    annotation = parameter.annotation
    config_type: type[Any] = run.__globals__[annotation] if isinstance(annotation, str) else annotation
    return config_type


def _split_overrides(arguments: list[str], *, options: list[str]) -> tuple[list[str], list[str]]:
    """The arguments without the overrides, and the overrides as `"section.name=value"`.

    What is near one of the command's own `options` is left for tyro, which says so. `--steps 5` is not: it goes on
    as an override, because the config knows that `train.steps` was meant.
    """
    others: list[str] = []
    overrides: list[str] = []
    queue = deque(arguments)
    while queue:
        argument = queue.popleft()
        name, equals, value = argument.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        is_own = "." not in name and get_close_matches(name, options, n=1)
        if not argument.startswith("--") or not name or is_own:
            others.append(argument)
            continue
        if not equals and queue and not queue[0].startswith("--"):
            equals, value = "=", queue.popleft()
        overrides.append(name + equals + value)  # without a value: load_config says so
    return others, overrides

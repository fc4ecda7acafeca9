"""The `electra` command: find the verb, read its config, call it, show its result.

A verb is a function `run(config) -> result` in a module of `electra.commands`. The config is a dataclass whose
fields are the options; the docstring of `run` is the help. Modules that import slowly are imported inside `run`.
"""

import contextlib
import errno
import functools
import importlib
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from electra import __version__

GROUPS = {
    "start": {
        "quickstart": ("electra.commands.quickstart:run", "train and try a small model in minutes, on local text"),
    },
    "data": {
        "prepare": ("electra.commands.prepare:run", "turn text into a tokenizer and token shards"),
        "data inspect": ("electra.commands.data.inspect:run", "show rows as a run reads them, and their lengths"),
        "data stats": ("electra.commands.data.stats:run", "count documents, sentences and tokens"),
        "data verify": ("electra.commands.data.verify:run", "compare every file with its checksum"),
        "data fetch": ("electra.commands.data.fetch:run", "download prepared data from a web server or S3"),
        "data merge": ("electra.commands.data.merge:run", "join folders of prepared data, or mix them by weight"),
        "data tags": ("electra.commands.data.tags:run", "add a part of speech to each token of the vocabulary"),
    },
    "train": {
        "pretrain": ("electra.commands.pretrain:run", "train a discriminator and its generator on shards"),
        "finetune": ("electra.commands.finetune:run", "train a model for your task"),
        "status": ("electra.commands.status:run", "show the progress and health of runs"),
    },
    "use": {
        "score": ("electra.commands.score:run", "show how likely each token of a text was replaced"),
        "predict": ("electra.commands.predict:run", "predict labels, tags, values or answers for texts"),
        "prompt": ("electra.commands.prompt:run", "label texts with a template, without training"),
        "serve": ("electra.commands.serve:run", "serve a model over HTTP, with a web page"),
        "export": ("electra.commands.export:run", "write models for transformers or onnxruntime"),
    },
    "understand": {
        "compare": ("electra.commands.compare:run", "test whether one of two fine-tunings is better"),
        "similarity": ("electra.commands.similarity:run", "compare embeddings with human ratings of similarity"),
        "flops": ("electra.commands.flops:run", "count the operations of training and inference"),
        "report": ("electra.commands.report:run", "write one HTML file about runs, studies and analyses"),
        "analyze detect": (
            "electra.commands.analyze.detect:run", "find wrong words in the sentences of language learners"
        ),
        "analyze calibrate": (
            "electra.commands.analyze.calibrate:run", "check and correct the calibration of token probabilities"
        ),
        "analyze minimal-pairs": (
            "electra.commands.analyze.minimal_pairs:run", "find the grammatical one of two sentences (BLiMP)"
        ),
        "analyze rescore": (
            "electra.commands.analyze.rescore:run", "rescore the n-best lists of a speech recognizer"
        ),
        "analyze compare": (
            "electra.commands.analyze.encoders:run", "compare two encoders: layers, probes, attention, neighbors"
        ),
        "analyze parts-of-speech": (
            "electra.commands.analyze.parts_of_speech:run", "find which words look replaced, by tag and frequency"
        ),
        "analyze generator": (
            "electra.commands.analyze.generator:run", "measure what a generator proposes for masked tokens"
        ),
        "analyze context": (
            "electra.commands.analyze.context:run", "measure the gain from a longer memory, and its speed"
        ),
        "analyze long-inputs": (
            "electra.commands.analyze.long_inputs:run", "measure whether late positions and far words are read"
        ),
    },
    "study": {
        "study": ("electra.commands.study:run", "repeat a table or figure of the paper at your budget"),
    },
}  # fmt: skip
"""Verbs by group, in the order of the help: the function of each verb, and its line in the help."""
VERBS = {verb: entry for verbs in GROUPS.values() for verb, entry in verbs.items()}

USER_ERROR, UNEXPECTED_ERROR, INTERRUPTED = 2, 1, 130
"""Exit statuses."""
IS_MAIN_PROCESS = int(os.environ.get("RANK", "0")) == 0
"""Whether this is the main process. Of the processes that torchrun starts, only this one writes to the console."""
DISTRIBUTED_VERBS = ("pretrain",)
"""Verbs that torchrun can start."""

OTHER_OPTIONS = {("predict", "--json"): "--output FILE.jsonl"}
"""What a verb has instead of an option of other verbs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    0: success; 1: an unexpected error; 2: an error that the user can fix; 130: interrupted; or the `exit_code` of
    the verb's result.
    """
    try:
        status = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed stdout (`electra score ... | head`). Python flushes stdout again at exit, which
        # must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNEXPECTED_ERROR
    return status


def _run(arguments: list[str]) -> int:
    from electra import help

    debug = "--debug" in arguments
    arguments, plugins = _split_plugins([argument for argument in arguments if argument != "--debug"])
    first, *rest = arguments or ["--help"]
    if first in ("-h", "--help"):
        sys.stdout.write(help.command_help(GROUPS))
        return 0
    if first == "--version":
        sys.stdout.write(f"electra {__version__}\n")
        return 0
    if any(verb.startswith(f"{first} ") for verb in VERBS):  # a verb of two words
        if not rest or rest[0] in ("-h", "--help"):
            sys.stdout.write(help.verb_list(VERBS, first))
            return USER_ERROR if not rest else 0
        first, rest = f"{first} {rest[0]}", rest[1:]
    from electra.console import show
    from electra.errors import on_command_line

    with on_command_line():
        status, result = _call_safely(first, rest, plugins=plugins, debug=debug)
    if IS_MAIN_PROCESS:
        show(result)
    return status


def _split_plugins(arguments: list[str]) -> tuple[list[str], list[str | None]]:
    """Return the arguments without `--plugin FILE`, and the files; None for a missing FILE."""
    others: list[str] = []
    plugins: list[str | None] = []
    queue = deque(arguments)
    while queue:
        name, equals, value = (argument := queue.popleft()).partition("=")
        if name != "--plugin":
            others.append(argument)
        elif equals:
            plugins.append(value)
        else:
            plugins.append(queue.popleft() if queue else None)
    return others, plugins


def _call_safely(
    verb: str, arguments: list[str], *, plugins: Sequence[str | None], debug: bool
) -> tuple[int, object]:
    """Call a verb, and turn an exception into an exit status and a message."""
    from electra.console import complain, show_log_records
    from electra.errors import ProcessError

    try:
        with show_log_records() if IS_MAIN_PROCESS else contextlib.nullcontext():
            for plugin in plugins:
                _load_plugin(plugin)
            result = _call(verb, arguments)
        return int(getattr(result, "exit_code", 0)), result
    except SystemExit as stop:  # from tyro, after its message about an option
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None), None
    except BaseException as error:  # also a panic of a library in Rust, which is no Exception
        if debug:
            traceback.print_exc()
        status, message = _explain(error)
        if IS_MAIN_PROCESS:
            complain(f"electra: {message}")
        elif status == UNEXPECTED_ERROR or isinstance(error, ProcessError):
            # The main process reports the errors that all processes have; it may be the one that is lost.
            complain(f"electra, process {os.environ['RANK']}: {message}")
        return status, None


def _load_plugin(path: str | None) -> None:
    from electra.errors import ConfigError
    from electra.registry import load_plugin

    if not path:
        raise ConfigError("--plugin: needs the path of a Python file, as in --plugin FILE.py")
    load_plugin(path)


def _explain(error: BaseException) -> tuple[int, str]:
    """Return the exit status and the message for an exception."""
    from electra.errors import ElectraError, describe, is_out_of_memory

    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, ElectraError) or is_out_of_memory(error):
        return USER_ERROR, describe(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        where = f" ({error.filename})" if error.filename else ""
        return USER_ERROR, f"the disk is full{where}\n  free some space and run the same command again"
    if isinstance(error, OSError) and (error.strerror or "").startswith("No usable temporary directory"):
        return USER_ERROR, f"{error.strerror}\n  set TMPDIR to a folder that you can write to, and run it again"
    if isinstance(error, OSError) and error.filename:
        return USER_ERROR, f"{error.filename}: {(error.strerror or str(error)).lower()}; give another path"
    first_line = describe(error).partition("\n")[0]
    return UNEXPECTED_ERROR, f"{first_line} (run again with --debug to see the traceback)"


def _call(verb: str, arguments: list[str]) -> object:
    from electra.config import check
    from electra.config_fields import DEVICE_NAMES, is_device_name
    from electra.errors import ConfigError, did_you_mean
    from electra.help import verb_help

    if verb not in VERBS:
        first_words = [name.partition(" ")[0] for name in VERBS]
        near = did_you_mean(verb, list(dict.fromkeys([*VERBS, *first_words])))
        raise ConfigError(f"there is no verb {verb!r}{near}\n  verbs: {', '.join(VERBS)}")
    module, _, name = VERBS[verb][0].partition(":")
    run = getattr(importlib.import_module(module), name)
    if "-h" in arguments or "--help" in arguments:
        return verb_help(verb, run).rstrip("\n")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and verb not in DISTRIBUTED_VERBS:
        raise ConfigError(f"electra {verb} runs in one process; start it without torchrun")
    config = _parse(verb, run, arguments)
    check(config)
    if not is_device_name(device := getattr(config, "device", None) or "auto"):
        raise ConfigError(f"--device: there is no device {device!r}; give {DEVICE_NAMES}")
    return run(config)


def _parse(verb: str, run: Callable[..., object], arguments: list[str]) -> object:
    """Read the config of `run` from the command line.

    If the config has a field `overrides`, settings of a TOML file are options, too: `--section.name VALUE`. Every
    other unknown option is an error, for which tyro suggests similar options.
    """
    import dataclasses

    import tyro

    from electra.errors import ConfigError
    from electra.help import config_type, verb_options
    from electra.option_values import value_rules

    config_class = config_type(run)
    required = [option for option in verb_options(config_class) if option.is_required]
    if required and not arguments:
        names_and_texts = "\n".join(f"  {option.heading}: {option.description}" for option in required)
        raise ConfigError(
            f"electra {verb} needs:\n{names_and_texts}\n  electra {verb} --help shows all options, with examples"
        )
    names = [field.name for field in dataclasses.fields(config_class)]
    overrides: list[str] | None = None
    if "overrides" in names:
        arguments, overrides = _split_overrides(arguments, options=names)
    parse = functools.partial(
        tyro.cli,
        config_class,
        args=arguments,
        prog=f"electra {verb}",
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName),
        registry=value_rules(),
    )
    config, unknown = parse(return_unknown_args=True)
    if unknown and not unknown[0].startswith("-"):
        raise ConfigError(
            f"electra {verb} does not expect the argument {unknown[0]!r}\n"
            f"  leave it out, or write the name of its option before it (electra {verb} --help shows all options)"
        )
    if unknown:
        if (other := OTHER_OPTIONS.get((verb, unknown[0]))) is not None:
            raise ConfigError(f"electra {verb} has no {unknown[0]}; give {other}")
        parse(args=_without_values(arguments, unknown))  # ends with a message that suggests similar options
    return config if overrides is None else dataclasses.replace(config, overrides=tuple(overrides))


def _without_values(arguments: list[str], unknown: list[str]) -> list[str]:
    """Return the arguments without the words behind unknown options, which are no options.

    Args:
        unknown: the unknown options and those words, in their order.
    """
    rest, others = deque(unknown), list[str]()
    for argument in arguments:
        is_unknown = bool(rest) and argument == rest[0]
        if is_unknown:
            rest.popleft()
        if not is_unknown or argument.startswith("-"):
            others.append(argument)
    return others


def _split_overrides(arguments: list[str], *, options: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments without the overrides, and the overrides as `"section.name=value"`.

    An argument that is similar to one of the verb's `options` is left to tyro, which suggests that option.
    `--steps 5` becomes an override, because the config knows that `train.steps` was meant.
    """
    from electra.config_fields import OTHER_NAMES

    others: list[str] = []
    overrides: list[str] = []
    queue = deque(arguments)
    while queue:
        argument = queue.popleft()
        name, equals, value = argument.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        is_option = name in options or (
            "." not in name and name not in OTHER_NAMES and get_close_matches(name, options, n=1)
        )
        if not argument.startswith("--") or not name or is_option:
            others.append(argument)
            continue
        if not equals and queue and not queue[0].startswith("--"):
            equals, value = "=", queue.popleft()
        overrides.append(name + equals + value)  # load_config complains if there is no value
    return others, overrides

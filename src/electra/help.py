"""The help of the command and of its verbs, as plain text.

The options of a verb are the fields of its config dataclass, with their types. The string below a field describes
the option. `tyro.conf` marks positional and hidden options, and names values.
"""

import dataclasses
import importlib
import inspect
import shutil
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

VALUE_NAMES = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}
MAX_WIDTH = 100
OPTION_WIDTH = 24
"""Column at which the descriptions start."""
EXAMPLES = "Examples:"

Verbs = Mapping[str, tuple[str, str]]
"""The function of each verb (`module:name`), and its line in the help."""


@dataclasses.dataclass(frozen=True)
class Option:
    """An option or positional argument of a verb.

    Attributes:
        name: `--dry-run`, `--no-speed`, or `MODEL` for a positional argument.
        value: the placeholder of its value; empty for a switch and for a positional argument.
        default: the default as a person writes it; None: nothing to show.
    """

    field: str
    name: str
    value: str
    is_positional: bool
    is_required: bool
    default: str | None
    description: str

    @property
    def heading(self) -> str:
        return f"{self.name} {self.value}".rstrip()

    @property
    def text(self) -> str:
        """The description, followed by the default or "required"."""
        is_required = self.is_required and not self.is_positional  # the usage line shows this for the others
        note = "required" if is_required else self.default and f"default: {self.default}"
        return f"{self.description} ({note})" if note else self.description


def command_help(groups: Mapping[str, Verbs]) -> str:
    """Return the help of the command: every verb, in groups. It fits on a screen of 80 x 24."""
    lines = []
    for group, verbs in groups.items():
        for word in dict.fromkeys(verb.partition(" ")[0] for verb in verbs):
            summary = verbs[word][1] if word in verbs else ", ".join(_second_words(verbs, word))
            name = word if word in verbs else f"{word} VERB"
            text = textwrap.wrap(summary, 54, break_on_hyphens=False)
            lines += [f"{left:26}{line}" for left, line in zip_longest([f"{group:12}{name}"], text, fillvalue="")]
            group = ""
    verb_lines = "\n".join(lines)
    return f"""usage: electra VERB [OPTIONS]

{verb_lines}

`electra VERB --help` shows the options of a verb, with examples.
Other options: --version, --debug (shows tracebacks), --plugin FILE (loads it).
"""


def verb_list(verbs: Verbs, word: str) -> str:
    """Return the help of the verbs that begin with a word, such as `data`, with two short examples."""
    width = max(len(second) for second in _second_words(verbs, word))
    lines = (f"  {second:{width}}  {verbs[f'{word} {second}'][1]}" for second in _second_words(verbs, word))
    examples = sorted(
        (_first_example(verbs[f"{word} {second}"][0]) for second in _second_words(verbs, word)), key=len
    )
    parts = [f"usage: electra {word} VERB [OPTIONS]", "\n".join(lines), "examples:\n" + "\n".join(examples[:2])]
    return "\n\n".join(parts) + f"\n\n`electra {word} VERB --help` shows the options of a verb.\n"


def _first_example(function: str) -> str:
    module, _, name = function.partition(":")
    run = getattr(importlib.import_module(module), name)
    _, _, examples = (inspect.getdoc(run) or "").partition(EXAMPLES)
    return f"  {examples.split(chr(10))[1].strip()}"


def _second_words(verbs: Verbs, word: str) -> list[str]:
    return [verb.partition(" ")[2] for verb in verbs if verb.startswith(f"{word} ")]


def verb_help(verb: str, run: Callable[..., object]) -> str:
    """Return the help of a verb: usage, description, examples, arguments and options."""
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    config = config_type(run)
    options = list(verb_options(config))
    description, _, examples = (inspect.getdoc(run) or "").partition(EXAMPLES)
    paragraphs = [textwrap.fill(" ".join(text.split()), width) for text in description.strip().split("\n\n")]
    has_overrides = "overrides" in {field.name for field in dataclasses.fields(config)}
    parts = [_usage(verb, options, width, has_overrides=has_overrides), *paragraphs]
    if examples:
        parts.append("examples:\n" + textwrap.indent(textwrap.dedent(examples.strip("\n")), "  ").rstrip())
    if arguments := [option for option in options if option.is_positional]:
        parts.append("arguments:\n" + _table(arguments, width))
    help_option = Option("help", "-h, --help", "", False, False, None, "Show this help.")
    settings = Option("overrides", "--section.name", "VALUE", False, False, None, "Any setting of the config.")
    named = [option for option in options if not option.is_positional]
    parts.append("options:\n" + _table([*named, *([settings] if has_overrides else []), help_option], width))
    return "\n\n".join(parts) + "\n"


def _usage(verb: str, options: Sequence[Option], width: int, *, has_overrides: bool) -> str:
    arguments = [
        option.heading if option.is_required else f"[{option.heading}]"
        for option in options
        if option.is_positional or option.is_required
    ]
    words = [
        "usage: electra",
        verb,
        *arguments,
        "[OPTIONS]",
        *(["[--section.name VALUE]"] if has_overrides else []),
    ]
    return textwrap.fill(" ".join(words), width, subsequent_indent=" " * 15, break_on_hyphens=False)


def _table(options: Sequence[Option], width: int) -> str:
    """Return a table with options on the left and descriptions on the right."""
    lines = []
    for option in options:
        indent = " " * OPTION_WIDTH
        head = f"  {option.heading}"
        if len(head) > OPTION_WIDTH - 2:
            lines.append(head)
            head = ""
        lines += textwrap.wrap(
            option.text,
            width,
            initial_indent=head.ljust(OPTION_WIDTH),
            subsequent_indent=indent,
            break_on_hyphens=False,
        ) or [head]
    return "\n".join(lines)


def config_type(run: Callable[..., object]) -> type[Any]:
    """Return the config dataclass of a verb. Other types of its signature may exist for type checkers only."""
    (parameter,) = inspect.signature(run).parameters.values()
    annotation = parameter.annotation
    config: type[Any] = run.__globals__[annotation] if isinstance(annotation, str) else annotation
    return config


def verb_options(config: type[Any]) -> Iterator[Option]:
    """Yield the options and positional arguments of a verb, from the fields of its config, without hidden ones."""
    import tyro

    from electra.config_fields import field_documentation

    documentation = field_documentation(config)
    hints = typing.get_type_hints(config, include_extras=True)
    for field in dataclasses.fields(config):
        hint, *markers = _without_annotations(hints[field.name])
        if tyro.conf.Suppress in markers:
            continue
        metavar = next((marker.metavar for marker in markers if getattr(marker, "metavar", None)), None)
        is_positional = tyro.conf.Positional in markers
        is_required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if is_positional:
            name, value = metavar or _value_name(hint, field.name.upper()), ""
        else:
            name = f"--{'no-' * (field.default is True)}{field.name.replace('_', '-')}"
            value = "" if hint is bool else metavar or _value_name(hint)
        default = None if is_required or hint is bool else _default(field.default)
        text = " ".join(documentation.get(field.name, "").split())
        yield Option(field.name, name, value, is_positional, is_required, default, text)


def _without_annotations(hint: Any) -> list[Any]:
    """Return the type inside of `Annotated[... | None]`, and the annotations."""
    markers: list[Any] = []
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            markers += hint.__metadata__
            hint = hint.__origin__
        elif typing.get_origin(hint) in (typing.Union, types.UnionType) and types.NoneType in typing.get_args(
            hint
        ):
            hint = next(member for member in typing.get_args(hint) if member is not types.NoneType)
        else:
            return [hint, *markers]


def _value_name(hint: Any, name: str | None = None) -> str:
    """Return the placeholder of a value: `PATH`, `{hf,onnx}`, `INTEGER...`; or `name` instead of the type's."""
    hint, *_ = _without_annotations(hint)
    members = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        one = _value_name(members[0], name)
        return f"{one}..." if members[-1] is Ellipsis else " ".join([one] * len(members))
    if name is not None:
        return name
    if typing.get_origin(hint) is typing.Literal:
        return f"{{{','.join(map(str, members))}}}"
    return VALUE_NAMES.get(hint, "VALUE")


def _default(value: Any) -> str | None:
    """Return a default as it would be typed; None if there is nothing to show."""
    if value is None or value in ("", ()):
        return None
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)

"""Write docs/reference/configuration.md from the config dataclasses: fields, defaults, descriptions.

`make docs` runs it; a test compares its output with the page that is committed.
"""

import importlib
import inspect
import json
import re
import tomllib
import typing
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import tyro

from electra.cli import VERBS
from electra.config import PRESETS, flat, load_config, preset_names
from electra.config_fields import Setting, settings
from electra.finetuning.config import FinetuneConfig
from electra.help import config_type
from electra.pretraining.config import PretrainConfig

PAGE = Path(__file__).parent / "reference/configuration.md"

SIZES = {
    "model.layers": "layers",
    "model.hidden_size": "hidden size",
    "model.embedding_size": "embedding size",
    "model.heads": "heads",
    "packing.sequence_length": "sequence length",
    "train.batch_size": "batch size",
    "train.steps": "steps",
    "optimizer.learning_rate": "learning rate",
}
"""Settings in the table of presets, and the titles of their columns."""

ANALYSES = {
    "out": (r"Folder for \S+\.json, .*; existing ones are replaced\. Default: no files\.", "a path", "unset"),
    "resamples": (r"Number of bootstrap resamples of (.*), for the intervals\.", "a whole number", None),
    "seed": (r"Random seed\.|Random seed of the resamples\.", "a whole number", "0"),
}
"""Options that most analyses have: pattern of the documentation, type, and the default if it is the same."""

HEADER = ("| name | takes | default | description |", "|---|---|---|---|")

TABLES = """\
<div class="settings" markdown>

A setting with an empty default is unset. The `kind` of a section decides which further settings it has.
"""

INTRODUCTION = """\
# Configuration reference

Look up a preset, a setting of a run or a fine-tuning, or an option of a verb.

A pre-training run is described by a preset or a TOML file, and by settings on the command line:

```console
$ electra pretrain electra-tiny --data DATA --out RUN --train.steps 2000 --optimizer.learning_rate 5e-4
```

Your own file names the preset or file that it extends, and the settings that differ. Its possible sections are
below.

```toml
extends = "electra-small"

[train]
steps = 50000
```

The resolved settings of a run, with all that it inherits, are in its `config.toml`; `--dry-run` prints them and
stops. A [fine-tuning](../guides/finetuning.md) is described in the same way.

`make docs` writes this page from the dataclasses in `src/electra`.
"""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *_presets(), TABLES, *_sections(), *_verbs(), "</div>\n"])


def _presets() -> Iterator[str]:
    yield "## Presets\n"
    resolved = {name: flat(load_config(PretrainConfig, name)) for name in preset_names()}
    by_size = ("model.hidden_size", "model.layers", "train.steps")
    resolved = dict(sorted(resolved.items(), key=lambda item: [item[1][name] or 0 for name in by_size]))
    yield "| preset | " + " | ".join(SIZES.values()) + " |"
    yield "|---" * (len(SIZES) + 1) + "|"
    for name, values in resolved.items():
        if not name.startswith("faithful"):  # the sizes of the presets that they extend
            yield f"| `{name}` | " + " | ".join(_cell(values[setting]) for setting in SIZES) + " |"
    extends = {
        name: tomllib.loads((PRESETS / f"{name}.toml").read_text(encoding="utf-8")).get("extends")
        for name in resolved
    }
    faithful = {name: bases[0] for name, bases in extends.items() if name.startswith("faithful")}
    yield "\nFeed-forward layers are 4 × the hidden size wide unless listed. Further settings of each preset:\n"
    for name in resolved:
        if name not in faithful:
            yield _preset(PRESETS / f"{name}.toml", without=SIZES)
    pairs = ", ".join(f"`{name}` (`{base}`)" for name, base in faithful.items())
    yield f"- {pairs}: with `parts/quirks`, all quirks of the original ([fidelity](../concepts/fidelity.md))."
    yield '\nSettings to combine with any of them (`extends = ["electra-base", "objectives/electra-15"]`):\n'
    for path in [*sorted((PRESETS / "objectives").glob("*.toml")), *sorted((PRESETS / "parts").glob("*.toml"))]:
        yield _preset(path, without=())
    yield ""


def _preset(path: Path, without: Container[str]) -> str:
    """A list entry: the description of a preset, what it extends, and its own settings."""
    text = path.read_text(encoding="utf-8")
    description = " ".join(line.removeprefix("# ") for line in takewhile(lambda line: line != "#", _comment(text)))
    table = tomllib.loads(text)
    extends = table.pop("extends", [])
    own = {f"{section}.{name}": value for section, values in table.items() for name, value in values.items()}
    if without:  # a whole preset, which may repeat a setting that it inherits
        inherited = _inherited(extends)
        if own.get("model.feed_forward_size") == 4 * own.get("model.hidden_size", 0):
            del own["model.feed_forward_size"]
        own = {name: value for name, value in own.items() if inherited.get(name) not in (str(value), repr(value))}
    shown = [f"`{name}={json.dumps(value)}`" for name, value in own.items() if name not in without]
    bases = ", ".join(f"`{base}`" for base in ([extends] if isinstance(extends, str) else extends))
    entry = f"- `{path.relative_to(PRESETS).with_suffix('')}`: {description}"
    entry += f" Extends {bases}." if bases else ""
    return entry + (f" {', '.join(shown)}." if shown else "")


def _inherited(extends: str | list[str]) -> dict[str, str]:
    """The settings that a preset inherits, as in Python source; nothing if it extends several."""
    if not extends:
        return {setting.name: setting.default for setting in settings(PretrainConfig)}
    if isinstance(extends, list):
        return {}
    return {name: repr(value) for name, value in flat(load_config(PretrainConfig, extends)).items()}


def _comment(text: str) -> Iterator[str]:
    """The lines of the comment at the beginning of a preset."""
    return takewhile(lambda line: line.startswith("#"), iter(text.splitlines()))


def _cell(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:,}" if is_number else str(value)


def _sections() -> Iterator[str]:
    of_runs = {setting.name: setting for setting in settings(PretrainConfig)}
    yield "## Settings of a run\n"
    for section, members in _by_section(PretrainConfig):
        yield f"### `[{section}]`\n"
        yield from _kinds(members)
    yield "## Settings of a fine-tuning\n"
    for section, members in _by_section(FinetuneConfig):
        yield f"### `[{section}]`\n"
        own = [setting for setting in members if setting != of_runs.get(setting.name)]
        if inherited := [f"`{_last(setting)}`" for setting in members if setting not in own]:
            yield f"The same as in [`[{section}]` of a run](#{section}): {', '.join(inherited)}.\n"
        if own:
            yield from _table((setting, _last(setting)) for setting in own)


def _by_section(config: type[Any]) -> Iterator[tuple[str, list[Setting]]]:
    for section, members in groupby(settings(config), key=lambda setting: setting.name.rpartition(".")[0]):
        if section:  # the rest are options of the command
            yield section, list(members)


def _last(setting: Setting) -> str:
    """The name of a setting within its section."""
    return setting.name.rpartition(".")[2]


def _kinds(members: list[Setting]) -> Iterator[str]:
    """A table of the settings of a section; one more for settings that several kinds have, but not all."""
    groups: dict[tuple[str, ...], list[Setting]] = {}
    for setting in members:
        groups.setdefault(setting.kinds, []).append(setting)
    for kinds in [kinds for kinds, group in groups.items() if kinds and (len(kinds) == 1 or len(group) == 1)]:
        groups[()] += groups.pop(kinds)
    for kinds, group in groups.items():
        if kinds:
            yield f"For kind {', '.join(kinds)}:\n"
        yield from _table(((setting, _last(setting)) for setting in group), of_kinds=bool(kinds))


def _verbs() -> Iterator[str]:
    yield "## Options of the command\n"
    for are_analyses, verbs in groupby(VERBS, key=lambda verb: verb.startswith("analyze ")):
        if are_analyses:
            yield from _analyses()
        for verb in verbs:
            yield from _verb(verb)


def _verb(verb: str) -> Iterator[str]:
    run = _run(verb)
    yield f"### `electra {verb}`\n"
    first, *_ = (inspect.getdoc(run) or "").split("\n\n")
    yield " ".join(first.split()) + "\n"
    options = list(_options(config_type(run)))
    if shared := [f"`{name}`" for setting, name in options if _shared(verb, setting)]:
        yield f"Also [options of analyses](#electra-analyze): {', '.join(shared)}.\n"
    yield from _table((setting, name) for setting, name in options if not _shared(verb, setting))


def _run(verb: str) -> Callable[..., Any]:
    """The function of a verb."""
    module, _, name = VERBS[verb][0].partition(":")
    return typing.cast(Callable[..., Any], getattr(importlib.import_module(module), name))


def _analyses() -> Iterator[str]:
    """The options that most analyses have, each listed once."""
    resamples = []
    for verb in VERBS:
        for setting in settings(config_type(_run(verb))):
            if setting.name == "resamples" and (match := _shared(verb, setting)):
                resamples.append(f"{verb.removeprefix('analyze ')}: {setting.default}, of {match[1]}")
    yield "### `electra analyze`\n"
    yield "Options that several analyses have.\n"
    rows = {
        "seed": ("`0`", "Random seed."),
        "resamples": (
            "500 or 1000",
            f"Number of bootstrap resamples, for the intervals ({'; '.join(resamples)}).",
        ),
        "out": (
            "",
            "Folder for NAME.json, NAME.png and NAME.svg, where NAME is the analysis; existing ones are replaced. "
            "Default: no files.",
        ),
    }
    yield from HEADER
    for name, (default, documentation) in rows.items():
        yield f"| `--{name}` | {_short(ANALYSES[name][1])} | {default} | {documentation} |"
    yield ""


def _shared(verb: str, setting: Setting) -> "re.Match[str] | None":
    """Whether a setting is an option that most analyses have; the pattern's match, or None."""
    if not verb.startswith("analyze ") or setting.name not in ANALYSES:
        return None
    pattern, type_name, default = ANALYSES[setting.name]
    if setting.type != type_name or default not in (None, setting.default):
        return None
    return re.fullmatch(pattern, " ".join(setting.documentation.split()))


def _short(type_name: str) -> str:
    """A type as the tables have it: "integer", "number", "path", "list of paths"."""
    short = type_name.replace("whole number", "integer").replace("true or false", "boolean")
    return short.removeprefix("a ").removeprefix("one of ")


def _options(config: type[Any]) -> Iterator[tuple[Setting, str]]:
    """The fields of a verb's config as they are typed on the command line."""
    hints = typing.get_type_hints(config, include_extras=True)
    for setting in settings(config):
        markers = typing.get_args(hints[setting.name])
        if tyro.conf.Suppress in markers:
            continue
        if tyro.conf.Positional in markers:
            yield setting, setting.name.upper()
        elif setting.default == "True":
            yield setting, "--no-" + setting.name.replace("_", "-")
        else:
            yield setting, "--" + setting.name.replace("_", "-")


def _table(rows: Iterable[tuple[Setting, str]], of_kinds: bool = False) -> Iterator[str]:
    """A table of settings, each with its kinds; without them if the text before the table names the kinds."""
    yield from HEADER
    for setting, name in rows:
        documentation = " ".join(setting.documentation.split()).replace("|", "\\|")
        if setting.kinds and not of_kinds:
            documentation = f"For kind {', '.join(setting.kinds)}. {documentation}"
        yield f"| `{name}` | {_short(setting.type)} | {_default(setting)} | {documentation} |"
    yield ""


def _default(setting: Setting) -> str:
    """The default as the tables have it; empty for a setting that may be left unset."""
    if setting.default == "unset":
        return ""
    return setting.default if setting.default == "required" else f"`{setting.default}`"


if __name__ == "__main__":
    main()

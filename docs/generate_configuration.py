"""Write docs/reference/configuration.md from the config dataclasses: fields, defaults, descriptions.

`make docs` runs it; a test compares its output with the page that is committed.
"""

import importlib
import inspect
import typing
from collections.abc import Iterable, Iterator
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

OTHER_ENCODERS = {"bert-": "BERT", "roberta-": "RoBERTa", "albert-": "ALBERT"}
"""Titles of the tables of other encoders, by the prefix of their presets' names."""

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

The resolved settings of a run are in its `config.toml`; `--dry-run` prints them without training. A
[fine-tuning](../guides/finetuning.md) is described in the same way.

`make docs` writes this page from the dataclasses in `src/electra`.
"""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *_presets(), *_sections(), *_verbs()])


def _presets() -> Iterator[str]:
    yield "## Presets\n"
    resolved = {name: flat(load_config(PretrainConfig, name)) for name in preset_names()}
    by_size = ("model.hidden_size", "model.layers", "train.steps")
    resolved = dict(sorted(resolved.items(), key=lambda item: [item[1][name] or 0 for name in by_size]))
    for name in resolved:
        yield f"- `{name}`: {_description(PRESETS / f'{name}.toml')}"
    yield '\nSettings to combine with any of them (`extends = ["electra-base", "objectives/electra-15"]`):\n'
    for path in sorted((PRESETS / "objectives").glob("*.toml")):
        yield f"- `objectives/{path.stem}`: {_description(path)}"
    electra = {name: values for name, values in resolved.items() if not name.startswith(tuple(OTHER_ENCODERS))}
    yield from _differences("The settings in which they differ", electra)
    base = {"electra-base": resolved["electra-base"]}
    for prefix, title in OTHER_ENCODERS.items():
        members = {name: values for name, values in resolved.items() if name.startswith(prefix)}
        yield from _differences(f"{title}, compared with `electra-base`", base | members)


def _description(path: Path) -> str:
    """The first paragraph of the comment at the beginning of a preset."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("# "), lines))


def _differences(title: str, resolved: dict[str, dict[str, Any]]) -> Iterator[str]:
    """A table of the settings in which the presets differ."""
    yield f"\n{title}:\n"
    yield "| setting | " + " | ".join(name.removeprefix("electra-") for name in resolved) + " |"
    yield "|---" * (len(resolved) + 1) + "|"
    for setting in {name: None for preset in resolved.values() for name in preset}:
        values = [preset.get(setting, "") for preset in resolved.values()]
        if len(set(values)) > 1:
            yield f"| `{setting}` | " + " | ".join(map(_cell, values)) + " |"
    yield ""


def _cell(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:,}" if is_number else str(value)


def _sections() -> Iterator[str]:
    for title, config in (("Settings of a run", PretrainConfig), ("Settings of a fine-tuning", FinetuneConfig)):
        yield f"## {title}\n"
        by_section = groupby(settings(config), key=lambda setting: setting.name.rpartition(".")[0])
        for section, members in by_section:
            if section:  # the rest are options of the command
                yield f"### `[{section}]`\n"
                yield from _table((setting, setting.name.rpartition(".")[2]) for setting in members)


def _verbs() -> Iterator[str]:
    yield "## Options of the command\n"
    for verb, (target, _) in VERBS.items():
        module, _, name = target.partition(":")
        run = getattr(importlib.import_module(module), name)
        config = config_type(run)
        yield f"### `electra {verb}`\n"
        yield f"{(inspect.getdoc(run) or '').splitlines()[0]}\n"
        yield from _table(_options(config))


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


def _table(rows: Iterable[tuple[Setting, str]]) -> Iterator[str]:
    yield '<div class="settings" markdown>\n'
    yield "| name | takes | default | what it does |"
    yield "|---|---|---|---|"
    for setting, name in rows:
        default = setting.default if setting.default in ("required", "unset") else f"`{setting.default}`"
        documentation = " ".join(setting.documentation.split()).replace("|", "\\|")
        if setting.kinds:
            documentation = f"For kind {', '.join(setting.kinds)}. {documentation}"
        yield f"| `{name}` | {setting.type} | {default} | {documentation} |"
    yield "\n</div>\n"


if __name__ == "__main__":
    main()

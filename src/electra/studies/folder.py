"""What all runs of a study have in common: OUT/study.json; whoever comes first writes it, others keep to it."""

import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from electra import durable
from electra.config import flat
from electra.data.shards import TokenData
from electra.errors import CheckpointError
from electra.pretraining.config import PretrainConfig
from electra.pretraining.resolve import IGNORED
from electra.reports.study import Results, read_facts
from electra.studies.config import seen_from
from electra.studies.plan import Configs, precision_here
from electra.studies.runs import Common
from electra.training.run_lock import acquire

COMMON = "study.json"
PAUSE = 0.1
"""Seconds until it is tried again to write what another process is just writing."""


def stored(out: Path) -> Results:
    """What the study of a folder was begun with; empty where none was.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = out / COMMON
    return read_facts(path) if path.is_file() else {}


def check_same(common: Common, configs: Configs, data: TokenData, before: Results) -> None:
    """Refuse to go on with a study that was begun with something else.

    Raises:
        CheckpointError: naming what differs.
    """
    study, another = common.study, "give another --out"
    if before["study"] != study.name:
        raise CheckpointError(f"{common.out} holds the study {before['study']}; {another}")
    if before["data"] != data.fingerprint:
        raise CheckpointError(f"{common.out} was begun with other data; give them, or {another}")
    if common.budget not in (before["budget"], before["flops"]):
        raise CheckpointError(
            f"{common.out} was begun with a budget of {before['budget']:g} ({before['flops']:.4g} FLOPs); "
            f"give that, or {another}"
        )
    if before["base"] not in (study.base, seen_from(common.out, study.base)):  # the former of early versions
        raise CheckpointError(f"{common.out} was begun with --base {before['base']}; give that, or {another}")
    for name in ("shares", "reached"):
        if (had := before[name]) != (wanted := _json(getattr(study, name))):
            raise CheckpointError(f"{common.out} was begun with {name} = {had}, not {wanted}; {another}")
    if common.suite and (lost := [task for task in before["suite"] if task not in common.suite]):
        raise CheckpointError(
            f"{common.out} was begun with the tasks {' '.join(before['suite'])}; --suite may add to them, and "
            f"lacks {' '.join(lost)}; {another}"
        )
    for name, config in configs.items():
        have, want = before["arms"].get(name, {}).get("settings"), _settings(config)
        if have is not None and have != want:
            changed = [key for key in {**have, **want} if have.get(key) != want.get(key)]
            lines = [f"{key}: {_or_default(have, key)} then, {_or_default(want, key)} now" for key in changed]
            raise CheckpointError(
                f"{common.out} has runs of another arm {name}; {another}:\n  " + "\n  ".join(lines)
            )


def begun(common: Common, configs: Configs, data: TokenData) -> Common:
    """Write down what the runs have in common, or take over what another process has written.

    Raises:
        CheckpointError: another one was first, with something else.
    """
    path, facts = common.out / COMMON, _facts(common, configs, data)
    if not path.is_file():
        facts["precision"] = precision_here(configs[common.study.control], data)
        common.out.mkdir(parents=True, exist_ok=True)
        first = path.with_name(f".{path.name}.{secrets.token_hex(4)}.first")
        durable.write_text(first, json.dumps(facts, indent=1) + "\n")
        try:
            os.link(first, path)  # only one can be first, and the file is whole from the first moment
        except FileExistsError:
            pass
        finally:
            first.unlink()
    while True:
        with acquire(common.out) as mine:
            if mine:
                before = read_facts(path)
                check_same(common, configs, data, before)
                merged = before | {
                    "suite": list(common.suite) or before["suite"],
                    "tune": list(common.tune) if common.suite else before.get("tune", []),
                    "arms": before["arms"] | facts["arms"],
                }
                if merged != before:
                    durable.write_text(path, json.dumps(merged, indent=1) + "\n")
                return replace(common, flops=float(merged["flops"]), precision=merged["precision"])
        time.sleep(PAUSE)


def _facts(common: Common, configs: Configs, data: TokenData) -> Results:
    study = common.study
    facts = {
        "study": study.name, "title": study.title, "base": seen_from(common.out, study.base),
        "control": study.control,
        "paper": study.paper, "axis": study.axis, "shares": study.shares, "reached": study.reached,
        "suite": common.suite, "tune": common.tune, "flops": common.flops, "budget": common.budget,
        "data": data.fingerprint, "own_rows": study.own_rows,
        "figure": study.figure, "costs": study.costs,
        "arms": {
            arm.name: {
                "says": arm.says, "control": arm.control, "paper": arm.paper, "line": arm.line, "x": arm.x,
                "settings": _settings(configs[arm.name]),
            }
            for arm in study.arms
        },
    }  # fmt: skip
    found: Results = _json(facts)
    return found


def _settings(config: PretrainConfig) -> dict[str, Any]:
    """Those of an arm that are not the defaults: settings that come with later versions change nothing."""
    defaults = flat(PretrainConfig())
    own = {name: value for name, value in flat(config).items() if value != defaults[name] and name not in IGNORED}
    found: dict[str, Any] = _json(own)
    return found


def _or_default(settings: Mapping[str, Any], name: str) -> str:
    return f"{settings[name]!r}" if name in settings else "the default"


def _json(value: Any) -> Any:
    """As it comes back from a file."""
    return json.loads(json.dumps(value, default=str))

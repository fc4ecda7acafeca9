"""OUT/study.json: what all runs of a study share. The first process writes it, the others check against it."""

import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from electra.config import flat, load_config, overrides_of
from electra.config_fields import default_of, setting_name
from electra.data.shards import TokenData
from electra.errors import CheckpointError, ConfigError
from electra.folder_lock import acquire, is_lock_file
from electra.json_files import write_json
from electra.pretraining.build import build
from electra.pretraining.config import PretrainConfig
from electra.pretraining.resolve import IGNORED
from electra.reports.study_results import STUDY_FILE, Record, read_study_record
from electra.studies.arms import ArmConfigs, StudySetup
from electra.studies.config import relative_source
from electra.training.precision import PrecisionName

RETRY_SECONDS = 0.1
"""Pause before the next attempt to lock the study's folder."""


def check_empty(out: Path) -> None:
    """Check that a new study does not write into a folder of something else.

    Raises:
        CheckpointError: naming some of its files.
    """
    if out.is_file():
        raise CheckpointError(f"{out} is a file; give another --out")
    if out.is_dir() and (
        names := sorted(
            one.name for one in out.iterdir() if not one.name.startswith(".") and not is_lock_file(one.name)
        )
    ):
        raise CheckpointError(
            f"{out} is not empty and holds no study (found {', '.join(names[:3])}); give another --out"
        )


def check_matches(setup: StudySetup, configs: ArmConfigs, data: TokenData, stored: Record) -> None:
    """Check that a study that is continued has the settings that it was started with.

    Args:
        stored: the object of study.json.

    Raises:
        CheckpointError: naming what differs.
    """
    study, another = setup.study, "give another --out"
    if stored["study"] != study.name:
        raise CheckpointError(f"{setup.out} holds the study {stored['study']}; {another}")
    if stored["data"] != data.fingerprint:
        raise CheckpointError(f"{setup.out} was started with other data; give that data, or {another}")
    if setup.budget not in (stored["budget"], stored["flops"]):
        raise CheckpointError(
            f"{setup.out} was started with a budget of {stored['budget']:g} ({stored['flops']:.4g} FLOPs); "
            f"give that, or {another}"
        )
    bases = study.base, relative_source(setup.out, study.base)  # early versions wrote the former
    if stored["base"] not in bases:
        raise CheckpointError(f"{setup.out} was started with --base {stored['base']}; give that, or {another}")
    for key, value in (("shares", study.budget_fractions), ("reached", study.thresholds)):
        if stored[key] != (given := _as_json(value)):
            raise CheckpointError(f"{setup.out} was started with {key} = {stored[key]}, not {given}; {another}")
    if setup.suite and (missing := [task for task in stored["suite"] if task not in setup.suite]):
        raise CheckpointError(
            f"{setup.out} was started with the tasks {' '.join(stored['suite'])}; --suite may add tasks, but it "
            f"lacks {' '.join(missing)}; {another}"
        )
    for name, config in configs.items():
        if name not in stored["arms"]:
            continue
        old, new = _as_written_now(stored["arms"][name]["settings"]), _changed_settings(config)
        if old != new:
            changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
            lines = [f"{key}: {_or_default(old, key)} before, {_or_default(new, key)} now" for key in changed]
            raise CheckpointError(
                f"{setup.out} has runs of another arm {name}; {another}:\n  " + "\n  ".join(lines)
            )


def open_study(setup: StudySetup, configs: ArmConfigs, data: TokenData) -> StudySetup:
    """Write study.json, or join the study whose study.json is there; the setup gets its FLOPs and precision.

    Raises:
        CheckpointError: another process was first and has other settings.
    """
    path, record = setup.out / STUDY_FILE, _study_record(setup, configs, data)
    if not path.is_file():
        first = read_study_record(setup.out)  # of an archive
        if not first:
            first = {**record, "precision": measure_precision(configs[setup.study.control], data)}
        setup.out.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.first")
        write_json(temporary, first)
        try:
            os.link(temporary, path)  # only one process can be first, and the file is complete from the start
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    while True:
        with acquire(setup.out) as acquired:
            if acquired:
                stored = read_study_record(setup.out)
                check_matches(setup, configs, data, stored)
                merged = stored | {
                    "suite": list(setup.suite) or stored["suite"],
                    "tune": list(setup.finetune_settings) if setup.suite else stored.get("tune", []),
                    "arms": stored["arms"] | record["arms"],
                    "contrasts": record["contrasts"],
                }
                if merged != stored:
                    write_json(path, merged)
                return replace(setup, flops=float(merged["flops"]), precision=merged["precision"])
        time.sleep(RETRY_SECONDS)


def measure_precision(config: PretrainConfig, data: TokenData) -> PrecisionName:
    """The faster precision for a config on this machine, if the config says "auto"."""
    return build(config, data, None).precision.name


def _study_record(setup: StudySetup, configs: ArmConfigs, data: TokenData) -> Record:
    study = setup.study
    record: Record = _as_json({
        "study": study.name, "title": study.title, "base": relative_source(setup.out, study.base),
        "control": study.control,
        "paper": study.source, "axis": study.axis, "shares": study.budget_fractions, "reached": study.thresholds,
        "suite": setup.suite, "tune": setup.finetune_settings, "flops": setup.flops, "budget": setup.budget,
        "data": data.fingerprint, "own_rows": study.own_packing,
        "figure": study.metric, "costs": study.show_costs,
        "contrasts": {
            one.name: {"says": one.label, "plus": one.plus, "minus": one.minus} for one in study.contrasts
        },
        "arms": {
            arm.name: {
                "says": arm.label, "control": arm.control, "paper": arm.published, "line": arm.line, "x": arm.x,
                "settings": _changed_settings(configs[arm.name]),
            }
            for arm in study.arms
        },
    })  # fmt: skip
    return record


def _changed_settings(config: PretrainConfig) -> dict[str, Any]:
    """The settings of an arm that are not the defaults, so that settings of later versions change nothing.

    A setting has the default of its section's class. Only `kind`, which selects the class, is compared with the
    kind of the default config.
    """
    defaults = {**_class_defaults(config), **_kinds(PretrainConfig())}
    changed: dict[str, Any] = _as_json(
        {name: value for name, value in flat(config).items() if value != defaults[name] and name not in IGNORED}
    )
    return changed


def _class_defaults(section: Any, prefix: str = "") -> dict[str, Any]:
    """The default of every setting by its dotted name; `dataclasses.MISSING` if it has none."""
    defaults: dict[str, Any] = {}
    for field in fields(section):
        value, name = getattr(section, field.name), prefix + setting_name(field.name)
        defaults |= _class_defaults(value, f"{name}.") if is_dataclass(value) else {name: default_of(field)}
    return defaults


def _kinds(config: PretrainConfig) -> dict[str, Any]:
    return {name: value for name, value in flat(config).items() if name.rpartition(".")[2] == "kind"}


def _as_written_now(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The stored settings of an arm as this version writes them.

    Earlier versions wrote `positions` for `kind`, and settings that belong to another kind. Settings that this
    version refuses are returned as they are.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    try:
        return _changed_settings(load_config(PretrainConfig, overrides=overrides_of(given)))
    except ConfigError:
        return settings


def _or_default(settings: Mapping[str, Any], name: str) -> str:
    return f"{settings[name]!r}" if name in settings else "the default"


def _as_json(value: Any) -> Any:
    """A value as it is read back from a JSON file."""
    return json.loads(json.dumps(value, default=str))

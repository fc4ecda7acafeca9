"""TOML tables of [model]: settings of older files, and settings that belong to other kinds of encoders."""

from dataclasses import fields
from typing import Any

from electra.config import Table
from electra.registry import encoders


def with_kind_of_positions(table: Table, *, learned: str) -> Table:
    """Return the table with `kind` in place of the older setting `positions`, which has priority over `kind`.

    Args:
        learned: the kind for learned positions, whose value has another spelling in files of the first versions.

    Raises:
        ValueError: the value is unknown, or it contradicts `kind`.
    """
    if "positions" not in table:
        return table
    kind_of_positions = {"learnt": learned, "learned": learned, "relative": "relative"}
    table = dict(table)
    positions, kind = table.pop("positions"), table.get("kind", "")
    if positions not in kind_of_positions:
        allowed = ", ".join(kind_of_positions)
        raise ValueError(f"positions: must be one of {allowed}, got {positions!r}; set kind instead")
    if kind not in ("", *kind_of_positions.values(), "bert"):
        raise ValueError(f"positions: {positions} contradicts kind {kind}; leave positions out")
    return {**table, "kind": kind_of_positions[positions]}


def without_settings_of_others(table: Table, config_class: type[Any]) -> Table:
    """Return the table without settings of other kinds that have their default values; older runs wrote them.

    Raises:
        ValueError: settings of other kinds have other values; one line each.
    """
    own = {field.name for field in fields(config_class)}
    others: dict[str, Any] = {}
    for name, other in encoders:
        others |= {field.name: (name, field.default) for field in fields(other) if field.name not in own}
    refused = []
    for key in [key for key in table if key in others]:
        kind, default = others[key]
        if table[key] != default:
            refused.append(f"{key}: needs kind {kind}, got {table[key]!r}; remove it, or set kind to {kind}")
    if refused:
        raise ValueError("\n".join(refused))
    return {key: value for key, value in table.items() if key not in others}

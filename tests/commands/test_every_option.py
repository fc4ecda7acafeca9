"""Every option of every verb is read: none is accepted without effect."""

import ast
import dataclasses
import importlib
import inspect
from pathlib import Path

import pytest

from electra.cli import VERBS
from electra.help import config_type


def attributes_read(file: Path) -> set[str]:
    """The names of the attributes that a Python file reads."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_read(verb: str) -> None:
    module, _, name = VERBS[verb][0].partition(":")
    run = getattr(importlib.import_module(module), name)
    config = config_type(run)
    files = {Path(inspect.getfile(run)), *Path(inspect.getfile(config)).parent.glob("*.py")}
    if config.__module__ == module:
        files = {Path(inspect.getfile(run))}  # the other verbs have options of the same names
    read = {name for file in files for name in attributes_read(file)}
    assert {field.name for field in dataclasses.fields(config)} - read == set()

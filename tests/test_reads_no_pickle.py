"""No module of the package can read a pickle, which can run a program when it is read."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import electra

PACKAGE = Path(electra.__file__).parent
READERS = {"torch": {"load", "hub"}, "pandas": {"read_pickle"}, "yaml": {"load", "unsafe_load", "full_load"}}
"""Functions that unpickle, or start what a file names, by module."""
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def unpickling(code: str) -> Iterator[str]:
    """Yield what in a module can read a pickle."""
    names: dict[str, str] = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found = READERS.get(module, set()) & {alias.name for alias in node.names}
            yield from [f"{module}.{name}" for name in found]
            if module.partition(".")[0] in MODULES:
                yield module
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield "allow_pickle"
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = names.get(node.value.id, "")
            if node.attr in READERS.get(module, ()):
                yield f"{module}.{node.attr}"


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.load(f, weights_only=True)", "import torch as t\nt.load(f)", "from torch import load",
        "import pickle", "from pickle import load", "import numpy as np\nnp.load(f, allow_pickle=True)",
        "import joblib", "import yaml\nyaml.load(f)",
    ],
)  # fmt: skip
def test_the_search_finds(code: str) -> None:
    assert list(unpickling(code))


def test_no_module_reads_a_pickle() -> None:
    found = {
        str(file.relative_to(PACKAGE)): names
        for file in sorted(PACKAGE.rglob("*.py"))
        if (names := list(unpickling(file.read_text(encoding="utf-8"))))
    }
    assert not found

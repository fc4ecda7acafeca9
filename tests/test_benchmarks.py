"""The scripts that the tests do not run still fit the package: every name that they import from it exists."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("examples/*.py"), *ROOT.glob("docs/*.py")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_imported_names_exist(script: Path) -> None:
    missing: list[str] = []
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "electra":
            module = importlib.import_module(node.module or "")
            for name in (alias.name for alias in node.names if not hasattr(module, alias.name)):
                if not hasattr(module, "__path__") or not importlib.util.find_spec(f"{node.module}.{name}"):
                    missing.append(f"{node.module}.{name}")
    assert not missing

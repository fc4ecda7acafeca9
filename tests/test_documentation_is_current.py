"""The pages that are generated are the ones that are committed."""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_configuration", DOCS / "generate_configuration.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_configuration_reference_is_what_the_dataclasses_say(generator: ModuleType):
    committed = (DOCS / "reference/configuration.md").read_text(encoding="utf-8")
    assert committed == generator.page(), "run `make docs` and commit the page"


def test_the_guide_for_contributors_shows_the_layers_that_are_checked():
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = project["tool"]["importlinter"]["contracts"]
    layers = "\n".join(contract["layers"]).replace("electra.", "")
    guide = (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert layers in re.findall(r"```text\n(.*?)\n```", guide, re.DOTALL)


def test_every_setting_and_option_is_documented(generator: ModuleType):
    rows = [line.split(" | ") for line in generator.page().splitlines() if line.startswith("| `")]
    undocumented = [row[0] for row in rows if len(row) == 4 and not row[-1].strip(" |")]
    assert not undocumented, "write a string literal below the field"

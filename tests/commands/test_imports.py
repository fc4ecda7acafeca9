"""A verb's help, and the refusal of its options, must not wait for what only the work needs."""

import pkgutil
import re
import subprocess
import sys

import pytest

from electra import reports
from electra.cli import VERBS

HEAVY = ("torch", "transformers", "scipy", "sklearn", "matplotlib", "pyarrow", "pandas", "datasets", "onnx")


def imported_with(modules: list[str]) -> str:
    code = "import importlib, sys\n"
    code += f"for module in {modules!r}:\n    importlib.import_module(module)\n"
    code += f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_modules_of_verbs_import_nothing_heavy() -> None:
    modules = {verb: target.partition(":")[0] for verb, (target, _) in VERBS.items()}
    if imported_with(list(modules.values())):
        actual = {verb: imported_with([module]) for verb, module in modules.items()}
        pytest.fail(f"import these inside `run`: { {verb: names for verb, names in actual.items() if names} }")


def test_a_report_needs_no_torch() -> None:
    """It takes seconds to import, and a report reads only files."""
    modules = [one.name for one in pkgutil.walk_packages(reports.__path__, "electra.reports.")]
    assert len(modules) > 20 and "torch" not in imported_with(modules).split()


@pytest.mark.parametrize(
    "arguments", [["pretrain", "electra-tiny"], ["finetune", "MODEL", "--task", "cola", "--data", "GLUE"]]
)
def test_a_missing_folder_is_said_before_anything_heavy_is_imported(arguments: list[str]) -> None:
    code = f"import sys\nfrom electra.cli import main\nassert main({arguments!r}) == 2\n"
    code += f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.match("electra: a (run|fine-tuning) needs --(data|out)", done.stderr) and done.stdout.strip() == ""

"""A verb's help, and the refusal of its options, must not wait for what only the work needs."""

import json
import pkgutil
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


PRETRAIN = "pretrain electra-tiny --data DATA --out RUN"
FINETUNE = "finetune MODEL --data DATA --out OUT"


WRONG_OPTIONS = {
    "pretrain electra-tiny": "a run needs --data",
    "finetune MODEL --task cola --data GLUE": "a fine-tuning needs --out",
    f"{PRETRAIN} --optimiser.lr 3": "optimiser: there is no such section; did you mean 'optimizer'?",
    f"{PRETRAIN} --optimizer.lr 3": "did you mean --optimizer.learning_rate?",
    f"{PRETRAIN} --masking.share x --train.precision fp16": "2 problems on the command line",
    f"{PRETRAIN} --train.batch_size 0": "train.batch_size: must be at least 1, got 0",
    f"{PRETRAIN} --lr 3": "did you mean --optimizer.learning_rate?",
    f"{PRETRAIN} --epochs 3": "epochs: there is no such setting; give --train.steps N",
    f"{FINETUNE} --task cola --steps 5": "steps: there is no such setting; give --train.epochs N",
    f"{FINETUNE} --task nope": "there is no task 'nope'",
    f"{FINETUNE} --kind nope": "there is no kind of task 'nope'",
    f"{FINETUNE} --task cola --kind pair": "--task cola has its own kind",
    f"{FINETUNE} --task cola --head.nope 3": "head.nope: there is no such setting",
    f"{FINETUNE} --task cola --seeds 0": "seeds: must be at least 1, got 0",
    "predict MODEL text --nope 3": "Unrecognized options: --nope",
    "predict MODEL --json text": "electra predict has no --json; give --output FILE.jsonl",
    "export MODEL --to onnx --quantize int4": "must be one of int8, got 'int4'",
    "predict MODEL text --device cuad": "--device: there is no device 'cuad'",
    "score MODEL text --long nope": "must be one of memory, windows, got 'nope'",
    "data inspect DATA --packing.nope 3": "packing.nope: there is no such setting",
}
"""Commands with a wrong option, and what is said of it."""
CALLS = f"""
import contextlib, io, json, sys
from electra.cli import main
for command in {list(WRONG_OPTIONS)!r}:
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        assert main(command.split()) == 2
    print(json.dumps([command, stderr.getvalue(), [name for name in {HEAVY!r} if name in sys.modules]]))
"""


def test_a_wrong_option_is_refused_before_anything_heavy_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        command, message, heavy = json.loads(line)
        assert WRONG_OPTIONS[command] in message
        assert not heavy, command

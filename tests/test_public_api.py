"""What `import electra` offers, and what it costs."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_model import write_model

import electra
from electra.errors import CheckpointError, ConfigError
from electra.serving.scorer import Scorer
from electra.tasks.classification import Classification


def test_every_public_name_is_there() -> None:
    for name in electra.__all__:
        assert getattr(electra, name) is not None, name


def test_the_public_names_are_listed() -> None:
    assert {"load", "pretrain", "finetune", "Scorer"} <= set(dir(electra)) == set(electra.__all__)


def test_a_model_says_what_it_is(small_model: str) -> None:
    shown = repr(electra.load(small_model))
    assert shown.startswith(f"<Model: {small_model}, a discriminator, bert, layers × width 1 × 32, ")


def test_a_fine_tuned_model_names_its_labels(tmp_path: Path) -> None:
    for labels, listed in ((("bad", "good"), "bad, good"), (tuple("abcdef"), "a, b, c, d, e, …")):
        folder = tmp_path / str(len(labels))
        model = write_model(folder, problem=Classification(("accuracy",), labels=labels))
        assert f", fine-tuned for a task: classification ({listed}), bert, " in repr(electra.load(model))


@pytest.mark.parametrize("labels", [5, {"a": 1}, ["x" * 3000, 7]])
def test_stored_labels_that_make_no_sense_are_no_crash(tmp_path: Path, labels: object) -> None:
    model = write_model(tmp_path / "model", problem=Classification(("accuracy",), labels=("bad", "good")))
    config = json.loads((path := model / "config.json").read_text())
    config["electra_task"]["labels"] = labels
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"electra_task\.labels must be a list of texts, found .{1,60}$"):
        Scorer(model)


@pytest.mark.parametrize("verb", [electra.pretrain, electra.finetune])
def test_settings_without_a_config_are_explained(verb: Callable[[Any], object]) -> None:
    with pytest.raises(ConfigError, match=r"needs a config, got 'electra-tiny'; make one: electra\.load_"):
        verb("electra-tiny")


def test_importing_it_loads_nothing_heavy() -> None:
    script = (
        "import sys, electra; print([m for m in ('torch', 'numpy', 'tokenizers', 'tyro') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_settings_by_dotted_name() -> None:
    config = electra.load_config("electra-tiny", {"out": "RUN", "train.steps": 7, "tracking.tensorboard": False})
    assert (config.train.steps, config.tracking.tensorboard, str(config.out)) == (7, False, "RUN")

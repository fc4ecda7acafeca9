"""A problem of the user's own, in one file outside the package."""

import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path

PLUGIN = Path(__file__).parents[2] / "examples/plugins/ordinal_task.py"

GRADED = """
from electra import register_task
from electra.tasks.classification import Classification


@register_task("graded")
class Graded(Classification):
    kind, answer_key = "graded", "grade"

    def decode(self, *inputs):
        return [{"grade": prediction["label"]} for prediction in super().decode(*inputs)]

    def compute_metrics(self, examples, predictions):
        return super().compute_metrics(examples, [{"label": prediction["grade"]} for prediction in predictions])
"""


def electra(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in its own process, where no plugin is registered yet."""
    command = [sys.executable, "-m", "electra", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )


def test_a_problem_in_one_file_is_trained_and_used(small_model: str, tmp_path: Path) -> None:
    data, out = tmp_path / "reviews.csv", tmp_path / "out"
    draw = random.Random(0)
    with data.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for number in range(240):
            word, label = [("splendid", 3), ("river", 2), ("dreadful", 1)][number % 3]
            writer.writerow([" ".join(draw.sample([word, "the", "garden", "boat"], 4)), label])
    trained = electra(
        "--plugin", PLUGIN, "finetune", small_model, "--kind", "ordinal", "--data", data, "--out", out,
        "--optimizer.learning_rate", "1e-2", "--train.precision", "float32", "--train.device", "cpu",
        "--train.batch_size", "16", "--tracking.tensorboard", "false",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    results = json.loads((out / "results.json").read_text())
    assert results["task"] == "ordinal" and results["median"] > 0.9
    config = json.loads((out / "model" / "config.json").read_text())
    assert config["problem_type"] == "single_label_classification" and config["id2label"]["0"] == "1"
    predicted = electra("predict", out, "a splendid boat", "--plugin", PLUGIN)
    assert predicted.returncode == 0 and predicted.stdout.startswith("3\t"), predicted.stderr
    without = electra("predict", out, "a splendid boat")
    assert without.returncode == 2
    assert "no kind of task 'ordinal'" in without.stderr and "--plugin FILE" in without.stderr


def test_a_problem_may_name_its_answer_as_it_likes(small_model: str, tmp_path: Path) -> None:
    plugin, data, out = tmp_path / "graded.py", tmp_path / "reviews.csv", tmp_path / "out"
    plugin.write_text(GRADED)
    data.write_text("text,label\n" + 20 * "a splendid boat,good\na dreadful boat,bad\n")
    trained = electra(
        "--plugin", plugin, "finetune", small_model, "--kind", "graded", "--data", data, "--out", out,
        "--train.epochs", "1", "--train.precision", "float32", "--train.device", "cpu",
        "--tracking.tensorboard", "false",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    predicted = electra("predict", out, "a splendid boat", "--plugin", plugin)
    assert predicted.returncode == 0, predicted.stderr
    assert predicted.stdout in ("good\ta splendid boat\n", "bad\ta splendid boat\n")

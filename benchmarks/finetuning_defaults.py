"""Fine-tuning's defaults beside other recipes, on tasks of several kinds with few and with many examples.

    python benchmarks/finetuning_defaults.py MODEL --data TASKS --out RESULTS.jsonl [--tasks chunking mrpc ...]
        [--examples 100 1000 0] [--seeds 3] [--recipes defaults earlier trainer trainer-long]
        [--add NAME optimizer.learning_rate=1e-3 least_steps=300 ...]

Each result is one line of RESULTS; those that are there are not run again. Each seed trains on its own sample of
the examples (0: all). TASKS is a folder with glue/, chunking-conll2000/, ner-wnut17/ and ner-bc5cdr/. At the end a
table of the metric of each recipe: mean and deviation over the seeds, in points.
"""

import argparse
import json
import logging
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import electra
from electra.finetuning.load_task import load_task

FOLDERS = {
    "chunking": "chunking-conll2000",
    "ner-bc5cdr": "ner-bc5cdr",
    "ner-wnut17": "ner-wnut17",
    "ged-de": "ged",
}
"""Folders of the tasks that are not in glue/. A folder of another name with train.csv is a task, too."""
TASKS = ("chunking", "ner-bc5cdr", "ner-wnut17", "mrpc", "sst-2", "cola", "sts-b")
RECIPES: dict[str, dict[str, float]] = {
    "defaults": {},
    "trainer": {"optimizer.learning_rate": 5e-5, "optimizer.layer_decay": 1.0, "train.epochs": 3.0},
    "trainer-long": {"optimizer.learning_rate": 2e-5, "optimizer.layer_decay": 1.0, "train.epochs": 20.0},
}
"""trainer, trainer-long: the defaults of the transformers Trainer, and what is often given for few examples."""
LEAST_STEPS = "least_steps"
"""In place of `train.epochs`: more epochs than the default where the examples are few."""
BATCH_SIZE = 32


def run(
    model: Path, data: Path, task: str, examples: int, seed: int, recipe: dict[str, float]
) -> dict[str, object]:
    """Fine-tune once."""
    named = not (data / task / "train.csv").is_file()
    settings: dict[str, object] = {
        "model": str(model), "data.path": str(data / (FOLDERS.get(task, "glue") if named else task)), "seed": seed,
        **({"task": task} if named else {"kind": "classification"}),
        **{name: value for name, value in recipe.items() if name != LEAST_STEPS},
    }  # fmt: skip
    loaded = load_task(electra.load_task_config({**settings, "out": "unused"}))
    size = len(loaded.splits["train"])
    if examples and examples < size:
        settings["data.fraction"] = examples / size
    if LEAST_STEPS in recipe:
        rows = len(loaded.training_examples(loaded.splits["train"][: examples or size]))
        steps_per_epoch = math.ceil(rows / BATCH_SIZE)
        settings["train.epochs"] = float(
            max(loaded.default_epochs, math.ceil(recipe[LEAST_STEPS] / steps_per_epoch))
        )
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        result = electra.finetune(electra.load_task_config({**settings, "out": out}))
    [of_seed] = result.seeds
    return {
        "value": of_seed.metrics[result.metric], "failed": of_seed.failed, "steps": of_seed.steps,
        "seconds": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def read(path: Path) -> dict[tuple[object, ...], dict[str, object]]:
    """The stored results by model, task, examples, recipe and seed."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {tuple(row[key] for key in ("model", "task", "examples", "recipe", "seed")): row for row in rows}


def table(rows: dict[tuple[object, ...], dict[str, object]], model: str) -> Iterator[str]:
    """One line per task and number of examples."""
    recipes = list(dict.fromkeys(key[3] for key in rows if key[0] == model))
    yield " | ".join(["task", "examples", *map(str, recipes)])
    for task, examples in dict.fromkeys(key[1:3] for key in rows if key[0] == model):
        cells = []
        for recipe in recipes:
            found = [row for key, row in rows.items() if key[:4] == (model, task, examples, recipe)]
            values = [100 * float(row["value"]) for row in found]
            spread = f" ±{statistics.stdev(values):.1f}" if len(values) > 1 else ""
            failed = sum(row["failed"] is not None for row in found)
            note = f" ({failed} failed)" if failed else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}{note}" if values else "")
        yield " | ".join([str(task), str(examples or "all"), *cells])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True, metavar="TASKS")
    parser.add_argument("--out", type=Path, required=True, metavar="RESULTS", help="a .jsonl file, added to")
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--examples", nargs="+", type=int, default=(100, 1000, 0), help="0: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipes", nargs="*", default=tuple(RECIPES), choices=tuple(RECIPES))
    parser.add_argument("--add", nargs="+", action="append", default=[], metavar="NAME SETTING=VALUE")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    recipes = {name: RECIPES[name] for name in options.recipes}
    for name, *pairs in options.add:
        recipes[name] = {setting: float(value) for setting, value in (pair.split("=") for pair in pairs)}
    done = read(options.out)
    for examples in options.examples:
        for task in options.tasks:
            for seed in range(options.seeds):
                for name, recipe in recipes.items():
                    key = (options.model.name, task, examples, name, seed)
                    if key in done:
                        continue
                    row = dict(zip(("model", "task", "examples", "recipe", "seed"), key, strict=True))
                    row |= {"settings": recipe, **run(options.model, options.data, task, examples, seed, recipe)}
                    with options.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                        os.fsync(file.fileno())
                    done[key] = row
    print("\n".join(table(done, options.model.name)))


if __name__ == "__main__":
    main()

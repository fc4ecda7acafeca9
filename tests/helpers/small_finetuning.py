"""A table of labeled texts, and the folders of fine-tunings whose predictions for it are known."""

import json
from pathlib import Path

from electra.config import to_toml
from electra.finetuning.config import load_task_config

COUNT = 200
LABELS = ["no" if i % 2 else "yes" for i in range(COUNT)]


def write_table(folder: Path) -> Path:
    """train.csv and dev.csv with `COUNT` texts."""
    folder.mkdir()
    text = "text,label\n" + "".join(f"text {i},{label}\n" for i, label in enumerate(LABELS))
    for name in ("train", "dev"):
        (folder / f"{name}.csv").write_text(text)
    return folder


def write_finetuning(folder: Path, data: Path, *wrong: range) -> Path:
    """A fine-tuning with a seed for each range: the examples that the seed predicts wrongly."""
    config = load_task_config({
        "model": "M", "kind": "classification", "data.path": data, "data.text": "text", "data.label": "label",
    })  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(config))
    seeds = [{"seed": seed, "failed": None, "others": {}} for seed in range(len(wrong))]
    (folder / "results.json").write_text(json.dumps({"seeds": seeds}))
    for seed, indices in enumerate(wrong):
        predicted = [
            {"yes": "no", "no": "yes"}[label] if i in indices else label for i, label in enumerate(LABELS)
        ]
        (folder / f"seed-{seed}").mkdir()
        lines = [
            {"label": label, "text": f"text {i}", "gold": gold}
            for i, (label, gold) in enumerate(zip(predicted, LABELS, strict=True))
        ]
        (folder / f"seed-{seed}" / "dev.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder

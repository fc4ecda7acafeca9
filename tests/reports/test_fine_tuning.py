"""The section of a fine-tuning: one or several seeds, labels of metrics, and small parts."""

import json
from pathlib import Path
from typing import Any

from electra.reports.fine_tuning import fine_tuning_sections
from electra.reports.page import Section


def section(path: Path, *, seeds: int, dev: int, failed: str | None = None) -> Section:
    one: dict[str, Any] = {
        "metrics": {"span_f1": 0.45, "precision": 0.4}, "failed": failed, "steps": 60, "seconds": 5.0,
        "others": {"test": {"span_f1": 0.44}},
    }  # fmt: skip
    results = {
        "task": "ner", "metric": "span_f1", "median": 0.45, "mean": 0.46, "standard_deviation": 0.01,
        "seeds": [{"seed": seed, **one} for seed in range(seeds)], "pretrained": "RUN",
        "examples": {"train": 4560, "dev": dev, "test": 1}, "notes": [],
    }  # fmt: skip
    (path / "results.json").write_text(json.dumps(results), encoding="utf-8")
    settings = "[train]\nepochs = 15.0\n[data]\nfraction = 0.02\n[optimizer]\nlearning_rate = 1e-05\n"
    (path / "config.toml").write_text(settings, encoding="utf-8")
    [made] = fine_tuning_sections(path, "NER")
    return made


def headers(made: Section) -> list[str]:
    return [str(column.header) for column in made.tables[0].columns]


def test_one_seed_has_one_score(tmp_path: Path) -> None:
    made = section(tmp_path, seeds=1, dev=100)
    properties = dict(made.properties)
    assert properties["span F1 on dev"] == "0.4500" and "standard deviation over seeds" not in properties
    assert properties["span F1 on test"] == "0.4400 (1 example)"
    assert headers(made) == ["seed", "span F1", "precision", "steps", "seconds without evaluation"]


def test_several_seeds_have_a_median(tmp_path: Path) -> None:
    made = section(tmp_path, seeds=2, dev=99, failed="at the majority class")
    assert dict(made.properties)["span F1 on dev"] == "median 0.4500, mean 0.4600 (99 examples)"
    assert dict(made.properties)["span F1 on test"].startswith("median 0.4400")
    assert headers(made)[3] == "failed"


def test_whole_numbers_have_no_decimals(tmp_path: Path) -> None:
    properties = dict(section(tmp_path, seeds=1, dev=100).properties)
    assert properties["epochs"] == "15" and properties["learning rate"] == "1e-5"
    assert properties["fraction of the training examples"] == "0.02"

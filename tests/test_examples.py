"""The scripts in examples/ do what they say."""

import importlib.util
import json
import random
import sys
from pathlib import Path

import pytest

from electra.preparation.merge import merge_data

CLEAN = Path(__file__).parents[1] / "examples/clean_corpus.py"


def test_a_corpus_is_cleaned(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("datatrove", reason="the extra `corpus` is not installed")
    pytest.importorskip("spacy", reason="the extra `corpus` is not installed")
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["the", "of", "and", "to"] * 40 + ["".join(draw.choices(syllables, k=2)) for _ in range(2000)]
    originals = [" ".join(draw.choices(words, k=200)) + "." for _ in range(40)]
    near = [text.replace(text.split()[100], "changed", 1) for text in originals[:5]]
    files = [originals, originals[5:12] + near, ["too short to be kept"] * 3]
    (tmp_path / "texts").mkdir()
    for number, texts in enumerate(files):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (tmp_path / f"texts/{number}.jsonl").write_text(lines, encoding="utf-8")
    specification = importlib.util.spec_from_file_location("clean_corpus", CLEAN)
    assert specification and specification.loader
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    out = tmp_path / "out"
    arguments = [str(tmp_path / "texts"), str(data_folder / "tokenizer.json"), str(out), "--tasks", "3"]
    monkeypatch.setattr(sys, "argv", ["clean_corpus.py", *arguments, "--workers", "1"])
    example.main()
    left_out = {}
    for line in capsys.readouterr().out.splitlines()[1:]:
        stage, *_, documents, dropped, _seconds = line.split()
        left_out[stage] = max(left_out.get(stage, (0, 0)), (int(documents), int(dropped)), key=lambda one: one[1])
    assert left_out["1-quality"] == (55, 3)
    assert left_out["4-exact"] == (52, 7)
    assert left_out["8-shards"] == (45, 5)
    result = merge_data(tuple(sorted((out / "shards").iterdir())), tmp_path / "data")
    assert result.manifest["statistics"]["documents"] == 40

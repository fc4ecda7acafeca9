"""Every command and piece of Python in the README and docs/start/quickstart.md runs, with training made short."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs/start/quickstart.md"]
SHORT = {
    "train.steps": "3", "train.batch_size": "8", "packing.sequence_length": "32", "evaluation.examples": "16",
    "model.layers": "1", "generator.layers": "1", "tracking.tensorboard": "false",
}  # fmt: skip


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """The `electra` commands of a page in order; those that take minutes, or never end, are tested elsewhere."""
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    actual = [
        shlex.split(line.removeprefix("$ "), comments=True) for line in lines if line.startswith("$ electra ")
    ]
    return [words for words in actual if words[1] not in ("quickstart", "serve")]


def shortened(words: list[str]) -> list[str]:
    if words[1] == "pretrain" and "--dry-run" not in words:
        words = [*words, *(part for name, value in SHORT.items() for part in (f"--{name}", value))]
        if "--train.minutes" in words:
            at = words.index("--train.minutes")
            del words[at : at + 2]
    if words[1] == "prepare":
        words = [*words, "--vocabulary-size", "600"]
    return words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_its_commands_run_as_written(page: Path, corpus_file: Path, tmp_path: Path) -> None:
    assert commands(page), f"{page.name} shows no command"
    (tmp_path / "TEXTS").mkdir()
    shutil.copy(corpus_file, tmp_path / "TEXTS" / "stories.jsonl")
    rows = "".join(f"The room was {'good' if i % 2 else 'bad'} in {1990 + i}.,{i % 2}\n" for i in range(30))
    (tmp_path / "reviews.csv").write_text(f"review,stars\n{rows}", encoding="utf-8")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    for words in commands(page):
        done = subprocess.run(
            [sys.executable, "-m", "electra", *shortened(words)[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    for code in blocks(page, "python"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{code}\n{done.stderr}"


def test_the_two_commands_of_a_newcomer_are_named() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make quickstart" in text and "make test" in text


def test_its_links_lead_somewhere() -> None:
    for page in [*PAGES, *(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"

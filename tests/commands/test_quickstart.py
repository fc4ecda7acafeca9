"""A small quickstart: corpus of the machine, shards, a few steps, and what a new user sees."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from electra.commands import quickstart
from electra.commands.quickstart import QuickstartConfig, QuickstartResult
from electra.errors import ConfigError
from electra.preparation import documentation
from electra.reports.settings import read_config

SENTENCES = [
    "Return the number of items that the caller asked for, or an empty list where there are none.",
    "The file is opened once and closed when the last reader has gone away.",
    "Raises an error if the two arrays do not have the same shape along the first axis.",
    "A value of zero means that the cache is never emptied while the program runs.",
    "This method is called by the parser whenever it meets the end of a section.",
]


@pytest.fixture
def little_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small corpus instead of the docstrings of the machine, which take half a minute to collect."""

    def collect(out: Path, *, words: int = 0) -> documentation.Documentation:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", encoding="utf-8") as file:
            for number in range(60):
                text = "\n".join(SENTENCES[(number + i) % 5] for i in range(number % 7 + 4))
                file.write(json.dumps({"id": number, "text": f"{text} Page {number}."}) + "\n")
        return documentation.Documentation(out, out.with_suffix(".licences.json"), 5000, 60, cached=False)

    monkeypatch.setattr(documentation, "collect_documentation", collect)
    monkeypatch.setattr(quickstart, "VOCABULARY", 600)


def shown(result: QuickstartResult) -> str:
    console = Console(file=io.StringIO(), width=150)
    console.print(result)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("little_corpus")
def test_a_new_user_sees_results_and_next_steps(tmp_path: Path) -> None:
    config = QuickstartConfig(out=tmp_path / "quick", minutes=0.03, seed=3)
    result = quickstart.run(config)
    assert result.exit_code == 0 and len(result.sentences) == 3
    assert read_config(result.trained.run)["train"]["seed"] == 3
    text = shown(result)
    for part in (
        "AUC on unigram fakes",
        "really replaced",
        "electra prepare",
        "electra score",
        "export/discriminator",
    ):
        assert part in text.replace("\n", ""), part
    assert "\n  electra pretrain electra-plus-tiny --data DATA --out RUN --train.minutes 30\n" in text
    picture = result.trained.picture
    assert picture is not None and picture.read_bytes().startswith(b"\x89PNG")
    again = quickstart.run(config)
    assert again.trained.outcome == result.trained.outcome
    assert [one.tokens for one in again.sentences] == [one.tokens for one in result.sentences]


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"is not the folder of a quickstart \(it has manifest.json\)"):
        quickstart.run(QuickstartConfig(out=tmp_path))
    with pytest.raises(ConfigError, match="is a file; give a new folder"):
        quickstart.run(QuickstartConfig(out=tmp_path / "manifest.json"))


@pytest.mark.usefixtures("little_corpus")
def test_a_demonstration_shows_what_was_replaced(tmp_path: Path) -> None:
    result = quickstart.run(QuickstartConfig(out=tmp_path / "quick", minutes=0.02))
    for sentence in result.sentences:
        assert len(sentence.tokens) == len(sentence.probabilities)
        assert all(0 <= p <= 1 for p in sentence.probabilities)
        assert len(sentence.originals) >= 2
        for place, original in sentence.originals.items():
            assert sentence.tokens[place] != original

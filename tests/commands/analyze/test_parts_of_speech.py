"""`electra analyze parts-of-speech` from the command line."""

import json
import shutil
from pathlib import Path

import pytest

from electra.cli import main

TAGS = {
    "the": "DET",
    "a": "DET",
    "fox": "NOUN",
    "river": "NOUN",
    "boat": "NOUN",
    "follows": "VERB",
    "paints": "VERB",
}
SENTENCES = ["The fox paints a boat .", "a river follows the fox .", "The boat follows the river ."]


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("treebank") / "small.conllu"
    path.write_text("\n".join(conllu(text) for text in SENTENCES * 12))
    return path


def conllu(text: str) -> str:
    words = text.split()
    lines = [
        f"{number}\t{word}\t_\t{TAGS.get(word.lower(), 'PUNCT')}\t_\t_\t_\t_\t_\t_"
        for number, word in enumerate(words, start=1)
    ]
    return "\n".join([f"# text = {text.replace(' .', '.')}", *lines, ""])


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["analyze", "parts-of-speech", *map(str, arguments)]) == 2
    return capsys.readouterr().err


def test_words_by_tag(
    exported_run: Path, treebank: Path, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "analyze",
        "parts-of-speech",
        str(exported_run),
        "--data",
        str(treebank),
        "--draws",
        "2",
        "--resamples",
        "20",
    ]
    assert main([*command, "--frequencies", str(data_folder), "--threshold", "0.4", "--out", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "run: the discriminator's errors" in shown and "the training text of stories" in shown
    assert "above 0.4" in shown and "Bias and difficulty" in shown
    text = (tmp_path / "parts-of-speech.json").read_text()
    assert str(tmp_path.parent) not in text and "NaN" not in text
    results = json.loads(text)
    assert (results["sentences"], results["words"], results["rebuilt"]) == (36, 36 * 6, 0)
    words = {"DET": 72, "NOUN": 72, "VERB": 36, "PUNCT": 36}
    actual = results["groups"]
    assert {one["name"] for one in actual["tag"]} == {*words}
    (every,) = actual["all tokens"]
    for part in actual.values():  # each property divides the same tokens
        for key in ("tokens", "places", "fakes"):
            assert sum(one[key] for one in part) == every[key]
    assert {*results["effects"]["missed"]} == {
        "tag", "frequency of the token", "position", "piece", "generator's probability",
    }  # fmt: skip
    assert (tmp_path / "parts-of-speech.png").read_bytes().startswith(b"\x89PNG")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    assert "Words that look replaced" in (tmp_path / "page.html").read_text()


def test_sentences_read_in_windows_are_counted(
    exported_run: Path, treebank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "long.conllu"
    data.write_text(f"{treebank.read_text()}\n{conllu(' '.join(['the fox paints the boat'] * 20))}\n")
    assert (
        main(
            [
                "analyze",
                "parts-of-speech",
                str(exported_run),
                "--data",
                str(data),
                "--draws",
                "1",
                "--resamples",
                "5",
            ]
        )
        == 0
    )
    assert "run: sentences longer than its input, read in windows: 1" in " ".join(capsys.readouterr().out.split())


def test_the_generator_is_found_or_given(
    exported_run: Path, treebank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Next to a run's discriminator, or given: the results are the same."""
    alone = tmp_path / "run"
    shutil.copytree(exported_run / "export" / "discriminator", alone)
    options = ["--data", str(treebank), "--draws", "1", "--sentences", "5", "--resamples", "5"]
    results = []
    for number, model in enumerate(
        [
            [str(exported_run)],
            [str(exported_run / "export" / "discriminator")],
            [str(alone), "--generator", str(exported_run)],
        ]
    ):
        out = tmp_path / str(number)
        assert main(["analyze", "parts-of-speech", *model, *options, "--out", str(out)]) == 0
        results.append(json.loads((out / "parts-of-speech.json").read_text()))
    names = [one.pop("model") for one in results]
    assert names == ["run", "run discriminator", "run"]
    assert [one.pop("in_windows") for one in results] == [{name: 0} for name in names]
    assert results[0] == results[1] == results[2] and results[0]["sentences"] == 5
    assert results[0]["frequencies"] is None
    capsys.readouterr()
    assert "--generator MODEL" in refused(capsys, alone, *options)


def test_bad_treebanks_and_models_are_refused(
    exported_run: Path, treebank: Path, small_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content, message in (
        ("empty.conllu", "", "the file has no sentence"),
        ("chunks.conllu", "in IN B-PP\n\n", "chunks.conllu:1: 3 columns in 'in IN B-PP', but CoNLL-U has 10"),
        ("bare.conllu", "1\ta\t_\t_\t_\t_\t_\t_\t_\t_\n\n", "bare.conllu:1: no word has a tag"),
    ):
        (tmp_path / name).write_text(content)
        assert message in refused(capsys, exported_run, "--data", tmp_path / name)
    assert "cannot be read" in refused(capsys, exported_run, "--data", tmp_path / "none.conllu")
    no_head = refused(capsys, exported_run / "export" / "generator", "--data", treebank)
    assert "is a masked language model" in no_head and "this needs a discriminator" in no_head
    other = refused(capsys, small_model, "--generator", exported_run, "--data", treebank)
    assert "different vocabularies" in other
    problems = refused(
        capsys, exported_run, "--data", treebank, "--threshold", 1, "--draws", 0, "--temperature", "nan"
    )
    assert all(f"--{name}: must" in problems for name in ("threshold", "draws", "temperature"))


def test_each_corrupted_copy_has_another_seed(exported_run: Path, treebank: Path, tmp_path: Path) -> None:
    def fakes(draws: int, seed: int) -> tuple[int, float]:
        """Their number and their mean log-odds."""
        options = ["--draws", str(draws), "--seed", str(seed), "--resamples", "5", "--out", str(tmp_path)]
        command = ["analyze", "parts-of-speech", str(exported_run), "--data", str(treebank), *options]
        assert main(command) == 0
        [every] = json.loads((tmp_path / "parts-of-speech.json").read_text())["groups"]["all tokens"]
        return every["fakes"], every["fake_logit"]["value"]

    (count, mean), (other_count, other_mean) = fakes(1, 0), fakes(1, 1)
    both, both_mean = fakes(2, 0)
    assert mean != other_mean and both == count + other_count
    assert both * both_mean == pytest.approx(count * mean + other_count * other_mean, rel=1e-3)

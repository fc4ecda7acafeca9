"""`electra analyze parts-of-speech` and `electra analyze generator` from the command line."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import small_run
import torch

from electra.cli import main
from electra.data import tokenizer as tokenizers
from electra.data.tags import TagTable
from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.preparation.tokenizer_training import train_tokenizer

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
def run(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a run: random networks over the vocabulary of the data."""
    folder = tmp_path_factory.mktemp("words") / "run"
    tokenizer_json = data_folder / "tokenizer.json"
    size = tokenizers.vocabulary_size(load_tokenizer(tokenizer_json))
    config = BertConfig(
        layers=1, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, max_positions=32,
        vocabulary_size=size, initializer_range=0.4, linear_initializer_range=0.4,
    )  # fmt: skip
    for seed, (name, head) in enumerate(
        {"discriminator": ReplacedTokenHead, "generator": MaskedLanguageModelHead}.items()
    ):
        torch.manual_seed(seed)
        huggingface.save(
            folder / "export" / name, encoder=BertEncoder(config), head=head(config), card="",
            tokenizer_json=tokenizer_json,
        )  # fmt: skip
    return folder


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


def refused(capsys: pytest.CaptureFixture[str], what: str, *arguments: object) -> str:
    assert main(["analyze", what, *map(str, arguments)]) == 2
    return capsys.readouterr().err


def test_words_by_tag(
    run: Path, treebank: Path, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "analyze",
        "parts-of-speech",
        str(run),
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
    facts = json.loads(text)
    assert (facts["sentences"], facts["words"], facts["rebuilt"]) == (36, 36 * 6, 0)
    words = {"DET": 72, "NOUN": 72, "VERB": 36, "PUNCT": 36}
    found = facts["groups"]
    assert {one["name"] for one in found["tag"]} == {*words}
    (every,) = found["all tokens"]
    for part in found.values():  # each parts the same tokens
        for key in ("tokens", "places", "fakes"):
            assert sum(one[key] for one in part) == every[key]
    assert {*facts["effects"]["missed"]} == {
        "tag", "frequency of the token", "position", "piece", "generator's probability",
    }  # fmt: skip
    assert (tmp_path / "parts-of-speech.png").read_bytes().startswith(b"\x89PNG")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    assert "Words that look replaced" in (tmp_path / "page.html").read_text()


def test_sentences_that_are_read_in_windows_are_counted(
    run: Path, treebank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "long.conllu"
    data.write_text(f"{treebank.read_text()}\n{conllu(' '.join(['the fox paints the boat'] * 20))}\n")
    assert (
        main(["analyze", "parts-of-speech", str(run), "--data", str(data), "--draws", "1", "--resamples", "5"])
        == 0
    )
    assert "run: sentences longer than its input, read in windows: 1" in " ".join(capsys.readouterr().out.split())


def test_the_generator_is_found_and_may_be_named(
    run: Path, treebank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside a run's discriminator, or wherever it is said to be: the figures are the same."""
    alone = tmp_path / "run"
    shutil.copytree(run / "export" / "discriminator", alone)
    options = ["--data", str(treebank), "--draws", "1", "--sentences", "5", "--resamples", "5"]
    facts = []
    for number, model in enumerate(
        [[str(run)], [str(run / "export" / "discriminator")], [str(alone), "--generator", str(run)]]
    ):
        out = tmp_path / str(number)
        assert main(["analyze", "parts-of-speech", *model, *options, "--out", str(out)]) == 0
        facts.append(json.loads((out / "parts-of-speech.json").read_text()))
    names = [one.pop("model") for one in facts]
    assert names == ["run", "run discriminator", "run"]
    assert [one.pop("in_windows") for one in facts] == [{name: 0} for name in names]
    assert facts[0] == facts[1] == facts[2] and facts[0]["sentences"] == 5
    assert facts[0]["frequencies"] is None
    capsys.readouterr()
    assert "--generator MODEL" in refused(capsys, "parts-of-speech", alone, *options)


def test_bad_treebanks_and_models_are_named(
    run: Path, treebank: Path, small_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content, message in (
        ("empty.conllu", "", "the file has no sentence"),
        ("chunks.conllu", "in IN B-PP\n\n", "chunks.conllu:1: 3 columns in 'in IN B-PP', but CoNLL-U has 10"),
        ("bare.conllu", "1\ta\t_\t_\t_\t_\t_\t_\t_\t_\n\n", "bare.conllu:1: no word has a tag"),
    ):
        (tmp_path / name).write_text(content)
        assert message in refused(capsys, "parts-of-speech", run, "--data", tmp_path / name)
    assert "cannot be read" in refused(capsys, "parts-of-speech", run, "--data", tmp_path / "none.conllu")
    no_head = refused(capsys, "parts-of-speech", run / "export" / "generator", "--data", treebank)
    assert "is a masked language model" in no_head and "this needs a discriminator" in no_head
    other = refused(capsys, "parts-of-speech", small_model, "--generator", run, "--data", treebank)
    assert "different vocabularies" in other
    problems = refused(
        capsys, "parts-of-speech", run, "--data", treebank, "--threshold", 1, "--draws", 0, "--temperature", "nan"
    )
    assert all(f"--{name}: must" in problems for name in ("threshold", "draws", "temperature"))


def generated(out: Path, models: Sequence[object], data: Path, *options: str) -> dict[str, object]:
    some = ["--texts", "12", "--resamples", "9", "--out", str(out)]
    assert main(["analyze", "generator", *map(str, models), "--data", str(data), *some, *options]) == 0
    text = (out / "generator.json").read_text()
    assert str(out.parent) not in text and "NaN" not in text
    assert (out / "generator.png").read_bytes().startswith(b"\x89PNG")
    facts: dict[str, object] = json.loads(text)
    return facts


def test_proposals_by_share_and_temperature_with_tags(
    run: Path, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tagged = shutil.copytree(data_folder, tmp_path / "tagged")
    tokenizer = load_tokenizer(tagged / "tokenizer.json")
    TagTable.count([([*TAGS], [*TAGS.values()])], tokenizer).write(tagged)
    options = ["--share", "0.2", "0.5", "--temperature", "1", "0.5", "--length", "16", "--examples", "1"]
    facts = generated(tmp_path / "out", [run, run / "export" / "generator"], tagged, *options)
    shown = capsys.readouterr().out
    assert "[MASK]" in shown and "same tag" in shown and "data has no tags" not in shown
    first, second = facts["models"]  # type: ignore[misc]
    assert [one.pop("model") for one in (first, second)] == ["run", "run generator"]
    assert first == second  # the generator, whether by its run or by itself
    assert [(one["share"], one["temperature"]) for one in first["readings"]] == [
        (0.2, 1.0), (0.2, 0.5), (0.5, 1.0), (0.5, 0.5),
    ]  # fmt: skip
    for warm, cold in (first["readings"][:2], first["readings"][2:]):
        assert cold["entropy"]["value"] < warm["entropy"]["value"] and cold["tokens"] == warm["tokens"]
        assert cold["top_5"] == warm["top_5"]  # the order of tokens is the same
        assert sum(band["tokens"] for band in warm["bands"]) == warm["tokens"]
    assert len(first["examples"]) == 1 and facts["length"] == 16


def test_runs_of_one_name_are_told_apart(run: Path, data_folder: Path, tmp_path: Path) -> None:
    """As of two seeds; the tables of one are not those of the other."""
    models = [shutil.copytree(run, tmp_path / seed / "run") for seed in ("one", "two")]
    facts = generated(tmp_path / "out", models, data_folder, "--examples", "1")
    assert [one["model"] for one in facts["models"]] == ["one run", "two run"]  # type: ignore[attr-defined]


def test_over_training(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], without_transformers: None
) -> None:
    """Each checkpoint is measured; the last one's figures are those of the export."""
    run = tmp_path / "run"
    steps = ["--train.steps", "20", "--checkpoint.every", "10", "--evaluation.every", "0"]
    assert main(small_run.command(data_folder, run, *steps)) == 0
    facts = generated(tmp_path / "over", [run], data_folder, "--checkpoints")
    models: list[dict[str, object]] = facts["models"]  # type: ignore[assignment]
    assert [one["step"] for one in models] == [10, 20]
    exported: list[dict[str, object]] = generated(tmp_path / "last", [run], data_folder)["models"]  # type: ignore[assignment]
    last, of_export = (one[-1]["readings"][0] for one in (models, exported))  # type: ignore[index]
    assert last["loss"] == pytest.approx(of_export["loss"], abs=1e-4) and last["tokens"] == of_export["tokens"]
    capsys.readouterr()
    shutil.rmtree(run / "checkpoints" / "step-00000010")
    generated(tmp_path / "one", [run], data_folder, "--checkpoints")
    assert "only one checkpoint, so training cannot be shown" in capsys.readouterr().out
    shutil.rmtree(run / "checkpoints")
    none = refused(capsys, "generator", run, "--data", data_folder, "--checkpoints")
    assert "holds no checkpoint" in none and "leave --checkpoints out" in none


def test_what_proposes_nothing_is_named(
    run: Path, small_model: str, data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data", data_folder)
    assert "predicts no masked tokens" in refused(capsys, "generator", small_model, *data)
    assert "name at least one model" in refused(capsys, "generator", *data)
    problems = refused(capsys, "generator", run, *data, "--share", 0, "--temperature", 1, 1)
    assert all(f"--{name}: " in problems for name in ("share", "temperature"))
    assert "--texts: " in refused(capsys, "generator", run, *data, "--texts", 0)


def test_a_generator_of_another_vocabulary_is_refused(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_tokenizer(["one two three"] * 9, vocabulary_size=60).save(str(tmp_path / "tokenizer.json"))
    config = BertConfig(
        layers=1, hidden_size=16, embedding_size=16, feed_forward_size=24, heads=2, vocabulary_size=60
    )
    huggingface.save(
        tmp_path / "other", encoder=BertEncoder(config), head=MaskedLanguageModelHead(config), card="",
        tokenizer_json=tmp_path / "tokenizer.json",
    )  # fmt: skip
    assert "another vocabulary" in refused(capsys, "generator", tmp_path / "other", "--data", data_folder)

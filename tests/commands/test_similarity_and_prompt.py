"""The verbs `electra similarity` and `electra prompt`."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from electra.cli import main
from electra.commands import prompt, similarity
from electra.commands.prompt import PromptConfig
from electra.commands.similarity import SimilarityConfig
from electra.config import check
from electra.errors import ConfigError, DataError
from electra.serving.text_encoder import TextEncoder

PAIRS = [("gardener garden", "gardener town", 4.0), ("fox", "river boat road", 1.0), ("clock", "clock", 5.0),
         ("sailor boat", "boat sailor", 4.5), ("teacher", "road town fox", 0.5)]  # fmt: skip


def cosines(model: str) -> list[float]:
    encoder = TextEncoder(model, device="cpu")
    actual = []
    for first, second, _ in PAIRS:
        a, b = encoder.encode([first])[0], encoder.encode([second])[0]
        actual.append(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)))
    return actual


def test_the_cosine_of_given_pairs(small_model: str) -> None:
    texts = tuple(text for first, second, _ in PAIRS for text in (first, second))
    actual = similarity.run(SimilarityConfig(small_model, texts))
    assert [cosine for cosine, *_ in actual.pairs] == pytest.approx(cosines(small_model), abs=1e-5)
    with pytest.raises(ConfigError, match="in pairs, so give an even number of them, got 3"):
        check(SimilarityConfig(small_model, texts[:3]))


def test_correlations_of_glue_files_and_of_a_table(small_model: str, tmp_path: Path) -> None:
    folder = tmp_path / "GLUE" / "STS-B"
    folder.mkdir(parents=True)
    rows = "".join(f"{i}\t{a}\t{b}\t{score}\n" for i, (a, b, score) in enumerate(PAIRS))
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text(f"index\tsentence1\tsentence2\tscore\n{rows}")
    expected = spearmanr(cosines(small_model), [score for *_, score in PAIRS]).statistic
    official = similarity.run(SimilarityConfig(small_model, data=tmp_path / "GLUE"))
    assert official.correlations["dev"]["spearman"] == pytest.approx(expected)
    written_so = similarity.run(SimilarityConfig(small_model, task="STS-B", data=tmp_path / "GLUE"))
    assert written_so.correlations == official.correlations
    own = tmp_path / "own"
    own.mkdir()
    for name in ("train", "dev"):
        (own / f"{name}.csv").write_text("left,right,like\n" + "".join(f"{a},{b},{s}\n" for a, b, s in PAIRS))
    columns = ("left", "right", "like")
    actual = similarity.run(SimilarityConfig(small_model, task="mine", data=own, columns=columns))
    assert actual.correlations["dev"]["spearman"] == pytest.approx(expected)
    with pytest.raises(ConfigError, match="--columns: give three"):
        check(SimilarityConfig(small_model, task="mine", data=own, columns=("left", "left", "like")))
    with pytest.raises(ConfigError, match="two texts, or --data"):
        check(SimilarityConfig(small_model))


def test_prompts_label_texts_and_are_evaluated(
    small_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--words", "bad=dreadful", "good=splendid,town"]
    assert main(["prompt", small_model, "The boat", "A road", *words, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["The boat", "A road"]
    assert all(line["label"] == max(line["scores"], key=line["scores"].get) for line in lines)
    folder = tmp_path / "GLUE" / "SST-2"
    folder.mkdir(parents=True)
    answers = {"bad": 0, "good": 1}
    rows = "".join(f"{line['text']}\t{answers[line['label']]}\n" for line in lines)
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text(f"sentence\tlabel\n{rows}")
    settings = PromptConfig(
        small_model, words=("bad=dreadful", "good=splendid,town"), task="sst-2", data=tmp_path / "GLUE"
    )
    evaluation = prompt.run(settings)
    assert (
        isinstance(evaluation, prompt.PromptEvaluation)
        and evaluation.metrics == {"accuracy": 1.0}
        and evaluation.examples == 2
    )


def test_the_table_of_a_prompt_has_the_names_of_metrics() -> None:
    (table, _) = prompt.PromptEvaluation({"macro_f1": 0.5}, 2, 0.5).__rich__().renderables  # type: ignore[union-attr]
    assert list(table.columns[0].cells) == ["macro F1"]  # type: ignore[union-attr]


def test_unsuitable_prompts_are_refused(small_model: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a text, or --task"):
        check(PromptConfig(small_model))
    folder = tmp_path / "MRPC"
    folder.mkdir()
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tfox\triver\n")
    with pytest.raises(DataError, match="classification of single texts"):
        prompt.run(PromptConfig(small_model, task="mrpc", data=tmp_path))

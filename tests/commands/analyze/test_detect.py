"""`electra analyze detect` from the command line: discriminators, taggers, both kinds of data, refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from small_model import write_model

from electra.analysis.detect import (
    SentenceSet,
    pool_token_scores,
    rare_words_baseline,
    score_words,
)
from electra.analysis.detectors import Detector, token_scores
from electra.analysis.error_corpora import LabeledSentence, read_error_corpus
from electra.cli import main
from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.encoders.relative import RelativeConfig
from electra.modeling.heads import MaskedLanguageModelHead
from electra.serving.predictor import Predictor
from electra.serving.scorer import Scorer
from electra.serving.surprisal import SurprisalScorer
from electra.tasks.conll import Sentence
from electra.tasks.tagging import build_tagging_task

WORDS = ["gardener", "sailor", "clock", "neighbour", "river", "teacher", "splendid", "town"]


def write_sentences(path: Path, count: int, *, wrong: bool = True) -> Path:
    draws = np.random.default_rng(0)
    lines = []
    for number in range(count):
        for place in range(3 + number % 4):
            is_wrong = wrong and number % 3 and place == number % 2
            lines.append(f"{draws.choice(WORDS)}\t{'i' if is_wrong else 'c'}")
        lines.append("")
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    return write_sentences(tmp_path / "en.tsv", 60)


def test_a_masked_language_model_ranks_words_by_surprisal(tagged: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "masked", head=MaskedLanguageModelHead)
    sentences = [tuple(WORDS[:3]), tuple(WORDS[4:7])]
    detector = Detector.load(str(model), "masked")
    for words, scores in zip(sentences, detector.score_tokens(sentences), strict=True):
        (expected,) = SurprisalScorer(model)([" ".join(words)])
        assert expected.words == list(words) and scores.words_N.tolist() == [0, 1, 2]
        np.testing.assert_allclose(scores.log_odds_N, expected.surprisals, rtol=1e-5)
    assert main(["analyze", "detect", str(model), "--data", str(tagged), "--out", str(tmp_path / "out")]) == 0
    (found, *_) = json.loads((tmp_path / "out/detect.json").read_text())["models"]
    assert found["kind"] == "masked-lm" and found["pooling"] == "" and 0 < found["average_precision"]["value"] < 1


def write_tagger(folder: Path, tokenizer: Path, tags: tuple[str, ...], **reading: int) -> str:
    words = tuple("a" for _ in tags)
    problem = build_tagging_task("tags", {"train": [Sentence(words, tags, "a.txt", 1)]}).problem
    torch.manual_seed(1)
    config = BertConfig(
        layers=1, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, max_positions=48,
        vocabulary_size=tokenizers.vocabulary_size(load_tokenizer(tokenizer)),
        initializer_range=0.4, linear_initializer_range=0.4,
    )  # fmt: skip
    head = problem.build_head(config)
    torch.nn.init.normal_(head.prediction.weight)
    huggingface.save(
        folder, encoder=BertEncoder(config), head=head, card="", tokenizer_json=tokenizer,
        task=problem.to_dict() | reading,
    )  # fmt: skip
    return str(folder)


@pytest.fixture(scope="module")
def tagger(small_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tagger") / "errors"
    return write_tagger(folder, Path(small_model, "tokenizer.json"), ("correct", "SPELL", "WO"))


def test_models_and_baselines_are_compared(
    small_model: str, tagger: str, tagged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found"
    command = ["analyze", "detect", small_model, tagger, "--data", str(tagged), "--resamples", "20"]
    assert main([*command, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "en.tsv: 30 sentences scored" in shown and "differences from" in shown and "rare words" in shown
    assert "rewrites change it" not in shown
    text = (out / "detect.json").read_text()
    assert str(tmp_path.parent) not in text and "NaN" not in text
    results = json.loads(text)
    first, second, rare, every = results["models"]
    assert (first["kind"], second["kind"], rare["kind"]) == ("discriminator", "tagger", "baseline")
    assert first["pooling"] in ("max", "mean") and not second["pooling"]
    base = results["parts"]["scored"]["errors"] / results["parts"]["scored"]["words"]
    assert every["average_precision"]["value"] == pytest.approx(base) == every["precision"]["value"]
    assert every["auc"]["value"] == 0.5 and every["recall"]["value"] == 1
    assert [one["bucket"] for one in results["buckets"]] == ["none", "up to 10 %", "up to 20 %", "more"]
    assert sum(one["sentences"] for one in results["buckets"]) == 30
    none = first["buckets"][0]
    assert none["bucket"] == "none" and none["precision"] is None and none["flagged"] is not None
    for metric in ("f0.5", "average_precision", "auc"):
        row = results["differences"][0]
        low, high = row[metric]["interval"]
        assert row[metric]["value"] == pytest.approx(second[metric]["value"] - first[metric]["value"])
        assert low <= high
    assert (out / "detect.png").is_file() and (out / "detect.svg").is_file()
    assert main(["report", str(out), "--out", str(tmp_path / "report.html")]) == 0
    assert "Detection of learners&#39; wrong words" in (tmp_path / "report.html").read_text()


def test_a_model_compared_with_itself_never_differs(small_model: str, tagged: Path, tmp_path: Path) -> None:
    command = ["analyze", "detect", small_model, small_model, "--data", str(tagged), "--resamples", "20"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    [row, *_] = json.loads((tmp_path / "detect.json").read_text())["differences"]
    assert row["model"] != row["than"]
    for metric in ("f0.5", "average_precision", "auc"):
        assert row[metric] == {"value": 0.0, "interval": [0.0, 0.0]}


def test_words_have_the_scores_of_their_tokens(small_model: str, tagged: Path) -> None:
    scorer = Scorer(small_model, device="cpu")
    sentences = [("gardener", "xqz", "sailor"), ("\x00", "town"), tuple(WORDS * 12)]
    for words, actual in zip(sentences, token_scores(scorer, sentences), strict=True):
        whole = scorer([" ".join(words)])[0]
        np.testing.assert_allclose(
            actual.log_odds_N, whole.logits, atol=1e-5
        )  # also for a long one, read in windows
        largest, mean = (pool_token_scores(actual, len(words), how) for how in (np.max, np.mean))
        for number, word in enumerate(words):
            own = actual.log_odds_N[actual.words_N == number]
            if len(own):
                assert largest[number] == max(own) and mean[number] == pytest.approx(sum(own) / len(own))
            else:
                assert word == "\x00" and np.isnan(largest[number])
    part = SentenceSet(read_error_corpus(tagged))
    actual = score_words(Detector.load(small_model, "small"), part, part)
    best = average_precision_score(part.wrong_W, actual.tune_W)
    for how in (np.max, np.mean):
        tokens = token_scores(scorer, [one.words for one in part.sentences])
        scores = [
            pool_token_scores(of, len(one.words), how) for one, of in zip(part.sentences, tokens, strict=True)
        ]
        assert average_precision_score(part.wrong_W, np.concatenate(scores)) <= best + 1e-9


def test_a_tagger_adds_up_all_kinds_of_errors(tagger: str) -> None:
    [actual] = Detector.load(tagger, "tagger").score_tokens([("gardener", "sailor", "town")])
    predictor = Predictor(tagger, device="cpu")
    right = predictor.problem.labels.index("correct")
    [probabilities] = predictor.tag_probabilities([("gardener", "sailor", "town")])
    np.testing.assert_allclose(1 / (1 + np.exp(actual.log_odds_N)), probabilities[:, right], atol=1e-6)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)
    [prediction] = predictor([["gardener", "sailor", "town"]])
    np.testing.assert_allclose(prediction["scores"], probabilities.max(1), atol=1e-4)


def test_a_taggers_windows_are_those_of_its_task(small_model: str, tmp_path: Path) -> None:
    """A tagger that reads shorter rows than the network could."""
    tagger = write_tagger(tmp_path / "short", Path(small_model, "tokenizer.json"), ("c", "i"), max_length=12)
    part = SentenceSet([LabeledSentence(("town", "river") * 10, (False, True) * 10)])
    detector = Detector.load(tagger, "short")
    assert detector.in_windows([10, 11]) == 1 and score_words(detector, part, part).long == 2


def test_texts_read_with_memory_are_not_read_in_windows(tmp_path: Path) -> None:
    part = SentenceSet([LabeledSentence(("cat", "mat") * 10, (False, True) * 10)])
    windows = write_model(tmp_path / "windows")
    memory = write_model(tmp_path / "memory", encoder=RelativeConfig, memory_length=16, type_vocabulary_size=1)
    assert score_words(Detector.load(str(windows), "windows"), part, part).long == 2
    assert score_words(Detector.load(str(memory), "memory"), part, part).long == 0


def test_a_word_of_the_tuning_set_does_not_count_itself() -> None:
    tune = SentenceSet([LabeledSentence(("the", "The", "fox"), (False, True, False))])
    scored = SentenceSet([LabeledSentence(("the", "owl"), (False, True))])
    actual = rare_words_baseline(tune, scored)
    np.testing.assert_allclose(np.expm1(-actual.tune_W), [1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(np.expm1(-actual.scored_W), [2, 0], atol=1e-12)


def test_rewrites_and_a_separate_tuning_set(
    small_model: str, tagged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "rewrites" / "test"
    folder.mkdir(parents=True)
    draws = np.random.default_rng(1)
    sources = [[str(word) for word in draws.choice(WORDS, 5)] for _ in range(12)]
    (folder / "test.src").write_text("".join(" ".join(words) + "\n" for words in sources))
    for number in range(2):
        rewrites = [["town", *words[1:]] if i % 2 else words for i, words in enumerate(sources)]
        (folder / f"test.ref{number}").write_text("".join(" ".join(words) + "\n" for words in rewrites))
    command = ["analyze", "detect", small_model, "--data", str(folder), "--resamples", "10", "--tune", str(tagged)]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "does a sentence look more wrong" in shown and "of the rewrites change it" in shown
    results = json.loads((tmp_path / "out" / "detect.json").read_text())
    assert results["data"] == "rewrites/test" and results["parts"]["tune"]["sentences"] == 60
    scorer = Scorer(small_model, device="cpu")
    pairs = [(words, ["town", *words[1:]]) for words in sources[1::2] if words[0] != "town"]
    means = [[float(scorer([" ".join(one)])[0].logits.mean()) for one in pair] for pair in pairs]
    right = np.mean([source > rewrite for source, rewrite in means])
    actual = results["models"][0]["rewrites"]
    assert actual["pairs"] == 2 * len(pairs) and actual["accuracy"]["value"] == pytest.approx(right)


def test_refusals(small_model: str, tagged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: str, data: Path = tagged) -> str:
        assert main(["analyze", "detect", *arguments, "--data", str(data)]) == 2
        return capsys.readouterr().err

    assert "name at least one model" in refused()
    problems = refused(small_model, "--tune-share", "1", "--resamples", "0")
    assert (
        "--tune-share: must be above 0 and below 1" in problems and "--resamples: must be at least 1" in problems
    )
    assert "must be other data than --data" in refused(small_model, "--tune", str(tagged))
    few = write_sentences(tmp_path / "few.tsv", 12)
    assert "6 sentences for thresholds are too few, 10 are needed" in refused(small_model, data=few)
    right = write_sentences(tmp_path / "right.tsv", 40, wrong=False)
    assert "words is wrong, so there is nothing to find" in refused(small_model, data=right)
    one = tmp_path / "one.tsv"
    one.write_text("a\ti\n" + right.read_text())
    assert "have no wrong words; give more" in refused(small_model, data=one)
    other = write_tagger(tmp_path / "pos", Path(small_model, "tokenizer.json"), ("NN", "VB"))
    said = refused(other)
    assert "tags words as NN, VB, but none of these tags is for correct words" in said and "--task ged" in said
    other = write_tagger(tmp_path / "letters", Path(small_model, "tokenizer.json"), tuple("ABDEFGH"))
    assert "tags words as A, B, D, E, F, ..., but none" in refused(other)

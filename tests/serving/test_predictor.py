"""A saved network with a head of each kind gives the same predictions here and in transformers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from small_model import write_model

import electra
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError, ConfigError, DataError
from electra.export import huggingface
from electra.export.parity import parity
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import ReplacedTokenHead
from electra.modeling.task_heads import TaskHead, TextHead
from electra.preparation.tokenizer_training import train_tokenizer
from electra.serving.predictor import Predictor
from electra.tasks.base import InputSpec, Problem, Text, collate
from electra.tasks.classification import Classification
from electra.tasks.conll import Sentence
from electra.tasks.multilabel import Multilabel
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.regression import Regression
from electra.tasks.squad_files import Question
from electra.tasks.tagging import build_tagging_task
from electra.tasks.task_model import TaskModel
from electra.tasks.texts import TextExample

TEXTS = ["the cat sat on the mat", "a dog", "my homework ate a dog on the mat"]
PAIRS = [("the cat sat", "a dog"), ("a dog ate", "the mat the mat"), ("on", "my homework")]
LABELS = ("bad", "fair", "good")
TAGGED = build_tagging_task("x", {"train": [Sentence(("a", "dog"), ("O", "B-PET"), "a.txt", 1)]}).problem

CASES: dict[str, tuple[Problem, Sequence[Text]]] = {
    "linear": (Classification(("accuracy",), labels=LABELS), TEXTS),
    "hidden": (Classification(("accuracy",), "hidden", labels=LABELS), TEXTS),
    "pair": (Classification(("accuracy",), pair=True, labels=LABELS), PAIRS),
    "multilabel": (Multilabel(("micro_f1",), labels=LABELS), TEXTS),
    "regression": (Regression(("error",), low=2.0, high=9.0), TEXTS),
    "many labels": (Classification(("accuracy",), labels=tuple(f"label {i}" for i in range(20))), TEXTS),
    "tagging": (TAGGED, TEXTS),
    "plain span": (QuestionAnswering("plain", max_question=8, stride=4), PAIRS),
    "span": (QuestionAnswering(max_question=8, stride=4), PAIRS),
    "answerable span": (QuestionAnswering(impossible=True, max_question=8, stride=4), PAIRS),
}


@dataclass
class Saved:
    folder: Path
    problem: Problem
    texts: Sequence[Text]
    module: TaskModel
    input_spec: InputSpec
    head: TaskHead
    """The head in the folder."""

    @property
    def examples(self) -> list[Any]:
        if self.problem.kind == "tagging":
            return [Sentence(tuple(text.split()), None, "t", 1) for text in self.texts if isinstance(text, str)]
        if self.problem.kind == "answering":
            return [Question(str(number), *text) for number, text in enumerate(self.texts)]
        return [TextExample(text) if isinstance(text, str) else TextExample(*text) for text in self.texts]


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer([" ".join(TEXTS)] * 5, vocabulary_size=90).save(str(path))
    return path


@pytest.fixture(scope="module")
def encoder() -> BertEncoder:
    torch.manual_seed(0)
    return BertEncoder(BertConfig(
        layers=2, hidden_size=32, embedding_size=16, feed_forward_size=48, heads=2, max_positions=40,
        vocabulary_size=90, initializer_range=0.4, linear_initializer_range=0.4,
    )).eval()  # fmt: skip


@pytest.fixture(params=CASES)
def saved(request: pytest.FixtureRequest, tokenizer_json: Path, encoder: BertEncoder, tmp_path: Path) -> Saved:
    problem, texts = CASES[request.param]
    torch.manual_seed(1)
    module = TaskModel(encoder, problem).eval()
    with torch.no_grad():
        for name, parameter in module.head.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.3)
    head = (module.head.with_hidden(encoder.config) if isinstance(module.head, TextHead) else None) or module.head
    huggingface.save(
        tmp_path / "model", encoder=encoder, head=head, tokenizer_json=tokenizer_json, card="", max_length=24,
        task=problem.to_dict(),
    )  # fmt: skip
    return Saved(tmp_path / "model", problem, texts, module, InputSpec(load_tokenizer(tokenizer_json), 24), head)


def near(actual: Any, expected: Any) -> bool:
    """Whether two results are equal, with floats to four digits."""
    if isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(near(actual[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return len(actual) == len(expected) and all(map(near, actual, expected))
    return actual == pytest.approx(expected, abs=1e-4) if isinstance(expected, float) else actual == expected


def test_a_saved_network_gives_the_same_predictions(saved: Saved) -> None:
    rows = saved.problem.encode(saved.examples, saved.input_spec)
    outputs = saved.module.outputs(rows, pad=0, device=torch.device("cpu"))
    expected = saved.problem.decode(saved.examples, rows, outputs)
    predictor = Predictor(saved.folder, device="cpu")
    assert predictor.problem == saved.problem and predictor.input_spec.max_length == 24
    actual = predictor(saved.texts)
    assert near(actual, expected), (actual, expected)
    assert near(predictor(saved.texts[::-1], batch_tokens=1)[::-1], [
        {**one, "id": str(2 - number)} if "id" in one else one for number, one in enumerate(actual)
    ])  # fmt: skip
    assert near(electra.load(saved.folder, device="cpu").predict(saved.texts), actual)


def test_transformers_gives_the_same_logits_or_states(saved: Saved) -> None:
    transformers = pytest.importorskip("transformers")
    kinds = {"tagging": "TokenClassification", "answering": "QuestionAnswering"}
    auto = getattr(transformers, f"AutoModelFor{kinds.get(saved.problem.kind, 'SequenceClassification')}")
    rows = saved.problem.encode(saved.examples, saved.input_spec)
    batch = collate(rows, torch.arange(len(rows)).numpy(), pad=0)
    mask_BL = torch.arange(batch.input_ids_BL.shape[1]) < batch.lengths_B[:, None]
    difference = parity(
        saved.folder, saved.module.encoder, saved.head, batch.input_ids_BL, batch.segment_ids_BL, mask_BL
    )
    assert difference is not None and difference < 1e-5  # of the states, if transformers has no such head
    many = len(getattr(saved.problem, "labels", ())) == 20  # more labels than the head of transformers has
    if many or getattr(saved.problem, "pointer", "plain") == "conditional":
        return
    model, loading = auto.from_pretrained(saved.folder, output_loading_info=True)
    assert not any(loading.values())
    with torch.inference_mode():
        theirs = model.eval()(batch.input_ids_BL, mask_BL.long(), batch.segment_ids_BL)
        ours = saved.module.head(saved.module.states(batch))
    if saved.problem.kind == "answering":
        theirs_BLK = torch.stack([theirs.start_logits, theirs.end_logits], -1)
    else:
        theirs_BLK = theirs.logits
        assert model.config.id2label == dict(enumerate(saved.problem.exported_names))
    inside = slice(None) if isinstance(saved.head, TextHead) else mask_BL
    assert torch.allclose(theirs_BLK[inside], ours[inside], atol=1e-5)


def test_transformers_loads_the_encoder_of_a_conditional_span(
    tokenizer_json: Path, encoder: BertEncoder, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    problem = QuestionAnswering()
    huggingface.save(
        tmp_path / "model", encoder=encoder, head=problem.build_head(encoder.config),
        tokenizer_json=tokenizer_json, card="", task=problem.to_dict(),
    )  # fmt: skip
    model = transformers.AutoModel.from_pretrained(tmp_path / "model").eval()
    ids_BL = torch.tensor([[2, 20, 30, 3]])
    with torch.inference_mode():
        assert torch.allclose(model(ids_BL).last_hidden_state, encoder(ids_BL), atol=1e-5)


def predictor(name: str, tokenizer_json: Path, encoder: BertEncoder) -> Predictor:
    problem, _ = CASES[name]
    tokenizer = load_tokenizer(tokenizer_json)
    head = problem.build_head(encoder.config)
    return Predictor(huggingface.Pretrained(encoder, head, tokenizer, None, 24, problem.to_dict()), device="cpu")


def test_texts_of_the_wrong_form_are_refused(tokenizer_json: Path, encoder: BertEncoder) -> None:
    single, pair, tags, span = (
        predictor(name, tokenizer_json, encoder) for name in ("linear", "pair", "tagging", "span")
    )
    for model, texts, message in (
        (single, ["a", ("a dog", "the cat")], 'text 2: expected one text, found ["a dog", "the cat"]'),
        (pair, ["a dög"], 'text 1: expected a pair of texts, found "a dög"'),
        (pair, [("a", "b"), ("a", "b", "c")], "text 2: expected a pair of texts"),
        (span, ["who?"], "text 1: expected a question and its passage"),
        (tags, ["a dog", "  "], "text 2 has no words"),
    ):
        with pytest.raises(DataError) as caught:
            model(texts)  # type: ignore[arg-type]
        assert message in str(caught.value)
    with pytest.raises(TypeError, match="give a list of texts"):
        single("a dog")


def test_no_texts_have_no_predictions(tokenizer_json: Path, encoder: BertEncoder) -> None:
    assert predictor("linear", tokenizer_json, encoder)([]) == []


def test_the_labels_with_the_highest_scores(tmp_path: Path) -> None:
    problem = Classification(("accuracy",), labels=LABELS)
    model = electra.load(write_model(tmp_path / "model", problem=problem))
    (prediction,) = model.predict(["a dog"])
    assert list(prediction["scores"]) == list(LABELS)
    best = sorted(prediction["scores"].items(), key=lambda pair: -pair[1])[:2]
    (two,) = model.predict(["a dog"], top=2)
    assert list(two["scores"].items()) == best and two["label"] == prediction["label"]
    with pytest.raises(ConfigError, match=r"^top: must be at least 1, got 0$"):
        model.predict(["a dog"], top=0)
    values = electra.load(write_model(tmp_path / "values", problem=Regression(("error",), low=2.0, high=9.0)))
    with pytest.raises(ConfigError, match=r"^top: is for models that give scores to labels .* of kind regression"):
        values.predict(["a dog"], top=2)


def test_words_are_given_as_a_text_or_a_list(tokenizer_json: Path, encoder: BertEncoder) -> None:
    model = predictor("tagging", tokenizer_json, encoder)
    assert model(["a dog sat"]) == model([["a", "dog", "sat"]])


def test_texts_of_any_length_and_script(tokenizer_json: Path, encoder: BertEncoder) -> None:
    model = predictor("linear", tokenizer_json, encoder)
    actual = model(["the cat " * 500, "", "猫 \u200b 🙂"])
    assert len(actual) == 3 and all(sum(one["scores"].values()) == pytest.approx(1, abs=1e-4) for one in actual)
    assert [one.get("cut") for one in actual] == [True, None, None]
    assert near(actual[0], model(["the cat " * 30])[0])  # rounding differs between shapes of a batch


def test_a_model_without_a_task_is_refused(tokenizer_json: Path, encoder: BertEncoder, tmp_path: Path) -> None:
    huggingface.save(
        tmp_path / "model", encoder=encoder, head=ReplacedTokenHead(encoder.config), tokenizer_json=tokenizer_json,
        card="",
    )  # fmt: skip
    with pytest.raises(
        CheckpointError, match=r"model was not fine-tuned for a task with electra; .*electra finetune MODEL"
    ):
        Predictor(tmp_path / "model")
    with pytest.raises(CheckpointError, match="was not fine-tuned"):
        electra.load(tmp_path / "model").predict(["a"])


def test_a_task_of_an_unknown_kind_is_refused(tokenizer_json: Path, encoder: BertEncoder) -> None:
    head = TextHead(encoder.config, 2, hidden=False)
    strange = huggingface.Pretrained(encoder, head, load_tokenizer(tokenizer_json), None, 24, {"kind": "poetry"})
    with pytest.raises(CheckpointError, match=r"no kind of task .*\n  available: classification, .*--plugin FILE"):
        Predictor(strange)


def test_the_progress_of_a_stream_is_logged(
    tokenizer_json: Path, encoder: BertEncoder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("electra.serving.predictor.CHUNK_TEXTS", 2)
    caplog.set_level("INFO")
    texts = [*TEXTS, *TEXTS][:5]
    actual = list(predictor("linear", tokenizer_json, encoder).stream(enumerate(texts)))
    assert [(number, text) for number, text, _ in actual] == list(enumerate(texts))
    progress = [record.progress for record in caplog.records if hasattr(record, "progress")]
    assert progress == [(2, None), (4, None)] and "predicted 2 texts" in caplog.messages

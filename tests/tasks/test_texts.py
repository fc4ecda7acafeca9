"""Classification, multi-label classification and regression: rows, targets, losses, predictions, metrics."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn
from sklearn.utils.class_weight import compute_class_weight
from tokenizers import Tokenizer

from electra.data.tokenizer import special_tokens
from electra.errors import ConfigError
from electra.modeling.encoders.bert import BertConfig
from electra.preparation.tokenizer_training import train_tokenizer
from electra.tasks.base import InputSpec, Outputs, collate
from electra.tasks.catalog import load_problem
from electra.tasks.classification import Classification, class_weights
from electra.tasks.multilabel import Multilabel
from electra.tasks.regression import Regression
from electra.tasks.texts import TextExample, TextProblem, describe_untested_labels, truncate_pair

COLORS = Classification(("accuracy", "macro_f1"), labels=("red", "green", "blue"))
TOPICS = Multilabel(("micro_f1", "macro_f1", "accuracy"), labels=("sea", "land", "sky"))
STARS = Regression(("spearman", "error"), low=1.0, high=5.0)


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer(
        ["the ferry leaves the harbour at seven and comes back at noon"] * 9, vocabulary_size=120
    )


def predict(problem: TextProblem, logits: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Predictions for logits, one row per text."""
    outputs: list[Outputs] = [{"logits": np.array(row, np.float32)} for row in logits]
    return problem.decode([TextExample("a")] * len(logits), None, outputs)  # type: ignore[arg-type]


def answers(*given: Any) -> list[TextExample]:
    return [TextExample("a", None, answer) for answer in given]


def test_labels_that_dev_does_not_have_are_named() -> None:
    assert describe_untested_labels(COLORS.labels, answers(0, 1, 2), answers(2, 1, 0)) == ()
    assert describe_untested_labels(COLORS.labels, answers(0, 1, 2, 1), answers(2, 1)) == (
        "1 label has no example in dev, so its metrics say nothing about it: 'red' (1 in train)",
    )
    assert describe_untested_labels(TOPICS.labels, answers((0, 1), (), (1,), (2,)), answers((2,))) == (
        "2 labels have no example in dev, so its metrics say nothing about them: 'sea' (1 in train), "
        "'land' (2 in train)",
    )
    many = [f"label {i}" for i in range(20)]
    assert describe_untested_labels(many, answers(*range(20)), answers(3))[0].endswith("(1 in train), and 7 more")


def truncated_lengths(one: int, other: int, room: int) -> list[int]:
    """Lengths of two truncated texts, token by token."""
    while one + other > room:
        one, other = sorted((one, other))
        other -= 1
    return sorted((one, other))


def test_the_longer_text_is_truncated() -> None:
    for one in range(14):
        for other in range(14):
            for length in range(8, 20):
                first, second = truncate_pair(list(range(one)), list(range(other)), length)
                assert (
                    second is not None and first == list(range(len(first))) and second == list(range(len(second)))
                )
                assert sorted((len(first), len(second))) == truncated_lengths(one, other, length - 3), (one, other)
                assert len(first) <= one and len(second) <= other
    assert truncate_pair([1, 2, 3], None, 8) == ([1, 2, 3], None)
    assert truncate_pair(list(range(9)), None, 8) == ([0, 1, 2, 3, 4, 5], None)


def test_rows_are_as_in_bert(words: Tokenizer) -> None:
    special = special_tokens(words)
    rows = COLORS.encode([TextExample("the ferry"), TextExample("the harbour", "at noon")], InputSpec(words, 64))
    ids = {
        text: words.encode(text, add_special_tokens=False).ids for text in ("the ferry", "the harbour", "at noon")
    }
    cls, sep = special.classify, special.separate
    first = [cls, *ids["the ferry"], sep]
    second = [cls, *ids["the harbour"], sep, *ids["at noon"], sep]
    assert rows.ids.tolist() == first + second and rows.examples.tolist() == [0, 1]
    assert rows.seconds.tolist() == [len(first), len(ids["the harbour"]) + 2] and rows.cut == []
    batch = collate(rows, np.array([1, 0]), pad=special.pad, seed=7)
    padding = len(second) - len(first)
    assert batch.input_ids_BL.tolist() == [second, first + [special.pad] * padding] and batch.seed == 7
    inside = len(ids["at noon"]) + 1
    assert batch.segment_ids_BL.tolist() == [[0] * (len(second) - inside) + [1] * inside, [0] * len(second)]
    assert batch.lengths_B.tolist() == [len(second), len(first)] and batch.targets == {}


def test_rows_list_examples_that_were_cut(words: Tokenizer) -> None:
    long = "the ferry leaves the harbour " * 9
    rows = COLORS.encode(
        [TextExample("the ferry"), TextExample(long), TextExample("at", long)], InputSpec(words, 16)
    )
    assert rows.lengths.tolist()[1:] == [16, 16] and rows.cut == [1, 2]


@pytest.mark.parametrize(
    ("problem", "given", "expected"),
    [
        (COLORS, [2, 0], [2, 0]),
        (TOPICS, [(0, 2), ()], [[1, 0, 1], [0, 0, 0]]),
        (STARS, [1, 2.0, 5], [0, 0.25, 1]),
    ],
)
def test_targets(problem: TextProblem, given: list[Any], expected: list[Any], words: Tokenizer) -> None:
    rows = problem.encode(answers(*given), InputSpec(words, 16))
    assert rows.targets["answer"].tolist() == expected
    unknown = problem.encode([*answers(*given), TextExample("a")], InputSpec(words, 16))
    assert unknown.targets == {}, "a split whose answers are not all known is predicted"


@pytest.mark.parametrize("problem", [COLORS, TOPICS, STARS])
def test_losses_equal_plain_formulas(problem: TextProblem, words: Tokenizer) -> None:
    given: list[Any] = {"classification": [2, 0], "multilabel": [(0, 2), ()], "regression": [2.0, 5.0]}[
        problem.kind
    ]
    batch = collate(problem.encode(answers(*given), InputSpec(words, 16)), np.array([1, 0]), pad=0)
    torch.manual_seed(0)
    head = problem.build_head(BertConfig(hidden_size=8, linear_initializer_range=1.0)).eval()
    x_BLD = torch.randn(2, 1, 8)
    logits_BK = head(x_BLD).tolist()
    expected = []
    for logits, answer in zip(logits_BK, given[::-1], strict=True):
        if problem.kind == "classification":
            expected.append(math.log(sum(map(math.exp, logits))) - logits[answer])
        elif problem.kind == "multilabel":
            shares = [1 / (1 + math.exp(-x)) for x in logits]
            each = [-math.log(share if i in answer else 1 - share) for i, share in enumerate(shares)]
            expected.append(sum(each) / 3)
        else:
            expected.append((logits[0] - (answer - 1) / 4) ** 2)
    assert problem.losses(head, x_BLD, batch).tolist() == pytest.approx(expected, rel=1e-5)


def test_a_label_is_predicted_with_the_probability_of_each() -> None:
    first, second = predict(COLORS, [[0, math.log(2), 0], [3, -50, 50]])
    assert first == {"label": "green", "scores": {"red": 0.25, "green": 0.5, "blue": 0.25}}
    assert second["label"] == "blue" and list(second["scores"]) == ["red", "green", "blue"]


def test_labels_with_a_probability_above_a_half_are_predicted() -> None:
    first, second = predict(TOPICS, [[0.1, -0.1, 9], [-1, -1, 0]])
    assert first["labels"] == ["sea", "sky"] and second["labels"] == []
    assert second["scores"]["sky"] == 0.5


def test_values_are_in_the_unit_of_the_data() -> None:
    assert predict(STARS, [[0.0], [0.25], [1.5]]) == [{"value": 1.0}, {"value": 2.0}, {"value": 7.0}]


def test_metrics_of_labels() -> None:
    logits = np.random.default_rng(0).normal(size=(30, 3))
    given = np.random.default_rng(1).integers(0, 3, 30)
    actual = COLORS.compute_metrics(answers(*given.tolist()), predict(COLORS, logits.tolist()))
    best = logits.argmax(1)
    assert actual == pytest.approx({
        "accuracy": sklearn.accuracy_score(given, best),
        "macro_f1": sklearn.f1_score(given, best, average="macro"),
    })  # fmt: skip
    assert COLORS.metric == "accuracy"


def test_metrics_of_sets_of_labels() -> None:
    logits = np.random.default_rng(0).normal(size=(30, 3))
    given = np.random.default_rng(1).normal(size=(30, 3)) > 0.3
    actual = TOPICS.compute_metrics(
        answers(*(tuple(np.flatnonzero(row)) for row in given)), predict(TOPICS, logits.tolist())
    )
    assert actual == pytest.approx({
        "micro_f1": sklearn.f1_score(given, logits > 0, average="micro"),
        "macro_f1": sklearn.f1_score(given, logits > 0, average="macro"),
        "accuracy": sklearn.accuracy_score(given, logits > 0),
    })  # fmt: skip
    nothing = TOPICS.compute_metrics(answers((), ()), predict(TOPICS, [[-1, -1, -1]] * 2))
    assert nothing == {"micro_f1": 0.0, "macro_f1": 0.0, "accuracy": 1.0}


def test_metrics_of_values() -> None:
    actual = STARS.compute_metrics(answers(1, 2.5, 5), predict(STARS, [[0.0], [0.25], [0.3]]))
    assert actual == pytest.approx({"spearman": 1.0, "error": (0 + 0.5 + 2.8) / 3})


@pytest.mark.parametrize("problem", [COLORS, TOPICS, STARS])
def test_problems_are_restored_from_their_fields(problem: TextProblem) -> None:
    assert load_problem(json.loads(json.dumps(problem.to_dict()))) == problem


def test_heads_are_linear_or_have_a_hidden_layer() -> None:
    config = BertConfig(hidden_size=8)
    assert COLORS.build_head(config).dense is None and STARS.build_head(config).prediction.out_features == 1
    hidden = Classification(("accuracy",), "hidden", labels=("a", "b"))
    assert hidden.build_head(config).dense is not None


def test_a_pair_can_be_swapped() -> None:
    assert TextExample("a", "b", 1).swapped == TextExample("b", "a", 1)


def test_outputs_are_the_heads_logits() -> None:
    actual = COLORS.logits(torch.nn.Identity(), torch.ones(2, 3), SimpleNamespace())  # type: ignore[arg-type]
    assert torch.equal(actual["logits"], torch.ones(2, 3))


def test_class_weights_are_those_of_scikit_learn() -> None:
    answers = ["red"] * 7 + ["green"] * 2 + ["blue"] * 3
    counts = {label: answers.count(label) for label in COLORS.labels}
    for settings, theirs in (
        (["balanced"], "balanced"),
        (["green=2.5"], {"red": 1, "green": 2.5, "blue": 1}),
        (["blue=.5", "red=3", "green=1e1"], {"red": 3, "green": 10, "blue": 0.5}),
    ):
        expected = compute_class_weight(theirs, classes=np.array(COLORS.labels), y=answers)  # type: ignore[arg-type]
        assert class_weights(settings, counts, COLORS.labels) == pytest.approx(tuple(expected))


def test_a_label_that_contains_an_equals_sign_has_a_weight() -> None:
    assert class_weights(["a=b=2"], {"a=b": 1, "c": 1}, ("a=b", "c")) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["balancd"], "give balanced or LABEL=WEIGHT for each label, got 'balancd'"),
        (["balanced", "red=2"], "give balanced or LABEL=WEIGHT for each label, got 'balanced'"),
        (["gren=2"], "there is no label 'gren' in train; did you mean 'green'"),
        (["red=0"], "the weight of red must be a number above 0, got '0'"),
        (["red=many"], "the weight of red must be a number above 0, got 'many'"),
        (["red=inf"], "must be a number above 0"),
    ],
)
def test_wrong_class_weights_are_named(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"data.class_weights: .*{message}"):
        class_weights(settings, {"red": 1, "green": 1, "blue": 1}, COLORS.labels)


def test_the_weighted_loss_is_that_of_a_plain_version() -> None:
    random = np.random.default_rng(0)
    logits_BK, answers_B = random.normal(size=(6, 3)), [0, 1, 2, 2, 1, 0]
    weights = (0.5, 2.0, 4.0)
    expected = []
    for logits_K, answer in zip(logits_BK.tolist(), answers_B, strict=True):
        total = sum(math.exp(logit) for logit in logits_K)
        expected.append(-weights[answer] * math.log(math.exp(logits_K[answer]) / total))
    batch: Any = SimpleNamespace(targets={"answer": torch.tensor(answers_B)})
    losses_B = replace(COLORS, weights=weights).losses(torch.nn.Identity(), torch.from_numpy(logits_BK), batch)
    np.testing.assert_allclose(losses_B, expected, rtol=1e-5)


def test_a_model_does_not_store_the_weights() -> None:
    assert load_problem(replace(COLORS, weights=(1.0, 2.0, 3.0)).to_dict()) == COLORS

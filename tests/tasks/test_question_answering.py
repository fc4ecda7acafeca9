import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.tokenizer import special_tokens
from electra.errors import ConfigError
from electra.modeling.encoders.bert import BertConfig
from electra.modeling.task_heads import ConditionalSpanHead
from electra.preparation.tokenizer_training import train_tokenizer
from electra.tasks.base import IGNORE_INDEX, InputSpec, Outputs, Prediction, Rows, TaskBatch, collate
from electra.tasks.catalog import load_problem
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.squad_files import Question

CONTEXTS = [
    "Él  École Zoë's cafe\u0301 is  open;\n\n naïve Ångström never   came (1895-1943). ½ ﬁne 😀 days," * 2,
    "Ann saw Bob in 1990, and Bob saw Ann's dog. The dog, old and grey, saw nobody at all; it slept. " * 3,
    "\t One  word\u00a0more.",
]
CHINESE = "黑豹队的防守只丢了 308分，在联赛中排名第六，同时也以 24 次拦截领先国家橄榄球联盟 (NFL)。"
SMALL = BertConfig(hidden_size=12)


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer([*CONTEXTS * 3, CHINESE * 3, "who saw what?"], kind=request.param, vocabulary_size=700)


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer([*CONTEXTS, "who saw what?"], vocabulary_size=700)


def question(context: str, text: str, start: int, **others: Any) -> Question:
    return Question(f"{start} {text}", "Who saw what?", context, ((text, start),), **others)


def ranges(context: str, pieces: list[tuple[int, int]]) -> list[Question]:
    """A question for each sequence of one to three of the pieces."""
    spans = [(pieces[i][0], pieces[j][1]) for i in range(len(pieces)) for j in range(i, min(i + 3, len(pieces)))]
    return [question(context, context[start:end], start) for start, end in spans]


def words_of(context: str) -> list[tuple[int, int]]:
    edges = [
        i for i, (a, b) in enumerate(zip(" " + context, context + " ", strict=True)) if a.isspace() != b.isspace()
    ]
    return list(zip(edges[::2], edges[1::2], strict=True))


def compute_outputs(
    problem: QuestionAnswering, head: nn.Module, rows: Rows, states: Any, *, size: int = 7
) -> list[Outputs]:
    """Outputs of the head for all rows, in batches, with states from a function."""
    actual: list[Outputs] = []
    for indices in np.array_split(np.arange(len(rows)), math.ceil(len(rows) / size)):
        batch = collate(rows, indices, pad=0)
        outputs = {
            name: x.float().numpy()
            for name, x in problem.outputs(problem.logits(head, states(batch), batch), batch).items()
        }
        actual += [{name: x[i] for name, x in outputs.items()} for i in range(len(indices))]
    return actual


def oracle(batch: TaskBatch) -> Tensor:
    """States that are the logits of a plain head that knows the targets."""
    x_BL2 = torch.zeros(*batch.input_ids_BL.shape, 2)
    for side, name in enumerate(("start", "end")):
        target_B = batch.targets[name]
        known_B = (target_B != IGNORE_INDEX).nonzero()[:, 0]
        x_BL2[known_B, target_B[known_B], side] = 9.0
    return x_BL2


def random_states(batch: TaskBatch) -> Tensor:
    generator = torch.Generator().manual_seed(int(batch.input_ids_BL.sum()))
    return torch.randn(*batch.input_ids_BL.shape, SMALL.hidden_size, generator=generator)


def head_of(problem: QuestionAnswering) -> Any:
    torch.manual_seed(1)
    head = problem.build_head(replace(SMALL, initializer_range=0.5, linear_initializer_range=0.5))
    return head.eval()


def test_predictions_of_an_oracle_equal_the_answers(tokenizer: Tokenizer) -> None:
    examples = [example for context in CONTEXTS for example in ranges(context, words_of(context))]
    problem = QuestionAnswering("plain", max_question=8, stride=16, max_answer=40)
    rows = problem.encode(examples, InputSpec(tokenizer, 80))
    assert len(rows) > len(examples) + 50, "some contexts take several windows"
    assert (rows.targets["end"] < rows.lengths - 1).all(), "[SEP] ends no answer"
    predictions = problem.decode(examples, rows, compute_outputs(problem, nn.Identity(), rows, oracle))
    for example, prediction in zip(examples, predictions, strict=True):
        assert prediction["answer"] == example.answers[0][0] and prediction["id"] == example.id
        best = prediction["n_best"][0]
        assert example.context[best["start"] : best["end"]] == best["text"]
    assert problem.compute_metrics(examples, predictions)["exact"] == 1


def test_every_chinese_character_can_be_an_answer() -> None:
    tokenizer = train_tokenizer([CHINESE], vocabulary_size=700)
    pieces = [(i, i + 1) for i, character in enumerate(CHINESE) if ord(character) > 0x3000]
    examples = ranges(CHINESE, [piece for piece in pieces if piece[1] < 10]) + ranges(CHINESE, pieces[-4:])
    problem = QuestionAnswering("plain", max_question=8, stride=8, max_answer=20)
    rows = problem.encode(examples, InputSpec(tokenizer, 40))
    predictions = problem.decode(examples, rows, compute_outputs(problem, nn.Identity(), rows, oracle))
    assert [prediction["answer"] for prediction in predictions] == [e.answers[0][0] for e in examples]


def test_answers_are_whole_tokens_and_no_more(words: Tokenizer) -> None:
    context = "Ann saw\u200b nobody."
    examples = [question(context, "body", 11), question(context, " saw", 3)]
    problem = QuestionAnswering("plain", max_question=8)
    rows = problem.encode(examples, InputSpec(words, 64))
    predictions = problem.decode(examples, rows, compute_outputs(problem, nn.Identity(), rows, oracle))
    assert [prediction["answer"] for prediction in predictions] == ["nobody", "saw"]


@pytest.mark.parametrize(("max_length", "stride"), [(40, 8), (40, 100), (24, 128), (512, 128), (13, 1)])
def test_windows_show_every_token_and_each_may_start_an_answer_once(
    words: Tokenizer, max_length: int, stride: int
) -> None:
    examples = [question(context, context.split()[0], context.index(context.split()[0])) for context in CONTEXTS]
    problem = QuestionAnswering(max_question=6, stride=stride, max_answer=10)
    rows = problem.encode(examples, InputSpec(words, max_length))
    special = special_tokens(words)
    for number, example in enumerate(examples):
        context = words.encode(example.context, add_special_tokens=False).ids
        asked = words.encode(example.question, add_special_tokens=False).ids[:6]
        begins, shown = np.zeros(len(context), int), np.zeros(len(context), int)
        best: list[list[tuple[float, int]]] = [[] for _ in context]
        windows = [row for row in range(len(rows)) if rows.examples[row] == number]
        for row in windows:
            ids = rows.ids[rows.starts[row] : rows.starts[row + 1]].tolist()
            targets = {name: x[rows.starts[row] : rows.starts[row + 1]] for name, x in rows.token_targets.items()}
            first, second, last = rows.notes[row].first, int(rows.seconds[row]), len(ids) - 1
            piece = context[first : first + last - second]
            assert len(ids) <= max_length
            assert ids == [special.classify, *asked, special.separate, *piece, special.separate]
            assert targets["allowed"].tolist() == [1] + [0] * (second - 1) + [1] * len(piece) + [0]
            begins[first : first + len(piece)] += targets["begins"][second:last]
            assert targets["begins"].sum() == targets["begins"][second:last].sum()
            shown[first : first + len(piece)] += 1
            for place in range(len(piece)):
                lesser = min(place, len(piece) - 1 - place) + 0.01 * len(piece)
                best[first + place].append((lesser, int(targets["begins"][second + place])))
        assert (begins == 1).all() and (shown >= 1).all()
        assert all(max(each)[1] == 1 or [one for one, _ in each].count(max(each)[0]) > 1 for each in best)
        firsts = [rows.notes[row].first for row in windows]
        room = max_length - len(asked) - 3
        assert set(np.diff(firsts)) <= {min(stride, max((room + 1) // 2, room - 10))}


def test_training_rows_without_the_answer_are_left_out_or_unanswerable(words: Tokenizer) -> None:
    context = CONTEXTS[1]
    examples = [question(context, "slept", context.rindex("slept"), training=True)]
    reading = InputSpec(words, 48)
    judged = [replace(examples[0], training=False)]
    plain = QuestionAnswering(max_question=8, stride=16)
    every, learnt = plain.encode(judged, reading), plain.encode(examples, reading)
    assert 0 < len(learnt) < len(every) and (learnt.targets["start"] > 0).all()
    without = every.targets["start"] == IGNORE_INDEX
    assert without.sum() == len(every) - len(learnt)
    rows = replace(plain, impossible=True).encode(examples, reading)
    assert len(rows) == len(every)
    assert rows.targets["start"][without].tolist() == [0] * without.sum() == rows.targets["end"][without].tolist()
    assert (rows.targets["impossible"] == without).all()
    nothing = [replace(examples[0], answers=(), impossible=True)]
    rows = replace(plain, impossible=True).encode(nothing, reading)
    assert (rows.targets["start"] == 0).all() and (rows.targets["impossible"] == 1).all()


def test_long_questions_are_cut_and_unknown_answers_have_no_targets(words: Tokenizer) -> None:
    long = Question("1", "who saw what? " * 5, "Ann saw Bob.")
    rows = QuestionAnswering(max_question=4).encode(
        [long, replace(long, id="2", question="Who?")], InputSpec(words, 32)
    )
    assert rows.cut == [0] and rows.seconds[0] == 6 and rows.targets == {}
    assert set(rows.token_targets) == {"allowed", "begins"}
    with pytest.raises(ConfigError, match=r"rows of 67 tokens cannot hold a question of 64.*at least 68"):
        QuestionAnswering().encode([long], InputSpec(words, 67))


def concatenated_end_logits(head: ConditionalSpanHead, x_LD: Tensor, start: int) -> Tensor:
    """The formula of the paper: dense(1) after GELU(dense 512) of [start state ; token]."""
    both_LX = torch.stack([torch.cat([x_LD[start], token_D]) for token_D in x_LD])
    return head.end(F.gelu(head.end_dense(both_LX))).squeeze(-1)


def test_end_logits_equal_those_of_concatenated_states() -> None:
    head = head_of(QuestionAnswering())
    x_BLD, starts_BT = torch.randn(2, 9, 12), torch.tensor([[0, 3, 8], [5, 5, 1]])
    allowed_BL = torch.rand(2, 9) > 0.3
    found_BTL = head.end_logits(x_BLD, starts_BT, allowed_BL)
    for b in range(2):
        for t in range(3):
            wanted_L = concatenated_end_logits(head, x_BLD[b], int(starts_BT[b, t]))
            torch.testing.assert_close(found_BTL[b, t][allowed_BL[b]], wanted_L[allowed_BL[b]])
            assert (found_BTL[b, t][~allowed_BL[b]] == -torch.inf).all()


def slow_search(
    problem: QuestionAnswering, head: Any, x_LD: Tensor, batch: TaskBatch, row: int
) -> list[tuple[float, int, int]]:
    """All allowed spans with their scores, the best first."""
    allowed = [i for i, value in enumerate(batch.targets["allowed"][row].tolist()) if value == 1]
    begins = [i for i, value in enumerate(batch.targets["begins"][row].tolist()) if value == 1]
    spans = []
    if problem.pointer == "plain":
        start_L, end_L = head(x_LD).unbind(-1)
        scores = {i: (float(start_L[i]), {j: float(end_L[j]) for j in allowed}) for i in begins}
    else:
        start_L = head.start(x_LD).squeeze(-1)
        start_L = start_L - start_L[allowed].logsumexp(0)
        kept = sorted(begins, key=lambda i: -float(start_L[i]))[:20]
        scores = {}
        for i in kept:
            end_L = concatenated_end_logits(head, x_LD, i)
            end_L = end_L - end_L[allowed].logsumexp(0)
            scores[i] = (float(start_L[i]), {j: float(end_L[j]) for j in allowed})
    for i, (start, ends) in scores.items():
        spans += [(start + end, i, j) for j, end in ends.items() if i <= j < i + problem.max_answer]
    return sorted(spans, reverse=True)


@pytest.mark.parametrize("pointer", ["plain", "conditional"])
@pytest.mark.parametrize("impossible", [False, True])
def test_the_best_spans_equal_those_of_a_slow_search(words: Tokenizer, pointer: Any, impossible: bool) -> None:
    problem = QuestionAnswering(pointer, impossible, max_question=8, stride=12, max_answer=5)
    examples = [question(context, context.split()[0], -1) for context in CONTEXTS]
    rows = problem.encode(examples, InputSpec(words, 64))
    batch, head = collate(rows, np.arange(len(rows)), pad=0), head_of(problem)
    x_BLD = random_states(batch)
    with torch.no_grad():
        outputs = problem.outputs(problem.logits(head, x_BLD, batch), batch)
        for row in range(len(rows)):
            expected = slow_search(problem, head, x_BLD[row], batch, row)[: problem.n_best]
            actual = [float(score) for score in outputs["scores"][row] if math.isfinite(score)]
            assert actual == pytest.approx([score for score, _, _ in expected], abs=1e-4)
            spans = zip(outputs["starts"][row].tolist(), outputs["ends"][row].tolist(), strict=True)
            assert list(spans)[: len(expected)] == [(start, end) for _, start, end in expected]
    assert len(expected) < problem.n_best, "the last context has fewer than are wanted"


@pytest.mark.parametrize("impossible", [False, True])
def test_losses_of_both_heads_equal_a_slow_version(words: Tokenizer, impossible: bool) -> None:
    context = CONTEXTS[1]
    examples = [question(context, "Bob", 8), replace(question(context, "slept", context.rindex("slept")), id="2")]
    if impossible:
        examples.append(Question("3", "Who?", context, impossible=True))
    for pointer in ("plain", "conditional"):
        problem = QuestionAnswering(pointer, impossible, max_question=8, stride=16)  # type: ignore[arg-type]
        rows = problem.encode(examples, InputSpec(words, 48))
        batch, head = collate(rows, np.arange(len(rows)), pad=0), head_of(problem)
        x_BLD = random_states(batch).requires_grad_()
        losses_B = problem.losses(head, x_BLD, batch)
        for row, loss in enumerate(losses_B.detach().tolist()):
            start, end = int(batch.targets["start"][row]), int(batch.targets["end"][row])
            if start == IGNORE_INDEX:
                assert loss == 0
                continue
            allowed = (batch.targets["allowed"][row] == 1).nonzero()[:, 0]
            x_LD = x_BLD[row].detach()
            if pointer == "plain":
                start_L, end_L = head(x_LD).unbind(-1)
            else:
                start_L, end_L = head.start(x_LD).squeeze(-1), concatenated_end_logits(head, x_LD, start)
            expected = (start_L[allowed].logsumexp(0) - start_L[start]) / 2
            expected = expected + (end_L[allowed].logsumexp(0) - end_L[end]) / 2
            if impossible and pointer == "conditional":
                weighted_D = (start_L[allowed].softmax(0)[:, None] * x_LD[allowed]).sum(0)
                inner = F.gelu(head.answerable_dense(torch.cat([x_LD[0], weighted_D])))
                none = head.answerable(inner).sigmoid()
                right = none if batch.targets["impossible"][row] else 1 - none
                expected = expected - 0.5 * right.log().squeeze()
            assert loss == pytest.approx(expected.item(), rel=1e-4)
        losses_B.sum().backward()
        assert x_BLD.grad is not None and x_BLD.grad.isfinite().all() and x_BLD.grad.any()


def test_rows_without_targets_have_no_loss(words: Tokenizer) -> None:
    problem = QuestionAnswering("conditional", True, max_question=8, stride=16)
    rows = problem.encode([question(CONTEXTS[1], "Bob", 8)], InputSpec(words, 40))
    batch = collate(rows, np.arange(len(rows)), pad=0)
    unknown = {name: torch.full_like(batch.targets[name], IGNORE_INDEX) for name in ("start", "end", "impossible")}
    batch = replace(batch, targets={**batch.targets, **unknown})
    assert not problem.losses(head_of(problem), random_states(batch), batch).any()


def outputs_of_spans(*spans: tuple[int, int, float], null: float) -> Outputs:
    columns = np.array(spans or [(0, 0, -np.inf)], np.float32).T
    return {"starts": columns[0], "ends": columns[1], "scores": columns[2], "null": np.float32(null)}  # type: ignore[dict-item]


@pytest.mark.parametrize("pointer", ["plain", "conditional"])
def test_predictions_combine_the_windows(words: Tokenizer, pointer: Any) -> None:
    context = "Ann saw Bob . Bob saw Ann . " * 3
    problem = QuestionAnswering(pointer, True, max_question=4, stride=8, max_answer=4)
    rows = problem.encode([question(context, "Bob", 8)], InputSpec(words, 24))
    assert len(rows) >= 2 and rows.notes[1].first == 8
    second = int(rows.seconds[0])
    outputs = [outputs_of_spans(null=9.0) for _ in range(len(rows))]
    outputs[0] = outputs_of_spans((second + 2, second + 2, 1.0), (second, second + 1, 0.5), null=3.0)
    outputs[1] = outputs_of_spans(
        (second + 2, second + 2, 2.0), (second + 3, second + 3, 0.0), null=4.0
    )  # context tokens 10, 11
    (prediction,) = problem.decode([question(context, "Bob", 8)], rows, outputs)
    assert prediction["n_best"] == [
        {"text": "Bob", "score": 2.0, "start": 36, "end": 39},
        {"text": "Ann saw", "score": 0.5, "start": 0, "end": 7},
        {"text": ".", "score": 0.0, "start": 40, "end": 41},
    ]
    odds = (
        3.0 if pointer == "conditional" else 1.0
    )  # the least of the windows, not the last; a plain one's less the best score
    assert (prediction["null_odds"], prediction["score"], prediction["answer"]) == (odds, 2.0, "")
    tuned = problem.with_tuned_threshold({"best_threshold": odds})
    (prediction,) = tuned.decode([question(context, "Bob", 8)], rows, outputs)
    assert prediction["answer"] == "Bob"
    (prediction,) = replace(problem, impossible=False).decode([question(context, "Bob", 8)], rows, outputs)
    assert prediction["answer"] == "Bob", "in 1.1 there is always an answer"


@pytest.mark.parametrize("pointer", ["plain", "conditional"])
def test_the_best_threshold_gives_the_best_metric(words: Tokenizer, pointer: Any) -> None:
    examples = ranges(CONTEXTS[1], words_of(CONTEXTS[1]))[::4]
    examples = [replace(e, answers=(), impossible=True) if i % 3 == 0 else e for i, e in enumerate(examples)]
    examples.append(Question("unknown", "Who?", CONTEXTS[1]))
    problem = QuestionAnswering(pointer, True, max_question=8)
    rows = problem.encode(examples, InputSpec(words, 96))
    head = nn.Identity() if pointer == "plain" else head_of(problem)

    def noisy(batch: TaskBatch) -> Tensor:
        noise = random_states(batch)
        return oracle(batch) + 3 * noise[..., :2] if pointer == "plain" else noise

    def predictions(problem: QuestionAnswering) -> list[Prediction]:
        with torch.no_grad():
            return problem.decode(examples, rows, compute_outputs(problem, head, rows, noisy))

    metrics = problem.compute_metrics(examples, predictions(problem))
    tuned = problem.with_tuned_threshold(metrics)
    again = tuned.compute_metrics(examples, predictions(tuned))
    assert again["exact"] == pytest.approx(metrics["best_exact"]) and again["best_exact"] == metrics["best_exact"]
    assert metrics["best_exact"] >= metrics["exact"] and json.dumps(predictions(tuned), allow_nan=False)
    assert pointer == "conditional" or 0.4 < metrics["best_exact"] < 1


def test_a_context_without_text_has_no_answer(words: Tokenizer) -> None:
    for pointer in ("plain", "conditional"):
        for impossible in (False, True):
            problem = QuestionAnswering(pointer, impossible, max_question=8)  # type: ignore[arg-type]
            examples = [Question("1", "Who?", " \n")]
            rows = problem.encode(examples, InputSpec(words, 32))
            with torch.no_grad():
                outputs = compute_outputs(problem, head_of(problem), rows, random_states)
            (prediction,) = problem.decode(examples, rows, outputs)
            assert prediction["answer"] == "" and json.dumps(prediction, allow_nan=False)


def test_the_problem_is_restored_from_its_fields() -> None:
    problem = QuestionAnswering("plain", True, stride=64, null_threshold=-1.25)
    fields = json.loads(json.dumps(problem.to_dict()))
    assert fields["kind"] == "answering" and load_problem(fields) == problem

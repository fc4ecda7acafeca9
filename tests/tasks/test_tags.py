import random
from itertools import product

import pytest

from electra.tasks import tags
from electra.tasks.tags import (
    Scheme,
    Span,
    convert_scheme,
    detect_scheme,
    detection_scores,
    extract_spans,
    span_scores,
)

# conlleval's two tables, as it writes them: (previous letter, letter), where the type stays the same.
BEGINS = {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I"), ("E", "E"), ("E", "I"), ("O", "E")}
ENDS = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O"), ("E", "E"), ("E", "I"), ("E", "O")}
# S, and B behind E, which conlleval.pl of 2000 does not know.
BEGINS |= {("E", "B"), *((letter, "S") for letter in "OBIES"), *(("S", letter) for letter in "BIES")}
ENDS |= {("E", "B"), *((letter, "S") for letter in "BIES"), *(("S", letter) for letter in "OBIES")}


def plain_spans(sentence: list[str]) -> set[Span]:
    """The loop of conlleval over pairs of neighboring tags, with an O before and after."""
    actual, start = set(), None
    previous, previous_type = "O", ""
    for place, tag in enumerate([*sentence, "O"]):
        letter, _, kind = tag.partition("-")
        changed = kind != previous_type
        if start is not None and ((previous, letter) in ENDS or (previous != "O" and changed)):
            actual.add((start, place, previous_type))
            start = None
        if (previous, letter) in BEGINS or (letter != "O" and changed):
            start = place
        previous, previous_type = letter, kind
    return actual


def random_tags(source: random.Random, length: int, letters: str = "BIES") -> list[str]:
    alphabet = ["O", *(f"{letter}-{kind}" for letter in letters for kind in ("NP", "VP"))]
    return [source.choice(alphabet) for _ in range(length)]


def test_spans_of_short_and_random_sentences_equal_those_of_conlleval() -> None:
    alphabet = ["O", "B-X", "I-X", "E-X", "S-X", "I-Y", "B-Y"]
    for length in range(5):
        for sentence in product(alphabet, repeat=length):
            assert set(extract_spans(sentence)) == plain_spans([*sentence]), sentence
    source = random.Random(0)
    for _ in range(2000):
        sentence = random_tags(source, source.randrange(30))
        assert set(extract_spans(sentence)) == plain_spans(sentence), sentence


def test_malformed_tags_are_read_as_conlleval_does() -> None:
    assert extract_spans(["I-A", "I-A", "I-B", "O", "I-A", "B-A", "I-B"]) == [
        (0, 2, "A"),
        (2, 3, "B"),
        (4, 5, "A"),
        (5, 6, "A"),
        (6, 7, "B"),
    ]
    assert extract_spans(["B-A", "E-A", "E-A", "S-A", "I-A", "O", "B-A"]) == [
        (0, 2, "A"),
        (2, 3, "A"),
        (3, 4, "A"),
        (4, 5, "A"),
        (6, 7, "A"),
    ]
    assert extract_spans(["[-A", "I-A", "]-A"]) == [(0, 1, "A"), (1, 2, "A"), (2, 3, "A")]
    assert extract_spans(["B-date-of-birth", "I-date-of-birth"]) == [(0, 2, "date-of-birth")]


def test_scores_equal_counting_spans_one_by_one() -> None:
    source = random.Random(1)
    gold = [random_tags(source, source.randrange(12), "BI") for _ in range(1000)]
    predicted = [[tag if source.random() < 0.7 else "I-NP" for tag in sentence] for sentence in gold]
    answers = {(i, span) for i, sentence in enumerate(gold) for span in plain_spans(sentence)}
    guesses = {(i, span) for i, sentence in enumerate(predicted) for span in plain_spans(sentence)}

    def f1(kind: str) -> float:
        right = sum(span[2] == kind for _, span in answers & guesses)
        return 2 * right / sum(span[2] == kind for _, span in [*answers, *guesses])

    precision, recall = len(answers & guesses) / len(guesses), len(answers & guesses) / len(answers)
    words = [pair for pairs in zip(gold, predicted, strict=True) for pair in zip(*pairs, strict=True)]
    assert span_scores(gold, predicted) == pytest.approx(
        {
            "span_f1": 2 * precision * recall / (precision + recall),
            "precision": precision,
            "recall": recall,
            "accuracy": sum(a == b for a, b in words) / len(words),
            "span_f1/NP": f1("NP"),
            "span_f1/VP": f1("VP"),
        }
    )


def test_a_span_counts_only_with_its_type_and_both_ends() -> None:
    gold = [["B-A", "I-A", "O", "B-B", "O", "B-B"]]
    predicted = [["B-A", "O", "O", "B-A", "O", "B-B"]]
    scores = span_scores(gold, predicted)
    assert scores["precision"] == scores["recall"] == scores["span_f1"] == pytest.approx(1 / 3)
    assert scores["accuracy"] == pytest.approx(4 / 6)
    assert (scores["span_f1/A"], scores["span_f1/B"]) == (0.0, pytest.approx(2 / 3))
    assert span_scores([["O"]], [["O"]])["span_f1"] == 0.0, "as conlleval prints it"


def test_f_half_weighs_precision_more() -> None:
    gold = [["i", "i", "i", "i", "c", "c"], ["c"]]
    predicted = [["i", "i", "c", "c", "i", "c"], ["c"]]  # 2 right of 3 found, of 4
    actual = detection_scores(gold, predicted, "i")
    assert actual == pytest.approx({"precision": 2 / 3, "recall": 1 / 2, "f0.5": 1.25 / (1.5 + 0.25 * 2)})
    assert detection_scores([["i"]], [["c"]], "i") == {"f0.5": 0.0, "precision": 0.0, "recall": 0.0}


def test_every_scheme_keeps_the_spans() -> None:
    source = random.Random(2)
    schemes: tuple[Scheme, ...] = ("bio", "iob1", "bioes", "bmes", "bilou")
    for _ in range(500):
        sentence = random_tags(source, source.randrange(20))
        for one, other in product(schemes, schemes):
            there = convert_scheme(sentence, one)
            assert extract_spans(there) == extract_spans(sentence)
            assert tags.count_violations(there, one) == 0
            assert convert_scheme(convert_scheme(there, other), one) == there


def test_examples_of_each_scheme() -> None:
    bio = ["B-A", "I-A", "B-A", "O", "B-B", "B-A", "I-A", "I-A"]
    assert convert_scheme(bio, "iob1") == ["I-A", "I-A", "B-A", "O", "I-B", "I-A", "I-A", "I-A"]
    assert convert_scheme(bio, "bioes") == ["B-A", "E-A", "S-A", "O", "S-B", "B-A", "I-A", "E-A"]
    assert convert_scheme(bio, "bmes") == ["B-A", "E-A", "S-A", "O", "S-B", "B-A", "M-A", "E-A"]
    assert convert_scheme(bio, "bilou") == ["B-A", "L-A", "U-A", "O", "U-B", "B-A", "I-A", "L-A"]
    assert convert_scheme(["B", "E", "S"], "bio") == ["B", "I", "B"], "spans without types"


def test_violations_are_counted() -> None:
    assert tags.count_violations(["O", "I-A", "I-A", "B-B", "I-B", "I-A"], "bio") == 2
    assert tags.count_violations(["B-A", "I-A", "B-A"], "iob1") == 1
    assert tags.count_violations(["B-A", "O", "S-A", "E-A"], "bioes") == 2
    assert tags.count_violations(["B-A", "what", "ever"], "none") == 0


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["B-A I-A O", "B-A"], "bio"),
        (["B-A I-A O", "O I-A I-A"] + 3 * ["B-B"], "bio"),  # one is broken
        (["I-A I-A O", "I-A B-A"], "iob1"),
        (["B-A E-A O S-A"], "bioes"),
        (["B-A M-A E-A O S-A"], "bmes"),
        (["B-A I-A L-A O U-A"], "bilou"),
        (["B M E S"], "bmes"),
        (["B I I O"], "bio"),
        (["NOUN VERB O"], "none"),
        (["S O O V"], "none"),
        (["S O"], "none"),  # subject and object
        (["-LRB- NN B-A"], "none"),
        (["c i c"], "none"),
        (["O O"], "none"),
    ],
)
def test_the_scheme_is_detected(sentences: list[str], scheme: str) -> None:
    assert detect_scheme(sentence.split() for sentence in sentences) == scheme

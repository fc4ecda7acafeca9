import string
from random import Random

import pytest

from electra.tasks.squad_metrics import (
    best_thresholds,
    compute_squad_metrics,
    exact_and_f1,
    exact_match,
    f1,
    normalize_answer,
)

WORDS = ["the", "The", "a", "an", "theatre", "cat", "Cat,", "dog.", "ÜBER", "中国", "，", "“x”", "½", "", " ", "-"]
WORDS += ["a-b", "it's", "1,000", "the.", "a\u00a0b", "İ", "ß", "'", "!!"]


def some_text(random: Random) -> str:
    return " ".join(random.choice(WORDS) for _ in range(random.choice([0, 1, 1, 2, 3, 5])))


def plain_words(text: str) -> list[str]:
    """The normalized words of a text, character by character and word by word."""
    characters = [character for character in text.lower() if character not in string.punctuation]
    words, word = [], ""
    for character in [*characters, " "]:  # a word of letters, as regular expressions see it, is an article or not
        if character.isalnum() or character == "_":
            word += character
            continue
        words += [" " if word in ("a", "an", "the") else word, character]
        word = ""
    return "".join(words).split()


def plain_f1(answer: str, gold: str) -> float:
    left, common = plain_words(gold), 0
    for word in plain_words(answer):
        if word in left:
            left.remove(word)
            common += 1
    if not plain_words(gold) or not plain_words(answer):
        return float(plain_words(gold) == plain_words(answer))
    precision, recall = common / len(plain_words(answer)), common / len(plain_words(gold))
    return 2 * precision * recall / (precision + recall) if common else 0.0


def test_random_texts_have_the_metrics_of_a_plain_version() -> None:
    # Beside transformers 4.57.1 (squad_metrics.py; gone in 5) all of this was equal, too.
    random = Random(0)
    for _ in range(5000):
        gold, answer = some_text(random), some_text(random)
        if random.random() < 0.5:
            words = gold.split(" ")
            answer = " ".join(random.sample(words, random.randint(0, len(words))))
        assert normalize_answer(answer).split() == plain_words(answer)
        assert exact_match(answer, gold) == (plain_words(answer) == plain_words(gold))
        assert f1(answer, gold, impossible=True) == plain_f1(answer, gold)


@pytest.mark.parametrize(
    ("answer", "golds", "exact", "overlap"),
    [
        ("The cat.", ["cat"], 1, 1),
        ("the black cat", ["a cat", "dog"], 0, 2 / 3),
        ("cat cat", ["cat"], 0, 2 / 3),
        ("Café", ["cafe"], 0, 0),
        ("1,000", ["1000"], 1, 1),
        ("x", [], 0, 0),
        ("", [], 1, 1),
        ("", ["x"], 0, 0),
        ("", ["the", "x"], 0, 0),  # the first holds no word, so it does not count
        ("", ["the"], 1, 1),
    ],
)
def test_cases_of_2_0(answer: str, golds: list[str], exact: float, overlap: float) -> None:
    actual = exact_and_f1([answer], [golds], impossible=True)
    assert (actual[0].item(), actual[1].item()) == pytest.approx((exact, overlap))


def test_1_1_counts_every_gold_answer_and_empty_answers_never_agree() -> None:
    actual = exact_and_f1(["", "x"], [["the", "x"], ["the", "x"]], impossible=False)
    assert [values.tolist() for values in actual] == [[1, 1], [0, 1]]


def test_metrics_of_questions_with_and_without_an_answer() -> None:
    answers, golds = ["a cat", "", "x", ""], [["cat"], ["dog"], [], []]
    assert compute_squad_metrics(answers, golds, impossible=True) == {
        "exact": 0.5, "f1": 0.5, "HasAns_exact": 0.5, "HasAns_f1": 0.5, "NoAns_exact": 0.5, "NoAns_f1": 0.5
    }  # fmt: skip
    assert compute_squad_metrics(answers[:2], golds[:2], impossible=False) == {"exact": 0.5, "f1": 0.5}
    assert "NoAns_f1" not in compute_squad_metrics(answers[:2], golds[:2], impossible=True)


def test_the_best_threshold_equals_that_of_trying_all() -> None:
    random = Random(1)
    for _ in range(100):
        golds = [[] if random.random() < 0.4 else [some_text(random)] for _ in range(random.randint(1, 30))]
        answers = [random.choice([some_text(random), *known, ""]) for known in golds]
        odds = [random.gauss(0, 3) for _ in golds]
        actual = best_thresholds(answers, golds, odds)
        both = exact_and_f1(answers, golds, impossible=True)
        names = ("best_exact", "best_threshold"), ("best_f1", "best_f1_threshold")
        for (best, threshold), values in zip(names, both, strict=True):
            # Each question: what it counts if an answer may be given, and if not.
            counts = [
                (value, 0.0) if known else (float(not answer), 1.0)
                for value, known, answer in zip(values.tolist(), golds, answers, strict=True)
            ]
            shares = {
                tried: sum(one[odd > tried] for one, odd in zip(counts, odds, strict=True)) / len(odds)
                for tried in [min(odds) - 1, *odds]
            }
            assert actual[best] == pytest.approx(max(shares.values()))
            assert actual[best] == pytest.approx(shares[actual[threshold]])


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "overlap"),
    [
        ("the Norman dynasty", "Norman Dynasty.", 1, 1), ("Rollo", "Rollo, a Norse leader", 0, 0.5),
        ("", "Rollo", 0, 0), ("The", "a", 1, 1), ("1,000 men", "1000 Men", 1, 1), ("it's a cat", "its cat", 1, 1),
        ("France and Denmark", "Denmark, Iceland and Norway", 0, 0.571429), ("naïve “x”", "naïve x", 0, 0.5),
        ("!! !! “x” “x” a", "Cat, “x” a\xa0b", 0, 0.4), ("theatre Cat,", "cat ß theatre 1,000 an", 0, 0.666667),
        ("中国 a ， it's a\xa0b", "ÜBER ，", 0, 0.333333), ("ÜBER a-b", "a-b cat", 0, 0.5),
    ],
)  # fmt: skip
def test_results_of_the_official_functions(answer: str, gold: str, exact: float, overlap: float) -> None:
    """Results of compute_exact and compute_f1 of evaluate-v2.0, in the copy of transformers 4.46."""
    assert exact_match(answer, gold) == exact
    assert f1(answer, gold, impossible=True) == pytest.approx(overlap, abs=1e-6)


def test_the_threshold_search_of_the_official_script() -> None:
    """By hand: certain and right, certain and wrong, half right, uncertain."""
    answers, golds = ["cat", "dog", "red cat", "x"], [["cat"], [], ["cat"], []]
    actual = best_thresholds(answers, golds, [-3.0, -1.0, 0.5, 2.0])
    assert actual == pytest.approx(
        {"best_exact": 0.75, "best_threshold": -3.0, "best_f1": 0.75, "best_f1_threshold": -3.0}
    )
    silent = best_thresholds(["x", "y"], [[], []], [-3.0, 1.0])
    assert silent["best_exact"] == 1 and silent["best_threshold"] < -3

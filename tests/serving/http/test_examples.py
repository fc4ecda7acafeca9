"""The page opens with a sentence in a language of the model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_model import write_model

from electra.data.tokenizer import special_tokens
from electra.preparation.config import TokenizerKind
from electra.preparation.tokenizer_training import train_tokenizer
from electra.serving.http.examples import ENGLISH, OTHERS, Examples, find_examples
from electra.serving.http.hosted_model import HostedModel
from electra.tasks.base import Problem
from electra.tasks.classification import Classification
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.tagging import Tagging


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("examples", [ENGLISH, *OTHERS], ids=lambda one: one.question)
def test_a_vocabulary_of_one_language_gets_examples_in_it(examples: Examples, kind: TokenizerKind) -> None:
    tokenizer = train_tokenizer([*examples.sentences] * 5, vocabulary_size=600, kind=kind)
    assert find_examples(tokenizer, special_tokens(tokenizer, "x").unknown) is examples


def test_a_vocabulary_of_all_languages_gets_english() -> None:
    texts = [sentence for examples in (ENGLISH, *OTHERS) for sentence in examples.sentences]
    tokenizer = train_tokenizer(texts * 5, vocabulary_size=2_000)
    assert find_examples(tokenizer, special_tokens(tokenizer, "x").unknown) is ENGLISH


def test_a_vocabulary_of_letters_gets_english() -> None:
    tokenizer = train_tokenizer(["a b c d e f g h i j k l m n o p q r s t u v w x y z"], vocabulary_size=512)
    assert find_examples(tokenizer, special_tokens(tokenizer, "x").unknown) is ENGLISH


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("आज मौसम बहुत अच्छा है। हिन्दी भारत की भाषा है। वह पढ़ रहा है।", "उनका जन्म कहाँ हुआ था?"),
        ("오늘은 날씨가 아주 좋다. 한국어는 한국의 언어이다.", "그녀는 어디에서 태어났습니까?"),
        ("วันนี้อากาศดีมาก เขากำลังเรียนภาษาอังกฤษ", "เธอเกิดที่ไหน"),
        ("今天天氣很好，我們去公園散步。臺灣的首都是臺北，人口超過兩百萬。", "她出生在哪里？"),
        ("Καλημέρα. Ο καιρός είναι πολύ καλός σήμερα.", ENGLISH.question),
    ],
)
def test_the_script_decides_even_if_few_words_are_known(text: str, question: str) -> None:
    tokenizer = train_tokenizer([text] * 5, vocabulary_size=400)
    assert find_examples(tokenizer, special_tokens(tokenizer, "x").unknown).question == question


def test_the_last_sentence_answers_the_question_in_every_language() -> None:
    every = (ENGLISH, *OTHERS)
    assert all("1873" in examples.sentences[-1] and "1873" in examples.plain[-1] for examples in every)
    texts = [text for examples in every for text in (*examples.sentences, *examples.plain)]
    assert len(set(texts)) == len(texts), "the plain ones have no wrong word"


ANSWERS = QuestionAnswering(max_question=8, stride=4)
TAGS = Tagging(("PER", "O"), scheme="none", metric="accuracy", fallback="O")
LABELS = Classification(("accuracy",), labels=("bad", "good"))
PLAIN = [[text] for text in ENGLISH.plain]


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (None, [[text] for text in ENGLISH.sentences]),
        (LABELS, PLAIN),
        (replace(LABELS, pair=True), [PLAIN[0] * 2, PLAIN[0] + PLAIN[1]]),
        (TAGS, [[text.replace(",", " ,").replace(".", " .")] for [text] in PLAIN[::-1]]),
        (ANSWERS, [[ENGLISH.question, *PLAIN[-1]]]),
    ],
    ids=["replaced tokens", "labels", "pairs", "tags", "answers"],
)
def test_only_a_model_that_finds_wrong_words_opens_with_one(
    problem: Problem | None, expected: list[list[str]], tmp_path: Path
) -> None:
    hosted = HostedModel(str(write_model(tmp_path / "model", problem=problem)), device="cpu")
    assert hosted.describe()["examples"] == expected


def dev(gold: object, **fields: object) -> str:
    return json.dumps({**fields, "gold": gold}) + "\n"


LONG = "word " * 41
ENGLISH_TEXTS = [*ENGLISH.plain, *(text.replace(",", " ,").replace(".", " .") for text in ENGLISH.plain)]
FINE_TUNINGS = {
    "labels": (
        LABELS,
        dev("bad", text=LONG) + dev("bad", text="a dog") + dev("bad", text="the mat") + dev("good", text="a mat"),
        [["a dog"], ["a mat"]],
    ),
    "pairs": (replace(LABELS, pair=True), dev("bad", text="a dog", pair="the mat"), [["a dog", "the mat"]]),
    "tags": (TAGS, dev(["O", "O"], words=["a", "dog"]) + dev(["O", "PER"], words=["the", "cat"]), [["the cat"]]),
    "answers": (ANSWERS, dev(["a dog"], question="Who?"), [[ENGLISH.question, *PLAIN[-1]]]),
    "no short text": (LABELS, dev("bad", text=LONG), PLAIN),
    "damaged": (LABELS, "{", PLAIN),
    "words that are none": (TAGS, dev(["PER"], words=5) + dev(["PER"], words=["the", "cat"]), [["the cat"]]),
    "broken Unicode": (LABELS, dev("bad", text="\ud800"), PLAIN),
}


@pytest.mark.parametrize("case", FINE_TUNINGS)
def test_a_fine_tuning_opens_with_short_texts_of_dev_but_its_model_alone_does_not(
    case: str, tmp_path: Path
) -> None:
    problem, lines, expected = FINE_TUNINGS[case]
    out = write_model(tmp_path / "out", problem=problem).parent
    (out / "results.json").write_text('{"best_seed": 3}')
    (out / "seed-3").mkdir()
    (out / "seed-3/dev.jsonl").write_text(lines)
    assert HostedModel(str(out), device="cpu").describe()["examples"] == expected
    ours = [HostedModel(str(out / "model"), device="cpu"), HostedModel(str(out), device="cpu", shows_dev=False)]
    assert all(one.dev_inputs == [] and one.describe()["examples"][0][-1] in ENGLISH_TEXTS for one in ours)

"""The page opens with a sentence in a language of the model."""

import pytest

from electra.data.tokenizer import special_tokens
from electra.preparation.config import TokenizerKind
from electra.preparation.tokenizer_training import train_tokenizer
from electra.serving.http.examples import ENGLISH, OTHERS, Examples, find_examples


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
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


def test_the_last_sentence_answers_the_question_in_every_language() -> None:
    assert all("1873" in examples.sentences[-1] for examples in (ENGLISH, *OTHERS))
    assert len({sentence for examples in (ENGLISH, *OTHERS) for sentence in examples.sentences}) == 30

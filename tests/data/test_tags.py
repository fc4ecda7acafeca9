"""The part of speech of each token of a vocabulary."""

from tokenizers import Tokenizer, models

from electra.data.tags import TagTable


def test_a_token_has_the_most_frequent_tag_of_its_occurrences() -> None:
    """Of equally frequent tags the first in the alphabet; a token that does not occur has none."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "run": 1, "cut": 2, "sea": 3}, unk_token="?"))
    sentences = [(["run", "run", "run", "cut"], ["VERB", "NOUN", "VERB", "VERB"]), (["cut"], ["NOUN"])]
    table = TagTable.count(sentences, tokenizer)
    assert table.names == ("?", "NOUN", "VERB")
    assert table.tags_V.tolist() == [0, 2, 1, 0]
